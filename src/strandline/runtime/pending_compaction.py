"""A compaction in the making: planned, its summary being written, not yet appended."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from strandline.context.budget import Budget
from strandline.context.compaction import CompactionPlan
from strandline.context.summarize import Summary
from strandline.errors import CompactionRefused
from strandline.runtime.events import (
    CompactionReceipt,
    CompactionStarted,
    CompactionTrigger,
    Listener,
    Notice,
    TurnEvent,
)
from strandline.transcript.context import PathMessage
from strandline.transcript.messages import JsonObject


@dataclass
class PendingCompaction:
    """A compaction in the making: planned, its summary being written, not yet appended.

    `listeners` heard that it was begun, and will hear how it ends: a receipt or a notice.
    `given_up` says why it will not be appended.
    """

    trigger: CompactionTrigger
    plan: CompactionPlan
    budget: Budget
    listeners: list[Listener] = field(default_factory=list)
    waiting: int = 0
    receipt: CompactionReceipt | None = None
    given_up: str | None = None
    writing: asyncio.Task[tuple[Summary, JsonObject]] = field(init=False)

    def begun(self, listener: Listener) -> None:
        """Tell that it is being made, to one who will hear how it ends."""
        self.listeners.append(listener)
        listener(CompactionStarted(self.trigger))

    def tell(self, event: TurnEvent) -> None:
        """Tell all who heard that it was begun; then raise what the first of them raised."""
        failures = []
        for listener in [*self.listeners]:
            try:
                listener(event)
            except Exception as error:  # noqa: BLE001 - the others are told all the same
                failures.append(error)
        if failures:
            raise failures[0]

    def still_holds(self, items: Sequence[PathMessage]) -> bool:
        """Whether the conversation still begins with what was planned for.

        The plan has the order of the view, where a late result stands beside its call.
        """
        planned = {*self.plan.summarised, *self.plan.kept}
        return {item.entry_id for item in items[: len(planned)]} == planned

    def written(self) -> tuple[Summary, JsonObject]:
        """The summary, and details for its entry.

        Raises what the summariser raised, and `CompactionRefused` where it was given up.
        """
        writing = self.writing
        failed = writing.done() and not writing.cancelled() and writing.exception() is not None
        if not failed and (self.given_up is not None or writing.cancelled()):
            raise CompactionRefused(
                f"nothing was compacted: {self.given_up or 'it was stopped'}",
                remedy="compact again if the context is still too large",
            )
        return writing.result()

    def ended(self, event: TurnEvent) -> None:
        """Tell how it ended, once."""
        try:
            self.tell(event)
        finally:
            self.listeners.clear()

    def refused(self, why: str) -> None:
        """Tell that it was not made, once."""
        self.ended(Notice(f"not compacted ({self.trigger}): {why}"))
