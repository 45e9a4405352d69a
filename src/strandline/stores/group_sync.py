"""Many waiting for one sync: concurrent appends to a file share its fsync (group commit)."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable


class GroupSync:
    """Syncs one open file, for all who wait at the same time.

    Whoever finds no sync under way does one, for all that was written by then; the
    others wait, and return when a sync covered their bytes. Bytes whose sync failed are
    never called synced, whatever a later sync says: the kernel may have dropped them.
    """

    def __init__(self, sync_file: Callable[[], None]) -> None:
        self._sync_file = sync_file
        self._changed = threading.Condition()
        self._written = 0
        self._synced = 0
        self._lost: list[tuple[int, int, OSError]] = []
        self._busy = False

    def wrote(self, end: int) -> None:
        """The file was written up to `end`, which a later `sync` must cover. One at a time."""
        self._written = end

    def sync(self, start: int) -> None:
        """Return when the bytes written at `start` are synced. Raises `OSError`."""
        with self._changed:
            while self._busy and self._synced <= start:
                self._changed.wait()
            if self._synced > start:
                self._refuse_lost(start)
                return
            self._busy, low, high = True, self._synced, max(self._written, start + 1)
        failure: OSError | None = OSError(errno.EINTR, "the sync was broken off")
        try:
            self._sync_file()
            failure = None
        except OSError as error:
            failure = error
            raise
        finally:
            with self._changed:
                self._busy, self._synced = False, high
                if failure is not None:
                    self._lost.append((low, high, failure))
                self._changed.notify_all()

    def _refuse_lost(self, start: int) -> None:
        for low, high, failure in self._lost:
            if low <= start < high:
                raise failure
