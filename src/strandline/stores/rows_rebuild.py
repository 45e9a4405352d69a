"""What can be had back of a damaged ``sessions.json``: its whole rows, and the headers.

Rows that can still be read keep everything. Each transcript that none of them names gets a
row from its header: under the key that its trajectory tells, else as
``agent:<agent>:explicit:<session id>``. Nothing is guessed. Source: spec 2, Store entry.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strandline.clock import ms_from_iso
from strandline.errors import InvalidSessionKey
from strandline.sessions.keys import SessionKey, check_agent_id, explicit_key, is_transcript_name
from strandline.sessions.rows import is_row, row_of, transcript_name
from strandline.stores.rows_json import strict_decoder
from strandline.transcript.codec import BOM, MalformedLine, decode_object
from strandline.transcript.messages import JsonObject

MAX_HEADER_BYTES = 64 * 1024

_GAP = re.compile(r"[\s,\x00]*")
_COLON = re.compile(r"\s*:\s*")
_NEXT_KEY = re.compile(r'\n  (?=")')
"""Where a row begins in a file as we and OpenClaw indent it."""


@dataclass(frozen=True, slots=True)
class FoundTranscript:
    """One transcript in the folder. `told_key` is the session key in its trajectory."""

    name: str
    session_id: str
    started_ms: int | None
    written_ms: int
    told_key: str | None


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """Entries for a new store, and where they came from."""

    entries: dict[str, Any]
    read: int
    made: int
    without_key: int


def find_transcripts(folder: Path) -> list[FoundTranscript]:
    """The transcripts of a folder whose header can be read, newest first. Follows no links."""
    try:
        names = sorted(path.name for path in folder.iterdir() if is_transcript_name(path.name))
    except OSError:
        return []
    found = [one for name in names if (one := _look(folder / name)) is not None]
    return sorted(found, key=lambda one: -one.written_ms)


def rebuild(content: bytes, found: Sequence[FoundTranscript], agent_id: str) -> Rebuilt:
    """Entries from what is whole in `content`, and from the transcripts it does not name."""
    entries = dict(whole_entries(content))
    read = len(entries)
    rows = [row_of(entry) for entry in entries.values() if is_row(entry)]
    ids = {row.session_id for row in rows}
    names = {transcript_name(row) for row in rows}
    missing = [one for one in found if one.session_id not in ids and one.name not in names]
    for one in missing:
        key = _free_key(one, agent_id, entries)
        if key is not None:
            entries[key] = _entry_of(one)
    made = len(entries) - read
    return Rebuilt(entries, read, made, len(missing) - made)


def whole_entries(content: bytes) -> Iterator[tuple[str, Any]]:
    """The keys and values of a JSON map that can still be read, in their order.

    A part that cannot is skipped up to where the next row begins. Of several maps in one
    file, the first counts.
    """
    text = content.removeprefix(BOM).decode("utf-8", "replace")
    position = text.find("{") + 1
    while 0 < position < len(text):
        position = _end(_GAP, text, position)
        if text.startswith("}", position):
            return
        try:
            key, position = strict_decoder.raw_decode(text, position)
            value, position = strict_decoder.raw_decode(text, _end(_COLON, text, position))
        except (ValueError, RecursionError):
            position = _end(_NEXT_KEY, text, position, search=True)
            continue
        if isinstance(key, str):
            yield key, value


def agent_of(folder: Path) -> str:
    """The agent whose sessions folder this is, by the folder's place; ``main`` elsewhere."""
    if folder.name == "sessions" and folder.parent.parent.name == "agents":
        try:
            return check_agent_id(folder.parent.name)
        except InvalidSessionKey:
            pass
    return "main"


def _end(pattern: re.Pattern[str], text: str, start: int, *, search: bool = False) -> int:
    """Where a match ends; without one `start`, or, for a search, the end of the text."""
    match = pattern.search(text, start) if search else pattern.match(text, start)
    if match is not None:
        return match.end()
    return len(text) if search else start


def _look(path: Path) -> FoundTranscript | None:
    if path.is_symlink() or not path.is_file():
        return None
    header = _first_object(path)
    session_id = header.get("id")
    if header.get("type") != "session" or not isinstance(session_id, str) or not session_id:
        return None
    trajectory = path.with_name(path.name.removesuffix(".jsonl") + ".trajectory.jsonl")
    return FoundTranscript(
        name=path.name,
        session_id=session_id,
        started_ms=ms_from_iso(header.get("timestamp")),
        written_ms=path.stat().st_mtime_ns // 1_000_000,
        told_key=_told_key(trajectory),
    )


def _told_key(trajectory: Path) -> str | None:
    if trajectory.is_symlink():
        return None
    told = _first_object(trajectory).get("sessionKey")
    try:
        return str(SessionKey.parse(told)) if isinstance(told, str) else None
    except InvalidSessionKey:
        return None


def _first_object(path: Path) -> JsonObject:
    """The object on the first line that is not blank; empty where there is none."""
    try:
        with path.open("rb") as file:
            start = file.read(MAX_HEADER_BYTES)
    except OSError:
        return {}
    for line in start.removeprefix(BOM).split(b"\n"):
        if line.strip(b" \t\r\x00"):
            try:
                return decode_object(line.strip(b"\r\x00"))
            except MalformedLine:
                return {}
    return {}


def _free_key(one: FoundTranscript, agent_id: str, taken: Mapping[str, Any]) -> str | None:
    """The key that the trajectory told, else an explicit one, else none that is free."""
    if one.told_key is not None and one.told_key not in taken:
        return one.told_key
    for name in (one.session_id, one.name.removesuffix(".jsonl")):
        try:
            key = str(explicit_key(agent_id, name))
        except InvalidSessionKey:
            continue
        if key not in taken:
            return key
    return None


def _entry_of(one: FoundTranscript) -> JsonObject:
    entry: JsonObject = {"sessionId": one.session_id, "updatedAt": one.written_ms}
    if one.started_ms is not None:
        entry["sessionStartedAt"] = one.started_ms
    return entry | {"sessionFile": one.name}
