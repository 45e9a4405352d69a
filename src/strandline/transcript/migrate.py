"""Old versions of the format, brought up to date in memory.

Version 1 has no ids: the conversation is a list, and a compaction names what it keeps by
its place among the readable lines. Version 2 calls the role `custom` `hookMessage`. The
result is the transcript as version 3 would have written it, line for line, so that all
else only ever reads version 3. Source: spec 1, Old versions.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from strandline.errors import InvalidEntry
from strandline.transcript.codec import BOM, PADDING, MalformedLine, decode_object, encode_object
from strandline.transcript.messages import JsonObject
from strandline.transcript.tree import derived_id

CURRENT_VERSION = 3
FIRST_BYTES = 1 << 16
FIRST_LINES = 20


def beginning(image: bytes) -> tuple[JsonObject | None, JsonObject | None]:
    """The header and the first entry, as far as the first lines of a transcript hold them.

    Of the entries on those lines the first with an id counts before those without one:
    where any has an id, the transcript is no list.
    """
    header: JsonObject | None = None
    first: JsonObject | None = None
    for line in image[:FIRST_BYTES].removeprefix(BOM).split(b"\n")[:FIRST_LINES]:
        try:
            value = decode_object(line.strip(PADDING))
        except MalformedLine:
            continue
        if value.get("type") == "session":
            header = header or (None if first else value)
        elif isinstance(value.get("type"), str):
            first = first or value
            if "id" in value:
                return header, value
    return header, first


def version_of(header: JsonObject | None, first_entry: JsonObject | None) -> int:
    """The version of a transcript, told from its header or, without one, its first entry.

    A header without a usable `version` is of version 1, as is a transcript that lost its
    header and whose entries have no ids. Where entries have ids, it is not version 1,
    whatever a damaged header says: they must not get others.
    """
    version = header.get("version", 1) if header is not None else None
    if not isinstance(version, int) or isinstance(version, bool):
        version = 1 if header is not None or first_entry is not None else CURRENT_VERSION
    has_ids = first_entry is not None and "id" in first_entry
    return CURRENT_VERSION if version < 2 and has_ids else version


def migrate(image: bytes, version: int) -> bytes:
    """A transcript of an old `version` as version 3, line for line.

    Lines that cannot be read, or not be written again, stay as they are.
    """
    lines = image.split(b"\n")
    parsed = list(_parsed(lines))
    if version < 2:
        _give_ids(parsed, lines)
    for index, _, data in parsed:
        if _rename(data) or version < 2:
            with suppress(InvalidEntry):
                lines[index] = encode_object(data)
    return b"\n".join(lines)


def _rename(data: JsonObject) -> bool:
    """Bring the header and the old role up to date; True if there was anything to do."""
    if data.get("type") == "session":
        data["version"] = CURRENT_VERSION
        return True
    message = data.get("message")
    if not isinstance(message, dict) or message.get("role") != "hookMessage":
        return False
    data["message"] = {**message, "role": "custom"}
    return True


def _parsed(lines: list[bytes]) -> Iterator[tuple[int, int, JsonObject]]:
    """Index, offset and object of every readable line."""
    offset = 0
    for index, line in enumerate(lines):
        with suppress(MalformedLine):
            yield index, offset, decode_object(line.removeprefix(BOM).strip(PADDING))
        offset += len(line) + 1


def _give_ids(parsed: list[tuple[int, int, JsonObject]], lines: list[bytes]) -> None:
    """Ids and parents for a list of entries; the ids are the same at every reading."""
    taken: set[str] = set()
    parent: str | None = None
    for index, offset, data in parsed:
        if data.get("type") == "session" or not isinstance(data.get("type"), str):
            continue
        entry_id = _free_id(offset, lines[index], taken)
        taken.add(entry_id)
        body = {k: v for k, v in data.items() if k not in {"type", "id", "parentId"}}
        head: dict[str, Any] = {"type": data.get("type"), "id": entry_id, "parentId": parent}
        data.clear()
        data.update(head, **body)
        parent = entry_id
    for _, _, data in parsed:
        _name_first_kept(data, parsed)


def _free_id(offset: int, line: bytes, taken: set[str]) -> str:
    entry_id = derived_id(offset, line)
    while entry_id in taken:
        line += b"+"
        entry_id = derived_id(offset, line)
    return entry_id


def _name_first_kept(data: JsonObject, parsed: list[tuple[int, int, JsonObject]]) -> None:
    """`firstKeptEntryIndex` counts readable lines, the header being 0."""
    place = data.pop("firstKeptEntryIndex", None) if data.get("type") == "compaction" else None
    if isinstance(place, int) and 0 <= place < len(parsed):
        kept = parsed[place][2]
        if kept.get("type") != "session" and "id" in kept:
            data["firstKeptEntryId"] = kept["id"]
