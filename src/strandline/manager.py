"""`SessionManager`: a session joined to a store, the class that people import.

>>> from strandline import SessionManager
>>> session = SessionManager.in_memory()
>>> said = session.append_message({"role": "user", "content": "Hello", "timestamp": 0})
>>> session.build_context().messages[0]["content"]
'Hello'
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from strandline.clock import Clock, IdSource, RandomIds, SystemClock
from strandline.errors import EntryNotFound
from strandline.stores.jsonl import JsonlStore
from strandline.stores.memory import MemoryStore
from strandline.transcript.append import Durability
from strandline.transcript.codec import encode_object
from strandline.transcript.forking import take_over
from strandline.transcript.header import new_header
from strandline.transcript.session import Session
from strandline.transcript.store import TranscriptLog, TranscriptStore


class SessionManager(Session):
    """One conversation, in a file or in memory: append, branch, look, build its context.

    Open one with `open`, `create`, `in_memory` or `fork_from`; close it with `close` or as
    a context manager. Everything that it can do is documented on `Session`.
    """

    def __init__(
        self,
        log: TranscriptLog,
        store: TranscriptStore,
        *,
        clock: Clock | None = None,
        ids: IdSource | None = None,
        durability: Durability = "fsync",
    ) -> None:
        self._store = store
        self._durability = durability
        super().__init__(
            log, clock=clock or SystemClock(), ids=ids or RandomIds(), durability=durability
        )

    # -- where sessions come from ----------------------------------------------------------

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        cache_dir: str | os.PathLike[str] | None = None,
        clock: Clock | None = None,
        ids: IdSource | None = None,
        durability: Durability = "fsync",
    ) -> Self:
        """Open a transcript file of Strandline, pi or OpenClaw, of any version.

        Nothing is written until something is appended. `cache_dir` is where the look-up
        of a large file may be kept between openings. Raises `TranscriptNotFound`,
        `TranscriptUnreadable`.
        """
        place = Path(path)
        store = JsonlStore(place.parent, cache=Path(cache_dir) if cache_dir else None)
        log = store.open(place.name)
        try:
            return cls(log, store, clock=clock, ids=ids, durability=durability)
        except BaseException:
            log.close()
            raise

    @classmethod
    def create(
        cls,
        *,
        cwd: str | os.PathLike[str] | None = None,
        session_dir: str | os.PathLike[str],
        session_id: str | None = None,
        parent_session: str | None = None,
        clock: Clock | None = None,
        ids: IdSource | None = None,
        durability: Durability = "fsync",
    ) -> Self:
        """Start a new session in the folder `session_dir`, as ``<session id>.jsonl``.

        `cwd` is noted in the header. Raises `TranscriptExists`, `StoreWriteFailed`.
        """
        clock, ids = clock or SystemClock(), ids or RandomIds()
        store = JsonlStore(Path(session_dir))
        session_id = session_id or ids.session_id()
        header = new_header(session_id, clock, str(cwd or Path.cwd()), parent_session)
        log = store.create(f"{session_id}.jsonl", encode_object(header) + b"\n")
        return cls(log, store, clock=clock, ids=ids, durability=durability)

    @classmethod
    def in_memory(
        cls, *, cwd: str = "", clock: Clock | None = None, ids: IdSource | None = None
    ) -> Self:
        """A session that lasts as long as this object."""
        clock, ids = clock or SystemClock(), ids or RandomIds()
        store, session_id = MemoryStore(), ids.session_id()
        header = encode_object(new_header(session_id, clock, cwd, None)) + b"\n"
        return cls(store.create(f"{session_id}.jsonl", header), store, clock=clock, ids=ids)

    @classmethod
    def fork_from(
        cls,
        path: str | os.PathLike[str],
        *,
        session_dir: str | os.PathLike[str] | None = None,
        leaf_id: str | None = None,
        cwd: str | os.PathLike[str] | None = None,
        clock: Clock | None = None,
        ids: IdSource | None = None,
    ) -> Self:
        """Copy one branch of another session into a new one, whose header names its parent.

        The branch ends at `leaf_id`, or where the other session stands. The other file is
        only read. Raises `TranscriptNotFound`, `EntryNotFound`.
        """
        with cls.open(path, clock=clock, ids=ids) as parent:
            return parent.create_branched_session(leaf_id, session_dir=session_dir, cwd=cwd)

    def create_branched_session(
        self,
        leaf_id: str | None = None,
        *,
        session_dir: str | os.PathLike[str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Copy the branch that ends at `leaf_id` (default: the leaf) into a new session.

        Lines are copied byte for byte; labels of copied entries come along. The new
        session is in `session_dir`, by default the folder of this one. Raises
        `EntryNotFound`, also for a session without entries.
        """
        session_id = self._ids.session_id()
        header = new_header(session_id, self._clock, str(cwd or self.cwd), self.path_name)
        copy = self.copy_branch(header, leaf_id)
        if copy.end is None:
            raise EntryNotFound(
                f"{self._log.name} has no entry to branch from", remedy="say something first"
            )
        store = JsonlStore(Path(session_dir)) if session_dir else self._store
        log = store.create(f"{session_id}.jsonl", copy.image)
        fork = type(self)(log, store, clock=self._clock, ids=self._ids, durability=self._durability)
        take_over(fork, self, copy.end)
        return fork

    # -- being one -------------------------------------------------------------------------

    @property
    def path_name(self) -> str | None:
        """The path of the transcript file; None for a session in memory."""
        return self._log.name if isinstance(self._store, JsonlStore) else None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def transcripts_in(folder: str | os.PathLike[str]) -> Sequence[str]:
    """The names of the transcript files in a folder, sorted."""
    return JsonlStore(Path(folder)).names()
