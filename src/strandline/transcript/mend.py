"""Entries whose body says nothing, written so that every reader can take them.

Part of a repair. What the conversation makes of an entry stays the same: a message without
a message never was one, so its line becomes a plugin's note in the same place; text that
is missing elsewhere becomes empty. Source: spec 1, Damage.
"""

from __future__ import annotations

from typing import Any

from strandline.transcript.codec import decode_object, encode_object
from strandline.transcript.entries import KNOWN_TYPES, UnknownEntry, entry_of
from strandline.transcript.messages import JsonObject
from strandline.transcript.salvage import writable
from strandline.transcript.survey import Report

TEXTS = {
    "custom_message": ("customType",),
    "custom": ("customType",),
    "compaction": ("summary",),
    "branch_summary": ("fromId", "summary"),
    "model_change": ("provider", "modelId"),
    "thinking_level_change": ("thinkingLevel",),
    "label": ("targetId",),
    "session_info": ("name",),
}
"""The keys of each type that must hold text."""

PLACE_KEYS = frozenset({"type", "id", "parentId", "timestamp", "appendMode"})
"""What puts an entry into the tree."""


def mended(content: bytes, entry_id: str, line: int, report: Report) -> bytes:
    """The line in UTF-8 and with a body of its type; itself where nothing is wrong with it."""
    try:
        content.decode()
    except UnicodeDecodeError:
        content = content.decode("utf-8", "replace").encode()
        report.replace("invalid-utf8", line, "what is no UTF-8 is U+FFFD now", entry_id)
    data = decode_object(content)
    entry = entry_of(entry_id, data, content)
    if not isinstance(entry, UnknownEntry) or entry.type not in KNOWN_TYPES:
        return content
    if entry.type == "message":
        body, detail = _as_note(data), "it holds no message: it is a plugin's note now"
    else:
        texts = {key: _text(data.get(key)) for key in TEXTS[entry.type]}
        body, detail = {**data, **texts}, f"what it lacked is empty now: {', '.join(texts)}"
    report.replace("damaged-entry", line, detail, entry_id)
    return encode_object(writable(body))


def _as_note(data: JsonObject) -> JsonObject:
    place: JsonObject = {key: value for key, value in data.items() if key in PLACE_KEYS}
    rest = {key: value for key, value in data.items() if key not in place}
    return {**place, "type": "custom", "customType": "damaged-message", "data": rest}


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else encode_object({"was": writable(value)}).decode()
