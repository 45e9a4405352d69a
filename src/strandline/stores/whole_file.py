"""Small files that are written whole: a new file takes the place of the old one at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from strandline.stores.disk import Disk, DiskFile

LOCK_SUFFIX = ".flock"
FIRST_PAUSE_S = 0.001
LONGEST_PAUSE_S = 0.05


def write_new(disk: Disk, path: Path, content: bytes) -> None:
    """Write a file that is not there yet, to the disk; half a file is taken away again."""
    file = disk.create(path)
    try:
        written = 0
        while written < len(content):
            written += file.append(content[written:])
        file.sync()
    except OSError:
        with suppress(OSError):
            disk.remove(path)
        raise
    finally:
        file.close()
    disk.sync_folder(path.parent)


def replace_whole(disk: Disk, path: Path, content: bytes) -> None:
    """Put a new file in the place of `path`. Its lock must be held. Raises `OSError`."""
    temporary = path.with_name(path.name + ".strandline.tmp")
    if disk.exists(temporary):  # of a process that died here
        disk.remove(temporary)
    write_new(disk, temporary, content)
    disk.replace(temporary, path)


def open_lock(disk: Disk, path: Path) -> DiskFile:
    """The file whose lock stands for `path`, made where it is not there yet.

    Closing it gives the lock back. Raises `OSError`.
    """
    return disk.open(path.with_name(path.name + LOCK_SUFFIX), write=True, create=True)


def backing_off(pause: Callable[[float], None], timeout_ms: int) -> Iterator[None]:
    """One round for each try, with growing pauses between, until the time is over."""
    waited_s, pause_s = 0.0, FIRST_PAUSE_S
    while True:
        yield
        if waited_s * 1000 >= timeout_ms:
            return
        pause(pause_s)
        waited_s += pause_s
        pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
