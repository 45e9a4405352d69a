"""Recall: a context engine that brings back older turns which share words with the question.

While everything fits, the model sees everything. Then it sees the newest turns and, from what
is older, the turns that have most words of the newest message in them, in their old order.
A turn is a message of a person with all that follows, so calls and their results stay together.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from strandline.context.engine import (
    Assemble,
    AssembleResult,
    Bootstrap,
    Compact,
    CompactResult,
    ContextEngine,
    EngineContext,
    EngineInfo,
    Ingest,
    Ingested,
    SubagentEnded,
    delegate_compaction_to_runtime,
)
from strandline.errors import ConfigError
from strandline.plugins.api import PluginApi
from strandline.transcript.context import PathMessage
from strandline.transcript.messages import Message

Turn = list[PathMessage]
SUMMARY = "compactionSummary"
_WORD = re.compile(r"\w{4,}")


class RecallEngine(ContextEngine):
    """Keeps, for each session, the words of each message by the id of its entry."""

    info = EngineInfo("recall", "Recall by words", "0.1.0")

    def __init__(self, context: EngineContext) -> None:
        share = context.config.get("share", 0.3)
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
            raise ConfigError("share of the recall engine is no number", remedy="give 0 to 1")
        self._share = share
        self._words: dict[str, dict[str, frozenset[str]]] = {}

    async def bootstrap(self, request: Bootstrap) -> None:
        """A session is opened: what is known of it is what its path holds, once each."""
        self._words[request.session.session_id] = {
            item.entry_id: words_of(item.message) for item in request.messages
        }

    async def ingest(self, request: Ingest) -> Ingested:
        """A message came: known by its entry, so the same one again is nothing new."""
        known = self._words.setdefault(request.session.session_id, {})
        is_new = request.message.entry_id not in known
        known[request.message.entry_id] = words_of(request.message.message)
        return Ingested(is_new)

    async def assemble(self, request: Assemble) -> AssembleResult:
        """The newest turns, and the older ones that have to do with the newest message."""
        turns = turns_of(request.messages)
        count = request.runtime.count_tokens
        sizes = [sum(count(item.message) for item in turn) for turn in turns]
        known = self._words.get(request.session.session_id, {})
        asked = words_of(turns[-1][0].message) if turns else frozenset()
        scores = [score(turn, asked, known) for turn in turns]
        places = chosen(sizes, scores, request.token_budget, self._share)
        seen = [item for place in places for item in turns[place]]
        return AssembleResult(seen, sum(sizes[place] for place in places))

    async def compact(self, request: Compact) -> CompactResult:
        """Nothing of its own: the built-in compaction is good."""
        return await delegate_compaction_to_runtime(request)

    async def on_subagent_ended(self, request: SubagentEnded) -> None:
        """The session of a sub-agent that is over is forgotten."""
        self._words.pop(request.child.session_id, None)


def words_of(message: Message) -> frozenset[str]:
    """The longer words of a message, in lower case."""
    content = message.get("content", "")
    blocks = content if isinstance(content, list) else [{"text": content}]
    texts = [str(block.get("text", "")) for block in blocks if isinstance(block, dict)]
    return frozenset(word for text in texts for word in _WORD.findall(text.lower()))


def turns_of(messages: Sequence[PathMessage]) -> list[Turn]:
    """The messages in turns; a summary of what was said earlier is one by itself."""
    turns: list[Turn] = []
    before: object = SUMMARY
    for item in messages:
        role = item.message.get("role")
        if role in {"user", SUMMARY} or before == SUMMARY:
            turns.append([])
        turns[-1].append(item)
        before = role
    return turns


def score(turn: Turn, asked: frozenset[str], known: Mapping[str, frozenset[str]]) -> float:
    """How many words of the question a turn has; a summary comes before them all."""
    if turn[0].message.get("role") == SUMMARY:
        return math.inf
    said = frozenset[str]().union(*(known.get(item.entry_id, ()) for item in turn))
    return len(asked & said)


def chosen(
    sizes: Sequence[int], scores: Sequence[float], budget: int, share: float
) -> Sequence[int]:
    """The places of the turns that are shown: `sizes` in tokens, within `budget` of them.

    The newest turns take what `share` leaves them, then come those with a score. The newest
    one is always there: it is the host's to shorten.
    """
    if sum(sizes) <= budget:
        return range(len(sizes))
    first, used = len(sizes) - 1, sizes[-1]
    while first and used + sizes[first - 1] <= budget * (1 - share):
        first -= 1
        used += sizes[first]
    places = list(range(first, len(sizes)))
    for place in sorted(range(first), key=lambda each: (-scores[each], -each)):
        if scores[place] and used + sizes[place] <= budget:
            places.append(place)
            used += sizes[place]
    return sorted(places)


def register(api: PluginApi) -> None:
    """What Strandline calls; the settings then select the engine by the id ``recall``."""
    api.register_context_engine("recall", RecallEngine)
