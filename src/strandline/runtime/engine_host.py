"""The host of an agent's context engine: calls it, and tells what fails in it.

An engine is anybody's code. Whatever it raises, answers or waits for in vain becomes one
`EngineError` that names the engine, the phase and the ways out, and is noted in the agent's
engine health. There is no fallback to another engine. Source: spec 3, Engine slot.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

from strandline.context.engine import (
    LEGACY,
    THREADS,
    AssembleResult,
    CompactionOutcome,
    CompactResult,
    ContextEngine,
    ContextProjection,
    Ingested,
    LegacyEngine,
)
from strandline.errors import EngineError, EngineUnavailable, StrandlineError
from strandline.runtime.engine_health import EngineHealth, NoHealth
from strandline.runtime.finishing import cancellings
from strandline.runtime.model import ModelInfo
from strandline.runtime.reporting import words
from strandline.transcript.context import PathMessage
from strandline.transcript.live_context import MessagesSoFar
from strandline.transcript.messages import Message

Answer = TypeVar("Answer")

MOST_S = 120.0
"""An engine that takes longer is not waited for."""

MOST_COMPACTING_S = 1800.0
"""The same for a compaction: it may ask a model for a summary in many parts."""

MAX_ADDITION_CHARS = 200_000
"""The longest text that an engine may put before the system prompt."""


@dataclass
class EngineHost:
    """One engine, for all sessions of one agent; `health` is told what fails in it.

    `users` counts the conversations that hold it. `is_closed`: it was disposed of.
    """

    engine: ContextEngine = field(default_factory=LegacyEngine)
    health: EngineHealth = field(default_factory=NoHealth)
    users: int = 0
    is_closed: bool = False

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

    @property
    def maintains_in_foreground(self) -> bool:
        """Whether a turn waits for the engine's upkeep."""
        return self.engine.info.turn_maintenance_mode == "foreground"

    def fits(self, info: ModelInfo) -> bool:
        """Whether the model has what the engine needs."""
        return info.threads or THREADS not in self.engine.info.host_requirements

    def check(self, info: ModelInfo) -> None:
        """Raises `EngineUnavailable` where the engine needs what the model does not have."""
        if not self.fits(info):
            problem = f"needs a model with threads, which {info.ref} is not"
            self._note("requirements", f"it {problem}", None)
            raise EngineUnavailable(
                f"the context engine {self.id} {problem}",
                engine=self.id,
                phase="requirements",
                remedy="choose a model that speaks openai-responses, or set "
                "plugins.slots.contextEngine to 'legacy'",
            )

    async def ask(
        self,
        phase: str,
        session_key: str | None,
        call: Callable[[ContextEngine], Awaitable[Answer]],
        wrong: Callable[[Answer], str | None],
    ) -> Answer:
        """What the engine answers. `wrong` says what is wrong with an answer, if anything.

        Raises `EngineError`, and `CancelledError` where the caller is cancelled.
        """
        asked_to_stop = cancellings()
        limit_s = MOST_COMPACTING_S if phase == "compact" else MOST_S
        try:
            async with asyncio.timeout(limit_s) as limit:
                answer = await call(self.engine)
            problem = wrong(answer)
        except asyncio.CancelledError:
            if cancellings() > asked_to_stop:
                raise
            problem = "what it waited for was cancelled"
        except (Exception, SystemExit) as error:  # noqa: BLE001 - anybody's code
            late = isinstance(error, TimeoutError) and limit.expired()
            problem = f"it did not answer within {limit_s:g} s" if late else words(error)
        else:
            if problem is None:
                return answer
        raise await self.failed(phase, session_key, problem)

    async def failed(self, phase: str, session_key: str | None, problem: str) -> EngineError:
        """The error for what the engine did, which is noted."""
        what = f"the context engine {self.id} failed in {phase} ({problem[:500]})"
        await asyncio.to_thread(self._note, phase, problem, session_key)
        return EngineError(what, engine=self.id, phase=phase)

    def _note(self, phase: str, problem: str, session_key: str | None) -> None:
        with suppress(StrandlineError):  # the failure itself is the one to tell
            self.health.note(self.id, phase, problem, session_key)

    async def declined(self, session_key: str) -> None:
        """Note that a compaction was asked for and the engine made none."""
        with suppress(StrandlineError):  # a statistic
            await asyncio.to_thread(self.health.note_declined, self.id, session_key)

    def take(self) -> EngineHost:
        """Hold it; `release` it when done."""
        self.users += 1
        return self

    async def release(self) -> EngineError | None:
        """Dispose of the engine when nobody holds it any more.

        Raises nothing: what fails in that comes after everything else. It is noted, and given
        back to be told.
        """
        self.users -= 1
        if self.users > 0 or self.is_closed or self.is_legacy:
            return None
        self.is_closed = True
        try:
            await self.ask("dispose", None, lambda engine: engine.dispose(), nothing_wrong)
        except EngineError as error:
            return error
        return None


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
    if problem is not None:
        return problem
    if not isinstance(answer.reason, str):
        return "its reason is no text"
    return None if answer.result is None else _wrong_outcome(answer.result)


def _wrong_outcome(result: CompactionOutcome) -> str | None:
    problem = _wrong_type(result, CompactionOutcome)
    if problem is not None:
        return problem
    ids = (result.first_kept_entry_id, result.entry_id, result.session_id, result.session_file)
    if not isinstance(result.summary, str) or not all(isinstance(i, str | None) for i in ids):
        return "a summary, id or file of its result is no text"
    if not isinstance(result.details, dict):
        return "the details of its result are no object"
    return None


def wrong_assembled(answer: AssembleResult) -> str | None:
    """What is wrong with the answer to `assemble`."""
    problem = _wrong_type(answer, AssembleResult)
    if problem is not None:
        return problem
    problem = _wrong_messages(answer.messages)
    if problem is not None:
        return problem
    if not isinstance(answer.estimated_tokens, int) or answer.estimated_tokens < 0:
        return "its estimated_tokens are no number of tokens"
    if answer.prompt_authority not in {"assembled", "preassembly_may_overflow"}:
        return "its prompt_authority is none that there is"
    return _wrong_addition(answer.system_prompt_addition) or _wrong_projection(
        answer.context_projection
    )


def _wrong_messages(messages: Sequence[PathMessage | Message]) -> str | None:
    """What is wrong with messages that are to be seen: more than a model could be told."""
    if isinstance(messages, MessagesSoFar):
        return None  # those that it was given
    if isinstance(messages, str | bytes) or not isinstance(messages, Sequence):
        return "its messages are no sequence"
    seen: set[str] = set()
    for each in messages:
        if isinstance(each, dict):
            continue
        if not isinstance(each, PathMessage) or not isinstance(each.entry_id, str):
            return "one of its messages is neither a PathMessage nor a message"
        if each.entry_id and each.entry_id in seen:
            return f"it shows the entry {each.entry_id} twice"
        seen.add(each.entry_id)
    return None


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
