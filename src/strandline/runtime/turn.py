"""A turn: what somebody said goes in, an answer comes out, both are in the transcript.

The user's message is appended first, so that it survives whatever follows. The context is
made to fit before it is sent; when the provider refuses it all the same, its own count
corrects ours, the session is compacted and the model asked again, and after that the view
is cut down step by step. A session can always take its next message. Source: spec 4, A
turn; spec 3, Budget and compaction.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass, field

from strandline.context.assemble import Limit, assemble, prepare
from strandline.context.budget import Budget, calibrated, scale_of
from strandline.context.view import View
from strandline.errors import ModelError, StrandlineError
from strandline.runtime.agent import Agent
from strandline.runtime.compacting import compact
from strandline.runtime.events import (
    CompactionReceipt,
    CompactionTrigger,
    Listener,
    Notice,
    ReplyDiscarded,
    ReplyText,
    ThinkingText,
    nobody,
)
from strandline.runtime.model import (
    Failed,
    Finished,
    ModelEvent,
    ModelRequest,
    TextDelta,
    ThinkingDelta,
)
from strandline.transcript.messages import Message
from strandline.transcript.session import Session

MOST_OVERFLOWS = 4
"""A provider that refuses this often for its size will not be asked again in this turn."""
BLIND_CORRECTION = 1.5
"""How much finer we take the provider's count to be when it refuses without numbers."""
MOST_COMPACTIONS_BEFORE_SENDING = 3

NOTHING_USED = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 0}
NOTHING_PAID = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0}
"""What a stopped answer reports; readers such as pi add up the cost of every answer."""


@dataclass(frozen=True, slots=True)
class TurnResult:
    """A turn that was answered.

    `context_tokens` is what the context takes now, in the provider's tokens, of
    `context_window`; `stop_reason` is the answer's ("aborted" when it was stopped).
    """

    reply: str
    message: Message
    user_entry_id: str
    compactions: tuple[CompactionReceipt, ...]
    context_tokens: int
    context_window: int
    duration_ms: int

    @property
    def stop_reason(self) -> str:
        """Why the answer ended."""
        return str(self.message.get("stopReason"))


def user_message(text: str, now_ms: int) -> Message:
    """What a person typed, as a message."""
    return {"role": "user", "content": [{"type": "text", "text": text}], "timestamp": now_ms}


async def run_turn(
    session: Session, agent: Agent, message: Message, *, listener: Listener = nobody
) -> TurnResult:
    """Append `message`, have the agent answer it, append the answer.

    The caller holds the session's lane. Cancelling the task stops the reply and keeps
    what came of it, as an aborted answer. Raises `ModelError` when the model did not
    answer and `ContextOverflow` when nothing can make the context fit (or the mode is
    "error"); the user's message is in the transcript either way.
    """
    turn = _Turn(session, agent, listener)
    return await turn.run(message)


async def compact_now(
    session: Session,
    agent: Agent,
    *,
    instructions: str | None = None,
    listener: Listener = nobody,
) -> CompactionReceipt:
    """Compact on request (`/compact [instructions]`). Raises `CompactionRefused`."""
    turn = _Turn(session, agent, listener)
    await turn.look()
    return await turn.compact("manual", instructions)


async def context_size(session: Session, agent: Agent) -> tuple[int, int]:
    """What the context takes, in the provider's tokens, and the window it has."""
    turn = _Turn(session, agent, nobody)
    view = await turn.look()
    return turn.budget.provider_tokens(view.tokens), turn.budget.window


