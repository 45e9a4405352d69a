"""Rows in ``sessions.json``, as OpenClaw lays it out, for any number of processes.

The file is a map from session key to row, indented by two spaces. Each change locks, reads
the whole file, changes one row and puts a new file in its place; nothing that was read
before the lock is trusted, so two writers never lose each other's rows, and an edit by hand
is kept. Reading takes no lock, because a file is replaced whole. Source: spec 2, On disk and
Store entry.

A damaged file is copied to ``sessions.json.damaged.<time>``, then replaced by what
`rows_rebuild` has back of it, and a warning says so. A missing file is an empty store.
"""

from __future__ import annotations

import builtins
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from strandline.clock import Clock, SystemClock, iso_from_ms
from strandline.errors import SessionBusy, StoreError, StoreWriteFailed
from strandline.sessions.rows import SessionRow, is_row, row_of, transcript_name
from strandline.sessions.store import Changed, stored_key
from strandline.stores.disk import Disk, DiskFile, RealDisk
from strandline.stores.foreign_lock import foreign_holder
from strandline.stores.rows_json import decoded_rows, encoded_rows
from strandline.stores.rows_memory import require_expected
from strandline.stores.rows_rebuild import Rebuilt, agent_of, find_transcripts, rebuild
from strandline.stores.whole_file import backing_off, open_lock, replace_whole, write_new

"""Of our lock file, which stays. Never ``.lock``: OpenClaw takes that name for its own."""

SETTLE_TRIES = 5
SETTLE_PAUSE_S = 0.05
"""An editor that saves in place leaves a torn file for a moment; that is no damage."""


class _Snapshot(NamedTuple):
    """The bytes of the file and what they say. Nobody changes `entries`."""

    content: bytes
    entries: dict[str, Any]


