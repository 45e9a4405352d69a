"""The seam to where transcripts are kept: append-only logs of bytes, by name.

A log is nothing but bytes with an end; what the bytes mean is known above this seam. The
name of a log is the transcript's file name. Every store passes the contract suite
`strandline.testing.transcript_contract`, and the in-memory store is the oracle of the
others. Source: spec 1, Durability, writers, speed; architecture, Seams.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

LineAt = tuple[int, int]
"""The offset and size, in bytes, of a line without its end; size 0 is no line."""


class Whereabouts(NamedTuple):
    """What a side file knows of one entry.

    `offset` and `size` locate its line; `model` and `thinking` the lines that last set
    the model and the thinking level on the path from the root to it, itself included.
    """

    offset: int
    size: int
    model: LineAt
    thinking: LineAt


@dataclass(frozen=True, slots=True)
class Totals:
    """What a side file knows of a whole transcript."""

    entries: int
    name: str | None
    labels: Mapping[str, str]


class NeedsWholeLog(Exception):
    """Only a complete reading can tell. `Reader` answers with one; nobody else sees this."""


class SideFile(Protocol):
    """A derived look-up of a transcript: checked when opened, dropped when in doubt.

    It covers the first `end` bytes of the transcript. Each method raises `NeedsWholeLog`
    when the look-up cannot be read any more.
    """

    end: int

    def find(self, entry_id: str) -> Whereabouts | None:
        """Where an entry is, or None when no line before `end` holds it."""
        ...

    def agrees(self, offsets: Mapping[str, int]) -> bool:
        """Whether each of these ids is at its offset, or in no line before `end`."""
        ...

    def totals(self) -> Totals:
        """The counts of everything before `end`."""
        ...


class TranscriptLog(Protocol):
    """One open transcript."""

    @property
    def name(self) -> str:
        """What messages call it: a path, or whatever names it in its store."""
        ...

    def end(self) -> int:
        """Bytes in the log now, whoever wrote them."""
        ...

    def read(self, start: int, stop: int) -> bytes:
        """The bytes from `start` up to `stop`; fewer only where the log ends."""
        ...

    def append(self, lines: bytes, expected_end: int) -> int:
        """Write whole lines at the end; returns the offset at which they start.

        If the log ends inside a line, that line is ended first. Nobody else's append can
        come between the check and the write. Raises `TranscriptMoved` when the log does
        not end at `expected_end`, `StoreWriteFailed` when the bytes were not all taken.
        """
        ...

    def sync(self, start: int) -> None:
        """Return when what was appended at `start` would survive a power cut.

        Calls at the same time share one sync. Raises `StoreWriteFailed`.
        """
        ...

    def replace(self, image: bytes, expected_end: int, backup_suffix: str) -> None:
        """Put `image` in the place of the log, atomically; the old one stays beside it.

        Only for bringing an old version up to date. Raises `TranscriptMoved`,
        `StoreWriteFailed`; the old log is untouched when it raises.
        """
        ...

    def run_lock(self, timeout_ms: int, holder: str) -> AbstractContextManager[None]:
        """Hold the transcript for one turn; `holder` is what others are told meanwhile.

        Raises `SessionBusy` after `timeout_ms`.
        """
        ...

    def side_file(self) -> SideFile | None:
        """The look-up that belongs to this log, if there is one that can be trusted."""
        ...

    def save_side_file(self, rows: Iterable[SideRow], totals: Totals, end: int) -> None:
        """Keep a look-up for the next opening. May do nothing; raises nothing."""
        ...

    def close(self) -> None:
        """Give back what is open. Closing twice is harmless."""
        ...


SideRow = tuple[str, Whereabouts]


class TranscriptStore(Protocol):
    """Many transcripts, by name."""

    def open(self, name: str) -> TranscriptLog:
        """An existing transcript. Raises `TranscriptNotFound`."""
        ...

    def create(self, name: str, first_line: bytes) -> TranscriptLog:
        """A new transcript, durable when this returns. Raises `TranscriptExists`."""
        ...

    def archive(self, name: str, suffix: str) -> str | None:
        """Rename a transcript to ``<name><suffix>``; returns that, or None if there is none.

        Raises `TranscriptExists` when another one has that name.
        """
        ...

    def names(self) -> Sequence[str]:
        """All transcripts (``*.jsonl``), sorted."""
        ...
