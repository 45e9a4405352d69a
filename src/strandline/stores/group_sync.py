"""Many waiting for one sync: concurrent appends to a file share its fsync (group commit)."""

from __future__ import annotations

import threading
from collections.abc import Callable


class GroupSync:
    """Makes sure that everything written before a call is synced when the call returns.

    Whoever finds no sync under way does one, for all that was written by then; the
    others wait for it and return when it covered them. A failed sync is everybody's
    failure who waited for it: after one, the kernel may have dropped the bytes.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._written = 0
        self._synced = 0
        self._failed = 0
        self._error: OSError | None = None
        self._busy = False

    def wrote(self) -> None:
        """Something was written that a later `sync` must cover."""
        with self._changed:
            self._written += 1

    def sync(self, sync_file: Callable[[], None]) -> None:
        """Return when all that was written before this call is synced. Raises `OSError`."""
        with self._changed:
            mine = self._written
            while self._busy and self._synced < mine:
                self._changed.wait()
            if self._synced >= mine:
                self._raise_if_failed(mine)
                return
            self._busy, covers = True, self._written
        error: OSError | None = None
        try:
            sync_file()
        except OSError as caught:
            error = caught
        with self._changed:
            self._busy, self._synced = False, covers
            if error is not None:
                self._failed, self._error = covers, error
            self._changed.notify_all()
        if error is not None:
            raise error

    def _raise_if_failed(self, mine: int) -> None:
        if self._error is not None and mine <= self._failed and self._failed == self._synced:
            raise self._error
