"""Making the context of a turn fit the model that is asked, and learning from refusals.

Our count is an estimate; what a provider reports or refuses corrects it. Where the context
is too large it is compacted, as far as the mode allows and as that helps; what is still too
much gives way in the view (`strandline.context.limit`). Source: spec 3, Budget and
compaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from strandline.context.assemble import Limit, prepare, within
from strandline.context.budget import Budget, calibrated, scale_of
from strandline.context.view import View
from strandline.errors import ModelError, StrandlineError
from strandline.runtime.agent import Agent, Backend
from strandline.runtime.compacting import Compactor
from strandline.runtime.events import CompactionReceipt, CompactionTrigger, Listener, Notice
from strandline.transcript.session import Session

MOST_OVERFLOWS = 4
"""A provider that refuses this often for its size will not be asked again in this turn."""
BLIND_CORRECTION = 1.5
"""How much finer we take the provider's count to be when it refuses without numbers."""
MOST_COMPACTIONS_BEFORE_SENDING = 3

BeforeCompaction = Callable[[], Awaitable[None]]


@dataclass
class Fitting:
    """One turn's dealings with the size of one model's window.

    `before_compaction` is awaited before a turn compacts: there the memory is flushed.
    """

    session: Session
    agent: Agent
    backend: Backend
    compactor: Compactor
    listener: Listener
    before_compaction: BeforeCompaction | None = None
    scale: float = 1.0
    window: int | None = None
    overflows: int = 0
    results_are_capped: bool = False
    compactions: list[CompactionReceipt] = field(default_factory=list)

    @property
    def budget(self) -> Budget:
        """The budget as it is known now."""
        return self.agent.budget(self.backend.info, scale=self.scale, window=self.window)

    async def calibrate(self) -> None:
        """Take the scale from the newest usage on the path."""
        self.scale = await asyncio.to_thread(self._scale_so_far)

    async def look(self) -> View:
        """The view of the leaf before anything makes room."""
        return await asyncio.to_thread(self._prepare)

    async def view_to_send(self) -> View:
        """A view within the budget: compacted where that helps, then cut down.

        While a compaction is being made it may be a little larger, so that nobody waits for
        the summary who need not. Raises `ContextOverflow` when nothing makes it fit, or the mode
        is "error".
        """
        mode = self.agent.compaction.effective_mode
        view = await self.look()
        if mode == "auto":
            for _ in range(MOST_COMPACTIONS_BEFORE_SENDING):
                if not self.budget.is_over(view.tokens):
                    break
                if self._need_not_wait(view):
                    return view
                if not await self._compact_if_it_helps("pre-send"):
                    break
                view = await self.look()
        limit: Limit = "none" if mode == "error" else "oldest_turns"
        return await asyncio.to_thread(self._within, view, limit)

    def _need_not_wait(self, view: View) -> bool:
        refused = self.overflows or self.results_are_capped
        meanwhile = self.compactor.is_summarising and self.budget.fits_meanwhile(view.tokens)
        return meanwhile and not refused

    async def after_overflow(self, error: ModelError, view: View) -> bool:
        """Learn from a refusal and make room; False when it is time to give up."""
        if self.overflows + 1 >= MOST_OVERFLOWS:
            return False
        self.overflows += 1
        # From the second on, and for the rest of the turn: what was sent once keeps its bytes.
        self.results_are_capped = self.results_are_capped or self.overflows > 1
        self._learn(error, view)
        if self.overflows == 1 and self.agent.compaction.effective_mode == "auto":
            await self._compact_if_it_helps("overflow")
        return True

    def answered(self) -> None:
        """The model took the context: what it refuses next is another matter."""
        self.overflows = 0

    def _scale_so_far(self) -> float:
        info = self.backend.info
        return scale_of(
            self.session.build_context().items,
            self.agent.tokens,
            fixed=self.agent.fixed_tokens(info),
            model=(info.provider, info.id),
        )

    def _learn(self, error: ModelError, view: View) -> None:
        """Take the provider's own count, or suppose a finer one, as it refused ours."""
        info = self.backend.info
        estimate = view.tokens + self.agent.fixed_tokens(info)
        if error.window_tokens:
            self.window = min(error.window_tokens, info.context_window)
        reported = error.prompt_tokens or int(estimate * self.scale * BLIND_CORRECTION)
        before = self.scale
        self.scale = calibrated(before, estimate, reported, overflowed=True)
        if self.scale <= before:  # its numbers explain nothing: suppose that it counts finer
            self.scale = before * BLIND_CORRECTION

    def _prepare(self, tool_result_cap: int | None = None) -> View:
        return prepare(
            self.session.build_context().items,
            budget=self.budget,
            tokens=self.agent.tokens,
            tool_result_cap=tool_result_cap,
        )

    def _within(self, view: View, limit: Limit) -> View:
        budget = self.budget
        if self.results_are_capped:
            view = self._prepare(budget.tool_result_cap)
        return within(view, budget=budget, tokens=self.agent.tokens, limit=limit)

    async def _compact_if_it_helps(self, trigger: CompactionTrigger) -> bool:
        try:
            if self.before_compaction is not None:
                await self.before_compaction()
            pending = await self.compactor.begin(self.budget, trigger, self.listener)
        except StrandlineError as error:
            self.listener(Notice(f"not compacted ({trigger}): {error}"))
            return False
        try:
            receipt = await self.compactor.finish(pending, self.listener)
        except StrandlineError:
            return False  # its listeners were told
        self.compactions.append(receipt)
        return True
