"""Many waiting for one sync: concurrent appends to a file share its fsync (group commit)."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable


class GroupSync:
    """Syncs one open file, for all who wait at the same time.

    Who comes while a sync runs waits for it, if it covers the bytes in question, or joins
    the next: the first to do so leads it. Bytes whose sync failed are never called synced,
    whatever a later sync says: the kernel may have dropped them.
    """

    def __init__(self, sync_file: Callable[[], None]) -> None:
        self._sync_file = sync_file
        self._state = threading.Lock()
        self._turn = threading.Lock()
        self._forming: threading.Lock | None = None  # locked until that sync has ended
        self._written = 0
        self._covered = 0
        self._running = threading.Lock()
        self._lost: list[tuple[int, int, OSError]] = []

    def wrote(self, end: int) -> None:
        """The file was written up to `end`, which a later `sync` must cover. One at a time."""
        self._written = end

    def sync(self, start: int) -> None:
        """Return when the bytes written at `start` are synced. Raises `OSError`."""
        covered = False
        while not covered:  # again where a leader never began
            with self._state:
                ended, leads = self._join(start)
            if leads:
                self._lead(ended, start)
            else:
                with ended:
                    pass
            covered = start < self._covered
        for low, high, failure in self._lost:
            if low <= start < high:
                raise failure

    def _join(self, start: int) -> tuple[threading.Lock, bool]:
        """The sync that covers `start`: ended, running, or forming; and whether to lead it."""
        if start < self._covered:
            return self._running, False
        if self._forming is None:
            self._forming = threading.Lock()
            self._forming.acquire()
            return self._forming, True
        return self._forming, False

    def _lead(self, ended: threading.Lock, start: int) -> None:
        """Sync for all who joined; whoever comes from here on may need another sync."""
        try:
            with self._turn:
                with self._state:
                    low, high = self._covered, max(self._written, start + 1)
                    self._forming, self._running, self._covered = None, ended, high
                self._sync(low, high)
        finally:
            with self._state:
                if self._forming is ended:  # interrupted while it waited for its turn
                    self._forming = None
            ended.release()

    def _sync(self, low: int, high: int) -> None:
        failure: OSError | None = OSError(errno.EINTR, "the sync was broken off")
        try:
            self._sync_file()
            failure = None
        except OSError as error:
            failure = error
        finally:
            if failure is not None:
                self._lost.append((low, high, failure))
