"""Time and identity, passed in: nothing below the edges asks the machine for either.

`SystemClock` and `RandomIds` are the real ones; `strandline.testing` has a clock that
tests move by hand and ids that count.
"""

from __future__ import annotations

import secrets
import time
import uuid
from datetime import UTC, datetime
from functools import lru_cache
from typing import Protocol


class Clock(Protocol):
    """Says what time it is."""

    def now_ms(self) -> int:
        """Unix time in milliseconds, UTC."""
        ...


class IdSource(Protocol):
    """Makes identities that nobody else makes."""

    def entry_id(self) -> str:
        """Eight lowercase hex digits (spec 1, File); the caller checks for collisions."""
        ...

    def session_id(self) -> str:
        """A UUID in text form."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


class RandomIds:
    """Identities from the operating system's random source, fetched for many ids at a time."""

    _AT_A_TIME = 512

    def __init__(self) -> None:
        self._ready: list[str] = []

    def entry_id(self) -> str:
        try:
            return self._ready.pop()
        except IndexError:
            digits = secrets.token_hex(4 * self._AT_A_TIME)
            self._ready = [digits[at : at + 8] for at in range(8, len(digits), 8)]
            return digits[:8]

    def session_id(self) -> str:
        return str(uuid.uuid4())


def iso_from_ms(unix_ms: int) -> str:
    """ISO-8601 in UTC with milliseconds and ``Z``, as JavaScript's ``toISOString`` writes it.

    >>> iso_from_ms(1765051981781)
    '2025-12-06T20:13:01.781Z'
    """
    return f"{_iso_second(unix_ms // 1000)}.{unix_ms % 1000:03d}Z"


@lru_cache(maxsize=2)
def _iso_second(unix_s: int) -> str:
    return datetime.fromtimestamp(unix_s, UTC).isoformat()[:19]


def ms_from_iso(text: object) -> int | None:
    """Unix milliseconds of an ISO-8601 text, or None for anything that is none.

    >>> ms_from_iso("2025-12-06T20:13:01.781Z")
    1765051981781
    >>> ms_from_iso("yesterday") is None
    True
    """
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    delta = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (delta.days * 86_400 + delta.seconds) * 1000 + delta.microseconds // 1000
