"""The tools `write` and `edit`. What is in the agent's memory they can only add to (I6)."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from strandline.context.blocks import well_formed
from strandline.errors import StrandlineError
from strandline.runtime.tools import Tool
from strandline.tools.blocking import blocking_tool
from strandline.tools.changing import append, locked, replace
from strandline.tools.paths import Names, joined, refused, shown
from strandline.tools.workspace import Place, Workspace, contents
from strandline.transcript.messages import JsonObject

MAX_FILE_BYTES = 4 * 1024 * 1024
"""Of a file that is written or edited, before and after."""

LONG_TERM = "MEMORY.md"
"""What the agent remembers for good, in the workspace."""

DAYS = "memory"
"""The folder of the notes of each day."""

_MENDED = "characters that were cut in half are mended, or U+FFFD where the other half is missing"


def write_tool(workspace: Workspace) -> Tool:
    """`write` in this workspace."""
    return blocking_tool(
        "write",
        "Write a file of the workspace: a new one, or the whole of an old one. Missing folders "
        f"are made. {LONG_TERM} and {DAYS}/ can only be added to; use memory_write for them.",
        {
            "path": {"type": "string", "description": "Relative to the workspace."},
            "content": {"type": "string", "description": "All that the file is to hold."},
        },
        partial(_write, workspace),
        needs="rw",
        required=["path", "content"],
    )


def edit_tool(workspace: Workspace) -> Tool:
    """`edit` in this workspace."""
    return blocking_tool(
        "edit",
        "Replace a text in a file of the workspace. The old text must be exactly as in the "
        "file, and occur once, unless replace_all is true.",
        {
            "path": {"type": "string", "description": "Relative to the workspace."},
            "old_text": {"type": "string", "minLength": 1},
            "new_text": {"type": "string"},
            "replace_all": {"type": "boolean", "description": "Default: false."},
        },
        partial(_edit, workspace),
        needs="rw",
        required=["path", "old_text", "new_text"],
    )


def _is_memory(names: Names) -> bool:
    """Whether names are of the agent's memory, on a disk that minds case or not."""
    top = names[0].casefold() if names else ""
    return top == LONG_TERM.casefold() or (top == DAYS and len(names) > 1)


def _leads_to_memory(workspace: Workspace, place: Place) -> bool:
    """Whether a place is of the memory, which may itself be a link to somewhere inside."""
    if _is_memory(place.names) or _is_memory(workspace.names(place.path)):
        return True
    for path in (LONG_TERM, DAYS):
        with suppress(StrandlineError), workspace.place(path) as real:
            if place.names[: len(real.names)] == real.names:
                return True
    return False


def _write(workspace: Workspace, arguments: JsonObject) -> str:
    path, content = arguments["path"], arguments["content"]
    data = _checked(well_formed(content).encode(), path)
    _check_leaves_room(workspace.names(path), path)
    with workspace.place(path, make_folders=True) as place:
        if _leads_to_memory(workspace, place):
            _add_to_memory(place, data)
        elif place.status is None:
            replace(place, data)
        else:
            with locked(place) as descriptor:
                replace(place, data, old=descriptor)
    said = f"wrote {len(content):,} characters to {joined(place.names)}"
    return said if well_formed(content) == content else f"{said}; {_MENDED}"


def _check_leaves_room(names: Names, path: str) -> None:
    """No file may take the name of the folder of notes, and no folder that of a note."""
    above = [name.casefold() for name in names[:-1]]
    in_a_note = _is_memory(names) and any(name.endswith(".md") for name in above)
    if in_a_note or (len(names) == 1 and names[0].casefold() == DAYS):
        raise refused(path, "is kept for the agent's notes", "choose another name")


def _add_to_memory(place: Place, data: bytes) -> None:
    with locked(place, create=True) as descriptor:
        old = contents(descriptor, MAX_FILE_BYTES, place.path)
        _append_rest(descriptor, old, data, place)


def _append_rest(descriptor: int, old: bytes, new: bytes, place: Place) -> None:
    if not new.startswith(old):
        raise StrandlineError(
            f"{joined(place.names)} is memory: what it holds cannot be changed, only added to",
            remedy="add a note with memory_write",
        )
    if len(new) > len(old):
        append(descriptor, new[len(old) :], place)


def _edit(workspace: Workspace, arguments: JsonObject) -> str:
    path, every = arguments["path"], bool(arguments.get("replace_all"))
    with workspace.place(path) as place, locked(place) as descriptor:
        old = contents(descriptor, MAX_FILE_BYTES, path)
        new, count = edited(
            old, arguments["old_text"], arguments["new_text"], path=path, every=every
        )
        _checked(new, path)
        if _leads_to_memory(workspace, place):
            _append_rest(descriptor, old, new, place)
        else:
            replace(place, new, old=descriptor)
    return f"replaced {count} {'place' if count == 1 else 'places'} in {joined(place.names)}"


def edited(data: bytes, old: str, new: str, *, path: str, every: bool) -> tuple[bytes, int]:
    """`data` with `new` in place of `old`, and how often; every other byte as it was.

    In a file whose lines all end in CRLF, the line ends of both texts mean that too.
    Raises `StrandlineError` unless `old` occurs, and once, if not `every`.
    """
    ends = b"\r\n" if 0 < data.count(b"\n") == data.count(b"\r\n") else None
    was, becomes = _bytes(old, ends), _bytes(new, ends)
    count = data.count(was) if every else _count(data, was)
    if count == 0:
        raise StrandlineError(
            f"the old text does not occur in {shown(path)}",
            remedy="read the file and copy the text exactly, spaces and line ends included",
        )
    if count > 1 and not every:
        raise StrandlineError(
            f"the old text occurs {count:,} times in {shown(path)}, so which one is not clear",
            remedy="give more of the text around it, or set replace_all",
        )
    return data.replace(was, becomes), count


def _bytes(text: str, ends: bytes | None) -> bytes:
    data = well_formed(text).encode()
    return data.replace(b"\r\n", b"\n").replace(b"\n", ends) if ends else data


def _count(data: bytes, wanted: bytes) -> int:
    """How often `wanted` occurs, overlapping ones too: each is a place that could be meant."""
    count, at = 0, data.find(wanted)
    while at >= 0:
        count, at = count + 1, data.find(wanted, at + 1)
    return count


def _checked(data: bytes, path: str) -> bytes:
    if len(data) > MAX_FILE_BYTES:
        raise StrandlineError(
            f"{shown(path)} would have {len(data):,} bytes",
            remedy=f"keep files below {MAX_FILE_BYTES:,} bytes",
        )
    return data
