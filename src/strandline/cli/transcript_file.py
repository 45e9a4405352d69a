"""A transcript file named on the command line: opened, or refused in one line.

Opening for reading changes nothing: not the file, not its times, nothing beside it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import click

from strandline.cli.outline import in_order
from strandline.cli.output import slow_notice
from strandline.errors import TranscriptNotFound, TranscriptUnreadable
from strandline.manager import SessionManager
from strandline.transcript.entries import KNOWN_TYPES

file_argument = click.argument("file", type=click.Path(path_type=Path, readable=False))
"""The argument FILE, as the parameter `file`."""


@contextmanager
def opened(file: Path, state_dir: Path) -> Iterator[SessionManager]:
    """The session in a transcript file.

    Look-ups of large files are kept in the state directory where there is one. Raises
    `TranscriptNotFound`, `TranscriptUnreadable`.
    """
    check_is_file(file)
    slow_notice.expect(f"reading {file}")
    try:
        with SessionManager.open(file, cache_dir=_cache(state_dir)) as session:
            if not session.header and not _has_known_entries(session):
                refuse(file)
            yield session
    finally:
        slow_notice.done()


def _cache(state_dir: Path) -> Path | None:
    """Where look-ups are kept: nowhere without a state directory that may be read."""
    if not os.access(state_dir, os.R_OK | os.X_OK) or not state_dir.is_dir():
        return None
    return state_dir / "cache"


def _has_known_entries(session: SessionManager) -> bool:
    return any(node.head.type in KNOWN_TYPES for node, _ in in_order(session.tree()))


def read_bytes(file: Path) -> bytes:
    """All bytes of a transcript file. Raises like `opened`."""
    check_is_file(file)
    slow_notice.expect(f"reading {file}")
    try:
        return file.read_bytes()
    except OSError as error:
        raise TranscriptUnreadable(
            f"cannot read {file} ({error.strerror})", remedy="it must be a file that you may read"
        ) from error


def check_is_file(file: Path) -> None:
    """Raise `TranscriptNotFound` or `TranscriptUnreadable` for what is no file."""
    try:
        mode = file.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise TranscriptNotFound(
            f"there is no transcript {file}", remedy="check the path"
        ) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise TranscriptUnreadable(
            f"cannot open {file} ({reason})", remedy="it must be a file that you may read"
        ) from error
    if stat.S_ISDIR(mode):
        raise TranscriptUnreadable(
            f"{file} is a folder", remedy=f"`strandline session list {file}` shows what is in it"
        )
    if not stat.S_ISREG(mode):
        raise TranscriptUnreadable(
            f"{file} is not a regular file", remedy="save what it gives to a file first"
        )


def refuse(file: Path) -> NoReturn:
    """Say why there is no transcript in a file. Raises `TranscriptUnreadable`."""
    with file.open("rb") as stream:
        start = stream.read(4096)
    if not start:
        what, remedy = "is empty", "restore it from a copy, or start a new session"
    elif b"\x00" in start and not start.strip(b"\x00"):
        what, remedy = "holds NUL bytes alone, as a power cut leaves them", "restore a copy"
    else:
        what = "holds no line of a transcript"
        remedy = "transcripts are JSON Lines with a line of type session first"
    raise TranscriptUnreadable(f"{file} {what}", remedy=remedy)
