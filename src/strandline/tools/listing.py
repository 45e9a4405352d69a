"""The tool `list`, and the walk over files that the searching tools share."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

from strandline.runtime.tools import Tool
from strandline.tools.blocking import blocking_tool
from strandline.tools.paths import Names, joined, refused
from strandline.tools.workspace import Place, Workspace, nothing_there, open_folder
from strandline.transcript.messages import JsonObject

MAX_ENTRIES = 1000
"""Listed by one call."""

MAX_FOLDER_ENTRIES = 20_000
"""Looked at in one folder, in the order of the system; those beyond are not seen."""

MAX_DEPTH = 32
"""Folders below the one that was asked for."""

SKIPPED_FOLDERS = frozenset(
    {".git", ".hg", ".jj", ".svn", ".mypy_cache", ".ruff_cache", ".tox", ".venv", "__pycache__"}
    | {"node_modules"}
)
"""Their contents are not walked through; they can still be asked for by their path."""


@dataclass(frozen=True, slots=True)
class Found:
    """Something in a folder: `names` from the workspace down, `name` in the open `folder`."""

    names: Names
    name: str
    folder: int
    status: os.stat_result


@dataclass(slots=True)
class Unseen:
    """What a walk did not look at, and why; counted, and told at the end."""

    reasons: dict[str, int] = field(default_factory=dict)

    def add(self, reason: str) -> None:
        self.reasons[reason] = self.reasons.get(reason, 0) + 1

    def told(self) -> list[str]:
        """One line in brackets for each reason."""
        return [f"[left out: {why}, {count:,}]" for why, count in self.reasons.items()]


def list_tool(workspace: Workspace) -> Tool:
    """`list` in this workspace."""
    return blocking_tool(
        "list",
        f"List a folder of the workspace, at most {MAX_ENTRIES:,} entries; folders end in /.",
        {
            "path": {"type": "string", "description": "Relative to the workspace; default: all."},
            "recursive": {"type": "boolean", "description": "Folders in it too."},
        },
        partial(_list, workspace),
        needs="ro",
    )


def _list(workspace: Workspace, arguments: JsonObject) -> str:
    unseen = Unseen()
    go = walk if arguments.get("recursive") else entries
    with workspace.place(arguments.get("path", ".")) as place, opened(place) as folder:
        found = list(islice(go(folder, place.names, unseen), MAX_ENTRIES + 1))
    lines = [_line(entry, len(place.names)) for entry in found[:MAX_ENTRIES]]
    if len(found) > MAX_ENTRIES:
        lines.append(f"[only the first {MAX_ENTRIES:,} entries; list a folder in it]")
    return "\n".join([*lines, *unseen.told()]) or "[the folder is empty]"


def _line(entry: Found, above: int) -> str:
    path, mode = joined(entry.names[above:]), entry.status.st_mode
    if stat.S_ISDIR(mode):
        return f"{path}/"
    if stat.S_ISREG(mode):
        return f"{path} ({entry.status.st_size:,} bytes)"
    return f"{path} (a link)" if stat.S_ISLNK(mode) else f"{path} (no regular file)"


@contextmanager
def opened(place: Place) -> Iterator[int]:
    """The folder at a place, open. Raises `StrandlineError` if it is none."""
    if place.status is None:
        raise nothing_there(place.path)
    if not place.is_folder:
        raise refused(place.path, "is no folder", "give the path of a folder")
    descriptor = open_folder(place.name, place.folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def walk(folder: int, names: Names, unseen: Unseen, depth: int = MAX_DEPTH) -> Iterator[Found]:
    """What is in a folder and `depth` folders below, by name; links are told, not followed.

    What is found can be opened until the walk goes on.
    """
    for found in entries(folder, names, unseen):
        yield found
        if stat.S_ISDIR(found.status.st_mode) and found.name not in SKIPPED_FOLDERS:
            yield from _inside(found, unseen, depth - 1)


def _inside(above: Found, unseen: Unseen, depth: int) -> Iterator[Found]:
    if depth < 0:
        unseen.add(f"folders more than {MAX_DEPTH} deep")
        return
    try:
        folder = open_folder(above.name, above.folder)
    except OSError as error:
        unseen.add(f"folders ({error.strerror})")
        return
    try:
        yield from walk(folder, above.names, unseen, depth)
    finally:
        os.close(folder)


def entries(folder: int, names: Names, unseen: Unseen) -> Iterator[Found]:
    """What is in one folder, by name (code points)."""
    with os.scandir(folder) as there:
        found = sorted(entry.name for entry in islice(there, MAX_FOLDER_ENTRIES))
        if next(there, None) is not None:
            unseen.add(f"the rest of folders of more than {MAX_FOLDER_ENTRIES:,} entries")
    for name in found:
        try:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except OSError:
            unseen.add("entries that went away")
        else:
            yield Found((*names, name), name, folder, status)
