"""What a provider's prompt cache knows, so that a scripted server's counters are earned."""

from __future__ import annotations

import bisect
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

LOOKBACK_BLOCKS = 20
"""How far before a mark Anthropic looks for something that it wrote earlier."""


class Block(NamedTuple):
    """A part of a prompt; `ttl` is how long the cache mark on it keeps it, empty without one."""

    text: str
    ttl: str = ""


@dataclass(frozen=True, slots=True)
class CacheRule:
    """From how many tokens a beginning counts, and in which steps.

    `marked`: only what lies before a mark is written or read.
    """

    minimum: int = 1024
    step: int = 1
    marked: bool = False


OPENAI = CacheRule(step=128)
ANTHROPIC = CacheRule(marked=True)
GEMINI = CacheRule()


class CacheUse(NamedTuple):
    """Tokens of one prompt: `read` from the cache, `created` in it; of these, for an hour."""

    read: int = 0
    created: int = 0
    created_1h: int = 0


CountTokens = Callable[[str], int]


class Cache(Protocol):
    """What was sent before, model by model."""

    def use(self, model: str, blocks: Sequence[Block], count: CountTokens) -> CacheUse:
        """What this prompt finds; from now on it is known itself."""
        ...


def cache_of(rule: CacheRule) -> Cache:
    """An empty cache with that rule."""
    return MarkedCache(rule) if rule.marked else PromptCache(rule)


class PromptCache:
    """Keeps every prompt by itself, as OpenAI and Gemini do."""

    def __init__(self, rule: CacheRule = OPENAI) -> None:
        self._rule = rule
        self._prompts: dict[str, list[str]] = {}

    def use(self, model: str, blocks: Sequence[Block], count: CountTokens) -> CacheUse:
        """See `Cache`. Nothing is said of what is created."""
        prompt = "\n".join(block.text for block in blocks)
        known = self.common_prefix(model, prompt)
        self.remember(model, prompt)
        return CacheUse(self.credited(count(known)))

    def common_prefix(self, model: str, prompt: str) -> str:
        """The longest beginning that `prompt` shares with any remembered prompt."""
        known = self._prompts.get(model, [])
        place = bisect.bisect_left(known, prompt)
        # In sorted order, nothing has more in common with a text than one of its neighbours.
        lengths = [_common_length(prompt, other) for other in known[max(place - 1, 0) : place + 1]]
        return prompt[: max(lengths, default=0)]

    def remember(self, model: str, prompt: str) -> None:
        """Keep it for as long as the server runs."""
        known = self._prompts.setdefault(model, [])
        place = bisect.bisect_left(known, prompt)
        if known[place : place + 1] != [prompt]:
            known.insert(place, prompt)

    def credited(self, tokens: int) -> int:
        """How many of `tokens` known tokens a provider takes from its cache."""
        rule = self._rule
        return tokens // rule.step * rule.step if tokens >= rule.minimum else 0


class MarkedCache:
    """Keeps the beginnings that a mark ends, as Anthropic does, block by block.

    Before a mark it finds what an earlier mark wrote, at most `LOOKBACK_BLOCKS` blocks back.
    """

    def __init__(self, rule: CacheRule = ANTHROPIC) -> None:
        self._rule = rule
        self._known: set[tuple[str, bytes]] = set()

    def use(self, model: str, blocks: Sequence[Block], count: CountTokens) -> CacheUse:
        """See `Cache`."""
        keys = [(model, digest) for digest in _digests(blocks)]
        marks = [place for place, block in enumerate(blocks) if block.ttl]
        seen = [
            place
            for mark in marks
            for place in range(mark, max(mark - LOOKBACK_BLOCKS, -1), -1)
            if keys[place] in self._known
        ]
        read = reached = self._count_to(blocks, max(seen, default=-1), count)
        for_an_hour = 0
        for mark in marks:
            tokens = self._count_to(blocks, mark, count)
            if tokens < self._rule.minimum:
                continue
            self._known.add(keys[mark])
            added = max(tokens - reached, 0)  # a mark before what was read adds nothing
            reached += added
            for_an_hour += added if blocks[mark].ttl == "1h" else 0
        return CacheUse(read, reached - read, for_an_hour)

    @staticmethod
    def _count_to(blocks: Sequence[Block], place: int, count: CountTokens) -> int:
        return count("\n".join(block.text for block in blocks[: place + 1]))


def _digests(blocks: Sequence[Block]) -> list[bytes]:
    """What stands for the beginning up to each block."""
    running = hashlib.sha256()
    digests = []
    for block in blocks:
        running.update(block.text.encode("utf-8", "surrogatepass") + b"\n")
        digests.append(running.digest())
    return digests


def _common_length(one: str, other: str) -> int:
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
