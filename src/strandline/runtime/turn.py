"""A turn: what somebody said goes in, an answer comes out, all of it is in the transcript.

The user's message is appended first, so that it survives whatever follows. The model is
asked (`strandline.runtime.asking`) with a context that fits (`strandline.runtime.fitting`);
while it calls tools they are run and it is asked again. Every message is appended as it is
complete, so a run that is killed leaves a transcript that goes on. Source: spec 4, A turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial, reduce

from strandline.runtime.agent import Agent
from strandline.runtime.answers import text_of
from strandline.runtime.asking import Asking
from strandline.runtime.assembling import Assembling
from strandline.runtime.compacting import Compactor, Lane
from strandline.runtime.engine_session import EngineSession
from strandline.runtime.events import AnswerKept, CompactionReceipt, Listener, Notice, nobody
from strandline.runtime.finishing import to_the_end
from strandline.runtime.fitting import BeforeCompaction, Fitting
from strandline.runtime.model import ModelInfo
from strandline.runtime.prefix_watch import PrefixWatch
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
    before_compaction: BeforeCompaction | None = None,
    session_key: str = "",
    memory: TurnMemory | None = None,
) -> TurnResult:
    """Append `message`, have the agent answer it, append the answer.

    Without a message, what was said last is answered (again). The caller holds the session's
    lane. Cancelling the task stops the reply and keeps what came of it, as an aborted
    answer. Raises `ModelError` when no model answered, `ContextOverflow` when nothing can
    make the context fit (or the mode is "error"), and `EngineError`; the user's message is in
    the transcript either way. `memory` is what the turns of a session have in common.
    """
    turn = _Turn(agent, listener, session_key, memory or TurnMemory.of(session, agent, session_key))
    return await turn.run(message, before_compaction)


@dataclass
class TurnMemory:
    """What the turns of one session remember together: how its contexts are assembled, the
    compaction in the making, thoughts that were refused, what was sent last.
    """

    assembling: Assembling
    compactor: Compactor
    thoughts: Thoughts = field(default_factory=Thoughts)
    watch: PrefixWatch = field(default_factory=PrefixWatch)

    @classmethod
    def of(cls, session: Session, agent: Agent, session_key: str = "") -> TurnMemory:
        """The memory of a session that nothing is remembered of."""
        compactor = Compactor(session, agent)
        engine = EngineSession(session, agent, compactor, session_key)
        return cls(Assembling(session, agent, engine), compactor)

    def set_up(self, agent: Agent) -> None:
        """From here on the agent is set up like that."""
        self.assembling.agent = self.assembling.engine.agent = self.compactor.agent = agent

    def move_to(self, session: Session) -> None:
        """The session goes on in another transcript."""
        engine = self.assembling.engine
        self.assembling.session = engine.session = self.compactor.session = session

    def fitting(self, listener: Listener = nobody, lane: Lane = nullcontext) -> Fitting:
        """Dealings with the window of the model that is asked first.

        `lane` takes the session's lane for what an engine does; by default the caller holds it.
        """
        first = self.assembling.agent.backends[0]
        return Fitting(self.assembling, first, self.compactor, listener, lane=lane)


async def context_size(memory: TurnMemory, lane: Lane = nullcontext) -> tuple[int, int]:
    """What the context takes, in the provider's tokens, and the window it has.

    `lane` as in `TurnMemory.fitting`. Raises `EngineError`.
    """
    fitting = memory.fitting(lane=lane)
    await fitting.calibrate()
    looked = await fitting.look()
    return fitting.budget.provider_tokens(looked.view.tokens), fitting.budget.window


@dataclass(frozen=True)
class _Turn:
    agent: Agent
    listener: Listener
    session_key: str
    memory: TurnMemory

    @property
    def session(self) -> Session:
        """The transcript, which an engine's compaction may replace."""
        return self.memory.assembling.session

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
        looked = await asking.fitting.look()
        return TurnResult(
            reply=text_of(answers[-1]),
            message=answers[-1],
            user_entry_id=user_entry_id,
            answers=tuple(answers),
            info=asking.backend.info,
            compactions=tuple(asking.fitting.compactions),
            context_tokens=asking.fitting.budget.provider_tokens(looked.view.tokens),
            context_window=asking.fitting.budget.window,
            duration_ms=self.agent.clock.now_ms() - started_ms,
        )

    async def _asking(self, before_compaction: BeforeCompaction | None) -> Asking:
        memory = self.memory
        fit = partial(
            Fitting,
            memory.assembling,
            compactor=memory.compactor,
            listener=self.listener,
            before_compaction=before_compaction,
        )
        thinking = await asyncio.to_thread(self._thinking)
        asking = Asking(
            self.agent,
            self.session.session_id,
            lambda backend: fit(backend=backend),
            self._append_now,
            self.listener,
            thinking,
            memory.thoughts,
            memory.watch,
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
            self._append_now,
            self.listener,
            self.agent.clock,
            self.agent.id,
            self.session_key,
        )
        answers: list[Message] = []
        while True:
            before = await asyncio.to_thread(self._answered_before)
            answer = await asking.answer()
            self._tell_cache(answer, before)
            entry_id = await self._keep(answer, tools)
            self.memory.assembling.sent(entry_id, asking.sent_tokens)
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

    def _answered_before(self) -> Message | None:
        """The answer that the session has had last."""
        items = self.session.build_context().items
        said = (item.message for item in reversed(items) if isinstance(item.message, dict))
        return next((message for message in said if message.get("role") == "assistant"), None)

    def _tell_cache(self, answer: Message, before: Message | None) -> None:
        """Tell what the provider's cache did for an answer."""
        lifetime_ms = self.agent.policy.cache_lifetime_ms
        used = self.memory.watch.answered(answer, before, lifetime_ms)
        if used is not None:
            self.listener(used)

    async def _keep(self, answer: Message, tools: ToolRun) -> str:
        """Append an answer; where the turn is stopped in this moment, with its calls answered."""
        try:
            entry_id = await self._append(answer)
        except asyncio.CancelledError:
            await tools.refuse(calls_in(answer), NOT_RUN)
            raise
        self.listener(AnswerKept(answer, entry_id))
        return entry_id

    async def _append(self, message: Message) -> str:
        # What is complete is kept, even when the turn is stopped in this moment.
        return await to_the_end(asyncio.to_thread(self._append_now, message))

    def _append_now(self, message: Message) -> str:
        return self.session.append_message(message)
