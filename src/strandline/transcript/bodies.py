"""Entries that have their place in the tree and a body that says nothing.

Looked for when a person asks (`verify`), since it takes reading every body. Source: spec 1,
Damage.
"""

from __future__ import annotations

from collections.abc import Iterator

from strandline.transcript.codec import decode_object
from strandline.transcript.damage import Finding
from strandline.transcript.entries import KNOWN_TYPES, UnknownEntry, entry_of
from strandline.transcript.reading import Reader


def damaged_bodies(reader: Reader) -> Iterator[Finding]:
    """Reports entries of a known type without that type's body, and text that is no UTF-8."""
    for node in reader.complete_tree().nodes.values():
        line = reader.line(node)
        try:
            line.decode()
        except UnicodeDecodeError as error:
            detail = f"byte {error.start} of the line is no UTF-8: it reads as U+FFFD"
            yield Finding("invalid-utf8", node.offset, detail, None, node.id)
        entry = entry_of(node.id, decode_object(line), line)
        if isinstance(entry, UnknownEntry) and entry.type in KNOWN_TYPES:
            detail = f"the body is not that of a {entry.type}: it is kept and not used"
            yield Finding("damaged-entry", node.offset, detail, None, node.id)
