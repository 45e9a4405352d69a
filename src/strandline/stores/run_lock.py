"""The lock that a turn holds on a transcript: the operating system's, with a note of who.

The lock file stands beside the transcript as ``<name>.run`` while a turn runs, and is
removed with it. The lock itself is `flock`: it dies with its process, whatever becomes of
the file. OpenClaw's own lock file (``<name>.lock``) is respected where it can be seen.
Source: spec 1, Durability, writers, speed; cases C16, D2, E3.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from strandline.errors import SessionBusy, StoreWriteFailed
from strandline.stores.disk import Disk, DiskFile
from strandline.stores.foreign_lock import foreign_holder

POLL_S = 0.02
NOTE_BYTES = 4096


@contextmanager
def run_lock(disk: Disk, transcript: Path, timeout_ms: int, holder: str) -> Iterator[None]:
    """Hold `transcript` for one turn. Raises `SessionBusy` when others hold it too long."""
    path = transcript.with_name(transcript.name + ".run")
    deadline = time.monotonic() + timeout_ms / 1000
    while True:
        foreign = _foreign_holder(transcript)
        file = None if foreign else _try(disk, path, holder)
        if file is not None:
            break
        if time.monotonic() >= deadline:
            who = foreign or _note(disk, path)
            raise SessionBusy(
                f"{transcript} is held by {who}",
                holder=who,
                remedy=f"wait for that turn to end, or stop it (waited {timeout_ms} ms)",
            )
        time.sleep(POLL_S)
    try:
        yield
    finally:
        with suppress(OSError):
            disk.remove(path)
        file.close()


def _try(disk: Disk, path: Path, holder: str) -> DiskFile | None:
    """The lock file, locked and with our note in it, or None while somebody has it."""
    try:
        file = disk.open(path, write=True, create=True)
        if _is_ours(disk, path, file):
            _sign(file, holder)
            return file
    except OSError as error:
        raise StoreWriteFailed(
            f"cannot lock {path} ({error.strerror})", remedy="make the folder writable"
        ) from error
    file.close()
    return None


def _is_ours(disk: Disk, path: Path, file: DiskFile) -> bool:
    """Whether we have the lock now, in a file without anybody's note.

    A holder that died left its note: that file goes, and a fresh one says who has it next.
    """
    if not (file.lock(wait=False) and disk.is_same(file, path)):
        return False
    if file.size() == 0:
        return True
    with suppress(OSError):
        disk.remove(path)
    return False


def _sign(file: DiskFile, holder: str) -> None:
    """Say who has the lock. A full disk takes the note, not the lock."""
    note = {"pid": os.getpid(), "host": socket.gethostname(), "holder": holder}
    with suppress(OSError):
        file.append(json.dumps(note).encode())


def _note(disk: Disk, path: Path) -> str:
    try:
        file = disk.open(path)
    except OSError:
        return "another process"
    try:
        note = json.loads(file.read_at(0, NOTE_BYTES))
        return f"{note['holder']} (process {note['pid']} on {note['host']})"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
    finally:
        file.close()


def _foreign_holder(transcript: Path) -> str | None:
    """Who holds OpenClaw's lock file of the transcript, if somebody does."""
    lock = transcript.with_name(transcript.name + ".lock")
    who = foreign_holder(lock, time.time_ns() // 1_000_000)
    return f"another program ({who}, lock {lock.name})" if who else None
