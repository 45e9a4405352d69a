"""Asking models for one answer: again after a failure, then the next model, then giving up.

The user's entry is there already and is never said again, however often somebody is asked.
An overflow is not a failure of the model: the context is made smaller and it is asked again.
Source: spec 4, A turn (Retries with back-off; fallback models).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from strandline.context.prune import CONTEXT_LIMIT
from strandline.context.view import View
from strandline.errors import ContextOverflow, ModelError, ThreadLost
from strandline.runtime.agent import Agent, Backend
from strandline.runtime.answers import text_of
from strandline.runtime.assembling import Assembled
from strandline.runtime.cache_marks import cache_marks
from strandline.runtime.events import (
    AnswerBroken,
    AskedAgain,
    Listener,
    ReplyDiscarded,
    ReplyText,
    ThinkingText,
)
from strandline.runtime.finishing import to_the_end
from strandline.runtime.fitting import BeforeCompaction, Fitting
from strandline.runtime.model import (
    Failed,
    Finished,
    ModelEvent,
    ModelInfo,
    ModelRequest,
    TextDelta,
    ThinkingDelta,
)
from strandline.runtime.projecting import project
from strandline.runtime.retrying import wait_ms
from strandline.runtime.turn_memory import TurnMemory
from strandline.transcript.messages import JsonObject, Message, ThinkingLevel

NOTHING_USED = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 0}
NOTHING_PAID = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0}
"""What a stopped answer reports; readers such as pi add up the cost of every answer."""


@dataclass
class Asking:
    """The models of one turn. Who answered once goes on answering in that turn.

    `keep` appends what came of an answer that was broken off; `before_compaction` is as in
    `Fitting`. `sent_tokens` is what the messages of the last request took, ours.
    """

    memory: TurnMemory
    keep: Callable[[Message], str]
    listener: Listener
    before_compaction: BeforeCompaction | None
    thinking: ThinkingLevel
    sent_tokens: int = 0
    fitting: Fitting = field(init=False)
    _thread_is_lost: bool = False
    _renewed_for: int = 0
    _left: list[Backend] = field(init=False)
    _first_error: ModelError | ContextOverflow | None = None

    def __post_init__(self) -> None:
        first, *self._left = self.agent.backends
        self.fitting = self._fit(first)

    def _fit(self, backend: Backend) -> Fitting:
        return Fitting(self.memory, backend, self.listener, self.before_compaction)

    @property
    def agent(self) -> Agent:
        """Who answers."""
        return self.memory.agent

    @property
    def backend(self) -> Backend:
        """The model that is asked now."""
        return self.fitting.backend

    async def answer(self) -> Message:
        """The answer to the context as it stands.

        Its time is that at which the context was assembled: from it the context can be found
        again. Raises `ModelError`, `ContextOverflow`, `EngineError`.
        """
        attempt = 1
        while True:
            try:
                looked = await self._to_send()
            except ContextOverflow as error:
                await self._ask_another_instead(error)
                attempt = 1
                continue
            outcome = await self._ask(looked)
            if isinstance(outcome, Finished):
                self.fitting.answered()
                self._thread_is_lost = False  # the answer is of the new one
                self.memory.thoughts.answered(self.backend.info)
                return {**outcome.message, **self._recorded(looked)}
            attempt = await self._after_failure(outcome, looked.view, attempt)

    def _recorded(self, looked: Assembled) -> JsonObject:
        """What an answer says of its call, so that its context can be found again."""
        recorded: JsonObject = {"timestamp": looked.call_ms}
        if self.agent.policy.tool_results.mode != "off":
            recorded[CONTEXT_LIMIT] = looked.limit
        return recorded

    async def _to_send(self) -> Assembled:
        """A context that fits, after a compaction with a system prompt of now."""
        looked, compactions = await self.fitting.to_send(), self.fitting.compactions
        while self._renewed_for < len(compactions):
            self._renewed_for = len(compactions)
            if await asyncio.to_thread(self.memory.renew_prompt):
                looked = await self.fitting.to_send()
        return looked

    async def _ask_another_instead(self, error: ContextOverflow) -> None:
        """The next model may have the room that this one has not; raises where there is none."""
        if not self._left or self.agent.compaction.effective_mode == "error":
            raise self._told(error) from error
        await self._fall_back(error)

    async def _after_failure(self, failed: Failed, view: View, attempt: int) -> int:
        """Make another try possible and say which it is; or raise, with what came kept."""
        error = failed.error
        if error.kind == "overflow" and await self.fitting.after_overflow(error, view):
            self._discard(failed)
            return attempt
        if isinstance(error, ThreadLost) and not self._thread_is_lost:
            self._thread_is_lost = True
            self._discard(failed)
            return attempt
        said = [each.message for each in view.messages]
        if error.kind == "refused" and self.memory.thoughts.refused(self.backend.info, said):
            self._discard(failed)
            return attempt
        wait = wait_ms(error, attempt, self.agent.retry, random.random())  # noqa: S311 - spread
        if wait is not None:
            self._discard(failed)
            self.listener(AskedAgain(self.backend.info.ref, error.what, wait))
            await asyncio.sleep(wait / 1000)
            return attempt + 1
        if self._left and error.kind != "aborted":
            self._discard(failed)
            await self._fall_back(error)
            return 1
        await self._give_up(failed)
        raise self._told(error)

    def _discard(self, failed: Failed) -> None:
        if failed.partial is not None:
            self.listener(ReplyDiscarded(failed.partial.get("usage")))

    async def _fall_back(self, error: ModelError | ContextOverflow) -> None:
        self._first_error = self._first_error or error
        compactions = self.fitting.compactions
        self.fitting = self._fit(self._left.pop(0))
        self.fitting.compactions = compactions
        await self.fitting.calibrate()
        self.listener(AskedAgain(self.backend.info.ref, error.what, 0))

    async def _give_up(self, failed: Failed) -> None:
        if failed.partial is not None and text_of(failed.partial):
            kept = {**failed.partial, "stopReason": "error", "errorMessage": failed.error.what}
            await to_the_end(asyncio.to_thread(self.keep, kept))
            self.listener(AnswerBroken(kept))

    def _told(self, error: ModelError | ContextOverflow) -> ModelError | ContextOverflow:
        """The error to raise: the first model's, which is the one that was meant."""
        first = self._first_error
        if first is None or (isinstance(error, ModelError) and error.kind == "aborted"):
            return error
        what = f"{first.what} (and the fallbacks failed too, the last with: {error.what})"
        if isinstance(first, ContextOverflow):
            return ContextOverflow(what, remedy=first.remedy)
        return ModelError(
            what,
            kind=first.kind,
            remedy=first.remedy,
            prompt_tokens=first.prompt_tokens,
            window_tokens=first.window_tokens,
            retry_after_s=first.retry_after_s,
        )

    async def _ask(self, looked: Assembled) -> Finished | Failed:
        """One call. When it is cancelled, what came is appended as an aborted answer."""
        model, info = self.backend.model, self.backend.info
        request = self._request(looked, info)
        if request.thread is None:
            self.memory.watch.sends(request, looked.view, looked.addition)
        self.sent_tokens = looked.view.tokens
        came: list[str] = []
        try:
            async with aclosing(model.stream(request)) as events:
                async for event in events:
                    if isinstance(event, Finished | Failed):
                        return event
                    self._tell(event, came)
        except asyncio.CancelledError:
            await to_the_end(self._keep_aborted("".join(came), info, self._recorded(looked)))
            raise
        return Failed(
            ModelError(
                f"{info.ref} ended its stream without an answer",
                kind="network",
                remedy="try again; if it goes on, report the adapter",
            )
        )

    def _request(self, looked: Assembled, info: ModelInfo) -> ModelRequest:
        agent, memory = self.agent, self.memory
        projected = project(looked, info, anew=self._thread_is_lost)
        messages = [memory.thoughts.shown(info, each.message) for each in looked.view.messages]
        if projected is not None:
            messages = messages[projected.first :]
        tools: Sequence[JsonObject] = agent.described_tools if info.tools else ()
        return ModelRequest(
            info,
            "\n\n".join(filter(None, [looked.addition, agent.system_prompt])),
            messages,
            self.fitting.budget.answer_tokens(looked.view.tokens, info.max_output_tokens),
            tools,
            self.thinking if info.reasoning else "off",
            cache_marks(agent.provider_cache, memory.session.session_id, len(messages)),
            projected.thread if projected is not None else None,
        )

    def _tell(self, event: ModelEvent, came: list[str]) -> None:
        if isinstance(event, TextDelta):
            came.append(event.text)
            self.listener(ReplyText(event.text))
        elif isinstance(event, ThinkingDelta):
            self.listener(ThinkingText(event.text))

    async def _keep_aborted(self, text: str, info: ModelInfo, recorded: JsonObject) -> None:
        if text:
            answer: Message = {
                "role": "assistant",
                "content": [{"type": "text", "text": text}],
                "api": info.api,
                "provider": info.provider,
                "model": info.id,
                "usage": {**NOTHING_USED, "cost": {**NOTHING_PAID}},
                "stopReason": "aborted",
                **recorded,
            }
            await asyncio.to_thread(self.keep, answer)
