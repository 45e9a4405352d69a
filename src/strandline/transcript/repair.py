"""A damaged transcript made whole: what a new file has to hold, and what that changes.

Pure: the bytes of a transcript go in, the lines of a new one come out. Every readable
line is copied byte for byte unless it is what a reader stumbles over. The conversation of
the old file is the measure: an entry hangs in the new tree where it hung in the old, and
the conversation stands where it stood, or further on where salvaged lines continue it.
Only where a salvaged line is the parent that an entry had lost does the true parent
replace the stand-in. Source: spec 1, Damage.
"""

from __future__ import annotations

from dataclasses import dataclass

from strandline.transcript.codec import (
    decode_head,
    decode_object,
    encode_object,
)
from strandline.transcript.entries import KNOWN_TYPES, MARKER_TYPES
from strandline.transcript.mend import mended
from strandline.transcript.messages import JsonObject
from strandline.transcript.migrate import CURRENT_VERSION, beginning, migrate, version_of
from strandline.transcript.position import BEYOND, Parent
from strandline.transcript.replant import Replanting, Row, cut_cycles, free_id, with_keys
from strandline.transcript.survey import Change, ChangeKind, OldLine, Report, survey
from strandline.transcript.tree import Node, Tree


@dataclass(frozen=True, slots=True)
class Repair:
    """The new file's `lines`, the header first, and every change, in the old file's order.

    `damaged` are the old lines that are not in the new file as they were, byte for byte.
    Line ends are left out of both. Without `lines` there was nothing to read.
    """

    lines: list[bytes]
    damaged: list[bytes]
    changes: list[Change]


def repair(image: bytes, header: JsonObject) -> Repair:
    """What a new file in the place of the transcript `image` has to hold.

    `header` is used where the old one cannot be read. An old version comes out as the
    current one. The new lines read without findings.
    """
    version, report = version_in(image), Report()
    old_lines = image.split(b"\n")
    if version < CURRENT_VERSION:
        image = migrate(image, version)
        report.note("old-version", 1, f"version {version} is version {CURRENT_VERSION} now")
    tree = Tree(complete=True, keep_raw=False)
    tree.feed(image, 0)
    tree.settle()
    work = _Work(image, tree, report, is_list=version < 2)
    for line in survey(image, work.heads, report):
        work.take(line)
    lines = work.result(header)
    damaged = [old_lines[number - 1] for number in sorted(report.damaged)] if lines else []
    return Repair(lines, damaged, sorted(report.changes, key=lambda change: change.line))


def version_in(image: bytes) -> int:
    """The version of a transcript; its first 64 KiB are enough."""
    return version_of(*beginning(image))


