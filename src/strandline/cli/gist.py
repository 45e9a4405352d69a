"""An entry in a few words: its kind, and how it begins."""

from __future__ import annotations

from collections.abc import Mapping

from strandline.cli.conversation import Part, parts_of
from strandline.cli.words import one_line
from strandline.transcript.entries import (
    AnyEntry,
    BranchSummaryEntry,
    CompactionEntry,
    CustomEntry,
    CustomMessageEntry,
    LabelEntry,
    LeafEntry,
    MessageEntry,
    ModelChangeEntry,
    SessionInfoEntry,
    ThinkingLevelChangeEntry,
)
from strandline.transcript.messages import Message

CHARACTERS = 300
"""How much of a text is looked at."""

KINDS: Mapping[str, str] = {
    "toolResult": "tool",
    "bashExecution": "shell",
    "compactionSummary": "compaction",
    "branchSummary": "branch",
    "branch_summary": "branch",
    "custom_message": "custom",
    "model_change": "model",
    "session_info": "name",
    "thinking_level_change": "thinking",
}
"""Roles and types that have a shorter word."""


def kind_of(entry: AnyEntry) -> str:
    """One word for what an entry is; a message is its role."""
    role = entry.message.get("role") if isinstance(entry, MessageEntry) else entry.type
    return KINDS.get(str(role), one_line(str(role)))


def words_of(entry: AnyEntry) -> str:
    """How an entry begins, on one line, safe to print."""
    return one_line(_words(entry)[:CHARACTERS])


def _words(entry: AnyEntry) -> str:  # noqa: C901, PLR0911 - one line for each type of entry
    match entry:
        case MessageEntry():
            return message_words(entry.message)
        case CustomMessageEntry():
            return message_words({"role": "custom", "content": entry.content})
        case CompactionEntry() | BranchSummaryEntry():
            return entry.summary[:CHARACTERS]
        case ModelChangeEntry():
            return f"{entry.provider}/{entry.model_id}"
        case ThinkingLevelChangeEntry():
            return entry.thinking_level
        case LabelEntry():
            return f"{entry.label} on {entry.target_id}" if entry.label else f"no {entry.target_id}"
        case SessionInfoEntry():
            return entry.name
        case LeafEntry():
            return f"to {entry.target_id or 'the beginning'}"
        case CustomEntry():
            return entry.custom_type
        case _:
            return ""


def message_words(message: Message) -> str:
    """How a message begins: its first text, else what it calls, else what went wrong."""
    parts = list(parts_of(message))
    for kind in ("text", "call", "result", "problem", "image", "thinking"):
        words = next((w for p in parts if p.kind == kind and (w := _part_words(p))), "")
        if words:
            return words
    return ""


def _part_words(part: Part) -> str:
    text = part.text[:CHARACTERS].strip()
    match part.kind:
        case "call":
            return f"→ {part.title}  {part.brief[:CHARACTERS]}"
        case "result":
            return f"{'✗' if part.failed else '←'} {part.title}  {text}"
        case "image":
            return f"[image {part.title}]"
        case _:
            return text
