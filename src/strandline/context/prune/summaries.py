"""The summaries of layer 4 as values: one that there is, and one that is wanted.

Pruning asks no model. It says which messages a summary should cover, uses the summaries that
it is given, and shows the messages themselves until there is one.
Source: spec 3, Pruning in four layers (layer 4).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field

from strandline.context.policy import ContextPolicy
from strandline.transcript.messages import Message


@dataclass(frozen=True, slots=True)
class LayerSummary:
    """A summary, as a memo keeps it.

    `covers` are the entries it stands for, in order; `by` names who wrote it, `made_ms` says
    when (Unix ms); `rules` is the digest of what else determines it (`rules_digest`).
    """

    covers: tuple[str, ...]
    text: str
    by: str
    made_ms: int
    rules: str


@dataclass(frozen=True, slots=True)
class SummaryWanted:
    """What somebody has to summarise before a view is as it is configured.

    `messages` are in order, as the view has them, `entries` the entry of each of them (None
    for one that no entry holds), `covers` those that are entries; `tokens` is what they take.
    `previous` is a summary of some of them that may be updated, instead of beginning anew.
    """

    covers: tuple[str, ...]
    messages: tuple[Message, ...]
    tokens: int
    rules: str
    previous: LayerSummary | None
    entries: tuple[str | None, ...] = field(default=())

    def new_messages(self) -> tuple[Message, ...]:
        """The messages that `previous` does not tell of: all of them where there is none.

        What no entry holds goes with the message before it.
        """
        told = set(self.previous.covers) if self.previous else set()
        new, is_new = [], True
        for entry_id, message in zip(self.entries, self.messages, strict=True):
            is_new = is_new if entry_id is None else entry_id not in told
            if is_new:
                new.append(message)
        return tuple(new)


def rules_digest(policy: ContextPolicy) -> str:
    """What, besides the messages, determines a summary: the model, the prompt, its size."""
    rules = policy.summaries
    said = json.dumps([rules.model, rules.prompt, rules.max_tokens])
    return hashlib.sha256(said.encode()).hexdigest()[:16]
