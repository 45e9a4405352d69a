"""The files of a workspace that enter the system prompt, within bounds, in a fixed order.

Source: spec 4, A turn (Workspace files). Same files, same bytes: nothing here depends on the
time but the day that is passed in.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from strandline.context.shorten import fair_share
from strandline.errors import StrandlineError
from strandline.tools.listing import Unseen, entries, opened
from strandline.tools.workspace import Workspace, contents, is_text, open_file, text_of
from strandline.tools.writing import DAYS, LONG_TERM

FILES = ("AGENTS.md", "SOUL.md", "TOOLS.md", "IDENTITY.md", "USER.md", LONG_TERM)
"""In this order; the notes of the newest days follow."""

NEWEST_DAYS = 2
MAX_FILE_BYTES = 4 * 1024 * 1024
HEAD_SHARE = 0.7
"""How much of a shortened file is its beginning; the rest is its end."""

_DAY = re.compile(r"(\d{4}-\d{2}-\d{2})\.md", re.ASCII)
_BETWEEN = "\n\n"


@dataclass(frozen=True, slots=True)
class PromptFile:
    """A file that enters the prompt: `chars` of its text, `kept_chars` of them in the prompt.

    `problem` says why a file that is there could not be read; it is then told in the text.
    """

    name: str
    chars: int = 0
    kept_chars: int = 0
    problem: str = ""

    @property
    def is_cut(self) -> bool:
        """Whether some of the file is not in the prompt."""
        return self.kept_chars < self.chars


@dataclass(frozen=True, slots=True)
class PromptFiles:
    """`text` for the system prompt, ``""`` for none, and the files it was made of."""

    text: str
    files: tuple[PromptFile, ...]


@dataclass(frozen=True, slots=True)
class _Source:
    name: str
    text: str
    problem: str = ""

    @property
    def head(self) -> str:
        return f"# Workspace file: {self.name}\n"


def workspace_prompt(
    workspace: Path, *, max_chars_per_file: int, max_chars: int, today: date
) -> PromptFiles:
    """The workspace's files for the system prompt; blocks. Missing and empty files are skipped.

    `text` has at most `max_chars` characters, headers included. Where that is too little
    for all, the largest are shortened most. Notes of days after `today` are not taken.
    """
    sources = _sources(workspace, today)
    sizes = [len(_BETWEEN) + len(s.head) + min(len(s.text), max_chars_per_file) for s in sources]
    share = fair_share(sizes, max_chars + len(_BETWEEN)) - len(_BETWEEN)
    parts, files = [], []
    for source in sources:
        text, kept = _within(source, min(max_chars_per_file, share - len(source.head)))
        if kept:
            parts.append(source.head + text)
        chars = 0 if source.problem else len(source.text)
        files.append(PromptFile(source.name, chars, min(kept, chars), source.problem))
    return PromptFiles(_BETWEEN.join(parts), tuple(files))


def _within(source: _Source, max_chars: int) -> tuple[str, int]:
    """The text in at most `max_chars`, and how many of its characters that keeps."""
    text = source.text
    if len(text) <= max_chars:
        return text, len(text)
    note = f"\n[… {len(text):,} characters in all; read {source.name} for what is left out …]\n"
    keep = max_chars - len(note)
    if keep <= 0:
        return "", 0
    head = max(1, int(keep * HEAD_SHARE))
    return text[:head] + note + text[len(text) - (keep - head) :], keep


def _sources(workspace: Path, today: date) -> list[_Source]:
    place = Workspace(workspace)
    if not place.folder.is_dir():
        return []
    names = [*FILES, *(f"{DAYS}/{day}.md" for day in _newest_days(place, today))]
    return [source for name in names if (source := _source(place, name)) is not None]


def _newest_days(workspace: Workspace, today: date) -> Sequence[str]:
    """The newest days that have a file, the older one first."""
    try:
        with workspace.place(DAYS) as place, opened(place) as folder:
            names = [found.name for found in entries(folder, (), Unseen())]
    except (OSError, StrandlineError):
        return []
    days = [match[1] for name in names if (match := _DAY.fullmatch(name))]
    return sorted(day for day in days if _is_day(day) and day <= today.isoformat())[-NEWEST_DAYS:]


def _is_day(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _source(workspace: Workspace, name: str) -> _Source | None:
    try:
        text = _read(workspace, name)
    except OSError as error:
        return _unreadable(name, error.strerror or str(error))
    except StrandlineError as error:
        return _unreadable(name, error.what)
    return _Source(name, text) if text else None


def _unreadable(name: str, why: str) -> _Source:
    return _Source(name, f"[cannot be read: {why}]", problem=why)


def _read(workspace: Workspace, name: str) -> str:
    with workspace.place(name) as place:
        if place.status is None:
            return ""
        descriptor = open_file(place)
        try:
            data = contents(descriptor, MAX_FILE_BYTES, name)
        finally:
            os.close(descriptor)
    if not is_text(data):
        raise StrandlineError("it is binary, not text")
    return text_of(data).replace("\r\n", "\n").strip()