class _Work:
    """A repair in progress: takes the readable lines one after another, then writes them.

    `is_list` is True for version 1, where every entry follows the one before it.
    """

    def __init__(self, image: bytes, tree: Tree, report: Report, *, is_list: bool) -> None:
        self._image = image
        self._tree = tree
        self._report = report
        self._is_list = is_list
        self._nodes: dict[int, Node] = {node.offset: node for node in tree.nodes.values()}
        self.heads = {offset: node.head for offset, node in self._nodes.items()}
        self._header: bytes | None = None
        self._rows: dict[str, Row] = {}
        self._last_known: str | None = None
        self._followed_by: dict[Parent, str] = {}

    def take(self, line: OldLine) -> None:
        """One readable line, in the order of the old file."""
        if line.head.type == "session":
            self._take_header(line)
            return
        node = None if line.offset is None else self._nodes.get(line.offset)
        row = self._newcomer(line) if node is None else self._known(line, node)
        if row is None:
            return
        sound = mended(row.content, row.id, row.line, self._report)
        if sound is not row.content:
            row.content, row.head = sound, decode_head(sound)
        if self._is_list:
            self._link(row, is_new=node is None)
        self._rows[row.id] = row

    def _link(self, row: Row, *, is_new: bool) -> None:
        """Put a salvaged entry between the two that stand around it in a list."""
        if is_new:
            row.parent = next(reversed(self._rows), None)
            self._followed_by[self._last_known] = row.id
        else:
            row.parent = self._followed_by.get(row.parent, row.parent)
            self._last_known = row.id

    def _take_header(self, line: OldLine) -> None:
        if self._header is not None:
            self._report.replace("second-header", line.number, "the header is kept beside")
            return
        if self._rows:
            self._report.note("second-header", line.number, "the header is the first line now")
        elif line.offset is None:
            self._report.note("salvaged", line.number, "the header was behind a torn line")
        self._header = line.content

    def _known(self, line: OldLine, node: Node) -> Row:
        """An entry that the reader of the old file has in its tree."""
        content, head = line.content, line.head
        if head.id is None:
            detail = f"the entry has the id {node.id} now"
            self._report.replace("missing-id", line.number, detail, node.id)
            content = with_keys(content, id=node.id)
        return Row(node.id, line.number, content, head, node.parent)

    def _newcomer(self, line: OldLine) -> Row | None:
        """An entry that the reader passes over: salvaged, without an id, or with a taken one."""
        head, number, content = line.head, line.number, line.content
        if head.id is None or self._is_taken(head.id):
            return self._with_fresh_id(line)
        detail = f"entry {head.id} ({head.type}) was hidden in a damaged line"
        self._report.note("salvaged", number, detail, head.id)
        return Row(head.id, number, content, head, BEYOND)

    def _with_fresh_id(self, line: OldLine) -> Row | None:
        head, content = line.head, line.content
        kind: ChangeKind = "missing-id" if head.id is None else "duplicate-id"
        if head.id is not None and (head.type in MARKER_TYPES or self._is_copy(head.id, content)):
            detail = f"id {head.id} is taken, and the line says nothing more: it is kept beside"
            self._report.replace("duplicate-id", line.number, detail, head.id)
            return None
        taken = f"id {head.id} is taken: " if head.id is not None else ""
        fresh = free_id(content, self._is_taken)
        detail = f"{taken}the entry has the id {fresh} now"
        self._report.replace(kind, line.number, detail, fresh)
        content = with_keys(content, id=fresh)
        return Row(fresh, line.number, content, decode_head(content), BEYOND)

    def _is_taken(self, entry_id: str) -> bool:
        return entry_id in self._tree.nodes or entry_id in self._rows

    def _is_copy(self, entry_id: str, content: bytes) -> bool:
        """Whether a line is the same, byte for byte, as that which has the id."""
        node = self._tree.nodes.get(entry_id)
        if node is None:
            return self._rows[entry_id].content == content
        return self._image[node.offset : node.offset + node.size] == content

    def result(self, header: JsonObject) -> list[bytes]:
        """The lines of the new file; none where nothing could be read."""
        rows = self._rows
        if self._header is None and not any(r.head.type in KNOWN_TYPES for r in rows.values()):
            return []
        position = self._tree.position
        leaf = position.leaf if position else None
        self._adopt()
        cut_cycles(rows, leaf, self._report)
        first = next((row.head.timestamp for row in rows.values() if row.head.timestamp), None)
        header = {**header, "timestamp": first or header.get("timestamp")}
        replanting = Replanting(rows, str(header["timestamp"]), self._report)
        replanting.write_all()
        self._stand_as_before(replanting, leaf)
        return [self._header_line(header), *replanting.lines]

    def _adopt(self) -> None:
        """Bridged entries go to their true parent where that was salvaged."""
        for node in self._tree.nodes.values():
            parent = node.head.parent_id
            if not node.bridged or not isinstance(parent, str):
                continue
            row = self._rows[node.id]
            if parent in self._rows:
                row.parent = parent
            else:
                stand_in = node.parent if isinstance(node.parent, str) else None
                self._report.missing_parent(row.line, row.id, parent, stand_in)

    def _stand_as_before(self, replanting: Replanting, leaf: str | None) -> None:
        here = replanting.position.leaf
        if not self._tree.nodes or here == leaf or leaf in set(replanting.path()):
            return
        replanting.stand_at(leaf)
        last = next(reversed(self._rows.values())).line
        where = leaf or "the beginning"
        self._report.note("leaf", last, f"a last line says that the conversation stands at {where}")

    def _header_line(self, fresh: JsonObject) -> bytes:
        if self._header is None:
            self._report.note("missing-header", 1, f"a new header has the id {fresh.get('id')}")
            return encode_object(fresh)
        if version_of(decode_object(self._header), None) < CURRENT_VERSION:
            return with_keys(self._header, version=CURRENT_VERSION)
        return self._header
