"""The tool `read`: a part of a text file, or an image."""

from __future__ import annotations

import base64
import os
from functools import partial

from strandline.errors import StrandlineError
from strandline.runtime.tools import Tool, ToolOutput
from strandline.tools.blocking import blocking_tool
from strandline.tools.paths import joined, shown
from strandline.tools.workspace import Workspace, contents, is_text, open_file, text_of
from strandline.transcript.messages import JsonObject

MAX_FILE_BYTES = 16 * 1024 * 1024
MAX_IMAGE_BYTES = 3_750_000
"""An image of this size is 5,000,000 characters of base64, which providers take."""

MAX_LINES = 2000
MAX_CHARS = 50_000
MAX_LINE_CHARS = 10_000

_IMAGE_STARTS = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}


def read_tool(workspace: Workspace) -> Tool:
    """`read` in this workspace."""
    return blocking_tool(
        "read",
        f"Read a file of the workspace: text, at most {MAX_LINES:,} lines or {MAX_CHARS:,} "
        "characters a call, or an image (PNG, JPEG, GIF, WebP).",
        {
            "path": {"type": "string", "description": "Relative to the workspace."},
            "offset": {
                "type": "integer",
                "minimum": 1,
                "description": "The line to begin with, counted from 1.",
            },
            "limit": {"type": "integer", "minimum": 1, "description": "How many lines."},
        },
        partial(_read, workspace),
        needs="ro",
        required=["path"],
    )


def _read(workspace: Workspace, arguments: JsonObject) -> ToolOutput | str:
    path = arguments["path"]
    with workspace.place(path) as place:
        descriptor = open_file(place)
        try:
            data = contents(descriptor, MAX_FILE_BYTES, path)
        finally:
            os.close(descriptor)
    kind = _kind_of_image(data)
    if kind is not None:
        return _image(data, kind, joined(place.names))
    if not is_text(data):
        raise StrandlineError(
            f"the file {shown(path)} is binary, not text", remedy="read text files and images only"
        )
    limit = min(int(arguments.get("limit", MAX_LINES)), MAX_LINES)
    return part_of(text_of(data), int(arguments.get("offset", 1)), limit)


def part_of(text: str, first: int, limit: int) -> str:
    r"""At most `limit` lines of `text` from line `first` (from 1), within the limits.

    What is left out is told in a last line in brackets. Line ends are shown as ``\n``.
    """
    lines = text.replace("\r\n", "\n").removesuffix("\n").split("\n") if text else []
    if first > max(len(lines), 1):
        raise StrandlineError(
            f"the file has {len(lines):,} lines, so there is no line {first:,}",
            remedy="give a smaller offset",
        )
    shown_lines, room = [], MAX_CHARS
    for line in lines[first - 1 : first - 1 + limit]:
        line = _cut(line)  # noqa: PLW2901 - a line is what is shown of it
        room -= len(line) + 1
        if room < 0:
            break
        shown_lines.append(line)
    last = first - 1 + len(shown_lines)
    if first == 1 and last == len(lines):
        return "\n".join(shown_lines) or "[the file is empty]"
    go_on = f"; go on with offset {last + 1}" if last < len(lines) else ""
    return "\n".join([*shown_lines, f"[lines {first} to {last} of {len(lines)}{go_on}]"])


def _cut(line: str) -> str:
    missing = len(line) - MAX_LINE_CHARS
    if missing <= 0:
        return line
    return f"{line[:MAX_LINE_CHARS]} [{missing:,} more characters; search shows parts of a line]"


def _kind_of_image(data: bytes) -> str | None:
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in _IMAGE_STARTS.items() if data.startswith(start)), None)


def _image(data: bytes, kind: str, path: str) -> ToolOutput:
    if len(data) > MAX_IMAGE_BYTES:
        raise StrandlineError(
            f"the image {shown(path)} has {len(data):,} bytes",
            remedy=f"only images of up to {MAX_IMAGE_BYTES:,} bytes can be shown",
        )
    said = {"type": "text", "text": f"{path}: {kind}, {len(data):,} bytes"}
    shown_image = {"type": "image", "data": base64.b64encode(data).decode(), "mimeType": kind}
    return ToolOutput([said, shown_image])
