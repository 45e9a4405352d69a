"""A damaged transcript made whole: what a new file has to hold, and what that changes.

Pure: the bytes of a transcript go in, the lines of a new one come out. Every readable
line is copied byte for byte unless it is what a reader stumbles over. The conversation of
the old file is the measure: an entry hangs in the new tree where it hung in the old, and
the conversation stands where it stood, or further on where salvaged lines continue it.
Only where a salvaged line is the parent that an entry had lost does the true parent
replace the stand-in. Source: spec 1, Damage.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from strandline.transcript.codec import MalformedLine, decode_object, encode_object
from strandline.transcript.entries import MARKER_TYPES
from strandline.transcript.messages import JsonObject
from strandline.transcript.migrate import CURRENT_VERSION, migrate, version_of
from strandline.transcript.position import BEYOND
from strandline.transcript.relay import Change, ChangeKind, Relay, Row, rewritten
from strandline.transcript.survey import OldLine, survey
from strandline.transcript.tree import Node, Tree, derived_id
from strandline.transcript.upgrade import FIRST_BYTES, FIRST_LINES


@dataclass(frozen=True, slots=True)
class Repair:
    """The new file's `lines`, the header first, and every change, in the old file's order.

    `damaged` are the old lines that are not in the new file as they were, byte for byte.
    Line ends are left out of both. Without `lines` there was nothing to read.
    """

    lines: list[bytes]
    damaged: list[bytes]
    changes: list[Change]


def repair(image: bytes, header: JsonObject) -> Repair:
    """What a new file in the place of the transcript `image` has to hold.

    `header` is used where the old one cannot be read. An old version comes out as the
    current one. The new lines read without findings.
    """
    version = version_in(image)
    current = image if version >= CURRENT_VERSION else migrate(image, version)
    work = _Work(current, chained=version < 2)
    if version < CURRENT_VERSION:
        work.note("old-version", 1, f"version {version} is version {CURRENT_VERSION} now")
    for line in survey(current, work.heads, work.changes, work.damaged):
        work.take(line)
    if work.header is None and not work.rows:
        return Repair([], [], [])
    lines = [work.header or _new_header(header, work), *work.relay()]
    old_lines = image.split(b"\n")
    return Repair(
        lines,
        [old_lines[number - 1] for number in sorted(work.damaged)],
        sorted(work.changes, key=lambda change: change.line),
    )


def version_in(image: bytes) -> int:
    """The version of a transcript, of which the first 64 KiB are enough."""
    header: JsonObject | None = None
    for value in _first_objects(image[:FIRST_BYTES]):
        if value.get("type") != "session":
            return version_of(header, value)
        header = header or value
    return version_of(header, None)
