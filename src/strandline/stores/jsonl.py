"""Transcripts as files: one folder, one ``.jsonl`` file a session.

An append takes the file's own lock, checks that the file ends where the caller last saw
its end, and writes whole lines; a sync that follows is shared by all who wait for one.
Nothing is ever cut off: a write that failed half-way leaves a line that reads as damaged
and is ended before the next. Source: spec 1, Durability, writers, speed.
"""

from __future__ import annotations

import errno
import itertools
import secrets
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TypeVar

from strandline.errors import (
    StoreWriteFailed,
    TranscriptExists,
    TranscriptMoved,
    TranscriptNotFound,
    TranscriptUnreadable,
)
from strandline.stores import side_file as side
from strandline.stores.disk import Disk, DiskFile, RealDisk
from strandline.stores.group_sync import GroupSync
from strandline.stores.run_lock import run_lock
from strandline.transcript.store import SideFile, SideRow, Totals

T = TypeVar("T")


def write_all(file: DiskFile, data: bytes) -> None:
    """Append all of `data`, however little the disk takes at a time. Raises `OSError`."""
    written = file.append(data)
    while written < len(data):
        written += file.append(data[written:])


class JsonlLog:
    """One transcript file. Open for reading until the first append."""

    def __init__(
        self,
        disk: Disk,
        path: Path,
        file: DiskFile,
        cache: Path | None,
    ) -> None:
        self._disk = disk
        self.path = path
        self._cache = cache
        self._side: side.SqliteSideFile | None = None
        self._lock = threading.Lock()
        self._closed = False
        self._use(file, writable=False)

    def _use(self, file: DiskFile, *, writable: bool) -> None:
        self._file, self._writable = file, writable
        self._whole_until = 0
        self._group = GroupSync(file.sync)

    @property
    def name(self) -> str:
        return str(self.path)

    # -- reading -------------------------------------------------------------------------

    def end(self) -> int:
        """As in the seam. A file that took the place of ours is our file from here on."""

        def look(file: DiskFile) -> int:
            if self._disk.is_same(file, self.path) or self._closed:
                return file.size()
            with suppress(FileNotFoundError):
                return self._reopen(write=False).size()
            return file.size()

        return self._on_file(look)

    def read(self, start: int, stop: int) -> bytes:
        return self._on_file(lambda file: file.read_at(start, max(0, stop - start)))

    def _on_file(self, do: Callable[[DiskFile], T]) -> T:
        """Do something with our file; again where another thread has put one in its place."""
        while True:
            file = self._file
            try:
                return do(file)
            except OSError as error:
                if error.errno != errno.EBADF or file is self._file:
                    raise self._unreadable(error) from error

    def _unreadable(self, error: OSError) -> TranscriptUnreadable:
        return TranscriptUnreadable(
            f"cannot read {self.path} ({error.strerror})", remedy="check the disk"
        )

    def _reopen(self, *, write: bool) -> DiskFile:
        """The file that the path names now, in the place of the one that was open."""
        fresh, old = self._disk.open(self.path, write=write), self._file
        self._use(fresh, writable=write)
        old.close()
        return fresh

    # -- writing -------------------------------------------------------------------------

    def append(self, lines: bytes, expected_end: int) -> int:
        with self._lock:
            file = self._locked_at(expected_end)
            try:
                torn = self._is_torn(file, expected_end)
                data = b"\n" + lines if torn else lines
                write_all(file, data)
                end = expected_end + len(data)
                self._whole_until = end if data.endswith(b"\n") else 0
                self._group.wrote(end)
            except OSError as error:
                raise StoreWriteFailed(
                    f"{self.path} did not take the whole entry ({error.strerror}); "
                    "what was said before it is safe",
                    remedy="make room on the disk and say it again",
                ) from error
            finally:
                file.unlock()
            return expected_end + torn

    def _is_torn(self, file: DiskFile, end: int) -> bool:
        """Whether the file ends inside a line; what we wrote ourselves needs no look."""
        return 0 < end != self._whole_until and file.read_at(end - 1, 1) != b"\n"

    def _locked_at(self, expected_end: int) -> DiskFile:
        """The file, locked for writing. Raises `TranscriptMoved` if it ends elsewhere."""
        if self._closed:
            raise StoreWriteFailed(f"{self.path} was closed", remedy="open it again")
        try:
            file = self._file if self._writable else self._reopen(write=True)
            file.lock(wait=True)
            end = file.size()
            is_here = self._disk.is_same(file, self.path)
            if is_here and end == expected_end:
                return file
            file.unlock()
            if not is_here:
                end = self._reopen(write=True).size()
        except FileNotFoundError as error:
            raise StoreWriteFailed(
                f"{self.path} is gone", remedy="restore it, or start a new session"
            ) from error
        except OSError as error:
            raise StoreWriteFailed(
                f"cannot open {self.path} for writing ({error.strerror})",
                remedy="check its permissions and owner",
            ) from error
        raise TranscriptMoved(f"{self.path} ends at {end}", end=end)

    def sync(self, start: int) -> None:
        try:
            self._group.sync(start)
        except OSError as error:
            raise StoreWriteFailed(
                f"{self.path} was written and could not be synced ({error.strerror})",
                remedy="check the disk; the last entry may not survive a power cut",
            ) from error

    def replace(self, image: bytes, expected_end: int, backup_suffix: str) -> None:
        with self._lock:
            old = self._locked_at(expected_end)
            try:
                self._swap_in(old, image, backup_suffix)
                self._writable = False  # the file that is open has another name now
            except OSError as error:
                raise StoreWriteFailed(
                    f"{self.path} could not be brought up to date ({error.strerror})",
                    remedy="make room on the disk and try again; nothing is lost",
                ) from error
            finally:
                old.unlock()

    def _swap_in(self, old: DiskFile, image: bytes, backup_suffix: str) -> None:
        """The old file gets a second name first: at no moment is there only one copy."""
        fresh_path = self.path.with_name(self.path.name + ".new")
        with suppress(FileNotFoundError):  # left by a crash: we hold the lock, it is nobody's
            self._disk.remove(fresh_path)
        fresh = self._disk.create(fresh_path)
        try:
            write_all(fresh, image)
            fresh.sync()
            self._keep(old, backup_suffix)
            self._disk.replace(fresh_path, self.path)
        except OSError:
            with suppress(OSError):
                self._disk.remove(fresh_path)
            raise
        finally:
            fresh.close()

    def _keep(self, old: DiskFile, suffix: str) -> None:
        for count in itertools.count():
            backup = self.path.with_name(self.path.name + suffix + (f".{count}" if count else ""))
            try:
                self._disk.link(self.path, backup)
            except FileExistsError:
                if not self._disk.is_same(old, backup):
                    continue
            return

    # -- the rest of the seam --------------------------------------------------------------

    def run_lock(self, timeout_ms: int, holder: str) -> AbstractContextManager[None]:
        return run_lock(self._disk, self.path, timeout_ms, holder)

    def side_file(self) -> SideFile | None:
        if self._cache and self._side is None:
            self._side = side.load(self._cache, self)
        return self._side

    def save_side_file(self, rows: Iterable[SideRow], totals: Totals, end: int) -> None:
        if self._cache:
            side.save(self._cache, self, rows, totals, end)

    def close(self) -> None:
        with self._lock:
            if not self._closed:
                self._file.close()
            self._closed = True
            if self._side is not None:
                self._side.close()
                self._side = None


