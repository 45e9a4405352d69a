"""The registry: from a session key to its row and the transcript it writes to now.

A key names a conversation, a session id the transcript that it currently writes to. The
registry finds or begins both, and notes in the row what a turn did. Rows live in a
`RowStore`, transcripts in an `ArchivingStore`; nothing here knows where those are.
Source: spec 2, Session keys; When a key gets a new session id.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Protocol

from strandline.clock import Clock, IdSource, iso_from_ms
from strandline.context.engine import CompactionOutcome
from strandline.errors import SessionNotFound, StrandlineError, TranscriptNotFound
from strandline.runtime.events import CompactionReceipt
from strandline.runtime.model import ModelInfo
from strandline.runtime.path_news import newest
from strandline.runtime.rotation import CannotFollow
from strandline.runtime.row_notes import after_compactions, after_turn, with_size, with_usage
from strandline.runtime.turn_result import TurnResult
from strandline.sessions.keys import SessionKey, explicit_key, file_stem_for, tui_key
from strandline.sessions.rows import SessionRow, new_row, row_of, transcript_name
from strandline.sessions.store import RowStore
from strandline.transcript.codec import encode_object
from strandline.transcript.header import new_header
from strandline.transcript.messages import Message, Usage
from strandline.transcript.session import Session
from strandline.transcript.store import TranscriptLog, TranscriptStore


class ArchivingStore(TranscriptStore, Protocol):
    """A transcript store that can put a transcript aside."""

    def archive(self, name: str, suffix: str) -> str | None:
        """Give a transcript the name ``<name><suffix>``; None when there is none."""
        ...


@dataclass(frozen=True, slots=True)
class OpenSession:
    """A conversation that is open: its address, its row and its transcript.

    `began` says that nothing was said in it yet.
    """

    key: str
    row: SessionRow
    session: Session
    began: bool


class SessionRegistry:
    """The conversations of one agent. `cwd` goes into the headers of new transcripts."""

    def __init__(
        self,
        agent_id: str,
        rows: RowStore,
        transcripts: ArchivingStore,
        *,
        cwd: str,
        clock: Clock,
        ids: IdSource,
    ) -> None:
        self.agent_id = agent_id
        self._rows = rows
        self._transcripts = transcripts
        self._cwd = cwd
        self._clock = clock
        self._ids = ids

    # -- finding ---------------------------------------------------------------------------

    def rows(self) -> Mapping[str, SessionRow]:
        """Every row by session key."""
        return self._rows.list()

    def key_of_session(self, session_id: str) -> str:
        """The key that writes to a session id now, else the key of an explicit session.

        Raises `InvalidSessionKey` for an id that cannot be an address.
        """
        for key, row in self._rows.list().items():
            if row.session_id == session_id:
                return key
        return str(explicit_key(self.agent_id, session_id))

    def find(self, key: str) -> SessionRow:
        """The row of a key. Raises `SessionNotFound`."""
        row = self.row(key)
        if row is None:
            raise SessionNotFound(
                f"agent {self.agent_id} has no session {key}",
                remedy="`strandline sessions` lists them",
            )
        return row

    def row(self, key: str) -> SessionRow | None:
        """The row of a key, or None."""
        return self._rows.get(key)

    def chosen_model(self, key: str) -> str | None:
        """The model that a person chose for a key, as provider/model; None without a choice."""
        row = self._rows.get(key)
        if row is None or not row.provider_override or not row.model_override:
            return None
        return f"{row.provider_override}/{row.model_override}"

    def new_key(self) -> str:
        """A key of its own for a new conversation in a terminal."""
        return str(tui_key(self.agent_id, self._ids.session_id()))

    # -- opening ---------------------------------------------------------------------------

    def open(self, key: str) -> OpenSession:
        """The conversation of a key, begun if the key is new. Raises `InvalidSessionKey`."""
        parsed = SessionKey.parse(key)
        row = self._rows.patch(key, lambda row: row or self._fresh_row(parsed))
        name = transcript_name(row)
        try:
            log = self._transcripts.open(name)
        except TranscriptNotFound:
            log = self._begin(name, row.session_id)
        session = self._session(log)
        return OpenSession(key, row, session, began=session.leaf_id is None)

    def _fresh_row(self, key: SessionKey) -> SessionRow:
        session_id = key.id if key.kind == "explicit" else self._ids.session_id()
        topic = key.thread_id if key.thread_word == "topic" else None
        file = f"{file_stem_for(session_id, topic)}.jsonl"
        return new_row(session_id, self._clock.now_ms(), session_file=file)

    def _begin(self, name: str, session_id: str) -> TranscriptLog:
        header = new_header(session_id, self._clock, self._cwd, None)
        return self._transcripts.create(name, encode_object(header) + b"\n")

    def _session(self, log: TranscriptLog) -> Session:
        return Session(log, clock=self._clock, ids=self._ids)

    # -- resetting -------------------------------------------------------------------------

    def reset(self, key: str) -> OpenSession:
        """Give a key a new session id: what was said stays on disk as an archive.

        The row keeps what a person chose (model, thinking level, labels …) and loses its
        counters.
        """
        SessionKey.parse(key)
        old = self._rows.get(key)
        fresh = new_row(self._ids.session_id(), self._clock.now_ms(), previous=old)
        self._rows.patch(key, lambda _: fresh)
        if old is not None:
            stamp = iso_from_ms(self._clock.now_ms()).replace(":", "-")
            self._transcripts.archive(transcript_name(old), f".reset.{stamp}")
        return self.open(key)

    # -- rotating --------------------------------------------------------------------------

    def successor(self, at: OpenSession, outcome: CompactionOutcome) -> OpenSession:
        """What an engine's compaction made of a transcript; the key does not write to it yet.

        Raises `CannotFollow` where it is not a transcript beside it, is not of that id, or does
        not hold what was said last.
        """
        session_id = outcome.session_id or ""
        name = PurePath(outcome.session_file or f"{file_stem_for(session_id)}.jsonl").name
        try:
            session = self._session(self._transcripts.open(name))
        except StrandlineError as error:
            raise CannotFollow(f"{name} cannot be opened: {error.what}") from error
        with ExitStack() as unless_it_is_one:
            unless_it_is_one.callback(session.close)
            _require_successor(session, at.session, session_id, name)
            unless_it_is_one.pop_all()
        row = _moved(at.row, session_id, name)
        return OpenSession(at.key, row, session, began=False)

    def go_on_in(self, successor: OpenSession) -> OpenSession:
        """Let the key of a successor write to it; the old transcript stays as it is."""
        there = successor.row
        session_id, name = there.session_id, transcript_name(there)
        row = self._rows.patch(successor.key, lambda row: _moved(row or there, session_id, name))
        return replace(successor, row=row)

    # -- noting ----------------------------------------------------------------------------

    def note_turn(self, at: OpenSession, result: TurnResult, usages: Sequence[Usage]) -> None:
        """Note in the row what a turn did; `usages` are those of all its calls."""
        now_ms = self._clock.now_ms()
        self._note(at, lambda row: after_turn(row, result, usages, now_ms))

    def note_interruption(
        self,
        at: OpenSession,
        usages: Sequence[Usage],
        compactions: Sequence[CompactionReceipt],
    ) -> None:
        """Note that the last run ended before its answer, and what it used and compacted."""
        now_ms = self._clock.now_ms()
        self._note(
            at,
            lambda row: with_usage(after_compactions(row, compactions), usages).with_changes(
                aborted_last_run=True, updated_at=now_ms
            ),
        )

    def note_compaction(
        self, at: OpenSession, receipt: CompactionReceipt, context_tokens: int
    ) -> None:
        """Note a compaction that was made beside the turns."""
        self._note(
            at,
            lambda row: with_size(after_compactions(row, [receipt]), context_tokens),
        )

    def note_size(self, at: OpenSession, context_tokens: int) -> None:
        """Note what the context takes, after the conversation went elsewhere."""
        self._note(at, lambda row: with_size(row, context_tokens))

    def note_usage(self, at: OpenSession, usage: Usage | None) -> None:
        """Note what a call beside the turns used."""
        self._note(at, lambda row: with_usage(row, [usage] if usage else []))

    def claim_flush(self, at: OpenSession) -> bool:
        """Take the memory flush of this compaction cycle; False where somebody has.

        The row is the one judge, so that of two processes one flushes. It keeps the cycle in
        which the flush began: a compaction that comes meanwhile begins another (I1).
        """
        claimed: list[bool] = []

        def claim(row: SessionRow) -> SessionRow:
            cycle = row.compaction_count or 0
            claimed.append(row.memory_flush_compaction_count != cycle)
            return row.with_changes(memory_flush_compaction_count=cycle)

        self._note(at, claim)
        return any(claimed)

    def note_flush(self, at: OpenSession, usage: Usage | None, *, done: bool) -> None:
        """Note how a claimed flush ended; where it was not done, its cycle is free again."""
        now_ms = self._clock.now_ms()

        def ended(row: SessionRow) -> SessionRow:
            row = with_usage(row, [usage] if usage else [])
            if done:
                return row.with_changes(memory_flush_at=now_ms)
            return row.with_changes(memory_flush_compaction_count=None)

        self._note(at, ended)

    def note_model(self, at: OpenSession, info: ModelInfo | None) -> None:
        """Note the model that a person chose for a key; None goes back to the agent's."""
        provider, model = (info.provider, info.id) if info else (None, None)
        self.note_choice(at, provider_override=provider, model_override=model)

    def note_choice(self, at: OpenSession, **choices: str | None) -> None:
        """Note what else a person chose for a key, by the names of the row's fields."""
        self._rows.patch(at.key, lambda row: (row or at.row).with_changes(**choices))

    def _note(self, at: OpenSession, change: Callable[[SessionRow], SessionRow]) -> None:
        """Change the row of a session.

        A row that was removed meanwhile is in use and comes back. A key that was reset
        meanwhile has the row of another session, which this is none of.
        """

        def changed(row: SessionRow | None) -> SessionRow:
            if row is not None and row.session_id != at.row.session_id:
                return row
            return change(row or at.row)

        self._rows.patch(at.key, changed)


def _require_successor(session: Session, of: Session, session_id: str, name: str) -> None:
    if session.session_id != session_id:
        raise CannotFollow(f"{name} is not of the session {session_id}")
    asked = _newest_request(of)
    if asked is not None and _newest_request(session) != asked:
        raise CannotFollow(f"{name} does not hold what was said last")


def _newest_request(session: Session) -> Message | None:
    found = newest(session.build_context().items, "user")
    return found and found.message


def _moved(row: SessionRow, session_id: str, name: str) -> SessionRow:
    """The row of a conversation that goes on in another transcript."""
    return row_of({**row.raw, "sessionId": session_id, "sessionFile": name})
