"""Carrying out a compaction: plan, summarise, check that it helps, append one entry.

Only the first and the last step need the session to stand still. The summary, which may take
minutes, is written beside the conversation: messages that arrive meanwhile are appended and
answered, and are kept by the compaction when it is written at last. At most one is in the
making; who needs one joins it. Source: spec 3, Budget and compaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial

from strandline.context.budget import Budget
from strandline.context.compaction import CompactionPlan, NoCompaction, plan_compaction
from strandline.context.engine import CompactionOutcome
from strandline.context.summarize import Summary, SummaryRequest
from strandline.errors import CompactionRefused, SessionBusy, StrandlineError
from strandline.runtime.agent import Agent
from strandline.runtime.compaction_entry import CHOSEN_BY_HOOK, append_planned, append_supplied
from strandline.runtime.events import (
    CompactionReceipt,
    CompactionTrigger,
    Listener,
    Notice,
)
from strandline.runtime.finishing import to_the_end
from strandline.runtime.hooks import BeforeCompact, Cancel, Supply, ask_hooks
from strandline.runtime.lanes import Lane
from strandline.runtime.pending_compaction import PendingCompaction
from strandline.transcript.context import PathMessage
from strandline.transcript.messages import JsonObject
from strandline.transcript.session import Session


class Compactor:
    """The compactions of one session, for an agent as it is set up now."""

    def __init__(self, session: Session, agent: Agent) -> None:
        self.session = session
        self.agent = agent
        self._pending: PendingCompaction | None = None

    @property
    def is_summarising(self) -> bool:
        """Whether a summary is being written at this moment."""
        return self._pending is not None and not self._pending.writing.done()

    async def compact(
        self,
        budget: Budget,
        trigger: CompactionTrigger,
        listener: Listener,
        instructions: str | None = None,
    ) -> CompactionReceipt:
        """Plan, summarise and append at one go; the caller holds the lane.

        Appends exactly one entry and changes nothing else; a cancelled or failed summary
        appends nothing. Raises `CompactionRefused` where it would not help, with the reason.
        """
        pending = await self.begin(budget, trigger, listener, instructions)
        return await self.finish(pending, listener)

    async def begin(
        self,
        budget: Budget,
        trigger: CompactionTrigger,
        listener: Listener,
        instructions: str | None = None,
    ) -> PendingCompaction:
        """Plan a compaction and let its summary be written; or join the one in the making.

        `listener` hears `CompactionStarted`, and in any case how it ends: the receipt, or a
        notice with the reason. Raises `CompactionRefused`.
        """
        items = await asyncio.to_thread(self._items)
        current = self._pending if instructions is None else None
        holds = current is not None and await asyncio.to_thread(current.still_holds, items)
        if current is not None and holds and self._pending is current:  # not given up meanwhile
            current.begun(listener)
            return current
        plan = await asyncio.to_thread(self.plan, budget, trigger, instructions)
        if self._pending is not None:
            self._give_up(self._pending, "another one took its place")
        pending = PendingCompaction(trigger, plan, budget)
        pending.begun(listener)
        pending.writing = asyncio.create_task(self._write(pending, instructions))
        pending.writing.add_done_callback(lambda _: self._written(pending))
        self._pending = pending
        return pending

    async def finish(
        self, pending: PendingCompaction, listener: Listener, lane: Lane = nullcontext
    ) -> CompactionReceipt:
        """Wait for the summary and append it.

        `lane` takes the session's lane for the appending; by default the caller holds it.
        When the last who waits is cancelled, the compaction is given up. Raises what the
        summariser raised, `CompactionRefused` where it was given up, and `SessionBusy`.
        """
        pending.waiting += 1
        try:
            await asyncio.wait([pending.writing])
            pending.written()
            async with lane():
                return await self.commit(pending, listener)
        except asyncio.CancelledError:
            if pending.receipt is None and pending.waiting == 1:
                self._give_up(pending, "it was stopped")
            raise
        except SessionBusy as busy:  # the summary waits for the next who needs it
            pending.refused(str(busy))
            raise
        finally:
            pending.waiting -= 1

    async def commit(self, pending: PendingCompaction, listener: Listener) -> CompactionReceipt:
        """Append the entry of a summary that is written; the caller holds the lane.

        `listener` hears of it, as do those who heard of the beginning. Done already by
        another who waited, it is the same receipt. Raises `CompactionRefused` where the
        conversation has moved to where the plan does not hold.
        """
        if pending.receipt is not None:
            return pending.receipt
        if listener not in pending.listeners:
            pending.listeners.append(listener)
        return await to_the_end(self._commit(pending))

    async def _commit(self, pending: PendingCompaction) -> CompactionReceipt:
        summary, details = pending.written()
        self._forget(pending)
        try:
            append = partial(append_planned, self.session, self.agent.tokens, pending)
            receipt = await asyncio.to_thread(append, summary, details)
        except Exception as error:
            pending.refused(str(error))
            raise
        pending.receipt = receipt
        for note in summary.notes:
            pending.tell(Notice(note))
        pending.ended(receipt)
        return receipt

    async def append_supplied(
        self,
        outcome: CompactionOutcome,
        by: str,
        budget: Budget,
        trigger: CompactionTrigger,
        listener: Listener,
    ) -> CompactionReceipt:
        """Append a compaction that an engine made; the caller holds the lane.

        Raises `CompactionRefused` where what it keeps is not on the path, or where it would
        not shrink the context.
        """
        append = partial(append_supplied, self.session, self.agent.tokens)
        receipt = await to_the_end(asyncio.to_thread(append, outcome, by, budget, trigger))
        listener(receipt)
        return receipt

    def plan(
        self, budget: Budget, trigger: CompactionTrigger, instructions: str | None = None
    ) -> CompactionPlan:
        """What a compaction would do now. Raises `CompactionRefused` with the reason."""
        items = self._items()
        plan = plan_compaction(
            items,
            self.agent.tokens,
            budget,
            previous_details=self._details_before(items),
            instructions=instructions,
            force=trigger in {"manual", "overflow"},
        )
        if isinstance(plan, NoCompaction):
            raise CompactionRefused(
                f"nothing was compacted: {plan.reason}", remedy="the context can stay as it is"
            )
        return plan

    def cancel(self) -> None:
        """Give up what is in the making; nothing was written."""
        if self._pending is not None:
            self._give_up(self._pending, "it was stopped")

    def _items(self) -> Sequence[PathMessage]:
        return self.session.build_context().items

    def _details_before(self, items: Sequence[PathMessage]) -> JsonObject | None:
        if not items or items[0].message.get("role") != "compactionSummary":
            return None
        details = self.session.entry(items[0].entry_id).data.get("details")
        return details if isinstance(details, dict) else None

    async def _write(
        self, pending: PendingCompaction, instructions: str | None
    ) -> tuple[Summary, JsonObject]:
        plan = pending.plan
        event = BeforeCompact(self.session, pending.trigger, plan, instructions)
        hooks = self.agent.hooks.session_before_compact
        match await ask_hooks(hooks, event, lambda text: pending.tell(Notice(text))):
            case Cancel(reason):
                raise CompactionRefused(
                    f"nothing was compacted: a hook said {reason!r}",
                    remedy="ask again without that hook, or let the context stay as it is",
                )
            case Supply(text, details):
                return Summary(text, CHOSEN_BY_HOOK), details
            case None:
                return await self._summary(plan.request), {}

    async def _summary(self, request: SummaryRequest) -> Summary:
        by = self.agent.summarizer
        try:
            return await by.summarize(request)
        except StrandlineError:
            raise
        except Exception as error:  # anybody's code: the turn goes on without it
            raise CompactionRefused(
                f"nothing was compacted: the summariser {by.name} failed "
                f"({type(error).__name__}: {error})",
                remedy="use another summariser",
            ) from error

    def _written(self, pending: PendingCompaction) -> None:
        """The summary is there, or will never be: who heard of the beginning hears of that."""
        error = None if pending.writing.cancelled() else pending.writing.exception()
        if pending.writing.cancelled():
            self._give_up(pending, "it was stopped")
        elif error is not None:
            self._give_up(pending, str(error))

    def _give_up(self, pending: PendingCompaction, why: str) -> None:
        """Nothing of it will be written."""
        self._forget(pending)
        pending.given_up = pending.given_up or why
        pending.writing.cancel()
        pending.refused(why)

    def _forget(self, pending: PendingCompaction) -> None:
        if self._pending is pending:
            self._pending = None
