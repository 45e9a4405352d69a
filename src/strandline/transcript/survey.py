"""The lines of a damaged transcript, told apart: good, padded, blank, damaged.

First part of a repair. Source: spec 1, Damage.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from strandline.transcript.codec import BOM, PADDING, MalformedLine, decode_head
from strandline.transcript.damage import FindingKind
from strandline.transcript.entries import Head
from strandline.transcript.salvage import salvage

ChangeKind = FindingKind | Literal["old-version", "salvaged", "written-parent", "leaf"]


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that is not in a repaired file as it was. `line` counts in the old file."""

    kind: ChangeKind
    line: int
    detail: str
    entry_id: str | None = None

    def __str__(self) -> str:
        return f"line {self.line}: {self.kind}: {self.detail}"


@dataclass(slots=True)
class Report:
    """What a repair did so far: the changes, and which old lines are not kept as they were."""

    changes: list[Change] = field(default_factory=list)
    damaged: set[int] = field(default_factory=set)

    def note(self, kind: ChangeKind, line: int, detail: str, entry_id: str | None = None) -> None:
        """Something that loses no byte of an entry."""
        self.changes.append(Change(kind, line, detail, entry_id))

    def replace(
        self, kind: ChangeKind, line: int, detail: str, entry_id: str | None = None
    ) -> None:
        """Something for which the old line is kept beside the new file."""
        self.damaged.add(line)
        self.note(kind, line, detail, entry_id)

    def missing_parent(self, line: int, entry_id: str, parent: str, stand_in: str | None) -> None:
        """An entry whose parent is nowhere hangs on the entry before it."""
        where = f"it hangs on {stand_in} now" if stand_in else "it is a root now"
        self.replace("missing-parent", line, f"parent {parent} is missing: {where}", entry_id)


@dataclass(frozen=True, slots=True)
class OldLine:
    """A line that reads well. `offset` is where its object starts, None if it was salvaged."""

    number: int
    content: bytes
    head: Head
    offset: int | None


def survey(image: bytes, heads: Mapping[int, Head], report: Report) -> Iterator[OldLine]:
    """The readable lines of a transcript, those that hide in damaged ones included.

    `heads` are known heads by the offset of their objects.
    """
    run: list[tuple[int, bytes, int]] = []
    for number, raw, offset in _lines(image):
        content, start = _without_padding(raw, offset)
        head = heads.get(start) or _head(content)
        if head is None:
            if content or run:
                run.append((number, raw, offset))
            if not content:
                _note_padding(report, number, raw, content)
            continue
        yield from _salvaged(run, len(image), report)
        run.clear()
        kept = raw if _note_padding(report, number, raw, content) else content
        yield OldLine(number, kept, head, start)
    yield from _salvaged(run, len(image), report)


def _lines(image: bytes) -> Iterator[tuple[int, bytes, int]]:
    """Number, bytes and offset of every line; a last one without its end counts."""
    number = start = 0
    while start < len(image):
        end = image.find(b"\n", start)
        end = len(image) if end < 0 else end
        number += 1
        yield number, image[start:end], start
        start = end + 1


def _without_padding(line: bytes, offset: int) -> tuple[bytes, int]:
    end = offset + len(line)
    bare = (line.removeprefix(BOM) if offset == 0 else line).lstrip(PADDING)
    return bare.rstrip(PADDING), end - len(bare)


def _note_padding(report: Report, number: int, raw: bytes, content: bytes) -> bool:
    """Note what is taken off a line; True if it may stay, as blanks around an object may."""
    before, _, after = raw.partition(content) if content else (raw, b"", b"")
    padding = before + after
    if BOM in before:
        report.note("byte-order-mark", number, "the byte order mark is gone")
    if count := padding.count(0):
        report.note("nul-bytes", number, f"{count} NUL bytes are gone")
    elif not content:
        report.note("blank-line", number, "the blank line is gone")
    elif b"\r" in padding:
        report.note("carriage-returns", number, "the line ends in LF alone now")
    return not padding.strip(b" \t")


def _head(content: bytes) -> Head | None:
    try:
        return decode_head(content)
    except MalformedLine:
        return None


def _salvaged(run: list[tuple[int, bytes, int]], size: int, report: Report) -> Iterator[OldLine]:
    """What hides in neighbouring damaged lines, all of which go beside the new file."""
    if not run:
        return
    for number, raw, offset in run:
        if raw.strip(PADDING):
            kind: ChangeKind = "torn-line" if offset + len(raw) == size else "malformed-line"
            detail = f"{len(raw)} bytes that cannot be read are kept beside"
            report.replace(kind, number, detail)
    for content in salvage(b"\n".join(raw for _, raw, _ in run)):
        yield OldLine(run[0][0], content, decode_head(content), None)
