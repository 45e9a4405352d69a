"""Rows: what the session store knows of a key, as a typed view over the JSON object.

The object is the truth: keys that we do not know stay in it, in their order. A value of the
wrong type reads as absent and is kept. Source: spec 2, Store entry.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Generic, TypeVar, overload

from strandline.sessions.keys import file_stem_for, is_transcript_name
from strandline.transcript.messages import JsonObject

T = TypeVar("T")


class _Known(Generic[T]):
    """A known field: `row.session_file` reads ``sessionFile``, None where it is absent."""

    def __init__(self, read: Callable[[Any], T | None]) -> None:
        self._read = read

    def __set_name__(self, owner: type, name: str) -> None:
        self._key = _KEYS[name] = _camel(name)

    @overload
    def __get__(self, row: None, owner: type) -> _Known[T]: ...
    @overload
    def __get__(self, row: SessionRow, owner: type) -> T | None: ...
    def __get__(self, row: SessionRow | None, owner: type) -> _Known[T] | T | None:
        return self if row is None else self._read(row.raw.get(self._key))


_KEYS: dict[str, str] = {}
"""Attribute name to JSON key, filled by the class below."""


def _camel(name: str) -> str:
    return re.sub(r"_(.)", lambda match: match[1].upper(), name)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _flag(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _object(value: Any) -> JsonObject | None:
    return value if isinstance(value, dict) else None


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:  # JSON has numbers that no float holds
        return None


def _whole(value: Any) -> int | None:
    number = _number(value)
    return int(value) if number is not None and number.is_integer() else None


@dataclass(frozen=True)
class SessionRow:
    """One row. Times are Unix milliseconds; the counters are statistics, never limits."""

    raw: Mapping[str, Any]

    session_file = _Known(_text)
    """A name in the sessions folder, or a path on the machine that wrote it; see
    `transcript_name`."""
    session_started_at = _Known(_whole)
    updated_at = _Known(_whole)
    last_interaction_at = _Known(_whole)

    chat_type = _Known(_text)
    """``direct``, ``group`` or ``room``: decides labels and the send policy."""
    provider = _Known(_text)
    channel = _Known(_text)
    subject = _Known(_text)
    room = _Known(_text)
    space = _Known(_text)
    display_name = _Known(_text)
    origin = _Known(_object)

    thinking_level = _Known(_text)
    verbose_level = _Known(_text)
    reasoning_level = _Known(_text)
    elevated_level = _Known(_text)
    send_policy = _Known(_text)
    provider_override = _Known(_text)
    model_override = _Known(_text)
    auth_profile_override = _Known(_text)

    input_tokens = _Known(_whole)
    output_tokens = _Known(_whole)
    total_tokens = _Known(_whole)
    total_tokens_fresh = _Known(_flag)
    """False where `total_tokens` is known to be out of date."""
    context_tokens = _Known(_whole)
    cache_read = _Known(_whole)
    cache_write = _Known(_whole)
    estimated_cost_usd = _Known(_number)

    compaction_count = _Known(_whole)
    """Completed automatic compactions of this key."""
    compaction_mode = _Known(_text)
    """``auto``, ``off`` or ``error``, where a person chose one for this session."""
    memory_flush_at = _Known(_whole)
    memory_flush_compaction_count = _Known(_whole)
    """`compaction_count` at the last flush; absent is not 0."""
    forked_from_parent = _Known(_flag)
    aborted_last_run = _Known(_flag)

    @property
    def session_id(self) -> str:
        """The transcript that the key writes to now; every row has one."""
        return str(self.raw["sessionId"])

    def with_changes(self, **changes: Any) -> SessionRow:
        """A copy with these fields set, named as the attributes are; None takes one out.

        Raises `TypeError` for a name that is no field.
        """
        raw = dict(self.raw)
        for name, value in changes.items():
            key = "sessionId" if name == "session_id" else _KEYS.get(name)
            if key is None:
                raise TypeError(f"a session row has no field {name!r}")
            if value is None:
                raw.pop(key, None)
            else:
                raw[key] = value
        return row_of(raw)


def is_row(value: object) -> bool:
    """Whether a value of the store can be a row: an object with a session id."""
    if not isinstance(value, dict):
        return False
    session_id = value.get("sessionId")
    return isinstance(session_id, str) and session_id != ""


def row_of(raw: Mapping[str, Any]) -> SessionRow:
    """The row over a JSON object. Raises `ValueError` where there is no session id."""
    if not is_row(dict(raw)):
        raise ValueError("a session row needs a session id")
    return SessionRow(MappingProxyType(dict(raw)))


_KEPT = (
    *("chatType", "provider", "channel", "groupId", "groupChannel", "subject", "room", "space"),
    *("label", "displayName", "origin"),
    "compactionMode",
    *("thinkingLevel", "verboseLevel", "reasoningLevel", "elevatedLevel", "fastMode"),
    *("sendPolicy", "groupActivation", "queueMode", "queueDebounceMs", "queueCap", "queueDrop"),
    *("providerOverride", "modelOverride", "modelOverrideSource"),
    *("authProfileOverride", "authProfileOverrideSource"),
)
"""What a person chose, and what the conversation is called. Nothing else outlives a reset:
a copied row once took the old file and its counters along."""


def new_row(
    session_id: str,
    now_ms: int,
    *,
    session_file: str | None = None,
    previous: SessionRow | None = None,
) -> SessionRow:
    """The row of a conversation that begins now.

    From `previous`, the row that the key had, only choices and labels are taken.
    """
    raw: dict[str, Any] = {
        "sessionId": session_id,
        "updatedAt": now_ms,
        "sessionStartedAt": now_ms,
        "lastInteractionAt": now_ms,
        "sessionFile": session_file or f"{file_stem_for(session_id)}.jsonl",
    }
    if previous is not None:
        raw |= {key: previous.raw[key] for key in _KEPT if key in previous.raw}
    return row_of(raw)


def transcript_name(row: SessionRow) -> str:
    """The file name, in the sessions folder, of a row's transcript.

    `sessionFile` is often a path of the machine that wrote it: only its last part counts, so
    nothing outside the folder is ever named. Where that part can be no transcript's (or
    there is none), the session id names the file. Source: spec 2, On disk.
    """
    name = re.split(r"[/\\]", row.session_file or "")[-1]
    return name if is_transcript_name(name) else f"{file_stem_for(row.session_id)}.jsonl"
