"""What went wrong with context engines lately: kept, so that people can be told of it.

There is no fallback from an engine that fails, so whoever asks `status` or `doctor` must
find which engine failed, at what, and when. What to keep is decided here; where it is kept
is a seam, and the file that survives a restart is one implementation
(`strandline.stores.engine_health_file`). Source: spec 3, Engine slot (No silent fallback).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from strandline.clock import Clock
from strandline.transcript.messages import JsonObject

MOST_FAILURES = 50
FORGOTTEN_AFTER_MS = 7 * 24 * 3_600_000
LATEST_AHEAD_MS = 24 * 3_600_000
"""What happens later than this was written by a wrong clock."""

MAX_NAME_CHARS = 200
MAX_WHAT_CHARS = 500
"""As much of an engine's own words is kept: they may be a whole page, and hold anything."""

DECLINED = "the engine's compact did nothing"


@dataclass(frozen=True, slots=True)
class EngineFailure:
    """An engine failed in `phase` (a method, or a step on the way to one).

    `session_key` is None where no session was at hand. `declined`: nothing broke, but its
    `compact` left the context as it was. The same again counts up `times`; `at_ms` is the
    last of them, Unix ms.
    """

    engine: str
    phase: str
    what: str
    session_key: str | None
    at_ms: int
    declined: bool = False
    times: int = 1


class EngineHealth(Protocol):
    """The failures of the last days.

    All three may raise `StrandlineError` when the records cannot be had or kept, and may
    wait for a disk: call them off the event loop.
    """

    def note(self, engine: str, phase: str, what: str, session_key: str | None) -> None:
        """An engine failed just now."""
        ...

    def note_declined(self, engine: str, session_key: str) -> None:
        """An engine that does not own compaction was asked to compact, and did nothing."""
        ...

    def recent(self) -> list[EngineFailure]:
        """What is known, the newest first. A success of the engine takes nothing away."""
        ...


class NoHealth:
    """Keeps nothing; satisfies `EngineHealth`."""

    def note(self, engine: str, phase: str, what: str, session_key: str | None) -> None:
        del engine, phase, what, session_key

    def note_declined(self, engine: str, session_key: str) -> None:
        del engine, session_key

    def recent(self) -> list[EngineFailure]:
        return []


Records = Sequence[JsonObject]
"""``{"engine", "phase", "what", "sessionKey", "atMs", "declined", "times"}`` each."""


class EngineHealthRecords(Protocol):
    """Where the records are. They may be anything: what makes no sense is ignored."""

    def read(self) -> Records:
        """All of them as they are now."""
        ...

    def update(self, change: Callable[[Records], Records]) -> None:
        """Put `change` of them in their place; nobody else changes them meanwhile."""
        ...


class MemoryHealthRecords:
    """Records of this process only."""

    def __init__(self) -> None:
        self._records: Records = ()

    def read(self) -> Records:
        """The records."""
        return self._records

    def update(self, change: Callable[[Records], Records]) -> None:
        """Change them."""
        self._records = tuple(change(self._records))


class RecordedEngineHealth:
    """The policy on records; satisfies `EngineHealth`."""

    def __init__(self, records: EngineHealthRecords, clock: Clock) -> None:
        self._records = records
        self._clock = clock

    def note(self, engine: str, phase: str, what: str, session_key: str | None) -> None:
        self._add(EngineFailure(engine, phase, what, session_key, self._clock.now_ms()))

    def note_declined(self, engine: str, session_key: str) -> None:
        now_ms = self._clock.now_ms()
        self._add(EngineFailure(engine, "compact", DECLINED, session_key, now_ms, declined=True))

    def _add(self, failure: EngineFailure) -> None:
        self._records.update(lambda records: with_failure(records, failure))

    def recent(self) -> list[EngineFailure]:
        return _understood(self._records.read(), self._clock.now_ms())


def with_failure(records: Records, failure: EngineFailure) -> Records:
    """The records after one more failure, the newest first, without those that are forgotten."""
    failure = replace(
        failure,
        engine=failure.engine[:MAX_NAME_CHARS],
        phase=failure.phase[:MAX_NAME_CHARS],
        what=failure.what[:MAX_WHAT_CHARS],
        session_key=failure.session_key and failure.session_key[:MAX_NAME_CHARS],
    )
    before = _understood(records, failure.at_ms)
    same = [each for each in before if _is_same(each, failure)]
    failure = replace(failure, times=sum(each.times for each in same) + failure.times)
    others = [each for each in before if not _is_same(each, failure)]
    return [_object(each) for each in [failure, *others][:MOST_FAILURES]]


def _is_same(one: EngineFailure, other: EngineFailure) -> bool:
    return replace(one, at_ms=0, times=1) == replace(other, at_ms=0, times=1)


def _understood(records: Records, now_ms: int) -> list[EngineFailure]:
    """The records that make sense and still count, the newest first."""
    found = [failure for record in records if (failure := _failure(record)) is not None]
    counting = [f for f in found if -LATEST_AHEAD_MS <= now_ms - f.at_ms < FORGOTTEN_AFTER_MS]
    return sorted(counting, key=lambda failure: -failure.at_ms)[:MOST_FAILURES]


def _object(failure: EngineFailure) -> JsonObject:
    return {
        "engine": failure.engine,
        "phase": failure.phase,
        "what": failure.what,
        "sessionKey": failure.session_key,
        "atMs": failure.at_ms,
        "declined": failure.declined,
        "times": failure.times,
    }


def _failure(record: Any) -> EngineFailure | None:
    """A record as it was read, or None for what is none."""
    if not isinstance(record, dict):
        return None
    engine, phase, what = (record.get(key) for key in ("engine", "phase", "what"))
    key, at_ms, times = (record.get(name) for name in ("sessionKey", "atMs", "times"))
    if not (isinstance(engine, str) and isinstance(phase, str) and isinstance(what, str)):
        return None
    if type(at_ms) is not int or not isinstance(key, str | None):
        return None
    counted = times if type(times) is int and times > 0 else 1
    return EngineFailure(engine, phase, what, key, at_ms, record.get("declined") is True, counted)
