"""Making the context of a turn fit the model that is asked, and learning from refusals.

Our count is an estimate; what a provider reports or refuses corrects it. Where the context
is too large it is compacted, as far as the mode allows and as that helps; what is still too
much gives way in the view (`strandline.context.limit`). An engine that owns compaction is asked
instead, and what it assembled is not cut. Source: spec 3, Budget and compaction; Engine slot.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

from strandline.context.assemble import Limit, within
from strandline.context.budget import Budget, calibrated
from strandline.context.shorten import shorten_larger
from strandline.context.view import View
from strandline.errors import EngineError, ModelError, StrandlineError
from strandline.runtime.agent import Agent, Backend
from strandline.runtime.assembling import Assembled
from strandline.runtime.events import (
    CompactionReceipt,
    CompactionTrigger,
    Listener,
    Notice,
    nobody,
)
from strandline.runtime.lanes import Lane
from strandline.runtime.turn_memory import TurnMemory

MOST_OVERFLOWS = 4
"""A provider that refuses this often for its size will not be asked again in this turn."""
BLIND_CORRECTION = 1.5
"""How much finer we take the provider's count to be when it refuses without numbers."""
MOST_COMPACTIONS_BEFORE_SENDING = 3

BeforeCompaction = Callable[[], Awaitable[None]]


@dataclass
class Fitting:
    """One turn's dealings with the size of one model's window.

    `before_compaction` is awaited before a turn compacts: there the memory is flushed. `lane`
    takes the session's lane for what an engine does; by default the caller holds it.
    """

    memory: TurnMemory
    backend: Backend
    listener: Listener = nobody
    before_compaction: BeforeCompaction | None = None
    lane: Lane = nullcontext
    scale: float = 1.0
    window: int | None = None
    overflows: int = 0
    results_are_capped: bool = False
    compactions: list[CompactionReceipt] = field(default_factory=list)

    @classmethod
    def of_first(cls, memory: TurnMemory, lane: Lane = nullcontext) -> Fitting:
        """For the model that is asked first, outside of a turn."""
        return cls(memory, memory.agent.backends[0], lane=lane)

    @property
    def agent(self) -> Agent:
        """Who answers."""
        return self.memory.agent

    @property
    def budget(self) -> Budget:
        """The budget as it is known now."""
        return self.agent.budget(
            self.backend.info,
            scale=self.scale,
            window=self.window,
            addition_tokens=self.memory.assembling.addition_tokens,
        )

    @property
    def fixed_tokens(self) -> int:
        """What a request takes before its first message, ours."""
        addition_tokens = self.memory.assembling.addition_tokens
        return self.agent.fixed_tokens(self.backend.info) + addition_tokens

    async def calibrate(self) -> None:
        """Take the scale from the newest usage on the path."""
        self.scale = await asyncio.to_thread(self.memory.assembling.scale, self.backend.info)

    async def look(self) -> Assembled:
        """The context of the leaf before anything makes room. Raises `EngineError`."""
        look = self.memory.assembling.look
        return await look(self.budget, self.backend.info, self.listener, self.lane)

    async def size(self) -> tuple[int, int]:
        """What the context takes now, in the provider's tokens, and the window it has.

        Raises `EngineError`.
        """
        await self.calibrate()
        looked, budget = await self.look(), self.budget
        return budget.provider_tokens(looked.view.tokens), budget.window

    async def to_send(self) -> Assembled:
        """A context within the budget: compacted where that helps, then cut down.

        While a compaction is being made it may be a little larger, so that nobody waits for
        the summary who need not. Raises `ContextOverflow` when nothing makes it fit, or the mode
        is "error", and `EngineError`.
        """
        looked = await self.look()
        if looked.is_final:
            return replace(looked, view=await asyncio.to_thread(self._capped, looked.view))
        mode = self.agent.compaction.effective_mode
        if mode == "auto":
            for _ in range(MOST_COMPACTIONS_BEFORE_SENDING):
                if not self.budget.is_over(looked.compared_tokens):
                    break
                if self._need_not_wait(looked.view):
                    return looked
                if not await self._compact_if_it_helps("pre-send"):
                    break
                looked = await self.look()
        limit: Limit = "none" if mode == "error" else "oldest_turns"
        return replace(looked, view=await asyncio.to_thread(self._within, looked.view, limit))

    def _need_not_wait(self, view: View) -> bool:
        refused = self.overflows or self.results_are_capped
        meanwhile = self.memory.compactor.is_summarising and self.budget.fits_meanwhile(view.tokens)
        return meanwhile and not refused

    async def after_overflow(self, error: ModelError, view: View) -> bool:
        """Learn from a refusal and make room; False when it is time to give up.

        Raises `EngineError`.
        """
        if self.overflows + 1 >= MOST_OVERFLOWS:
            return False
        self.overflows += 1
        # From the second on, and for the rest of the turn: what was sent once keeps its bytes.
        self.results_are_capped = self.results_are_capped or self.overflows > 1
        self._learn(error, view)
        engine = self.agent.engine
        if self.overflows > 1:
            return True
        if engine.owns_compaction:
            await self._engine_compacts()
        elif self.agent.compaction.effective_mode == "auto" and (
            engine.is_legacy or not await self._engine_compacts()
        ):
            await self._compact_if_it_helps("overflow")
        return True

    async def _engine_compacts(self) -> bool:
        """Let the engine make room; False where it declines."""
        try:
            if self.before_compaction is not None:
                await self.before_compaction()
            compact = self.memory.engine.compact
            receipt = await compact(self.budget, "overflow", self.listener)
        except EngineError:
            raise
        except StrandlineError as refusal:
            self.listener(Notice(f"not compacted (overflow): {refusal}"))
            return False
        if receipt is not None:
            self.compactions.append(receipt)
        return True

    def answered(self) -> None:
        """The model took the context: what it refuses next is another matter."""
        self.overflows = 0

    def _learn(self, error: ModelError, view: View) -> None:
        """Take the provider's own count, or suppose a finer one, as it refused ours."""
        info = self.backend.info
        estimate = view.tokens + self.fixed_tokens
        if error.window_tokens:
            self.window = min(error.window_tokens, info.context_window)
        reported = error.prompt_tokens or int(estimate * self.scale * BLIND_CORRECTION)
        before = self.scale
        self.scale = calibrated(before, estimate, reported, overflowed=True)
        if self.scale <= before:  # its numbers explain nothing: suppose that it counts finer
            self.scale = before * BLIND_CORRECTION

    def _capped(self, view: View) -> View:
        if not self.results_are_capped:
            return view
        cap = self.budget.tool_result_cap
        return shorten_larger(view, cap, self.agent.tokens, role="toolResult")

    def _within(self, view: View, limit: Limit) -> View:
        capped = self._capped(view)
        return within(capped, budget=self.budget, tokens=self.agent.tokens, limit=limit)

    async def _compact_if_it_helps(self, trigger: CompactionTrigger) -> bool:
        try:
            if self.before_compaction is not None:
                await self.before_compaction()
            pending = await self.memory.compactor.begin(self.budget, trigger, self.listener)
        except StrandlineError as error:
            self.listener(Notice(f"not compacted ({trigger}): {error}"))
            return False
        try:
            receipt = await self.memory.compactor.finish(pending, self.listener)
        except StrandlineError:
            return False  # its listeners were told
        self.compactions.append(receipt)
        return True
