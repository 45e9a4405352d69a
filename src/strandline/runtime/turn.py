"""A turn: what somebody said goes in, an answer comes out, all of it is in the transcript.

The user's message is appended first, so that it survives whatever follows. The model is
asked (`strandline.runtime.asking`) with a context that fits (`strandline.runtime.fitting`);
while it calls tools they are run and it is asked again. Every message is appended as it is
complete, so a run that is killed leaves a transcript that goes on. Source: spec 4, A turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce

from strandline.runtime.agent import Agent
from strandline.runtime.asking import Asking, text_of
from strandline.runtime.compacting import Compactor
from strandline.runtime.events import AnswerKept, CompactionReceipt, Listener, Notice, nobody
from strandline.runtime.finishing import to_the_end
from strandline.runtime.fitting import BeforeCompaction, Fitting
from strandline.runtime.model import ModelInfo
from strandline.runtime.spending import usage_sum
from strandline.runtime.thoughts import Thoughts
from strandline.runtime.tool_loop import CUT_OFF, NOT_RUN, ToolRun, calls_cut_off, calls_in
from strandline.transcript.messages import (
    THINKING_LEVELS,
    JsonObject,
    Message,
    ThinkingLevel,
    Usage,
)
from strandline.transcript.session import Session

MOST_ROUNDS = 100
"""As often a turn asks the model; what it calls in the last round is not run any more."""


@dataclass(frozen=True, slots=True)
class TurnResult:
    """A turn that was answered.

    `message` is the last answer, `reply` its text; `answers` are all of them, in order, each
    with its usage. `info` is the model that gave the last. `context_tokens` is what the
    context takes now, in the provider's tokens, of `context_window`.
    """

    reply: str
    message: Message
    user_entry_id: str
    answers: tuple[Message, ...]
    info: ModelInfo
    compactions: tuple[CompactionReceipt, ...]
    context_tokens: int
    context_window: int
    duration_ms: int

    @property
    def usage(self) -> Usage | None:
        """What all answers of the turn used together."""
        return reduce(usage_sum, (answer.get("usage") for answer in self.answers), None)

    @property
    def stop_reason(self) -> str:
        """Why the answer ended."""
        return str(self.message.get("stopReason"))


def user_message(text: str, now_ms: int) -> Message:
    """What a person typed, as a message."""
    return {"role": "user", "content": [{"type": "text", "text": text}], "timestamp": now_ms}


async def run_turn(
    session: Session,
    agent: Agent,
    message: Message | None,
    *,
    listener: Listener = nobody,
    compactor: Compactor | None = None,
    before_compaction: BeforeCompaction | None = None,
    session_key: str = "",
    thoughts: Thoughts | None = None,
) -> TurnResult:
    """Append `message`, have the agent answer it, append the answer.

    Without a message, what was said last is answered (again). The caller holds the session's
    lane. Cancelling the task stops the reply and keeps what came of it, as an aborted
    answer. Raises `ModelError` when no model answered and `ContextOverflow` when nothing can
    make the context fit (or the mode is "error"); the user's message is in the transcript
    either way. `thoughts` remembers across the turns of a session which thoughts were refused.
    """
    turn = _Turn(
        session,
        agent,
        listener,
        compactor or Compactor(session, agent),
        session_key,
        thoughts or Thoughts(),
    )
    return await turn.run(message, before_compaction)


async def context_size(session: Session, agent: Agent) -> tuple[int, int]:
    """What the context takes, in the provider's tokens, and the window it has."""
    fitting = Fitting(session, agent, agent.backends[0], Compactor(session, agent), nobody)
    await fitting.calibrate()
    view = await fitting.look()
    return fitting.budget.provider_tokens(view.tokens), fitting.budget.window


@dataclass(frozen=True)
class _Turn:
    session: Session
    agent: Agent
    listener: Listener
    compactor: Compactor
    session_key: str
    thoughts: Thoughts

    async def run(
        self, message: Message | None, before_compaction: BeforeCompaction | None
    ) -> TurnResult:
        started_ms = self.agent.clock.now_ms()
        if message is None:
            user_entry_id = self.session.leaf_id or ""
        else:
            user_entry_id = await self._append(message)
        asking = await self._asking(before_compaction)
        answers = await self._converse(asking)
        await asking.fitting.calibrate()  # the answers tell how the provider counts
        view = await asking.fitting.look()
        return TurnResult(
            reply=text_of(answers[-1]),
            message=answers[-1],
            user_entry_id=user_entry_id,
            answers=tuple(answers),
            info=asking.backend.info,
            compactions=tuple(asking.fitting.compactions),
            context_tokens=asking.fitting.budget.provider_tokens(view.tokens),
            context_window=asking.fitting.budget.window,
            duration_ms=self.agent.clock.now_ms() - started_ms,
        )

    async def _asking(self, before_compaction: BeforeCompaction | None) -> Asking:
        fit = partial(
            Fitting,
            self.session,
            self.agent,
            compactor=self.compactor,
            listener=self.listener,
            before_compaction=before_compaction,
        )
        thinking = await asyncio.to_thread(self._thinking)
        asking = Asking(
            self.agent,
            lambda backend: fit(backend=backend),
            self.session.append_message,
            self.listener,
            thinking,
            self.thoughts,
        )
        await asking.fitting.calibrate()
        return asking

    def _thinking(self) -> ThinkingLevel:
        if not any(backend.info.reasoning for backend in self.agent.backends):
            return "off"  # looking it up may cost a reading of the whole file
        level = self.session.build_context().thinking_level
        return next((each for each in THINKING_LEVELS if each == level), "off")

    async def _converse(self, asking: Asking) -> list[Message]:
        """Ask, run tools, ask again, until an answer calls none."""
        tools = ToolRun(
            self.agent.toolbox,
            self.session.append_message,
            self.listener,
            self.agent.clock,
            self.agent.id,
            self.session_key,
        )
        answers: list[Message] = []
        while True:
            answer = await asking.answer()
            await self._keep(answer, tools)
            answers.append(answer)
            calls = calls_in(answer)
            if not calls:
                await tools.refuse(calls_cut_off(answer), CUT_OFF)
                return answers
            if len(answers) >= MOST_ROUNDS:
                await self._end_rounds(tools, calls)
                return answers
            await tools.run(calls)

    async def _end_rounds(self, tools: ToolRun, calls: Sequence[JsonObject]) -> None:
        why = f"(not run: the turn ended after {MOST_ROUNDS} rounds of tools)"
        await tools.refuse(calls, why)
        self.listener(Notice(f"the turn was ended after {MOST_ROUNDS} rounds of tools"))

    async def _keep(self, answer: Message, tools: ToolRun) -> None:
        """Append an answer; where the turn is stopped in this moment, with its calls answered."""
        try:
            entry_id = await self._append(answer)
        except asyncio.CancelledError:
            await tools.refuse(calls_in(answer), NOT_RUN)
            raise
        self.listener(AnswerKept(answer, entry_id))

    async def _append(self, message: Message) -> str:
        # What is complete is kept, even when the turn is stopped in this moment.
        return await to_the_end(asyncio.to_thread(self.session.append_message, message))
