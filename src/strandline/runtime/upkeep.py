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
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace

from strandline.context.budget import CompactionMode
from strandline.context.compaction import CompactionPlan
from strandline.errors import StrandlineError
from strandline.runtime.agent import Agent
from strandline.runtime.compacting import Compactor, Lane
from strandline.runtime.events import (
    CompactionReceipt,
    CompactionTrigger,
    Listener,
    Notice,
    TurnEvent,
    nobody,
)
from strandline.runtime.finishing import to_the_end
from strandline.runtime.fitting import Fitting
from strandline.runtime.flushing import Flush, can_flush
from strandline.runtime.pending_compaction import PendingCompaction
from strandline.runtime.registry import OpenSession, SessionRegistry
from strandline.runtime.thoughts import Thoughts


@dataclass
class Upkeep:
    """The upkeep of one session; `agent` is the one that answers, with the session's mode.

    `lane` is the session's; `thoughts` are those that its models take back no more.
    `receipts` takes those that nobody was told of yet (`settle`). `compacted` is set when a
    compaction was made, for whoever renews what depends on that.
    """

    at: OpenSession
    agent: Agent
    registry: SessionRegistry
    lane: Lane
    receipts: deque[CompactionReceipt]
    compacted: bool = False
    compactor: Compactor = field(init=False)
    thoughts: Thoughts = field(default_factory=Thoughts)
    _task: asyncio.Task[None] | None = None

    def __post_init__(self) -> None:
        self.compactor = Compactor(self.at.session, self.agent)

    def set_up(self, mode: CompactionMode) -> None:
        """Let the agent be as the session's mode and the newest compaction want it."""
        agent, renew = self.agent, self.agent.renew_prompt if self.compacted else None
        self.compacted = False
        if renew is not None:
            # The cache is lost with the compaction; what the workspace says now is free.
            with suppress(StrandlineError):  # where it cannot be read, the old prompt holds
                agent = replace(agent, system_prompt=renew())
        if agent.compaction.effective_mode != mode:
            compaction = replace(agent.compaction, enabled=True, mode=mode)
            agent = replace(agent, compaction=compaction)
        self.agent = self.compactor.agent = agent

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
    ) -> CompactionReceipt:
        """Compact because a person wants it, or join the compaction that is being made.

        The lane is held at the beginning and at the end only. Raises `CompactionRefused`
        where it would not help, `SessionBusy`, and what the summariser raises.
        """
        listener = _harmless(listener)
        pending = await self._begin("manual", listener, instructions)
        return await self._finish(pending, listener)

    async def plan(self, instructions: str | None = None) -> CompactionPlan:
        """What `compact` would do now. Raises `CompactionRefused`."""
        fitting = await self._fitting()
        plan = self.compactor.plan
        return await asyncio.to_thread(plan, fitting.budget, "manual", instructions)

    async def flush_if_due(self, listener: Listener) -> None:
        """Flush the memory, once in a compaction cycle and at most one at a time.

        Raises nothing but cancellation.
        """
        listener = _harmless(listener)
        if not can_flush(self.agent):
            return
        try:
            await self._flush(listener)
        except StrandlineError as error:
            listener(Notice(f"the memory flush went wrong: {error}"))

    async def _flush(self, listener: Listener) -> None:
        fitting = await self._fitting()
        flush = Flush(
            self.at.session, self.agent, fitting.budget, listener, self.at.key, self.thoughts
        )
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
            _report(f"the upkeep of {self.at.key} failed", error)
            listener(Notice(f"the upkeep after a turn failed ({type(error).__name__}: {error})"))

    async def _see_to_it(self, listener: Listener) -> None:
        fitting = await self._fitting()
        soft = self.agent.flush.soft_threshold_tokens
        view = await fitting.look()
        if view.tokens > fitting.budget.flush_line(soft):
            await self.flush_if_due(listener)
            view = await fitting.look()  # a turn may have compacted meanwhile
        mode = self.agent.compaction.effective_mode
        if mode == "auto" and fitting.budget.is_over(view.tokens):
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
            self.compacted = True
            fitting = await self._fitting()
            view = await fitting.look()
            size = fitting.budget.provider_tokens(view.tokens)
            await asyncio.to_thread(self.registry.note_compaction, self.at, receipt, size)
        except StrandlineError as error:
            listener(Notice(f"the compaction was not noted in the session's row: {error}"))

    async def _fitting(self) -> Fitting:
        backend, session = self.agent.backends[0], self.at.session
        fitting = Fitting(session, self.agent, backend, self.compactor, nobody)
        await fitting.calibrate()
        return fitting


def _harmless(listener: Listener) -> Listener:
    """A listener whose own failure ends nothing: it is reported, and the work goes on."""

    def tell(event: TurnEvent) -> None:
        try:
            listener(event)
        except Exception as error:  # noqa: BLE001 - a face's code, about work that is not its own
            _report("a listener failed", error)

    return tell


def _report(what: str, error: Exception) -> None:
    """Tell the event loop, which logs it unless somebody gave it another handler."""
    context = {"message": what, "exception": error}
    asyncio.get_running_loop().call_exception_handler(context)
