"""The only door through which an entry line is written.

`Appender.append` decides where the entry goes (its parent is the append point), gives it
an identity and a time, writes its line and, where the kind of entry asks for it, waits
until the line would survive a power cut. Nothing else in the code base writes an entry
line; tests/test_one_door.py holds that. Source: spec 1, Where the conversation stands;
Durability, writers, speed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Literal

from strandline.clock import Clock, IdSource, iso_from_ms
from strandline.errors import TranscriptMoved, TranscriptUnreadable
from strandline.transcript.codec import encode_object
from strandline.transcript.header import new_header
from strandline.transcript.lookups import Lookups
from strandline.transcript.messages import JsonObject
from strandline.transcript.position import Position
from strandline.transcript.reading import Reader

Durability = Literal["fsync", "none"]
ParentOf = Callable[[Position], str | None]
"""Picks the parent of a new entry from where the conversation stands at that moment."""

SYNCED_TYPES = frozenset(
    {"message", "custom_message", "compaction", "branch_summary", "leaf", "session"}
)
"""What is said, and where the conversation stands, is synced before it is acknowledged;
settings, labels and plugins' notes are written at once and synced with what follows."""


def append_point(position: Position) -> str | None:
    """The parent of an ordinary entry."""
    return position.append_parent


class Appender:
    """Appends to the log of a reader, which sees every line that was appended."""

    def __init__(
        self,
        reader: Reader,
        lookups: Lookups,
        clock: Clock,
        ids: IdSource,
        durability: Durability,
    ) -> None:
        self._reader = reader
        self._lookups = lookups
        self._clock = clock
        self._ids = ids
        self._durable = durability == "fsync"
        self.lock = threading.RLock()

    def append(self, kind: str, body: JsonObject, parent_of: ParentOf = append_point) -> str:
        """Append one entry; returns its id once it is acknowledged.

        `body` are the keys of the entry's type. When somebody else appends in between,
        what they said is read and the parent is decided again. Raises `InvalidEntry`
        before, `StoreWriteFailed` after trying to write.
        """
        with self.lock:
            entry_id, start = self._write(kind, body, parent_of)
        if self._durable and kind in SYNCED_TYPES:
            self._reader.log.sync(start)
        return entry_id

    def _write(self, kind: str, body: JsonObject, parent_of: ParentOf) -> tuple[str, int]:
        while True:
            try:
                if not self._reader.tree.is_transcript:
                    self._begin()
                entry = self._entry(kind, body, parent_of)
                return entry["id"], self._append_line(entry)
            except TranscriptMoved:
                self._reader.refresh()

    def leaf_entry(self, target: str | None, append_parent: str | None) -> JsonObject:
        """A `leaf` entry for a new transcript, which a copy of a branch may need."""
        body = {"targetId": target, "appendParentId": append_parent}
        return self._entry("leaf", body, lambda _: target)

    def _entry(self, kind: str, body: JsonObject, parent_of: ParentOf) -> JsonObject:
        return {
            "type": kind,
            "id": self._new_id(),
            "parentId": parent_of(self._reader.position()),
            "timestamp": iso_from_ms(self._clock.now_ms()),
            **body,
        }

    def _begin(self) -> None:
        """Give an empty file, as a crash at its creation leaves it, its header."""
        reader = self._reader
        found = {finding.kind for finding in (*reader.tree.findings, reader.torn) if finding}
        if reader.tree.entry_count or not found.isdisjoint({"malformed-line", "torn-line"}):
            raise TranscriptUnreadable(
                f"{reader.log.name} holds no line of a transcript: nothing was written",
                remedy="check the path, or move the file out of the way",
            )
        session_id = reader.log.name.rpartition("/")[2].removesuffix(".jsonl")
        self._append_line(new_header(session_id, self._clock, "", None))

    def _append_line(self, value: JsonObject) -> int:
        line = encode_object(value)
        start = self._reader.log.append(line + b"\n", self._reader.log_end)
        self._reader.appended(line, start)
        return start

    def _new_id(self) -> str:
        """An id that no entry has."""
        while True:
            entry_id = self._ids.entry_id()
            if not self._lookups.is_taken(entry_id):
                return entry_id
