"""Changing a file of the workspace: under its lock, whole or not at all, or at its end.

The lock is the system's (`flock`) on the file itself. A change that takes the file's place
leaves those who waited with a lock on the old one, so whoever gets a lock looks whether the
file still has its name.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from strandline.errors import StrandlineError
from strandline.tools.paths import shown
from strandline.tools.workspace import Place, open_file

LOCK_WAIT_S = 10.0
LOCK_POLL_S = 0.005


@contextmanager
def locked(place: Place, *, create: bool = False) -> Iterator[int]:
    """The file at a place, locked and open for reading and appending. `create` makes it, 0600.

    Raises `StrandlineError` if somebody else keeps the lock for `LOCK_WAIT_S`.
    """
    deadline_s = time.monotonic() + LOCK_WAIT_S
    flags = os.O_RDWR | os.O_APPEND | (os.O_CREAT if create else 0)
    while True:
        descriptor = open_file(place, flags)
        try:
            _lock(descriptor, deadline_s, place.path)
            if _has_its_name(descriptor, place):
                yield descriptor
                return
        finally:
            os.close(descriptor)
        _check_time(deadline_s, place.path)


def replace(place: Place, data: bytes, *, old: int | None = None) -> None:
    """Put a file of `data` in place of what is there, atomically and durably.

    It gets the mode of the open file `old`, and its owner as far as the system allows, else 0600.
    """
    draft = f".strandline-{secrets.token_hex(8)}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(draft, flags, 0o600, dir_fd=place.folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            if old is not None:
                _make_alike(file.fileno(), os.fstat(old))
            os.fsync(file.fileno())
        os.rename(draft, place.name, src_dir_fd=place.folder, dst_dir_fd=place.folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(draft, dir_fd=place.folder)
        raise
    os.fsync(place.folder)


def append(descriptor: int, data: bytes, place: Place) -> None:
    """Write `data` at the end of a locked file, in one write, durably; or nothing of it."""
    before = os.fstat(descriptor).st_size
    taken = os.write(descriptor, data)
    if taken != len(data):
        if os.fstat(descriptor).st_size == before + taken:
            os.ftruncate(descriptor, before)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    os.fsync(descriptor)
    os.fsync(place.folder)


def _make_alike(descriptor: int, old: os.stat_result) -> None:
    with suppress(PermissionError):
        os.fchown(descriptor, old.st_uid, old.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(old.st_mode) & 0o777)  # no bits that change who runs it


def _lock(descriptor: int, deadline_s: float, path: str) -> None:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _check_time(deadline_s, path)
            time.sleep(LOCK_POLL_S)
        else:
            return


def _check_time(deadline_s: float, path: str) -> None:
    if time.monotonic() > deadline_s:
        raise StrandlineError(
            f"another program keeps {shown(path)} locked, or changes it all the time",
            remedy="try again later",
        )


def _has_its_name(descriptor: int, place: Place) -> bool:
    try:
        there = os.stat(place.name, dir_fd=place.folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(there, os.fstat(descriptor))
