"""Many waiting for one sync: concurrent appends to a file share its fsync (group commit)."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable


class GroupSync:
    """Syncs one open file, for all who wait at the same time.

    While one sync runs, whoever comes joins the next: the first of them leads it, the
    others wait for the leader. Bytes whose sync failed are never called synced, whatever a
    later sync says: the kernel may have dropped them.
    """

    def __init__(self, sync_file: Callable[[], None]) -> None:
        self._sync_file = sync_file
        self._state = threading.Lock()
        self._turn = threading.Lock()
        self._forming: threading.Event | None = None
        self._written = 0
        self._synced = 0
        self._lost: list[tuple[int, int, OSError]] = []

    def wrote(self, end: int) -> None:
        """The file was written up to `end`, which a later `sync` must cover. One at a time."""
        self._written = end

    def sync(self, start: int) -> None:
        """Return when the bytes written at `start` are synced. Raises `OSError`."""
        with self._state:
            is_synced = self._synced > start
            done = self._forming
            leads = not is_synced and done is None
            if leads:
                done = self._forming = threading.Event()
        if leads and done is not None:
            self._lead(done)
        elif done is not None and not is_synced:
            done.wait()
        for low, high, failure in self._lost:
            if low <= start < high:
                raise failure

    def _lead(self, done: threading.Event) -> None:
        """Sync for all who joined; whoever comes from here on needs another sync."""
        with self._turn:
            with self._state:
                self._forming = None
                low, high = self._synced, self._written
            failure: OSError | None = OSError(errno.EINTR, "the sync was broken off")
            try:
                self._sync_file()
                failure = None
            except OSError as error:
                failure = error
            finally:
                with self._state:
                    if failure is not None:
                        self._lost.append((low, high, failure))
                    self._synced = high
                done.set()
