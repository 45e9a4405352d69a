"""Saying entries again on a new branch: how something earlier is made otherwise.

No line is ever changed. Where something in the middle of a conversation is to be different,
the conversation goes back to before it, and what came later is said again in copies, which
take the labels over. Source: spec 1, Branches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from strandline.errors import StrandlineError
from strandline.transcript.entries import (
    AnyEntry,
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


class CannotBeSaid(Exception):
    """An entry of a type (`kind`) that cannot be said again; nothing was changed."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


def say_again_from(
    session: Session,
    parent_id: str | None,
    entries: Sequence[AnyEntry],
    otherwise: Mapping[str, Message] | None = None,
) -> dict[str, str]:
    """Go back to `parent_id` and say `entries` again; the caller holds the lane.

    `otherwise` has other messages for some of their ids. Returns the new ids by the old ones.
    Raises `CannotBeSaid` before anything is changed. Where an append fails, the conversation
    stands again where it stood.
    """
    changed = otherwise or {}
    copies = [(entry.id, _copy(session, entry, changed.get(entry.id))) for entry in entries]
    stood = session.leaf_id
    try:
        if parent_id is None:
            session.reset_leaf()
        else:
            session.branch(parent_id)
        return _say_again(session, copies)
    except StrandlineError:
        with suppress(StrandlineError):  # the first error is the one to tell
            if stood is not None:
                session.branch(stood)
        raise


def _say_again(session: Session, copies: list[tuple[str, Copy]]) -> dict[str, str]:
    labels = session.labels()
    copied = {original: copy() for original, copy in copies if copy is not None}
    for original, again in copied.items():
        if original in labels:
            # One after the other: a label that two entries have names neither.
            session.append_label(original, None)
            session.append_label(again, labels[original])
    return copied


def can_be_said(message: Message) -> bool:
    """Whether `append_message` takes it; files of others hold all kinds of things."""
    role = message.get("role") if isinstance(message, dict) else None
    return isinstance(role, str) and role not in SUMMARY_ROLES


def _copy(session: Session, entry: AnyEntry, otherwise: Message | None) -> Copy:
    """What says the entry again; None for what holds without being said again."""
    match entry:
        case MessageEntry(message=message):
            said = message if otherwise is None else otherwise
            if can_be_said(said):
                return lambda: session.append_message(said)
        case CustomMessageEntry():
            told = entry.data if otherwise is None else otherwise
            return lambda: session.append_custom_message(
                entry.custom_type,
                told.get("content"),
                display=told.get("display") is not False,
                details=told.get("details"),
            )
        case _ if otherwise is None:
            return _copy_beside(session, entry)
    raise CannotBeSaid(entry.type)


def _copy_beside(session: Session, entry: AnyEntry) -> Copy:
    """The same for what is no message."""
    match entry:
        case ModelChangeEntry():
            return lambda: session.append_model_change(entry.provider, entry.model_id)
        case ThinkingLevelChangeEntry():
            return lambda: session.append_thinking_level_change(entry.thinking_level)
        case CustomEntry():  # a plugin looks for its state on the branch
            return lambda: session.append_custom(entry.custom_type, entry.data.get("data"))
        case LabelEntry() | SessionInfoEntry():
            return None
        case _:
            raise CannotBeSaid(entry.type)
