"""The tree of a transcript: lines go in, parents and the position come out.

A `Tree` is fed lines in file order, from the beginning (`complete`) or from anywhere in
the middle: then parents that only earlier lines can tell are `BEYOND`, and trees of
earlier stretches are merged in with `absorb`. It holds heads, not bodies. Source: spec 1,
Where the conversation stands; Damage.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import msgspec

from strandline.transcript.codec import BOM, PADDING, MalformedLine, decode_head
from strandline.transcript.damage import Finding, FindingKind
from strandline.transcript.entries import KNOWN_TYPES, MARKER_TYPES, Head
from strandline.transcript.position import BEYOND, START, IsKnown, Parent, Position, advance
from strandline.transcript.store import Totals


class Node(msgspec.Struct, gc=False, eq=False):
    """An entry's place: its head, where its line is, its parent on the walk to the root.

    `raw` is the line where it is kept in memory. `bridged` is True where the parent that
    the line names is missing and the entry before it in the file stands in. A struct,
    because a long transcript makes a million of them and the collector need not look.
    """

    id: str
    head: Head
    offset: int
    size: int
    parent: Parent
    raw: bytes | None = None
    bridged: bool = False


def derived_id(offset: int, line: bytes) -> str:
    """The id of an entry that has none: the same at every reading of an append-only file."""
    return hashlib.sha256(b"%d:" % offset + line).hexdigest()[:8]


class Tree:
    """Entries in file order, as far as they were fed.

    `position` is None as long as a tree from the middle has met nothing that settles it.
    `is_known` answers for ids of earlier lines that were not fed. `is_outdated` becomes
    True when a parent arrives that had been given up as missing: only feeding everything
    again makes the tree what it is for whoever opens the file now. `is_transcript` is True
    once a header or an entry of a known type was among the lines.
    """

    def __init__(
        self, *, complete: bool, keep_raw: bool = True, is_known: IsKnown | None = None
    ) -> None:
        self.complete = complete
        self.nodes: dict[str, Node] = {}
        self.position: Position | None = START if complete else None
        self.findings: list[Finding] = []
        self.is_outdated = False
        self.is_transcript = False
        self.has_cycles = False
        self.entry_count = 0
        self.line_count = 0
        self.name: str | None = None
        self.name_is_set = complete
        self.labels: dict[str, str | None] = {}
        self._keep_raw = keep_raw
        self._known_elsewhere = is_known
        self._header_was_read = False
        self._last_id: str | None = None
        self._unresolved: dict[str, str | None] = {}
        self._missing: set[str] = set()

    # -- feeding ----------------------------------------------------------------------

    def feed(self, data: bytes, offset: int) -> None:
        """Take in whole lines; `data` starts a line at byte `offset`.

        A last line without its end is taken as well: it is an entry that reads well.
        """
        lines = data.split(b"\n")
        if not lines[-1]:
            lines.pop()
        for line in lines:
            self.feed_line(line, offset)
            offset += len(line) + 1

    def feed_line(self, line: bytes, offset: int) -> None:
        """Take in one line, without its end."""
        self.line_count += 1
        if line[:1] != b"{" or line[-1:] != b"}":
            line, offset = self._without_padding(line, offset)
            if not line:
                return
        try:
            head = decode_head(line)
        except MalformedLine as error:
            self._report("malformed-line", offset, str(error))
            return
        if head.type == "session":
            self._header(offset)
        else:
            self._entry_line(head, line, offset)

    def _entry_line(self, head: Head, line: bytes, offset: int) -> None:
        if not self.entry_count and self.complete and not self._header_was_read:
            self._report("missing-header", offset, "the first entry stands before any header")
        self.entry_count += 1
        if not self.is_transcript:
            self.is_transcript = head.type in KNOWN_TYPES
        entry_id = head.id
        if entry_id is None:
            if head.type not in KNOWN_TYPES:
                self._report("missing-id", offset, f"a line of type {head.type!r} has no id")
                return
            entry_id = derived_id(offset, line)
            self._report("missing-id", offset, f"an entry without an id is {entry_id}", entry_id)
        self._entry(Node(entry_id, head, offset, len(line), None, line if self._keep_raw else None))

    def _entry(self, node: Node) -> None:
        first = self.nodes.get(node.id)
        if first is not None:
            detail = f"id {node.id} is taken by the entry at byte {first.offset}"
            self._report("duplicate-id", node.offset, detail, node.id)
            return
        step = advance(self.position, node.head, node.id, self._is_known)
        if step.unknown_target:
            detail = f"no earlier entry is {node.head.target_id!r}: the conversation stays put"
            self._report("unknown-leaf-target", node.offset, detail, node.id)
        self.position = step.position
        node.parent = step.parent
        if self.complete and isinstance(step.parent, str) and step.parent not in self.nodes:
            self._unresolved[node.id] = self._last_id
        self.nodes[node.id] = node
        self._last_id = node.id
        if self._missing and node.id in self._missing:
            self.is_outdated = True
        if node.head.type in MARKER_TYPES:
            self._note_facts(node.head)

    def _note_facts(self, head: Head) -> None:
        if head.type == "session_info":
            self.name = (head.name or "").strip() or None
            self.name_is_set = True
        elif head.type == "label" and isinstance(head.target_id, str):
            self.labels[head.target_id] = head.label or None

    def _is_known(self, entry_id: str) -> bool | None:
        if entry_id in self.nodes:
            return True
        if self.complete:
            return False
        return self._known_elsewhere(entry_id) if self._known_elsewhere else None

    def offsets(self) -> dict[str, int]:
        """Where the line of each entry starts."""
        return {node.id: node.offset for node in self.nodes.values()}

    def totals(self) -> Totals:
        """Entry count, name and labels; of the whole transcript if the tree is complete."""
        labels = {target: label for target, label in self.labels.items() if label is not None}
        return Totals(self.entry_count, self.name, labels)

    # -- damage -----------------------------------------------------------------------

    def _report(
        self, kind: FindingKind, offset: int, detail: str, entry_id: str | None = None
    ) -> None:
        line = self.line_count if self.complete else None
        self.findings.append(Finding(kind, offset, detail, line, entry_id))

    def _without_padding(self, line: bytes, offset: int) -> tuple[bytes, int]:
        """The object on a padded line and where it starts; the padding is reported."""
        end = offset + len(line)
        if offset == 0 and line.startswith(BOM):
            self._report("byte-order-mark", offset, "the file starts with a byte order mark")
            line = line[len(BOM) :]
        bare = line.lstrip(PADDING)
        start, bare = end - len(bare), bare.rstrip(PADDING)
        if b"\x00" in line[:1] + line[-1:]:
            count = len(line) - len(line.strip(b"\x00"))
            self._report("nul-bytes", offset, f"{count} NUL bytes, as a power cut leaves them")
        elif not bare:
            self._report("blank-line", offset, "a line without anything on it")
        elif line.endswith(b"\r"):
            self._report("carriage-returns", offset, "the line ends in CR LF")
        return bare, start

    def _header(self, offset: int) -> None:
        if self._header_was_read or self.entry_count or not self.complete:
            self._report("second-header", offset, "a header that is not the first line")
        self._header_was_read = self.is_transcript = True

    def settle(self) -> None:
        """Bridge entries whose parent is nowhere; for a complete tree that was fed all there is.

        The child is tied to the entry before it in the file, so that a conversation does
        not shrink to its tail.
        """
        if not self._unresolved:
            return
        late: list[Node] = []
        for entry_id, before in self._unresolved.items():
            node = self.nodes[entry_id]
            if isinstance(node.parent, str) and node.parent in self.nodes:
                late.append(node)
                continue
            detail = f"parent {node.parent} is missing: bridged to {before or 'the beginning'}"
            self.findings.append(Finding("missing-parent", node.offset, detail, None, entry_id))
            self._missing.add(str(node.parent))
            node.parent, node.bridged = before, True
        self._unresolved.clear()
        self._report_late_parents(late)

    def _report_late_parents(self, late: list[Node]) -> None:
        cyclic = self._in_cycles(late)
        self.has_cycles |= bool(cyclic)
        for node in late:
            kind: FindingKind = "late-parent"
            detail = f"parent {node.parent} stands further down in the file"
            if node.id in cyclic:
                kind = "parent-cycle"
                detail = f"entry {node.id} is its own ancestor: the walk stops"
            self.findings.append(Finding(kind, node.offset, detail, None, node.id))

    def _in_cycles(self, late: list[Node]) -> set[str]:
        """Entries that are their own ancestors; in every cycle somebody's parent is late."""
        walks: dict[str, int] = {}
        cyclic: set[str] = set()
        for number, node in enumerate(late):
            current: Parent = node.id
            while isinstance(current, str) and current not in walks:
                walks[current] = number
                current = self.nodes[current].parent
            while isinstance(current, str) and walks[current] == number and current not in cyclic:
                cyclic.add(current)
                current = self.nodes[current].parent
        return cyclic

    # -- reading ----------------------------------------------------------------------

    def walk(self, leaf_id: str | None) -> Iterator[Node]:
        """From an entry to the root; stops where a cycle would begin or lines are missing."""
        seen: set[str] = set()
        current: Parent = leaf_id
        while isinstance(current, str) and current not in seen:
            node = self.nodes.get(current)
            if node is None:
                return
            seen.add(current)
            yield node
            current = node.parent

    def absorb(self, earlier: Tree) -> bool:
        """Merge a tree of an earlier stretch into this incomplete one.

        False when the two contradict each other (an id that both hold on different
        lines, or with different parents): then only a complete reading can tell.
        """
        for node in earlier.nodes.values():
            mine = self.nodes.get(node.id)
            if mine is None:
                self.nodes[node.id] = node
            elif mine.offset != node.offset:
                return False
            elif mine.parent is BEYOND:
                mine.parent = node.parent
            elif node.parent not in (BEYOND, mine.parent):
                return False
        return True
