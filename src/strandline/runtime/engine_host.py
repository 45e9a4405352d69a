"""The host of an agent's context engine: calls it, and tells what fails in it.

An engine is anybody's code. Whatever it raises, answers or waits for in vain becomes one
`EngineError` that names the engine, the phase and the ways out, and is noted in the agent's
engine health. There is no fallback to another engine. Source: spec 3, Engine slot.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

from strandline.clock import Clock
from strandline.context.engine import (
    LEGACY,
    THREADS,
    AssembleResult,
    CompactResult,
    ContextEngine,
    ContextProjection,
    Ingested,
    LegacyEngine,
)
from strandline.errors import EngineError, EngineUnavailable, StrandlineError
from strandline.runtime.engine_health import EngineFailure, EngineHealth
from strandline.runtime.finishing import cancellings
from strandline.runtime.model import ModelInfo
from strandline.transcript.context import PathMessage

Answer = TypeVar("Answer")

MOST_S = 120.0
"""An engine that takes longer is not waited for."""

MOST_COMPACTING_S = 1800.0
"""The same for a compaction: it may ask a model for a summary in many parts."""

MAX_ADDITION_CHARS = 200_000
"""The longest text that an engine may put before the system prompt."""


@dataclass
class EngineHost:
    """One engine, for all sessions of one agent; `close` disposes of it once.

    `users` are the conversations that hold it.
    """

    clock: Clock
    engine: ContextEngine = field(default_factory=LegacyEngine)
    health: EngineHealth | None = None
    users: int = 0
    _closed: bool = False

    @property
    def id(self) -> str:
        """The engine's id."""
        return self.engine.info.id

    @property
    def is_legacy(self) -> bool:
        """Whether it is the built-in one, which needs to be told nothing."""
        return self.id == LEGACY

    @property
    def owns_compaction(self) -> bool:
        """Whether the built-in automatic compaction is off."""
        return self.engine.info.owns_compaction

    def check(self, info: ModelInfo) -> None:
        """Raises `EngineUnavailable` where the engine needs what the model does not have."""
        if THREADS in self.engine.info.host_requirements and not info.threads:
            raise EngineUnavailable(
                f"the context engine {self.id} needs a model with threads, which {info.ref} is not",
                engine=self.id,
                phase="requirements",
                remedy="choose a model that speaks openai-responses, or set "
                "plugins.slots.contextEngine to 'legacy'",
            )

    async def ask(
        self,
        phase: str,
        session_key: str,
        call: Callable[[ContextEngine], Awaitable[Answer]],
        wrong: Callable[[Answer], str | None],
    ) -> Answer:
        """What the engine answers. `wrong` says what is wrong with an answer, if anything.

        Raises `EngineError`, and `CancelledError` where the caller is cancelled.
        """
        asked_to_stop = cancellings()
        try:
            async with asyncio.timeout(MOST_COMPACTING_S if phase == "compact" else MOST_S):
                answer = await call(self.engine)
            problem = wrong(answer)
        except asyncio.CancelledError:
            if cancellings() > asked_to_stop:
                raise
            problem = "what it waited for was cancelled"
        except TimeoutError:
            problem = "it did not answer in time"
        except (Exception, SystemExit) as error:  # noqa: BLE001 - anybody's code
            problem = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        else:
            if problem is None:
                return answer
        raise await self._failed(phase, session_key, problem)

    async def _failed(self, phase: str, session_key: str, problem: str) -> EngineError:
        what = f"the context engine {self.id} failed in {phase} ({problem[:500]})"
        failure = EngineFailure(self.id, phase, problem, session_key, self.clock.now_ms())
        if self.health is not None:
            with suppress(StrandlineError):  # the failure itself is the one to tell
                await asyncio.to_thread(self.health.note, failure)
        return EngineError(what, engine=self.id, phase=phase)

    async def declined(self, session_key: str) -> None:
        """Note that a compaction was asked for and the engine made none."""
        if self.health is not None:
            note, now_ms = self.health.note_declined, self.clock.now_ms()
            with suppress(StrandlineError):  # a statistic
                await asyncio.to_thread(note, self.id, session_key, now_ms)

    def take(self) -> EngineHost:
        """Hold it; `release` it when done."""
        self.users += 1
        return self

    async def release(self) -> None:
        """Dispose of the engine when nobody holds it any more. Raises `EngineError`."""
        self.users -= 1
        if self.users <= 0 and not self._closed and not self.is_legacy:
            self._closed = True
            await self.ask("dispose", "", lambda engine: engine.dispose(), nothing_wrong)

    @property
    def is_closed(self) -> bool:
        """Whether its engine was disposed of."""
        return self._closed


def nothing_wrong(answer: object) -> str | None:
    """For answers that nobody looks at."""
    del answer
    return None


def wrong_ingested(answer: Ingested) -> str | None:
    """What is wrong with the answer to `ingest` or `ingest_batch`."""
    return _wrong_type(answer, Ingested)


def wrong_compact(answer: CompactResult) -> str | None:
    """What is wrong with the answer to `compact`."""
    problem = _wrong_type(answer, CompactResult)
    if problem is None and answer.result is not None:
        texts = (answer.result.summary, answer.result.session_id or "")
        if not all(isinstance(text, str) for text in texts):
            return "a summary or a session id of it is no text"
    return problem


def wrong_assembled(answer: AssembleResult) -> str | None:
    """What is wrong with the answer to `assemble`."""
    problem = _wrong_type(answer, AssembleResult)
    if problem is not None:
        return problem
    if isinstance(answer.messages, str | bytes) or not hasattr(answer.messages, "__iter__"):
        return "its messages are no sequence"
    if not all(isinstance(each, PathMessage | dict) for each in answer.messages):
        return "one of its messages is neither a PathMessage nor a message"
    if not isinstance(answer.estimated_tokens, int) or answer.estimated_tokens < 0:
        return "its estimated_tokens are no number of tokens"
    if answer.prompt_authority not in {"assembled", "preassembly_may_overflow"}:
        return "its prompt_authority is none that there is"
    return _wrong_addition(answer.system_prompt_addition) or _wrong_projection(
        answer.context_projection
    )


def _wrong_addition(addition: object) -> str | None:
    if addition is None or (isinstance(addition, str) and len(addition) <= MAX_ADDITION_CHARS):
        return None
    return f"its system_prompt_addition is no text of at most {MAX_ADDITION_CHARS:,} characters"


def _wrong_projection(projection: ContextProjection | None) -> str | None:
    if projection is None:
        return None
    problem = _wrong_type(projection, ContextProjection)
    if problem is None and projection.mode not in {"per_turn", "thread_bootstrap"}:
        problem = "the mode of its context_projection is none that there is"
    return problem


def _wrong_type(answer: object, expected: type) -> str | None:
    if isinstance(answer, expected):
        return None
    return f"it answered with a {type(answer).__name__}, not a {expected.__name__}"
