"""Sessions of sub-agents: begun with nothing or with a copy of a branch, looked at later.

The row of a child is made anew: nothing of its parent's files or counters is in it. Its
transcript's header names the parent's. A fork is the parent's branch up to the last place at
which no call waits for its result, all of it, so that a compaction finds what it kept.
Source: spec 2, Session keys and Store entry; cases/faults D6, E8, N4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from strandline.clock import Clock, IdSource, iso_from_ms
from strandline.context.dialogue import UNFINISHED
from strandline.context.engine import SessionRef
from strandline.context.sanitize import FAILED_REASONS
from strandline.errors import SessionBusy, StrandlineError, TranscriptNotFound
from strandline.runtime.announcing import LOOKED_BACK
from strandline.runtime.answers import text_of
from strandline.runtime.model import ModelInfo
from strandline.runtime.registry import ArchivingStore
from strandline.sessions.keys import file_stem_for
from strandline.sessions.rows import SessionRow, new_row, row_of, transcript_name
from strandline.sessions.store import RowStore
from strandline.transcript.codec import encode_object
from strandline.transcript.context import PathMessage
from strandline.transcript.entries import MessageEntry
from strandline.transcript.forking import take_over
from strandline.transcript.header import new_header
from strandline.transcript.messages import Message
from strandline.transcript.session import Session

LOOK_MS = 200
"""As long a look waits: the lock of a process that was killed takes more than one try."""


@dataclass(frozen=True, slots=True)
class Fork:
    """A copy of the branch of `session` that ends at `end`; None is before the first entry."""

    session: Session
    end: str | None


@dataclass(frozen=True, slots=True)
class NewChild:
    """A child that is to begin. `model` is one that was chosen for it."""

    ref: SessionRef
    parent: SessionRef
    depth: int
    label: str | None = None
    model: ModelInfo | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """A child as it was left: running somewhere, or with that last answer (None: with none)."""

    running: bool
    reply: str | None = None


@dataclass(frozen=True)
class ChildSessions:
    """The sessions of one agent's sub-agents.

    `cwd` goes into their headers. `path_of` says where a transcript of a name is, None where
    it is no file.
    """

    rows: RowStore
    transcripts: ArchivingStore
    cwd: str
    clock: Clock
    ids: IdSource
    path_of: Callable[[str], str | None]

    def ref(self, key: str, session_id: str) -> SessionRef:
        """The session that a key would have with that id."""
        return SessionRef(session_id, key, self.path_of(self._name(session_id)))

    def begin(self, child: NewChild, fork: Fork | None) -> None:
        """Write its transcript and its row; where that fails, neither is in use.

        Raises `StoreError`, `TranscriptError` and `SessionBusy`.
        """
        log = self.transcripts.create(self._name(child.ref.session_id), self._image(child, fork))
        try:
            if fork is not None and fork.end is not None:
                copy = Session(log, clock=self.clock, ids=self.ids)
                take_over(copy, fork.session, fork.end)
            self.rows.patch(child.ref.session_key, lambda _: self._row(child, fork))
        except BaseException:
            self.take_back(child.ref)
            raise
        finally:
            log.close()

    def take_back(self, ref: SessionRef) -> None:
        """A child did not come to be: its row goes, its transcript is set aside."""
        with suppress(StrandlineError):  # the error that led here is the one to tell
            self.rows.delete(ref.session_key)
        stamp = iso_from_ms(self.clock.now_ms()).replace(":", "-")
        with suppress(StrandlineError):
            self.transcripts.archive(self._name(ref.session_id), f".deleted.{stamp}")

    def is_there(self, ref: SessionRef) -> bool:
        """Whether the transcript of a child was not deleted."""
        try:
            self.transcripts.open(self._name(ref.session_id)).close()
        except TranscriptNotFound:
            return False
        except StrandlineError:  # it cannot be read, but it is there
            return True
        return True

    def look(self, ref: SessionRef, parent_key: str, forked_at: str | None) -> Found | None:
        """How a child of that parent was left; None for what is none, or is gone.

        Raises `TranscriptError` for a transcript that cannot be read.
        """
        row = self.rows.get(ref.session_key)
        if row is None or row.session_id != ref.session_id:
            return None
        if row.raw.get("spawnedBy") != parent_key:
            return None  # whatever a transcript claims, nobody else's words are fetched
        try:
            log = self.transcripts.open(transcript_name(row))
        except TranscriptNotFound:
            return None
        try:
            session = Session(log, clock=self.clock, ids=self.ids)
            with session.run_lock(timeout_ms=LOOK_MS, holder="a look at a sub-agent"):
                return Found(running=False, reply=last_reply(session, forked_at))
        except SessionBusy:
            return Found(running=True)
        finally:
            log.close()

    def _name(self, session_id: str) -> str:
        return f"{file_stem_for(session_id)}.jsonl"

    def _image(self, child: NewChild, fork: Fork | None) -> bytes:
        cwd = fork.session.cwd if fork is not None else ""
        parent = child.parent.session_file
        header = new_header(child.ref.session_id, self.clock, cwd or self.cwd, parent)
        if fork is None or fork.end is None:
            return encode_object(header) + b"\n"
        return fork.session.copy_branch(header, fork.end).image

    def _row(self, child: NewChild, fork: Fork | None) -> SessionRow:
        now_ms = self.clock.now_ms()
        row = new_row(child.ref.session_id, now_ms)
        raw = {**row.raw, "spawnedBy": child.parent.session_key, "spawnDepth": child.depth}
        if child.label is not None:
            raw["label"] = child.label
        row = row_of(raw).with_changes(forked_from_parent=True if fork is not None else None)
        if child.model is None:
            return row
        return row.with_changes(
            provider_override=child.model.provider, model_override=child.model.id
        )


def fork_point(session: Session) -> str | None:
    """The last entry of the active branch with no call behind it that waits for its result.

    A turn that is running is so cut before the answer that calls tools now; an answer that
    was left long ago with an open call stays, because the person went on after it.
    """
    path = session.path()
    while path:
        waiting = _waiting(session.build_context(path[-1]).items)
        if waiting is None:
            return path[-1]
        del path[path.index(waiting) :]
    return None


def _waiting(items: Sequence[PathMessage]) -> str | None:
    """The entry of the answer at the end of a context some of whose calls have no result."""
    answered: set[str] = set()
    for item in reversed(items):
        match item.message.get("role"):
            case "toolResult":
                answered.add(str(item.message.get("toolCallId")))
            case "assistant":
                return None if _calls(item.message) <= answered else item.entry_id
            case "user":
                return None
    return None


def _calls(message: Message) -> set[str]:
    """The ids of the calls in an answer that are to have results."""
    content = message.get("content")
    if message.get("stopReason") in FAILED_REASONS or not isinstance(content, list):
        return set()
    blocks = [block for block in content if isinstance(block, dict)]
    return {str(block.get("id")) for block in blocks if block.get("type") == "toolCall"}


def last_reply(session: Session, forked_at: str | None) -> str | None:
    """The text of the answer that a child ended with; None where it is not finished.

    What was there before the fork is none of its own.
    """
    for entry in session.newest_entries(LOOKED_BACK, until=forked_at):
        if not isinstance(entry, MessageEntry):
            continue
        role = entry.message.get("role")
        if role == "assistant" and entry.message.get("stopReason") not in UNFINISHED:
            return text_of(entry.message)
        if role in {"assistant", "user", "toolResult"}:
            return None
    return None
