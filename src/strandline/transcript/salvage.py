"""Whole lines that hide in damaged ones.

A crash, or two programs that wrote at once, leave a torn line with a whole object behind
it, two objects on one line, an object that a raw line end cuts in two. What reads as an
entry or a header by itself is taken out; nothing is completed or made up. Source: spec 1,
Damage; cases B6, C7, C16.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

from strandline.transcript.codec import MalformedLine, decode_head, encode_object
from strandline.transcript.entries import KNOWN_TYPES
from strandline.transcript.messages import JsonObject

_START = re.compile(r'\{\s*"(?:type|id|parentId|timestamp)"\s*:')
"""Where an entry may start: blocks and messages start so too, and are told apart later."""

_FOLLOWED_WELL = re.compile(r"[ \t\r\x00]*(?:\n|\{|\Z)")
"""What may stand behind an object of its own; inside a torn one a comma or bracket would."""

_decoder = json.JSONDecoder(strict=False, parse_constant=lambda _: None)
"""Takes raw control characters inside strings, and reads NaN as Node writes it: null."""


def salvage(damaged: bytes) -> list[bytes]:
    """The lines hidden in a run of damaged lines, in their order, without line ends.

    They are the bytes of the file wherever these are a good line by themselves.
    """
    text = damaged.decode("utf-8", "surrogateescape")
    return [_line(text[start:end]) for start, end in _entries(text)]


def _entries(text: str) -> Iterator[tuple[int, int]]:
    at = 0
    while (match := _START.search(text, at)) is not None:
        start = match.start()
        try:
            value, end = _decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            at = start + 1
            continue
        if is_transcript_line(value) and _FOLLOWED_WELL.match(text, end):
            yield start, end
        at = end


def is_transcript_line(value: Any) -> bool:
    """Whether an object can only be an entry or a header, not a part of one."""
    if not isinstance(value, dict):
        return False
    kind, entry_id = value.get("type"), value.get("id")
    has_id = isinstance(entry_id, str) and entry_id != ""
    if kind == "session":
        return has_id
    if kind == "compaction" and "firstKeptEntryId" not in value:
        return False  # of version 1: it counts lines, and they have changed
    of_version_1 = kind in KNOWN_TYPES and isinstance(value.get("timestamp"), str)
    return isinstance(kind, str) and (of_version_1 or (has_id and "parentId" in value))


def _line(text: str) -> bytes:
    raw = text.encode("utf-8", "surrogateescape")
    if b"\n" not in raw:
        try:
            decode_head(raw)
        except MalformedLine:
            pass
        else:
            return raw
    value: JsonObject = _decoder.decode(raw.decode("utf-8", "replace"))
    return encode_object(writable(value))


def writable(value: Any) -> Any:
    """The value with numbers beyond every limit as null, which is how Node writes them."""
    whole = [value]
    waiting: list[Any] = [whole]
    while waiting:  # no recursion: what was read may be nested as deep as Python reads
        part = waiting.pop()
        for key, item in list(part.items() if isinstance(part, dict) else enumerate(part)):
            if isinstance(item, list | dict):
                part[key] = item.copy()
                waiting.append(part[key])
            elif isinstance(item, float) and not math.isfinite(item):
                part[key] = None
    return whole[0]
