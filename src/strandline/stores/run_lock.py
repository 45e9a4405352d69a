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

POLL_S = 0.02
NOTE_BYTES = 4096
FOREIGN_LOCK_FRESH_S = 30 * 60


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
    except OSError as error:
        raise StoreWriteFailed(
            f"cannot lock {path} ({error.strerror})", remedy="make the folder writable"
        ) from error
    if file.lock(wait=False) and disk.is_same(file, path):
        if file.size() == 0:
            note = {"pid": os.getpid(), "host": socket.gethostname(), "holder": holder}
            file.append(json.dumps(note).encode())
            return file
        # A holder that died left its note: a fresh file says who has it now.
        with suppress(OSError):
            disk.remove(path)
    file.close()
    return None


def _note(disk: Disk, path: Path) -> str:
    try:
        file = disk.open(path)
    except OSError:
        return "another process"
    try:
        note = json.loads(file.read_at(0, NOTE_BYTES))
        return f"{note['holder']} (process {note['pid']} on {note['host']})"
    except (ValueError, KeyError, TypeError):
        return "another process"
    finally:
        file.close()


def _foreign_holder(transcript: Path) -> str | None:
    """Who holds OpenClaw's lock file, if somebody who may still be alive does."""
    path = transcript.with_name(transcript.name + ".lock")
    try:
        age_s = time.time() - path.stat().st_mtime
        pid = json.loads(path.read_text()[:NOTE_BYTES]).get("pid")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, AttributeError):
        return f"another program's lock {path.name}" if age_s < FOREIGN_LOCK_FRESH_S else None
    if isinstance(pid, int) and age_s < FOREIGN_LOCK_FRESH_S and Path(f"/proc/{pid}").exists():
        return f"another program (process {pid}, lock {path.name})"
    return None
