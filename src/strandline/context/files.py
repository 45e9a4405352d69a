"""Which files a conversation read and changed, as its tool calls say.

Compactions carry this on, from one to the next, in their `details` (spec 3, Budget and
compaction): what was summarised away can still be found again on the disk.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from strandline.context.blocks import well_formed
from strandline.context.dialogue import calls_of
from strandline.transcript.messages import JsonObject, Message

READING = frozenset({"read", "read_file", "readfile", "view"})
MODIFYING = frozenset(
    {
        "create",
        "create_file",
        "edit",
        "edit_file",
        "multi_edit",
        "multiedit",
        "notebookedit",
        "str_replace",
        "write",
        "write_file",
        "writefile",
    }
)
PATH_ARGUMENTS = ("path", "file_path", "filePath", "filename", "file")

MOST_FILES = 500
"""Of each kind; the newest are kept."""


def file_operations(
    messages: Iterable[Message], previous: Mapping[str, Any] | None = None
) -> JsonObject:
    """``{"readFiles": […], "modifiedFiles": […]}``, each sorted by code point.

    `previous` is the `details` of the compaction before. A file that was modified is not
    told as read too.
    """
    read = dict.fromkeys(_paths(previous, "readFiles"))
    modified = dict.fromkeys(_paths(previous, "modifiedFiles"))
    for message in messages:
        for call in calls_of(message):
            path, kind = _path(call.get("arguments")), str(call.get("name")).lower()
            if path and kind in MODIFYING:
                modified.pop(path, None)
                modified[path] = None
            elif path and kind in READING:
                read.pop(path, None)
                read[path] = None
    only_read = [path for path in read if path not in modified]
    return {
        "readFiles": sorted(only_read[-MOST_FILES:]),
        "modifiedFiles": sorted(list(modified)[-MOST_FILES:]),
    }


def _paths(details: Mapping[str, Any] | None, key: str) -> list[str]:
    listed = details.get(key) if isinstance(details, Mapping) else None
    return [p for p in listed if isinstance(p, str)] if isinstance(listed, list) else []


def _path(arguments: object) -> str:
    if isinstance(arguments, dict):
        for name in PATH_ARGUMENTS:
            value = arguments.get(name)
            if isinstance(value, str) and value.strip():
                return well_formed(value.strip())
    return ""
