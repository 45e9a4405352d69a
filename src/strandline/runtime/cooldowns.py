"""Leaving a model alone for a while after it failed, by the class of the failure.

The policy is pure; where the records are kept is a seam, and the file that survives a
restart is one implementation (`strandline.stores.cooldowns_file`). An abort is not a
failure, and a request that was too long says nothing about the next one. Source: spec 3,
Budget and compaction (Summaries: back-off).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from strandline.clock import Clock
from strandline.errors import ModelErrorKind
from strandline.transcript.messages import JsonObject

MINUTE_MS = 60_000
LONGEST_MS = 60 * MINUTE_MS
"""No cool-down is longer."""

LATEST_END_MS = LONGEST_MS + MINUTE_MS
"""One that ends later than this was written by a wrong clock. Processes write at once, each
with the time it read before: a little later is nothing.
"""

FORGOTTEN_AFTER_MS = 60 * MINUTE_MS
"""A failure counts towards the next cool-down for as long after its own has ended."""

MOST_REFS = 100
MAX_REF_CHARS = 200

_RULES: Mapping[ModelErrorKind, tuple[int, int]] = {
    "rate": (MINUTE_MS, 15 * MINUTE_MS),
    "network": (MINUTE_MS // 2, 15 * MINUTE_MS),
    "auth": (60 * MINUTE_MS, 60 * MINUTE_MS),
    "refused": (5 * MINUTE_MS, 5 * MINUTE_MS),
}
"""The first cool-down of a class and the longest; each one in a row doubles."""


class CoolingDown(NamedTuple):
    """How long a model is left alone yet, and the class of the failure."""

    ms: int
    kind: ModelErrorKind


class Cooldowns(Protocol):
    """Which models are left alone after a failure, and how long yet. `ref` is ``provider/model``.

    All three may raise `StrandlineError` when the records cannot be had or kept, and may
    wait for a disk: call them off the event loop.
    """

    def remaining_ms(self, ref: str) -> CoolingDown | None:
        """How long and why the model is left alone; None when it may be asked."""
        ...

    def note_failure(
        self, ref: str, kind: ModelErrorKind, retry_after_s: float | None = None
    ) -> None:
        """The model failed; `retry_after_s` is its own word on when to come again."""
        ...

    def note_success(self, ref: str) -> None:
        """The model answered: what was held against it is forgotten."""
        ...


Records = Mapping[str, JsonObject]
"""By ``provider/model``: ``{"kind", "failures", "untilMs"}``, Unix milliseconds."""


class CooldownRecords(Protocol):
    """Where the records are. They may be anything: what makes no sense is ignored."""

    def read(self) -> Records:
        """All of them as they are now."""
        ...

    def update(self, change: Callable[[Records], Records]) -> None:
        """Put `change` of them in their place; nobody else changes them meanwhile."""
        ...


class MemoryRecords:
    """Records of this process only."""

    def __init__(self) -> None:
        self._records: Records = {}

    def read(self) -> Records:
        """The records."""
        return self._records

    def update(self, change: Callable[[Records], Records]) -> None:
        """Change them."""
        self._records = dict(change(self._records))


class RecordedCooldowns:
    """The policy on records; satisfies `Cooldowns`."""

    def __init__(self, records: CooldownRecords, clock: Clock) -> None:
        self._records = records
        self._clock = clock

    def remaining_ms(self, ref: str) -> CoolingDown | None:
        record = _record(self._records.read().get(_key(ref)))
        left = record.until_ms - self._clock.now_ms() if record else 0
        return CoolingDown(left, record.kind) if record and 0 < left <= LATEST_END_MS else None

    def note_failure(
        self, ref: str, kind: ModelErrorKind, retry_after_s: float | None = None
    ) -> None:
        now_ms = self._clock.now_ms()
        if kind in _RULES:
            self._records.update(
                lambda records: with_failure(records, _key(ref), kind, now_ms, retry_after_s)
            )

    def note_success(self, ref: str) -> None:
        if _key(ref) in self._records.read():
            self._records.update(
                lambda records: {key: r for key, r in records.items() if key != _key(ref)}
            )


@dataclass(frozen=True, slots=True)
class _Record:
    kind: ModelErrorKind
    failures: int
    until_ms: int


def with_failure(
    records: Records,
    ref: str,
    kind: ModelErrorKind,
    now_ms: int,
    retry_after_s: float | None = None,
) -> Records:
    """The records after one more failure, without those that are forgotten."""
    before = _record(records.get(ref))
    in_a_row = before.failures if before and before.kind == kind and _counts(before, now_ms) else 0
    wait_ms = cooldown_ms(kind, in_a_row, retry_after_s)
    kept = {
        key: records[key]
        for key in records
        if key != ref and (other := _record(records[key])) and _counts(other, now_ms)
    }
    newest = sorted(kept, key=lambda key: int(kept[key]["untilMs"]))[-(MOST_REFS - 1) :]
    record = {"kind": kind, "failures": in_a_row + 1, "untilMs": now_ms + wait_ms}
    return {**{key: kept[key] for key in newest}, ref: record}


def cooldown_ms(kind: ModelErrorKind, in_a_row: int, retry_after_s: float | None = None) -> int:
    """How long a model is left alone after a failure that `in_a_row` like it came before.

    >>> [cooldown_ms("network", n) // 1000 for n in range(4)]
    [30, 60, 120, 240]
    """
    first, longest = _RULES[kind]
    if kind == "rate" and retry_after_s is not None and retry_after_s > 0:
        return int(min(retry_after_s * 1000, LONGEST_MS))
    return min(first << min(in_a_row, 16), longest)


def _counts(record: _Record, now_ms: int) -> bool:
    return -FORGOTTEN_AFTER_MS < record.until_ms - now_ms <= LATEST_END_MS


def _record(value: Any) -> _Record | None:
    """A record as it was read, or None for what is none."""
    if not isinstance(value, dict):
        return None
    kind, failures, until_ms = (value.get(key) for key in ("kind", "failures", "untilMs"))
    known: ModelErrorKind | None = next((name for name in _RULES if name == kind), None)
    if known and type(failures) is int and type(until_ms) is int and failures >= 0:
        return _Record(known, failures, until_ms)
    return None


def _key(ref: str) -> str:
    return ref[:MAX_REF_CHARS]
