"""The context cache of one process: the least recently used make room.

Satisfies `strandline.context.cache.ContextCache`. Source: spec 3, Caches.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import NamedTuple

from strandline.clock import Clock

MOST_BYTES = 64 << 20


class _Kept(NamedTuple):
    session: str
    value: bytes
    put_ms: int
    lifetime_ms: int


class MemoryContextCache:
    """At most `max_entries` values of at most `max_bytes` together. Safe for threads."""

    def __init__(self, clock: Clock, max_entries: int, *, max_bytes: int = MOST_BYTES) -> None:
        self._clock = clock
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._lock = Lock()
        self._kept: OrderedDict[str, _Kept] = OrderedDict()  # the least recently used first
        self._of_session: dict[str, set[str]] = {}
        self._bytes = 0

    def get(self, key: str) -> bytes | None:
        """The value, which is now the most recently used; None where there is none."""
        with self._lock:
            kept = self._kept.get(key)
            # A clock that was set back lets nothing live longer.
            if kept and 0 <= self._clock.now_ms() - kept.put_ms < kept.lifetime_ms:
                self._kept.move_to_end(key)
                return kept.value
            self._forget(key)
            return None

    def put(self, session: str, key: str, value: bytes, lifetime_ms: int) -> None:
        """Keep the value, in place of what was under its key."""
        with self._lock:
            self._forget(key)
            self._kept[key] = _Kept(session, value, self._clock.now_ms(), lifetime_ms)
            self._of_session.setdefault(session, set()).add(key)
            self._bytes += len(value)
            while len(self._kept) > self._max_entries or self._bytes > self._max_bytes:
                self._forget(next(iter(self._kept)))

    def drop(self, session: str) -> None:
        """Forget what was put for the session."""
        with self._lock:
            for key in tuple(self._of_session.get(session, ())):
                self._forget(key)

    def close(self) -> None:
        """Forget everything."""
        with self._lock:
            self._kept.clear()
            self._of_session.clear()
            self._bytes = 0

    def _forget(self, key: str) -> None:
        kept = self._kept.pop(key, None)
        if kept is None:
            return
        self._bytes -= len(kept.value)
        keys = self._of_session[kept.session]
        keys.discard(key)
        if not keys:
            del self._of_session[kept.session]
