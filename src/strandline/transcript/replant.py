"""Entries written anew, so that each hangs where it should in the eyes of every reader.

Second part of a repair: rows that know their parent go in, lines come out. A parent comes
before its children, and the table of spec 1 ("Where the conversation stands") gives every
line the parent that its row has; where the old line would not, its parent is written out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from strandline.transcript.codec import decode_head, decode_object, encode_object
from strandline.transcript.entries import Head
from strandline.transcript.position import BEYOND, START, Parent, Step, advance
from strandline.transcript.salvage import writable
from strandline.transcript.survey import Report
from strandline.transcript.tree import derived_id


@dataclass(slots=True)
class Row:
    """An entry for the new file. `parent` is BEYOND where the line itself may decide."""

    id: str
    line: int
    content: bytes
    head: Head
    parent: Parent

    @property
    def needs(self) -> str | None:
        """The entry that must come before this one, if it is anywhere."""
        if self.parent is not BEYOND:
            return self.parent
        own = self.head.parent_id
        return own if isinstance(own, str) and self.head.type != "leaf" else None


def with_keys(content: bytes, **keys: Any) -> bytes:
    """The line with some keys set."""
    return encode_object(writable({**decode_object(content), **keys}))


def free_id(content: bytes, is_taken: Callable[[str], bool]) -> str:
    """An id that follows from the content alone, so that a second repair finds the same."""
    entry_id = derived_id(0, content)
    while is_taken(entry_id):
        content += b"+"
        entry_id = derived_id(0, content)
    return entry_id


def cut_cycles(rows: dict[str, Row], leaf: str | None, report: Report) -> None:
    """End every walk that would come round where it would come round, the leaf's first."""
    sound: set[str] = set()
    for start in (leaf, *rows):
        walk: set[str] = set()
        row = rows.get(start or "")
        while row is not None and row.id not in sound:
            walk.add(row.id)
            if row.needs in walk:
                detail = f"the entry was its own ancestor by {row.needs}: it is a root now"
                report.replace("parent-cycle", row.line, detail, row.id)
                row.parent = None
            row = rows.get(row.needs or "")
        sound |= walk


class Replanting:
    """Writes rows one after another; `lines` are the result, `position` where it stands."""

    def __init__(self, rows: dict[str, Row], timestamp: str, report: Report) -> None:
        self.lines: list[bytes] = []
        self.position = START
        self._rows = rows
        self._timestamp = timestamp
        self._report = report
        self._taken = set(rows)
        self._placed: dict[str, str | None] = {}
        self._last: str | None = None

    def write_all(self) -> None:
        """Every row, in the order of the old file, but parents first."""
        for row in self._rows.values():
            chain: list[Row] = []
            current: Row | None = row
            while current is not None and current.id not in self._placed:
                chain.append(current)
                current = self._rows.get(current.needs or "")
            for early in reversed(chain[1:]):
                detail = f"the line stands above entry {row.id} now, which hangs on it"
                self._report.note("late-parent", early.line, detail, early.id)
                self._write(early)
            if chain:
                self._write(row)

    def stand_at(self, target: str | None) -> None:
        """A `leaf` line: what follows without a parent of its own hangs on `target`."""
        line = {"type": "leaf", "id": "", "parentId": target, "timestamp": self._timestamp}
        draft = b"%d" % len(self.lines) + encode_object(line)
        entry_id = free_id(draft, self._taken.__contains__)
        self._taken.add(entry_id)
        content = encode_object({**line, "id": entry_id, "targetId": target})
        self._settle(content, self._step(entry_id, decode_head(content)))

    def path(self) -> Iterator[str]:
        """The ids from where the conversation stands to the root."""
        current = self.position.leaf
        while current is not None:
            yield current
            current = self._placed[current]

    def _write(self, row: Row) -> None:
        content, step = row.content, self._step(row.id, row.head)
        parent = self._parent(row, step)
        if step.parent != parent or step.unknown_target:
            content = self._with_parent(row, parent)
            head = decode_head(content)
            step = self._step(row.id, head)
            if step.parent != parent:
                self.stand_at(parent)
                step = self._step(row.id, head)
        self._placed[row.id] = parent
        self._last = row.id
        self._timestamp = row.head.timestamp or self._timestamp
        self._settle(content, step)

    def _parent(self, row: Row, step: Step) -> str | None:
        """The row's parent; where its line decides and names none, the entry before it."""
        if row.parent is not BEYOND:
            return row.parent
        if step.parent is BEYOND or step.parent is None or step.parent in self._placed:
            return step.parent if isinstance(step.parent, str) else None
        self._report.missing_parent(row.line, row.id, step.parent, self._last)
        return self._last

    def _with_parent(self, row: Row, parent: str | None) -> bytes:
        if row.head.type == "leaf":
            data = {**decode_object(row.content), "parentId": parent, "targetId": parent}
            data.pop("appendParentId", None)
            detail = f"its target was nowhere: it says {parent} now, where the conversation stayed"
            self._report.replace("unknown-leaf-target", row.line, detail, row.id)
            return encode_object(writable(data))
        if row.line not in self._report.damaged:
            detail = f"the parent that followed from its place is written out: {parent}"
            self._report.replace("written-parent", row.line, detail, row.id)
        return with_keys(row.content, parentId=parent)

    def _step(self, entry_id: str, head: Head) -> Step:
        return advance(self.position, head, entry_id, self._placed.__contains__)

    def _settle(self, content: bytes, step: Step) -> None:
        self.lines.append(content)
        self.position = step.position or START
