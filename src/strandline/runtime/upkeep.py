"""Upkeep: what is done for a conversation after its turns, beside whatever comes next.

Nobody waits for it. A message that arrives meanwhile is appended and answered; only what
touches the transcript's position (appending the compaction) is done in the lane, and a turn
that cannot do without the compaction joins it. Source: spec 3, Budget and compaction
(threshold), Memory flush.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from strandline.errors import StrandlineError
from strandline.runtime.agent import Agent
from strandline.runtime.compacting import Compactor
from strandline.runtime.events import CompactionReceipt, CompactionTrigger, Listener, Notice
from strandline.runtime.fitting import Fitting
from strandline.runtime.flushing import Flush, can_flush
from strandline.runtime.registry import SessionRegistry
from strandline.transcript.session import Session

Lane = Callable[[], AbstractAsyncContextManager[None]]


@dataclass
class Upkeep:
    """The upkeep of one session; `agent` is the one that answers, with the session's mode.

    `compacted` is set when a compaction was made, for whoever renews what depends on that.
    """

    key: str
    session: Session
    agent: Agent
    registry: SessionRegistry
    compactor: Compactor
    lane: Lane
    receipts: list[CompactionReceipt] = field(default_factory=list)
    compacted: bool = False
    _task: asyncio.Task[None] | None = None
    _flushing: bool = False

    def use(self, agent: Agent) -> None:
        """Go on with the agent as it is set up now."""
        self.agent = agent
        self.compactor.agent = agent

    def start(self, listener: Listener) -> None:
        """See to it, unless that is being done already."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(listener))

    async def settle(self) -> tuple[CompactionReceipt, ...]:
        """Wait until it is done; what was compacted since it was asked last."""
        if self._task is not None:
            await asyncio.wait([self._task])
            if not self._task.cancelled():
                self._task.result()
        done, self.receipts = tuple(self.receipts), []
        return done

    async def stop(self) -> None:
        """Give it up; nothing is lost, the next turn does what it needs."""
        self.compactor.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def compact(
        self, trigger: CompactionTrigger, listener: Listener, instructions: str | None = None
    ) -> CompactionReceipt:
        """Compact; the lane is held at the beginning and at the end only.

        Raises `CompactionRefused` where it would not help.
        """
        async with self.lane():
            fitting = await self._fitting(listener)
            pending = await self.compactor.begin(fitting.budget, trigger, listener, instructions)
        await self.compactor.summarised(pending)
        async with self.lane():
            receipt = await self.compactor.commit(pending, listener)
            view = await fitting.look()
        self.compacted = True
        size = fitting.budget.provider_tokens(view.tokens)
        await asyncio.to_thread(self.registry.note_compaction, self.key, receipt, size)
        return receipt

    async def flush_if_due(self, listener: Listener, *, without: str | None = None) -> None:
        """Flush the memory, once in a compaction cycle and at most one at a time.

        `without` is an entry to leave out: the message that is being answered.
        """
        if self._flushing or not can_flush(self.agent) or not await self._is_due():
            return
        self._flushing = True
        try:
            fitting = await self._fitting(listener)
            items = await asyncio.to_thread(lambda: self.session.build_context().items)
            told = [item for item in items if item.entry_id != without]
            flush = Flush(self.session, self.agent, fitting.budget, listener, self.key)
            usage = await flush.run(told)
            await asyncio.to_thread(self.registry.note_flush, self.key, usage)
        finally:
            self._flushing = False

    async def _run(self, listener: Listener) -> None:
        try:
            fitting = await self._fitting(listener)
            budget, view = fitting.budget, await fitting.look()
            if view.tokens > budget.flush_line(self.agent.flush.soft_threshold_tokens):
                await self.flush_if_due(listener)
            if self.agent.compaction.effective_mode == "auto" and budget.is_over(view.tokens):
                self.receipts.append(await self.compact("threshold", listener))
        except StrandlineError as error:
            listener(Notice(f"not compacted (threshold): {error}"))

    async def _fitting(self, listener: Listener) -> Fitting:
        backend = self.agent.backends[0]
        fitting = Fitting(self.session, self.agent, backend, self.compactor, listener)
        await fitting.calibrate()
        return fitting

    async def _is_due(self) -> bool:
        row = await asyncio.to_thread(self.registry.find, self.key)
        return row.memory_flush_compaction_count != (row.compaction_count or 0)
