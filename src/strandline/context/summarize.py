"""The seam to summarisers: messages go in, a bounded text comes out.

Source: spec 3, Budget and compaction (Summaries). What needs no model is in
`strandline.context.extractive`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from strandline.transcript.messages import Message, Usage


@dataclass(frozen=True, slots=True)
class SummaryRequest:
    """What to summarise.

    `messages` are in order, oldest first; `previous_summary` is to be updated, not
    summarised again; `instructions` are the person's own words (`/compact …`);
    `max_tokens` bounds the answer. `split_turn` says that the messages end inside a
    turn whose rest is kept. Without `tells_request` the open request is not told: it stands
    beside the summary in the person's own words.
    """

    messages: Sequence[Message]
    max_tokens: int
    previous_summary: str | None = None
    instructions: str | None = None
    split_turn: bool = False
    tells_request: bool = True


@dataclass(frozen=True, slots=True)
class Audit:
    """What of the things that must survive a summary is in it, by kind.

    `kept` and `named` count them: identifiers, paths, numbers, names, rules, the latest
    request; `missing` are those that the text had no room for, the weightiest first.
    """

    kept: int
    named: int
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Summary:
    """A summary and how it came about.

    `by` names who wrote it (``provider/model`` or ``extractive``). `notes` are sentences for
    a person, such as why the model did not write it. `usage` is what the calls used, None
    where no model was asked. `audit` is what the text was found to keep.
    """

    text: str
    by: str
    notes: tuple[str, ...] = ()
    usage: Usage | None = None
    audit: Audit | None = None


class Summarizer(Protocol):
    """Something that summarises."""

    name: str

    async def summarize(self, request: SummaryRequest) -> Summary:
        """The summary, its text at most `request.max_tokens` long.

        Raises `ModelError` when it cannot; cancelling the task stops it.
        """
        ...
