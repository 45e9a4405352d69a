"""Entries: what a transcript is made of, as one tagged union.

A line's own bytes are the truth. `Head` holds the few fields that place an entry in the
tree, and is all that most entries of a long history are ever asked for; `entry_of` turns
a line into the class of its type when its body is wanted. Unknown types, unknown keys
and unknown blocks stay in `data` and in `raw`. Source: spec 1, File.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from strandline.transcript.messages import JsonObject, Message

KNOWN_TYPES = frozenset(
    {
        "message",
        "custom_message",
        "custom",
        "compaction",
        "branch_summary",
        "model_change",
        "thinking_level_change",
        "label",
        "session_info",
        "leaf",
    }
)
MARKER_TYPES = frozenset({"label", "session_info", "leaf"})
"""Entries about the conversation, not part of it: a branch does not end in one."""


class MessageHead(msgspec.Struct, gc=False, frozen=True):
    """What a message says about settings."""

    role: str | None = None
    provider: str | None = None
    model: str | None = None


class Head(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    """The fields of a line that decide where it stands. UNSET means that the key is absent."""

    type: str
    id: str | None = None
    parent_id: str | UnsetType | None = UNSET
    timestamp: str | None = None
    target_id: str | UnsetType | None = UNSET
    append_parent_id: str | UnsetType | None = UNSET
    append_mode: str | None = None
    first_kept_entry_id: str | None = None
    thinking_level: str | None = None
    provider: str | None = None
    model_id: str | None = None
    name: str | None = None
    label: str | None = None
    message: MessageHead | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """What every entry has. `raw` is its line, without the line end; `data` all its keys."""

    id: str
    parent_id: str | None
    timestamp: str | None
    raw: bytes
    data: JsonObject

    @property
    def type(self) -> str:
        """The type as the file spells it."""
        return str(self.data.get("type"))


@dataclass(frozen=True, slots=True)
class MessageEntry(Entry):
    """Something said: by a person, a model, a tool or a shell."""

    message: Message


@dataclass(frozen=True, slots=True)
class CustomMessageEntry(Entry):
    """Something that a plugin says to the model; `display` False hides it from people."""

    custom_type: str
    content: Any
    display: bool


@dataclass(frozen=True, slots=True)
class CustomEntry(Entry):
    """A plugin's own state; the model never sees it."""

    custom_type: str


@dataclass(frozen=True, slots=True)
class CompactionEntry(Entry):
    """A summary that stands for everything before `first_kept_entry_id`."""

    summary: str
    first_kept_entry_id: str | None
    tokens_before: int


@dataclass(frozen=True, slots=True)
class BranchSummaryEntry(Entry):
    """A summary of a branch that the conversation came back from."""

    from_id: str
    summary: str


@dataclass(frozen=True, slots=True)
class ModelChangeEntry(Entry):
    """From here on, this model answers."""

    provider: str
    model_id: str


@dataclass(frozen=True, slots=True)
class ThinkingLevelChangeEntry(Entry):
    """From here on, models think this hard."""

    thinking_level: str


@dataclass(frozen=True, slots=True)
class LabelEntry(Entry):
    """A bookmark on `target_id`; `label` None clears it."""

    target_id: str
    label: str | None


@dataclass(frozen=True, slots=True)
class SessionInfoEntry(Entry):
    """The session's name; empty clears it."""

    name: str


@dataclass(frozen=True, slots=True)
class LeafEntry(Entry):
    """Where the conversation stands from here on; `target_id` None is before everything."""

    target_id: str | None


@dataclass(frozen=True, slots=True)
class UnknownEntry(Entry):
    """An entry of a type, or with a body, that this version does not know. Kept as it is."""


AnyEntry = (
    MessageEntry
    | CustomMessageEntry
    | CustomEntry
    | CompactionEntry
    | BranchSummaryEntry
    | ModelChangeEntry
    | ThinkingLevelChangeEntry
    | LabelEntry
    | SessionInfoEntry
    | LeafEntry
    | UnknownEntry
)

_Kind = Literal["str", "str?", "text", "object", "int", "any", "bool"]
_BODIES: Mapping[str, tuple[Any, tuple[tuple[str, _Kind], ...]]] = {
    "message": (MessageEntry, (("message", "object"),)),
    "custom_message": (
        CustomMessageEntry,
        (("customType", "str"), ("content", "any"), ("display", "bool")),
    ),
    "custom": (CustomEntry, (("customType", "str"),)),
    "compaction": (
        CompactionEntry,
        (("summary", "str"), ("firstKeptEntryId", "str?"), ("tokensBefore", "int")),
    ),
    "branch_summary": (BranchSummaryEntry, (("fromId", "str"), ("summary", "str"))),
    "model_change": (ModelChangeEntry, (("provider", "str"), ("modelId", "str"))),
    "thinking_level_change": (ThinkingLevelChangeEntry, (("thinkingLevel", "str"),)),
    "label": (LabelEntry, (("targetId", "str"), ("label", "str?"))),
    "session_info": (SessionInfoEntry, (("name", "text"),)),
    "leaf": (LeafEntry, (("targetId", "str?"),)),
}


def entry_of(entry_id: str, data: JsonObject, raw: bytes) -> AnyEntry:
    """The entry that a line holds, as the class of its type.

    A body that does not have its type's shape makes an `UnknownEntry`: the entry keeps
    its place in the tree and all its keys.
    """
    parent, timestamp = data.get("parentId"), data.get("timestamp")
    base = (
        entry_id,
        parent if isinstance(parent, str) else None,
        timestamp if isinstance(timestamp, str) else None,
        raw,
        data,
    )
    kind = data.get("type")
    if not isinstance(kind, str) or kind not in _BODIES:
        return UnknownEntry(*base)
    cls, fields = _BODIES[kind]
    body = [_field(data.get(name), shape) for name, shape in fields]
    if UNSET in body:
        return UnknownEntry(*base)
    entry: AnyEntry = cls(*base, *body)
    return entry


def _field(value: Any, shape: _Kind) -> Any:
    """`value` if it has the shape, a tame stand-in where readers agree on one, else UNSET."""
    match shape:
        case "any":
            return value
        case "bool":
            return value is not False
    kind, stand_in = _SHAPES[shape]
    return value if isinstance(value, kind) else stand_in


_SHAPES: Mapping[str, tuple[type, Any]] = {
    "str": (str, UNSET),
    "str?": (str, None),
    "text": (str, ""),
    "object": (dict, UNSET),
    "int": (int, 0),
}