class RowsFile:
    """The rows of one ``sessions.json``; satisfies `RowStore`.

    `read_only` never writes, not even to mend a damaged file: what can be had back of it is
    shown. `warnings` collects what a person should know, and `warn` hears it at once.
    `pause` waits for so many seconds.
    """

    def __init__(
        self,
        path: Path,
        *,
        disk: Disk | None = None,
        clock: Clock | None = None,
        pause: Callable[[float], None] = time.sleep,
        lock_timeout_ms: int = 60_000,
        read_only: bool = False,
        warn: Callable[[str], None] | None = None,
    ) -> None:
        self.path = path
        self.warnings: list[str] = []
        self._disk: Disk = disk or RealDisk()
        self._clock: Clock = clock or SystemClock()
        self._pause = pause
        self._lock_timeout_ms = lock_timeout_ms
        self._read_only = read_only
        self._warn = warn
        self._last: _Snapshot | None = None

    def get(self, key: str) -> SessionRow | None:
        entries = self._entries()
        return _row(entries.get(stored_key(key, entries)))

    def list(self) -> builtins.dict[str, SessionRow]:
        entries = self._entries()
        return {key: row_of(entry) for key, entry in entries.items() if is_row(entry)}

    def patch(
        self,
        key: str,
        change: Callable[[SessionRow | None], Changed],
        expected: SessionRow | None = None,
    ) -> Changed:
        with self._locked():
            entries = self._entries_for_change()
            name = stored_key(key, entries)
            current = _row(entries.get(name))
            require_expected(name, current, expected)
            changed = change(current)
            if changed is not None and changed != current:
                self._replace({**entries, name: dict(changed.raw)})
            return changed

    def delete(self, key: str) -> bool:
        with self._locked():
            entries = dict(self._entries_for_change())
            if entries.pop(stored_key(key, entries), None) is None:
                return False
            self._replace(entries)
            return True

    # -- reading -----------------------------------------------------------------------

    def _entries(self) -> builtins.dict[str, Any]:
        content = self._content()
        entries = self._understood(content)
        if entries is not None:
            return entries
        if self._read_only:
            return self._shown_only(content)
        with self._locked():
            return self._entries_for_change()

    def _entries_for_change(self) -> builtins.dict[str, Any]:
        """The entries as they are now, mended if need be. The lock must be held."""
        for _ in range(SETTLE_TRIES):
            entries = self._understood(self._content())
            if entries is not None:
                return entries
            self._pause(SETTLE_PAUSE_S)
        return self._mend(self._content() or b"")

    def _content(self) -> bytes | None:
        """The whole file; None when there is none."""
        try:
            file = self._disk.open(self.path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unreadable(error) from error
        try:
            return file.read_at(0, file.size())
        except OSError as error:
            raise self._unreadable(error) from error
        finally:
            file.close()

    def _understood(self, content: bytes | None) -> builtins.dict[str, Any] | None:
        """The entries that `content` says, or None for damage.

        Only equal bytes mean an unchanged file: times and sizes can repeat.
        """
        if content is None:
            return {}
        if self._last is None or self._last.content != content:
            entries = decoded_rows(content)
            if entries is None:
                return None
            self._last = _Snapshot(content, entries)
            self._tell_of_odd(entries)
        return self._last.entries

    def _tell_of_odd(self, entries: builtins.dict[str, Any]) -> None:
        odd = [key for key, entry in entries.items() if not is_row(entry)]
        if odd:
            self._tell(
                f"{self.path}: {len(odd)} entries are no rows, {odd[0]!r} for one; they are kept "
                "and used for nothing: give them a sessionId or delete them"
            )

    # -- damage ------------------------------------------------------------------------

    def _mend(self, content: bytes) -> builtins.dict[str, Any]:
        """Set the damaged file aside, then put what is left in its place."""
        rebuilt = self._rebuilt(content)
        aside = self._set_aside(content)
        self._replace(rebuilt.entries)
        self._tell(f"{_told(self.path, rebuilt)}; the damaged file is kept as {aside.name}")
        return rebuilt.entries

    def _shown_only(self, content: bytes | None) -> builtins.dict[str, Any]:
        rebuilt = self._rebuilt(content or b"")
        message = f"{_told(self.path, rebuilt)}; the file was left as it is"
        if message not in self.warnings:
            self._tell(message)
        return rebuilt.entries

    def _rebuilt(self, content: bytes) -> Rebuilt:
        folder = self.path.parent
        return rebuild(content, find_transcripts(folder), agent_of(folder))

    def _set_aside(self, content: bytes) -> Path:
        base = f"{self.path.name}.damaged.{iso_from_ms(self._clock.now_ms())}".replace(":", "-")
        aside, number = self.path.with_name(base), 0
        with self._writing():
            while self._disk.exists(aside):
                number += 1
                aside = self.path.with_name(f"{base}-{number}")
            write_new(self._disk, aside, content)
        return aside

    # -- writing -----------------------------------------------------------------------

    def _replace(self, entries: builtins.dict[str, Any]) -> None:
        """Put a file with these entries in the place of the old one. The lock must be held."""
        content = encoded_rows(entries)
        with self._writing():
            replace_whole(self._disk, self.path, content)
        self._last = _Snapshot(content, entries)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreWriteFailed(
                f"{self.path} was not written ({error.strerror})",
                remedy="make room or correct the permissions, then repeat; nothing was changed",
            ) from error

    # -- locking -----------------------------------------------------------------------

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the store against other processes and threads.

        The lock is the operating system's, so it dies with its holder. A living OpenClaw's
        lock file is waited for as well.
        """
        if self._read_only:
            raise StoreWriteFailed(f"{self.path} was opened for reading only")
        with self._writing():
            lock = open_lock(self._disk, self.path)
        with closing(lock):
            self._wait_for(lock)
            yield

    def _wait_for(self, lock: DiskFile) -> None:
        foreign = self.path.with_name(self.path.name + ".lock")
        holder: str | None = None
        for _ in backing_off(self._pause, self._lock_timeout_ms):
            with self._writing():
                if lock.lock(wait=False):
                    holder = foreign_holder(foreign, self._clock.now_ms())
                    if holder is None:
                        return
                    lock.unlock()
                else:
                    holder = "another Strandline process"
        raise SessionBusy(
            f"{self.path} is held by {holder}",
            holder=holder or "",
            remedy="wait until it is done, or stop it",
        )

    # -- telling -----------------------------------------------------------------------

    def _tell(self, message: str) -> None:
        self.warnings.append(message)
        if self._warn is not None:
            self._warn(message)

    def _unreadable(self, error: OSError) -> StoreError:
        return StoreError(
            f"{self.path} cannot be read ({error.strerror})",
            remedy="correct its permissions; nothing was changed",
        )


def transcript_path(sessions_dir: Path, row: SessionRow) -> Path:
    """Where a row's transcript is: always directly in `sessions_dir` (`transcript_name`).

    Raises `StoreError` for a link that leads out of the folder.
    """
    path = sessions_dir / transcript_name(row)
    if path.is_symlink() and path.resolve().parent != sessions_dir.resolve():
        raise StoreError(
            f"{path} is a link to a file outside its folder",
            remedy="put the file itself there; nothing outside is read or written",
        )
    return path


def _row(entry: Any) -> SessionRow | None:
    return row_of(entry) if is_row(entry) else None


def _told(path: Path, rebuilt: Rebuilt) -> str:
    told = (
        f"{path} was damaged: {rebuilt.read} rows could still be read in it, {rebuilt.made} were "
        "made from the headers of transcripts"
    )
    if rebuilt.without_key:
        told += f", {rebuilt.without_key} transcripts found no free key"
    return told
