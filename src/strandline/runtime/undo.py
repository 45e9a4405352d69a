"""Undoing a compaction: the conversation stands where it stood before, in full.

Nothing is removed: the conversation goes back to the entry before the compaction, and what
was said since is said again behind it, in copies, which take its labels over. Source:
spec 3, Budget and compaction; spec 1, Branches.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from strandline.errors import CompactionRefused, StrandlineError
from strandline.transcript.entries import (
    AnyEntry,
    CompactionEntry,
    CustomEntry,
    CustomMessageEntry,
    LabelEntry,
    MessageEntry,
    ModelChangeEntry,
    SessionInfoEntry,
    ThinkingLevelChangeEntry,
)
from strandline.transcript.messages import Message
from strandline.transcript.session import SUMMARY_ROLES, Session

Copy = Callable[[], str] | None


@dataclass(frozen=True, slots=True)
class Undone:
    """The compaction that holds no more, and how many messages were copied behind its place."""

    compaction_id: str
    messages_copied: int


def undo_compaction(session: Session) -> Undone:
    """Undo the newest compaction of the active branch; the caller holds the lane.

    Raises `CompactionRefused` where there is none, or something came after it that cannot be
    said again. Where an append fails, the conversation stands again where it stood.
    """
    later: list[AnyEntry] = []
    path = session.path()
    for place in range(len(path) - 1, -1, -1):
        entry = session.entry(path[place])
        if isinstance(entry, CompactionEntry):
            return _undo(session, path[place - 1] if place else None, entry, later[::-1])
        later.append(entry)
    raise CompactionRefused(
        "there is no compaction on this branch to undo",
        remedy="`/tree` shows the conversation; `/branch ENTRY` goes back to any entry",
    )


def _undo(
    session: Session, before: str | None, compaction: CompactionEntry, later: list[AnyEntry]
) -> Undone:
    copies = [(entry.id, _copy(session, entry)) for entry in later]
    stood = session.leaf_id
    if before is None:
        session.reset_leaf()
    else:
        session.branch(before)
    try:
        _say_again(session, copies)
    except StrandlineError:
        with suppress(StrandlineError):  # the first error is the one to tell
            session.branch(stood or compaction.id)
        raise
    said = sum(isinstance(entry, MessageEntry | CustomMessageEntry) for entry in later)
    return Undone(compaction.id, said)


def _say_again(session: Session, copies: list[tuple[str, Copy]]) -> None:
    labels = session.labels()
    copied = {original: copy() for original, copy in copies if copy is not None}
    for original, again in copied.items():
        if original in labels:
            # One after the other: a label that two entries have names neither.
            session.append_label(original, None)
            session.append_label(again, labels[original])


def _can_be_said(message: Message) -> bool:
    """Whether `append_message` takes it; files of others hold all kinds of things."""
    role = message.get("role")
    return isinstance(role, str) and role not in SUMMARY_ROLES


def _copy(session: Session, entry: AnyEntry) -> Copy:
    """What says the entry again; None for what holds without being said again."""
    match entry:
        case MessageEntry(message=message) if _can_be_said(message):
            return lambda: session.append_message(message)
        case CustomMessageEntry():
            return lambda: session.append_custom_message(
                entry.custom_type,
                entry.content,
                display=entry.display,
                details=entry.data.get("details"),
            )
        case ModelChangeEntry():
            return lambda: session.append_model_change(entry.provider, entry.model_id)
        case ThinkingLevelChangeEntry():
            return lambda: session.append_thinking_level_change(entry.thinking_level)
        case CustomEntry():  # a plugin looks for its state on the branch
            return lambda: session.append_custom(entry.custom_type, entry.data.get("data"))
        case LabelEntry() | SessionInfoEntry():
            return None
        case _:
            raise CompactionRefused(
                f"the compaction cannot be undone: an entry of type {entry.type} came after it",
                remedy="`/branch ENTRY` goes back to an entry before the compaction",
            )
