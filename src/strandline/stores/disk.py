"""The few things that stores ask of a disk, as a seam that tests can break.

`RealDisk` is the operating system. `strandline.testing.FaultyDisk` is a disk in memory
that writes short, fills up, fails, or loses power between any two calls.
Everything is created 0600 in folders of 0700.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from pathlib import Path
from typing import Protocol


class DiskFile(Protocol):
    """One open file."""

    def size(self) -> int:
        """Bytes in the file now."""
        ...

    def read_at(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes from `offset`; short only at the end of the file."""
        ...

    def append(self, data: bytes) -> int:
        """Write at the end; returns how many bytes were taken, which may be fewer."""
        ...

    def sync(self) -> None:
        """Return when everything written so far would survive a power cut."""
        ...

    def lock(self, *, wait: bool) -> bool:
        """Take the exclusive lock of the operating system; False if held and not `wait`."""
        ...

    def unlock(self) -> None:
        """Give the lock back."""
        ...

    def close(self) -> None:
        """Close it; a lock goes with it."""
        ...


class Disk(Protocol):
    """A file system, as far as stores need one. Failures are `OSError`."""

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> DiskFile:
        """Open a file; `create` makes a missing one (and, with it, its folders)."""
        ...

    def create(self, path: Path) -> DiskFile:
        """Make a new file, open for writing; `FileExistsError` if there is one."""
        ...

    def exists(self, path: Path) -> bool:
        """Whether there is a file."""
        ...

    def is_same(self, file: DiskFile, path: Path) -> bool:
        """Whether `path` still names the file that is open as `file`."""
        ...

    def names(self, folder: Path, suffix: str) -> list[str]:
        """The names of the files in `folder` that end in `suffix`; none if it is missing."""
        ...

    def replace(self, source: Path, target: Path) -> None:
        """Rename over `target`, atomically and durably."""
        ...

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name, durably; `FileExistsError` if the name is taken."""
        ...

    def remove(self, path: Path) -> None:
        """Remove a file."""
        ...

    def sync_folder(self, path: Path) -> None:
        """Make new names in a folder survive a power cut."""
        ...


class RealFile:
    """An open file descriptor of a regular file; `identity` is its device and inode."""

    def __init__(self, descriptor: int, path: Path) -> None:
        self._fd = descriptor
        status = os.fstat(descriptor)
        self.identity = status.st_dev, status.st_ino
        if not stat.S_ISREG(status.st_mode):
            self.close()
            raise OSError(errno.EINVAL, "not a regular file", str(path))

    def __del__(self) -> None:
        self.close()

    def size(self) -> int:
        return os.lseek(self._fd, 0, os.SEEK_END)  # nothing here uses the place it moves

    def read_at(self, offset: int, size: int) -> bytes:
        data = os.pread(self._fd, size, offset)
        if len(data) == size or not data:
            return data
        parts = [data]
        while data and (size := size - len(data)):
            offset += len(data)
            data = os.pread(self._fd, size, offset)
            parts.append(data)
        return b"".join(parts)

    def append(self, data: bytes) -> int:
        return os.write(self._fd, data)

    def sync(self) -> None:
        os.fsync(self._fd)

    def lock(self, *, wait: bool) -> bool:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                return False
            raise
        return True

    def unlock(self) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_UN)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def make_folder(path: Path) -> None:
    """Make a folder and those above it that are missing, all 0700 and durable."""
    if path.is_dir():
        return
    make_folder(path.parent)
    try:
        path.mkdir(mode=0o700, exist_ok=True)
    except FileExistsError as error:
        raise NotADirectoryError(errno.ENOTDIR, "not a folder", str(path)) from error
    _sync_folder(path.parent)


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class RealDisk:
    """The operating system's files."""

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> RealFile:
        flags = (os.O_RDWR | os.O_APPEND) if write else os.O_RDONLY
        if create:
            make_folder(path.parent)
            flags |= os.O_CREAT
        return RealFile(os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK, 0o600), path)

    def create(self, path: Path) -> RealFile:
        make_folder(path.parent)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        return RealFile(os.open(path, flags, 0o600), path)

    def exists(self, path: Path) -> bool:
        return path.exists()

    def is_same(self, file: DiskFile, path: Path) -> bool:
        try:
            there = os.stat(path)  # noqa: PTH116 - three times as fast, and every append asks
        except OSError:
            return False
        return isinstance(file, RealFile) and file.identity == (there.st_dev, there.st_ino)

    def names(self, folder: Path, suffix: str) -> list[str]:
        try:
            with os.scandir(folder) as found:
                return [e.name for e in found if e.name.endswith(suffix) and e.is_file()]
        except OSError:
            return []

    def replace(self, source: Path, target: Path) -> None:
        source.replace(target)
        self.sync_folder(target.parent)

    def link(self, source: Path, target: Path) -> None:
        os.link(source, target)
        self.sync_folder(target.parent)

    def remove(self, path: Path) -> None:
        path.unlink()

    def sync_folder(self, path: Path) -> None:
        _sync_folder(path)
