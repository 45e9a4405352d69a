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

from strandline.errors import StrandlineError
from strandline.runtime.agent import Agent
from strandline.runtime.answers import text_of
from strandline.runtime.asking import Asking
from strandline.runtime.events import AnswerKept, CacheUsed, Listener, Notice, nobody
from strandline.runtime.finishing import to_the_end
from strandline.runtime.fitting import BeforeCompaction
from strandline.runtime.path_news import newest
from strandline.runtime.tool_loop import CUT_OFF, NOT_RUN, ToolRun, calls_cut_off, calls_in
from strandline.runtime.turn_memory import TurnMemory
from strandline.runtime.turn_result import TurnResult
from strandline.transcript.messages import (
    THINKING_LEVELS,
    JsonObject,
    Message,
    ThinkingLevel,
)
from strandline.transcript.session import Session

MOST_ROUNDS = 100
"""As often a turn asks the model; what it calls in the last round is not run any more."""


def user_message(text: str, now_ms: int) -> Message:
    """What a person typed, as a message."""
    return {"role": "user", "content": [{"type": "text", "text": text}], "timestamp": now_ms}


async def run_turn(
    session: Session, agent: Agent, message: Message | None, *, listener: Listener = nobody
) -> TurnResult:
    """A `Turn` on a session that nothing is remembered of; the caller holds its lane."""
    return await Turn(TurnMemory.of(session, agent), listener).run(message)


@dataclass(frozen=True)
class Turn:
    """One turn of the session of `memory`, whose lane the caller holds.

    `before_compaction` is as in `Fitting`.
    """

    memory: TurnMemory
    listener: Listener = nobody
    before_compaction: BeforeCompaction | None = None

    async def run(self, message: Message | None) -> TurnResult:
        """Append `message`, have the agent answer it, append the answer.

        Without a message, what was said last is answered (again). Cancelling the task stops the
        reply and keeps what came of it, as an aborted answer. Raises `ModelError` when no model
        answered, `ContextOverflow` when nothing can make the context fit (or the mode is
        "error"), and `EngineError`; the user's message is in the transcript either way.
        """
        clock = self.memory.agent.clock
        started_ms = clock.now_ms()
        if message is None:
            user_entry_id = self.memory.session.leaf_id or ""
        else:
            user_entry_id = await self._append(message)
        before, thinking = await asyncio.to_thread(self._look_back)
        asking = Asking(
            self.memory, self._append_now, self.listener, self.before_compaction, thinking
        )
        await asking.fitting.calibrate()
        answers = await self._converse(asking, before)
        tokens, window = await self._size(asking)
        return TurnResult(
            reply=text_of(answers[-1]),
            message=answers[-1],
            user_entry_id=user_entry_id,
            answers=tuple(answers),
            info=asking.backend.info,
            compactions=tuple(asking.fitting.compactions),
            context_tokens=tokens,
            context_window=window,
            duration_ms=clock.now_ms() - started_ms,
        )

    async def _size(self, asking: Asking) -> tuple[int, int]:
        """What the context takes now, and its window: the answers tell how the provider counts.

        What fails in it is told: the answer stands, and what was sent is as near as can be known.
        """
        fitting = asking.fitting
        try:
            return await fitting.size()
        except StrandlineError as error:
            self.listener(Notice(str(error)))
        tokens = asking.sent_tokens + fitting.fixed_tokens
        return int(tokens * fitting.scale), asking.backend.info.context_window

    def _look_back(self) -> tuple[Message | None, ThinkingLevel]:
        """The answer that the session has had last, and how hard its models think."""
        context = self.memory.session.build_context()
        answered = newest(context.items, "assistant")
        before = answered.message if answered else None
        if not any(backend.info.reasoning for backend in self.memory.agent.backends):
            return before, "off"  # looking it up may cost a reading of the whole file
        level = context.thinking_level
        return before, next((each for each in THINKING_LEVELS if each == level), "off")

    async def _converse(self, asking: Asking, before: Message | None) -> list[Message]:
        """Ask, run tools, ask again, until an answer calls none; `before` is the one before."""
        agent, key = self.memory.agent, self.memory.engine.key
        tools = ToolRun(agent.toolbox, self._append_now, self.listener, agent.clock, agent.id, key)
        answers: list[Message] = []
        while True:
            answer = await asking.answer()
            used = self._cache_used(answer, answers[-1] if answers else before)
            entry_id = await self._keep(answer, tools)
            if used is not None:
                self.listener(used)
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

    def _cache_used(self, answer: Message, before: Message | None) -> CacheUsed | None:
        """What the provider's cache did for an answer."""
        lifetime_ms = self.memory.agent.policy.cache_lifetime_ms
        return self.memory.watch.answered(answer, before, lifetime_ms)

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
        return self.memory.session.append_message(message)
