"""A clock that tests move by hand, and ids that count.

With both, a whole turn is the same bytes each time it runs. They satisfy the protocols of
`strandline.clock`.
"""

from __future__ import annotations

import itertools
import uuid


class SimulatedClock:
    """Stands still until it is told to move. `start_ms` is Unix time in milliseconds.

    >>> clock = SimulatedClock(1_000)
    >>> clock.advance(250)
    >>> clock.now_ms()
    1250
    """

    def __init__(self, start_ms: int = 1_767_225_600_000) -> None:
        self._now_ms = start_ms

    def now_ms(self) -> int:
        return self._now_ms

    def advance(self, ms: int) -> None:
        """Move by `ms` milliseconds; a negative number is a machine's clock set back."""
        self._now_ms += ms

    def set(self, unix_ms: int) -> None:
        """Move to a moment: Unix time in milliseconds."""
        self._now_ms = unix_ms


class CountingIds:
    """Counts from 1: entry ids ``00000001``, ``00000002``…, session ids as UUIDs (version 4).

    The two kinds count apart, so that one more entry does not change the next session's id.

    >>> ids = CountingIds()
    >>> ids.entry_id(), ids.entry_id(), ids.session_id()
    ('00000001', '00000002', '00000000-0000-4000-8000-000000000001')
    """

    def __init__(self, start: int = 1) -> None:
        self._entries = itertools.count(start)
        self._sessions = itertools.count(start)

    def entry_id(self) -> str:
        return f"{next(self._entries):08x}"

    def session_id(self) -> str:
        return str(uuid.UUID(int=next(self._sessions), version=4))
