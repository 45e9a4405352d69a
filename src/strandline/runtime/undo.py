"""Undoing a compaction: the conversation stands where it stood before, in full.

Nothing is removed: the conversation goes back to the entry before the compaction, and what
was said since is said again behind it, in copies, which take its labels over. Source:
spec 3, Budget and compaction; spec 1, Branches.
"""

from __future__ import annotations

from dataclasses import dataclass

from strandline.errors import CompactionRefused
from strandline.runtime.saying_again import CannotBeSaid, say_again_from
from strandline.transcript.entries import (
    AnyEntry,
    CompactionEntry,
    CustomMessageEntry,
    MessageEntry,
)
from strandline.transcript.session import Session


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
    try:
        say_again_from(session, before, later)
    except CannotBeSaid as refusal:
        raise CompactionRefused(
            f"the compaction cannot be undone: an entry of type {refusal.kind} came after it",
            remedy="`/branch ENTRY` goes back to an entry before the compaction",
        ) from None
    said = sum(isinstance(entry, MessageEntry | CustomMessageEntry) for entry in later)
    return Undone(compaction.id, said)