@dataclass
class _Turn:
    """One turn's state: how the provider counts, and what was compacted."""

    session: Session
    agent: Agent
    listener: Listener
    scale: float = 1.0
    window: int | None = None
    overflows: int = 0
    compactions: list[CompactionReceipt] = field(default_factory=list)

    @property
    def budget(self) -> Budget:
        return self.agent.budget(scale=self.scale, window=self.window)

    async def run(self, message: Message) -> TurnResult:
        started_ms = self.agent.clock.now_ms()
        user_entry_id = await asyncio.to_thread(self.session.append_message, message)
        await self._calibrate()
        answer = await self._answer()
        await asyncio.to_thread(self.session.append_message, answer)
        tokens = await self._keep_below_threshold()
        return TurnResult(
            _text_of(answer),
            answer,
            user_entry_id,
            tuple(self.compactions),
            tokens,
            self.budget.window,
            self.agent.clock.now_ms() - started_ms,
        )

    # -- asking the model ------------------------------------------------------------------

    async def _answer(self) -> Message:
        """The answer to the context as it stands; overflows are dealt with on the way."""
        while True:
            view = await self._view_to_send()
            outcome = await self._ask(view)
            if isinstance(outcome, Finished):
                return outcome.message
            await self._after_failure(outcome, view)

    async def _ask(self, view: View) -> Finished | Failed:
        """One call. When it is cancelled, what came is appended as an aborted answer."""
        agent, budget = self.agent, self.budget
        request = ModelRequest(
            agent.info,
            agent.system_prompt,
            [said.message for said in view.messages],
            budget.answer_tokens(view.tokens, agent.info.max_output_tokens),
        )
        came: list[str] = []
        try:
            async with aclosing(agent.model.stream(request)) as events:
                async for event in events:
                    if isinstance(event, Finished | Failed):
                        return event
                    self._tell(event, came)
        except asyncio.CancelledError:
            await asyncio.shield(self._keep_aborted("".join(came)))
            raise
        raise ModelError(
            f"{agent.info.ref} ended its stream without an answer",
            kind="network",
            remedy="try again; if it goes on, report the adapter",
        )

    def _tell(self, event: ModelEvent, came: list[str]) -> None:
        if isinstance(event, TextDelta):
            came.append(event.text)
            self.listener(ReplyText(event.text))
        elif isinstance(event, ThinkingDelta):
            self.listener(ThinkingText(event.text))

    async def _keep_aborted(self, text: str) -> None:
        if text:
            answer = self._unfinished(text, "aborted")
            await asyncio.to_thread(self.session.append_message, answer)

    def _unfinished(self, text: str, stop_reason: str) -> Message:
        info = self.agent.info
        return {
            "role": "assistant",
            "content": [{"type": "text", "text": text}],
            "api": info.api,
            "provider": info.provider,
            "model": info.id,
            "usage": {**NOTHING_USED, "cost": {**NOTHING_PAID}},
            "stopReason": stop_reason,
            "timestamp": self.agent.clock.now_ms(),
        }

    # -- when it fails ---------------------------------------------------------------------

    async def _after_failure(self, failed: Failed, view: View) -> None:
        """Make a second try possible, or raise the failure with what came kept."""
        error = failed.error
        if error.kind != "overflow" or self.overflows + 1 >= MOST_OVERFLOWS:
            await self._keep_partial(failed)
            raise error
        self.overflows += 1
        if failed.partial is not None:
            self.listener(ReplyDiscarded())
        self._learn(error, view)
        if self.overflows == 1 and self.agent.compaction.effective_mode == "auto":
            await self._compact_if_it_helps("overflow")

    async def _keep_partial(self, failed: Failed) -> None:
        if failed.partial is not None and _text_of(failed.partial):
            kept = {**failed.partial, "stopReason": "error", "errorMessage": failed.error.what}
            await asyncio.to_thread(self.session.append_message, kept)

    def _learn(self, error: ModelError, view: View) -> None:
        """Take the provider's own count, or suppose a finer one, as it refused ours."""
        estimate = view.tokens + self.agent.fixed_tokens
        if error.window_tokens:
            self.window = min(error.window_tokens, self.agent.info.context_window)
        reported = error.prompt_tokens or int(estimate * self.scale * BLIND_CORRECTION)
        before = self.scale
        self.scale = calibrated(before, estimate, reported, overflowed=True)
        if self.scale <= before:  # its numbers explain nothing: suppose that it counts finer
            self.scale = before * BLIND_CORRECTION

    # -- making it fit ---------------------------------------------------------------------

    async def look(self) -> View:
        """The view of the leaf before anything makes room; takes the scale from usage."""
        await self._calibrate()
        return await asyncio.to_thread(self._prepare)

    async def _calibrate(self) -> None:
        self.scale = await asyncio.to_thread(self._scale_so_far)

    def _scale_so_far(self) -> float:
        info = self.agent.info
        return scale_of(
            self.session.build_context().items,
            self.agent.tokens,
            fixed=self.agent.fixed_tokens,
            model=(info.provider, info.id),
        )

    def _prepare(self) -> View:
        items = self.session.build_context().items
        return prepare(items, budget=self.budget, tokens=self.agent.tokens)

    async def _view_to_send(self) -> View:
        """A view within the budget: compacted where that helps, then cut down."""
        mode = self.agent.compaction.effective_mode
        if mode == "auto":
            for _ in range(MOST_COMPACTIONS_BEFORE_SENDING):
                view = await asyncio.to_thread(self._prepare)
                if not self.budget.is_over(view.tokens):
                    break
                if not await self._compact_if_it_helps("pre-send"):
                    break
        return await asyncio.to_thread(
            self._assemble, "none" if mode == "error" else "oldest_turns"
        )

    def _assemble(self, limit: Limit) -> View:
        cap = self.budget.tool_result_cap if self.overflows > 1 else None
        return assemble(
            self.session.build_context().items,
            budget=self.budget,
            tokens=self.agent.tokens,
            limit=limit,
            tool_result_cap=cap,
        )

    async def _keep_below_threshold(self) -> int:
        """Compact after a good turn if the threshold is crossed; returns the context's size."""
        view = await asyncio.to_thread(self._prepare)
        auto = self.agent.compaction.effective_mode == "auto"
        if auto and self.budget.is_over(view.tokens):
            await self._compact_if_it_helps("threshold")
            view = await asyncio.to_thread(self._prepare)
        return self.budget.provider_tokens(view.tokens)

    async def _compact_if_it_helps(self, trigger: CompactionTrigger) -> bool:
        try:
            await self.compact(trigger)
        except StrandlineError as error:
            self.listener(Notice(f"not compacted ({trigger}): {error}"))
            return False
        return True

    async def compact(
        self, trigger: CompactionTrigger, instructions: str | None = None
    ) -> CompactionReceipt:
        """Compact for one of the four reasons."""
        receipt = await compact(
            self.session,
            self.agent,
            self.budget,
            trigger=trigger,
            listener=self.listener,
            instructions=instructions,
        )
        self.compactions.append(receipt)
        return receipt


def _text_of(message: Message) -> str:
    blocks = message.get("content")
    if isinstance(blocks, str):
        return blocks
    texts = [b.get("text", "") for b in blocks or [] if b.get("type") == "text"]
    return "".join(texts)
