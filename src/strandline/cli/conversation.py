"""A transcript as people read it: what was said, called, answered, and the boundaries.

Entries go in, items come out; `show` and the exports print them each in their way. Text
is passed on as it stands in the file: who prints it makes it safe.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from strandline.clock import ms_from_iso
from strandline.manager import SessionManager
from strandline.transcript.entries import (
    AnyEntry,
    BranchSummaryEntry,
    CompactionEntry,
    CustomMessageEntry,
    MessageEntry,
    ModelChangeEntry,
    SessionInfoEntry,
    ThinkingLevelChangeEntry,
    UnknownEntry,
)
from strandline.transcript.messages import Message

PartKind = Literal["text", "thinking", "call", "result", "image", "problem"]
TELLING_ARGUMENTS = (
    "command", "path", "file_path", "pattern", "query", "url", "name", "prompt", "note"
)  # fmt: skip
"""The argument that says what a call was about, most telling first."""

_TOKEN = "NO_REPLY"  # noqa: S105 - the word an agent answers with, no secret
NOT_DELIVERED = "not delivered"
"""What stands beside a silent reply."""


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a message.

    `title` is a tool's name or an image's type, `brief` a call's most telling argument; the
    `text` of an image is its base64.
    """

    kind: PartKind
    text: str
    title: str = ""
    brief: str = ""
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Item:
    """One entry. `who` is the role, or what kind of boundary or note it is.

    `silent` marks a reply that was delivered to nobody, whatever it answered.
    """

    kind: Literal["said", "boundary", "note"]
    id: str
    who: str
    at_ms: int | None
    parts: list[Part] = field(default_factory=list)
    title: str = ""
    label: str | None = None
    silent: bool = False


def items(session: SessionManager, entries: Iterable[AnyEntry]) -> Iterator[Item]:
    """What there is to see of some entries; what plugins hide from people is left out."""
    labels = session.labels()
    for entry in entries:
        item = _item(entry, labels.get(entry.id))
        if item is not None:
            yield item


def _item(entry: AnyEntry, label: str | None) -> Item | None:
    at_ms = ms_from_iso(entry.timestamp)
    match entry:
        case MessageEntry(message=message):
            return _said(entry.id, message, at_ms, label)
        case CustomMessageEntry(display=False):
            return None
        case CustomMessageEntry():
            parts = list(_content(entry.content))
            return Item("said", entry.id, entry.custom_type, at_ms, parts, label=label)
        case CompactionEntry():
            title = f"{entry.tokens_before:,} tokens before"
            if entry.first_kept_entry_id:
                title += f", kept from {entry.first_kept_entry_id}"
            parts = [Part("text", entry.summary)]
            return Item("boundary", entry.id, "compaction", at_ms, parts, title, label)
        case BranchSummaryEntry(summary=summary) if summary:
            parts, title = [Part("text", summary)], f"from {entry.from_id}"
            return Item("boundary", entry.id, "branch summary", at_ms, parts, title, label)
        case _:
            title = _note(entry)
            return Item("note", entry.id, entry.type, at_ms, [], title, label) if title else None


def _note(entry: AnyEntry) -> str:
    """A setting or name in words; empty for entries that a person need not see."""
    match entry:
        case ModelChangeEntry():
            return f"model {entry.provider}/{entry.model_id}"
        case ThinkingLevelChangeEntry():
            return f"thinking {entry.thinking_level}"
        case SessionInfoEntry():
            return f"name {entry.name}" if entry.name.strip() else "name cleared"
        case UnknownEntry():
            return f"an entry of type {entry.type}"
        case _:
            return ""


def _said(entry_id: str, message: Message, at_ms: int | None, label: str | None) -> Item:
    role = str(message.get("role") or "unknown")
    parts = list(parts_of(message))
    stamp = message.get("timestamp")
    if at_ms is None and isinstance(stamp, int):
        at_ms = stamp
    title = str(message.get("model") or "") if role == "assistant" else ""
    return Item("said", entry_id, role, at_ms, parts, title, label, silent=_is_silent(role, parts))


def _is_silent(role: str, parts: Iterable[Part]) -> bool:
    text = "".join(part.text for part in parts if part.kind == "text")
    if role != "assistant" or _TOKEN not in text.upper():
        return False
    from strandline.runtime.silence import Occasion, is_silent  # noqa: PLC0415 - hardly ever needed

    return is_silent(text, Occasion())


def parts_of(message: Message) -> Iterator[Part]:
    """The pieces of a message, in their order."""
    role = message.get("role")
    if role == "toolResult":
        yield _result(message)
    elif role == "bashExecution":
        yield from _shell(message)
    elif role in {"compactionSummary", "branchSummary"}:
        yield Part("text", _text(message.get("summary")))
    else:
        yield from _content(message.get("content"))
        yield from _problem(message)


def _content(content: Any) -> Iterator[Part]:
    if isinstance(content, str):
        yield Part("text", content)
        return
    for block in content if isinstance(content, list) else []:
        if isinstance(block, dict):
            yield _block(block)


def _block(block: dict[str, Any]) -> Part:
    match block.get("type"):
        case "text":
            return Part("text", _text(block.get("text")))
        case "thinking":
            return Part("thinking", _text(block.get("thinking")))
        case "image":
            return Part("image", _text(block.get("data")), _text(block.get("mimeType")))
        case "toolCall":
            arguments = block.get("arguments")
            return Part("call", _json(arguments), _text(block.get("name")), brief(arguments))
        case kind:
            return Part("problem", f"a block of type {kind}")


def brief(arguments: Any) -> str:
    """What a call was about, in as few words as its arguments allow."""
    if not isinstance(arguments, dict):
        return _json(arguments)
    for name in TELLING_ARGUMENTS:
        if isinstance(arguments.get(name), str):
            return str(arguments[name])
    return _json(arguments) if arguments else ""


def _result(message: Message) -> Part:
    text = "\n".join(
        f"[image {part.title}]" if part.kind == "image" else part.text
        for part in _content(message.get("content"))
    )
    failed = message.get("isError") is True
    return Part("result", text, _text(message.get("toolName")), failed=failed)


def _shell(message: Message) -> Iterator[Part]:
    command = _text(message.get("command"))
    yield Part("call", command, "$", command)
    code = message.get("exitCode")
    failed = bool(code) or message.get("cancelled") is True
    yield Part("result", _text(message.get("output")), "$", failed=failed)


def _problem(message: Message) -> Iterator[Part]:
    reason = message.get("stopReason")
    if reason in {"error", "aborted", "length"}:
        said = _text(message.get("errorMessage"))
        yield Part("problem", f"{reason}: {said}" if said else str(reason))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _json(value: Any) -> str:
    return "" if value is None else json.dumps(value, ensure_ascii=False)