class JsonlStore:
    """Transcripts of one folder; names are file names. `cache` is where side files go."""

    def __init__(
        self, folder: Path, *, disk: Disk | None = None, cache: Path | None = None
    ) -> None:
        self.folder = folder.absolute()
        self._disk: Disk = disk or RealDisk()
        self._cache = cache

    def open(self, name: str) -> JsonlLog:
        path = self.folder / name
        try:
            file = self._disk.open(path)
        except FileNotFoundError:
            raise TranscriptNotFound(
                f"there is no transcript {path}", remedy="check the path or the session id"
            ) from None
        except OSError as error:
            raise TranscriptUnreadable(
                f"cannot open {path} ({error.strerror})",
                remedy="it must be a file that you may read",
            ) from error
        return JsonlLog(self._disk, path, file, self._cache)

    def create(self, name: str, first_line: bytes) -> JsonlLog:
        """As in the seam: the name appears with the whole first line behind it, or not at all."""
        path = self.folder / name
        draft = path.with_name(f".{name}.{secrets.token_hex(4)}.new")
        try:
            file = self._disk.create(draft)
        except OSError as error:
            raise _cannot_create(path, error) from error
        try:
            write_all(file, first_line)
            file.sync()
            self._disk.link(draft, path)
        except FileExistsError:
            raise TranscriptExists(
                f"there is a transcript {path} already", remedy="open it"
            ) from None
        except OSError as error:
            if self._disk.is_same(file, path):  # it has its name, which may not last
                with suppress(OSError):
                    self._disk.remove(path)
            raise _cannot_create(path, error) from error
        finally:
            file.close()
            with suppress(OSError):
                self._disk.remove(draft)
        return self.open(name)

    def archive(self, name: str, suffix: str) -> str | None:
        """As in the seam: at no moment is there no name, so a crash leaves one or both."""
        path = self.folder / name
        archived = path.with_name(name + suffix)
        try:
            self._link(path, archived)
            self._disk.remove(path)
            self._disk.sync_folder(path.parent)
        except FileNotFoundError:
            return None
        except FileExistsError:
            raise TranscriptExists(
                f"there is a transcript {archived} already", remedy="choose another suffix"
            ) from None
        except OSError as error:
            raise StoreWriteFailed(
                f"cannot archive {path} ({error.strerror})", remedy="check the folder and the disk"
            ) from error
        return archived.name

    def _link(self, path: Path, archived: Path) -> None:
        file = self._disk.open(path)
        try:
            self._disk.link(path, archived)
        except FileExistsError:
            if not self._disk.is_same(file, archived):  # else a crash left both names
                raise
        finally:
            file.close()

    def names(self) -> Sequence[str]:
        return sorted(self._disk.names(self.folder, ".jsonl"))


def _cannot_create(path: Path, error: OSError) -> StoreWriteFailed:
    return StoreWriteFailed(
        f"cannot create {path} ({error.strerror})", remedy="check the folder and the disk"
    )
