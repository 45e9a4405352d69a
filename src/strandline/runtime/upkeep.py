"""Upkeep: what is done for a conversation after its turns, beside whatever comes next.

Nobody waits for it. A message that arrives meanwhile is appended and answered; only what
touches the transcript's position (appending the compaction) is done in the lane, and a turn
that cannot do without the compaction joins it. Nothing that fails in here reaches a turn: it
is told to the listener, and what is a fault of the program (or the listener's own) to the
event loop, which logs it. Source: spec 3, Budget and compaction (threshold), Memory flush.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, replace

from strandline.context.budget import CompactionMode
from strandline.context.compaction import CompactionPlan
from strandline.errors import StrandlineError
from strandline.runtime.agent import Agent
from strandline.runtime.compacting import Compactor
from strandline.runtime.events import (
    CompactionReceipt,
    CompactionTrigger,
    Listener,
    Notice,
    TurnEvent,
)
from strandline.runtime.finishing import to_the_end
from strandline.runtime.fitting import Fitting
from strandline.runtime.flushing import Flush, can_flush
from strandline.runtime.lanes import Lane
from strandline.runtime.pending_compaction import PendingCompaction
from strandline.runtime.registry import OpenSession, SessionRegistry
from strandline.runtime.reporting import report, words
from strandline.runtime.turn_memory import TurnMemory


@dataclass
class Upkeep:
    """The upkeep of one session; `lane` is the session's, `memory` what its turns have in common.

    `receipts` takes those that nobody was told of yet (`settle`). `compacted` is set when a
    compaction was made, for whoever renews what depends on that.
    """

    at: OpenSession
    registry: SessionRegistry
    lane: Lane
    memory: TurnMemory
    receipts: deque[CompactionReceipt]
    compacted: bool = False
    _task: asyncio.Task[None] | None = None

    @property
    def agent(self) -> Agent:
        """Who answers, as it is set up now."""
        return self.memory.agent

    @property
    def compactor(self) -> Compactor:
        """The compactions of the session."""
        return self.memory.compactor

    def set_up(self, mode: CompactionMode) -> None:
        """Let the agent be as the session's mode and the newest compaction want it."""
        if self.compacted:
            self.compacted = False
            self.memory.renew_prompt()
        agent = self.agent
        if agent.compaction.effective_mode != mode:
            compaction = replace(agent.compaction, enabled=True, mode=mode)
            self.memory.set_up(replace(agent, compaction=compaction))

    def start(self, listener: Listener) -> None:
        """See to it, unless that is being done already."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(_harmless(listener)))

    async def settle(self) -> tuple[CompactionReceipt, ...]:
        """Wait until it is done; what was compacted in it since somebody asked last."""
        if self._task is not None:
            await asyncio.wait([self._task])
        done = tuple(self.receipts)
        self.receipts.clear()
        return done

    async def stop(self) -> None:
        """Give it up; nothing is lost, the next turn does what it needs."""
        self.compactor.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def compact(
        self, listener: Listener, instructions: str | None = None
    ) -> CompactionReceipt | None:
        """Compact because a person wants it, or join the compaction that is being made.

        The lane is held at the beginning and at the end only. Raises `CompactionRefused`
        where it would not help, `SessionBusy`, and what the summariser or the engine raises.
        None where an engine made its own things smaller, and the transcript stays as it is.
        """
        listener = _harmless(listener)
        if not self.agent.engine.is_legacy:
            return await self._engine_compacts(listener, instructions)
        pending = await self._begin("manual", listener, instructions)
        return await self._finish(pending, listener)

    async def _engine_compacts(
        self, listener: Listener, instructions: str | None
    ) -> CompactionReceipt | None:
        fitting = await self._fitting(self.lane)
        compact = self.memory.engine.compact
        receipt = await compact(fitting.budget, "manual", listener, instructions, self.lane)
        await self._note_receipt(receipt, listener)
        return receipt

    async def after_turn(self, listener: Listener, newest_before: str | None) -> None:
        """Tell the engine that a turn was answered; the caller holds the lane.

        What fails in it is told: the answer stands.
        """
        engine = self.memory.engine
        if engine.host.is_legacy:
            return
        try:
            budget = (await self._fitting()).budget
            await engine.after_turn(newest_before, budget, compacted=self.compacted)
            if engine.host.maintains_in_foreground:
                await engine.maintain("turn", budget)
        except StrandlineError as error:
            listener(Notice(str(error)))

    async def _engine_maintains(self) -> None:
        engine = self.memory.engine
        if engine.host.is_legacy or engine.host.maintains_in_foreground:
            return
        await engine.maintain("turn", (await self._fitting()).budget, self.lane)

    async def plan(self, instructions: str | None = None) -> CompactionPlan:
        """What `compact` would do now. Raises `CompactionRefused`."""
        fitting = await self._fitting()
        plan = self.compactor.plan
        return await asyncio.to_thread(plan, fitting.budget, "manual", instructions)

    async def flush_if_due(self, listener: Listener, lane: Lane = nullcontext) -> None:
        """Flush the memory, once in a compaction cycle and at most one at a time.

        `lane` takes the session's lane for what an engine does; by default the caller holds
        it. Raises nothing but cancellation.
        """
        listener = _harmless(listener)
        if not can_flush(self.agent):
            return
        try:
            await self._flush(listener, lane)
        except StrandlineError as error:
            listener(Notice(f"the memory flush went wrong: {error}"))

    async def _flush(self, listener: Listener, lane: Lane) -> None:
        fitting = await self._fitting(lane)
        flush = Flush(fitting, listener)
        claimed = False

        def claim() -> None:
            nonlocal claimed
            claimed = self.registry.claim_flush(self.at)

        def note() -> None:
            self.registry.note_flush(self.at, flush.usage, done=flush.done)

        try:
            await to_the_end(asyncio.to_thread(claim))
            if claimed:
                await flush.run()
        finally:
            if claimed:
                await to_the_end(asyncio.to_thread(note))

    async def _run(self, listener: Listener) -> None:
        try:
            await self._see_to_it(listener)
        except StrandlineError as error:
            listener(Notice(f"not compacted (threshold): {error}"))
        except Exception as error:  # noqa: BLE001 - whatever it is, the next turn goes on
            report(f"the upkeep of {self.at.key} failed", error)
            listener(Notice(f"the upkeep after a turn failed ({words(error)})"))

    async def _see_to_it(self, listener: Listener) -> None:
        try:
            await self._engine_maintains()
        except StrandlineError as error:  # what follows is the host's own
            listener(Notice(str(error)))
        if self.agent.engine.owns_compaction:
            return
        fitting = await self._fitting(self.lane)
        soft = self.agent.flush.soft_threshold_tokens
        size = (await fitting.look()).compared_tokens
        if size > fitting.budget.flush_line(soft):
            await self.flush_if_due(listener, self.lane)
            size = (await fitting.look()).compared_tokens  # a turn may have compacted meanwhile
        mode = self.agent.compaction.effective_mode
        if mode == "auto" and fitting.budget.is_over(size):
            pending = await self._begin("threshold", listener)
            with suppress(StrandlineError):  # the compactor tells the listener how it ends
                await self._finish(pending, listener, receipts=self.receipts)

    async def _begin(
        self, trigger: CompactionTrigger, listener: Listener, instructions: str | None = None
    ) -> PendingCompaction:
        async with self.lane():
            fitting = await self._fitting()
            return await self.compactor.begin(fitting.budget, trigger, listener, instructions)

    async def _finish(
        self,
        pending: PendingCompaction,
        listener: Listener,
        receipts: deque[CompactionReceipt] | None = None,
    ) -> CompactionReceipt:
        """Have a compaction written; note it, unless a turn that joined has written it."""
        ours = False

        @asynccontextmanager
        async def last_step() -> AsyncIterator[None]:
            nonlocal ours
            async with self.lane():
                ours = pending.receipt is None
                yield

        try:
            return await self.compactor.finish(pending, listener, last_step)
        finally:
            if ours and pending.receipt is not None and receipts is not None:
                receipts.append(pending.receipt)
            if ours:
                await to_the_end(self._note(pending, listener))

    async def _note(self, pending: PendingCompaction, listener: Listener) -> None:
        """Note in the row what was compacted, or what a summary used that was of no use."""
        receipt, (summary, _) = pending.receipt, pending.writing.result()
        try:
            if receipt is None:
                await asyncio.to_thread(self.registry.note_usage, self.at, summary.usage)
                return
        except StrandlineError as error:
            listener(Notice(f"the compaction was not noted in the session's row: {error}"))
        await self._note_receipt(receipt, listener)

    async def _note_receipt(self, receipt: CompactionReceipt | None, listener: Listener) -> None:
        """Note a compaction in the row, and the size that the context has now."""
        self.compacted = True
        try:
            size = await self._size_after(receipt)
            if receipt is None:
                await asyncio.to_thread(self.registry.note_size, self.at, size)
            else:
                await asyncio.to_thread(self.registry.note_compaction, self.at, receipt, size)
        except StrandlineError as error:
            listener(Notice(f"the compaction was not noted in the session's row: {error}"))

    async def _size_after(self, receipt: CompactionReceipt | None) -> int:
        """What the context takes after a compaction, in the provider's tokens.

        An engine is not asked where the compaction says it: it would have to be told of it in
        the lane, and who holds that may be waiting for this to be noted.
        """
        if receipt is None or self.agent.engine.is_legacy:
            size, _ = await Fitting.of_first(self.memory, self.lane).size()
            return size
        return (await self._fitting()).budget.provider_tokens(receipt.tokens_after)

    async def _fitting(self, lane: Lane = nullcontext) -> Fitting:
        fitting = Fitting.of_first(self.memory, lane)
        await fitting.calibrate()
        return fitting


def _harmless(listener: Listener) -> Listener:
    """A listener whose own failure ends nothing: it is reported, and the work goes on."""

    def tell(event: TurnEvent) -> None:
        try:
            listener(event)
        except Exception as error:  # noqa: BLE001 - a face's code, about work that is not its own
            report("a listener failed", error)

    return tell
