"""The seam to summarisers: messages go in, a bounded text comes out.

Source: spec 3, Budget and compaction (Summaries). What needs no model is in
`strandline.context.extractive`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from strandline.transcript.messages import Message


@dataclass(frozen=True, slots=True)
class SummaryRequest:
    """What to summarise.

    `messages` are in order, oldest first; `previous_summary` is to be updated, not
    summarised again; `instructions` are the person's own words (`/compact …`);
    `max_tokens` bounds the answer. `split_turn` says that the messages end inside a
    turn whose rest is kept.
    """

    messages: Sequence[Message]
    max_tokens: int
    previous_summary: str | None = None
    instructions: str | None = None
    split_turn: bool = False


class Summarizer(Protocol):
    """Something that summarises."""

    name: str

    async def summarize(self, request: SummaryRequest) -> str:
        """The summary, at most `request.max_tokens` long.

        Raises `ModelError` when it cannot; cancelling the task stops it.
        """
        ...
