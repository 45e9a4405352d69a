"""Reading a transcript from its end: the cost follows what is asked, not the history.

`Reader` keeps a tree of the last stretch of a log and reads further back only when a walk
needs it. What the end cannot tell is looked up in the log's side file, and where there is
none, by reading everything once. Nothing is guessed: wherever stretches contradict each
other, or a parent is missing, the complete tree decides. Source: spec 1, Durability,
writers, speed.
"""

from __future__ import annotations

from collections.abc import Iterator

from strandline.errors import TranscriptUnreadable
from strandline.transcript.codec import PADDING, MalformedLine, decode_head, decode_object
from strandline.transcript.damage import Finding
from strandline.transcript.entries import Head
from strandline.transcript.messages import JsonObject
from strandline.transcript.position import BEYOND, START, IsKnown, Position
from strandline.transcript.settings_on_path import Setting, sets, side_rows
from strandline.transcript.store import SideFile, Totals, TranscriptLog
from strandline.transcript.tree import Node, Tree

SMALL_BYTES = 1 << 19
"""Up to this size a transcript is simply read whole."""
WINDOW_BYTES = 1 << 16
"""The first stretch that is read from the end of a larger one; it doubles as needed."""
WIDEST_WINDOW_BYTES = 1 << 23
"""When even this stretch does not tell, everything is read."""
KEEP_RAW_BYTES = 1 << 27
"""Up to this size a complete reading keeps the lines in memory, not their heads alone."""
CHUNK_BYTES = 1 << 22


def whole_lines(log: TranscriptLog, start: int, stop: int) -> Iterator[tuple[bytes, int]]:
    """Chunks of whole lines with their offsets; only the last may end inside a line."""
    size = CHUNK_BYTES
    while start < stop:
        data = log.read(start, min(stop, start + size))
        if not data:
            return
        if start + len(data) < stop:
            cut = data.rfind(b"\n") + 1
            if not cut:
                size *= 2
                continue
            data, size = data[:cut], CHUNK_BYTES
        yield data, start
        start += len(data)


class Reader:
    """What was read of a log so far, and the means to read more.

    `end` is the byte after the last line that was read; `torn` reports what stands between
    it and `log_end`, where the log ended when it was read, if that is no line yet.
    """

    def __init__(self, log: TranscriptLog) -> None:
        self.log = log
        self.tree = Tree(complete=True)
        self.end = 0
        self.log_end = 0
        self.torn: Finding | None = None
        self._line_is_open = False
        self._window_bytes = WINDOW_BYTES
        self._side: SideFile | None = None
        self._side_was_opened = False

    # -- opening and keeping up ----------------------------------------------------------

    def open(self) -> None:
        """Read enough to know where the conversation stands."""
        if self.log.end() <= SMALL_BYTES:
            self._read_everything()
        else:
            self._read_window()

    def refresh(self) -> bool:
        """Take in what was appended since, by anybody; True if there was a new line."""
        size, before = self.log.end(), self.end
        if size < before:
            raise TranscriptUnreadable(
                f"{self.log.name} became shorter while it was open ({before} to {size} bytes)",
                remedy="stop what else writes to it, then open it again",
            )
        if size != self.log_end:
            for data, offset in whole_lines(self.log, before, size):
                self._take(self.tree, data, offset)
            self.tree.settle()
        return self.end != before

    def position(self) -> Position:
        """Where the conversation stands, as far as was read."""
        if self.tree.position is None:
            self._read_everything()
        return self.tree.position or START

    def appended(self, line: bytes, start: int) -> None:
        """Take in a line that was just written at `start` by this process."""
        if start != self.end:
            self.refresh()  # a line that lacked its end was ended first
        else:
            self.tree.feed(line, start)
            self.end = self.log_end = start + len(line) + 1

    def complete_tree(self) -> Tree:
        """The tree of every line; read once, then kept up to date by `refresh`."""
        if not self.tree.complete:
            self._read_everything()
        return self.tree

    def _read_everything(self) -> None:
        size = self.log.end()
        tree = Tree(complete=True, keep_raw=size <= KEEP_RAW_BYTES)
        self.tree, self.end, self._line_is_open = tree, 0, False
        self.log_end, self.torn = size, None
        for data, offset in whole_lines(self.log, 0, size):
            self._take(tree, data, offset)
        tree.settle()
        self._keep_side_file(tree)

    def _take(self, tree: Tree, data: bytes, offset: int) -> None:
        """Feed lines; what follows the last line end is a line only if it reads as one."""
        if self._line_is_open and data.startswith(b"\n"):
            data, offset = data[1:], offset + 1
        cut = data.rfind(b"\n") + 1
        fragment = data[cut:]
        tree.feed(data[:cut], offset)
        self.end, self.torn, self._line_is_open = offset + cut, None, False
        self.log_end = offset + len(data)
        if fragment.strip(PADDING):
            self._take_fragment(tree, fragment)

    def _take_fragment(self, tree: Tree, fragment: bytes) -> None:
        try:
            decode_head(fragment.strip(PADDING))
        except MalformedLine as error:
            line = tree.line_count + 1 if tree.complete else None
            detail = f"{len(fragment)} bytes without a line end: {error}"
            self.torn = Finding("torn-line", self.end, detail, line)
        else:
            tree.feed(fragment, self.end)
            self.end += len(fragment)
            self._line_is_open = True

    # -- windows -------------------------------------------------------------------------

    def _read_window(self) -> None:
        """Read a stretch from the end that settles the position, or everything."""
        size = self.log.end()
        while self._window_bytes <= min(WIDEST_WINDOW_BYTES, size - 1):
            start, data = self._lines_before(size, self._window_bytes)
            tree = Tree(complete=False, is_known=self._known_before(start))
            self._line_is_open = False
            if data:
                self._take(tree, data, start)
            if tree.position is not None and self._is_trustworthy(tree, tree.position):
                self.tree = tree
                return
            self._window_bytes *= 4
        self._read_everything()

    def _is_trustworthy(self, tree: Tree, position: Position) -> bool:
        """Whether the leaf is at hand, and no id was taken by an earlier line we know of."""
        leaf, side = position.leaf, self._side_file()
        if leaf is not None and leaf not in tree.nodes and not (side and side.find(leaf)):
            return False
        return side is None or side.agrees({n.id: n.offset for n in tree.nodes.values()})

    def _lines_before(self, stop: int, size: int) -> tuple[int, bytes]:
        """The whole lines in the last `size` bytes before `stop`, and where they start."""
        start = max(0, stop - size)
        data = self.log.read(start, stop)
        if not start:
            return 0, data
        cut = data.find(b"\n") + 1
        return (start + cut, data[cut:]) if cut else (stop, b"")

    def _widen(self) -> None:
        self._window_bytes *= 4
        self._read_window()

    # -- walking -------------------------------------------------------------------------

    def node(self, entry_id: str) -> Node | None:
        """An entry's place, wherever in the file it is; None if it is nowhere."""
        while True:
            node = self.tree.nodes.get(entry_id)
            if node is not None or self.tree.complete:
                return node
            side = self._side_file()
            where = side.find(entry_id) if side else None
            if where:
                self._read_stretch(where.offset + where.size, max(WINDOW_BYTES, 2 * where.size))
                if entry_id not in self.tree.nodes:  # the look-up does not fit after all
                    self._side = None
                    self._read_everything()
            else:
                self._widen()

    def walk(self, leaf_id: str | None) -> Iterator[Node]:
        """From an entry to the root, reading further back as the walk goes on.

        The walk ends early where a cycle begins. If a complete reading was needed on the
        way, the rest of the walk goes by the complete tree.
        """
        seen: set[str] = set()
        current = leaf_id
        while current is not None and current not in seen:
            node = self.node(current)
            if node is None:
                if self.tree.complete:
                    return
                self._read_everything()
                continue
            seen.add(current)
            yield node
            current = self._parent(node)

    def _parent(self, node: Node) -> str | None:
        size = WINDOW_BYTES
        while node.parent is BEYOND:
            if size > WIDEST_WINDOW_BYTES:
                self.complete_tree()
            else:
                self._read_stretch(node.offset + node.size, max(size, 2 * node.size))
            node = self.tree.nodes[node.id]
            size *= 4
        parent = node.parent
        if parent is not None and self.node(parent) is None:
            node = self.complete_tree().nodes[node.id]
        return node.parent if isinstance(node.parent, str) else None

    def _read_stretch(self, stop: int, size: int) -> None:
        """Merge the lines that end at `stop` into the tree."""
        start, data = self._lines_before(stop, size)
        if not data:  # one line longer than the stretch
            start, data = self._lines_before(stop, 2 * size + WIDEST_WINDOW_BYTES)
        stretch = Tree(complete=start == 0, is_known=self._known_before(start))
        stretch.feed(data, start)
        if not data or not self.tree.absorb(stretch):
            self._read_everything()

    # -- bodies --------------------------------------------------------------------------

    def line(self, node: Node) -> bytes:
        """The line of an entry, without padding and line end."""
        if node.raw is not None:
            return node.raw
        return self.log.read(node.offset, node.offset + node.size)

    def data(self, node: Node) -> JsonObject:
        """All keys of an entry."""
        return decode_object(self.line(node))

    # -- what the end cannot tell ----------------------------------------------------------

    def last_setter(self, leaf_id: str | None, setting: Setting) -> Head | None:
        """The head of the entry that last set `setting` on the path to `leaf_id`."""
        side = self._side_file()
        for node in self.walk(leaf_id):
            if sets(node.head) == setting:
                return node.head
            where = side.find(node.id) if side and node.offset < side.end else None
            if where is not None:
                offset, size = where.model if setting == "model" else where.thinking
                return decode_head(self.log.read(offset, offset + size)) if size else None
        return None

    def totals(self) -> Totals:
        """Entry count, name and labels of the whole transcript."""
        side = self._side_file()
        if self.tree.complete or side is None or side.end < self.end:
            tree = self.complete_tree()
            labels = {k: v for k, v in tree.labels.items() if v is not None}
            return Totals(tree.entry_count, tree.name, labels)
        return side.totals()

    def _side_file(self) -> SideFile | None:
        if not self._side_was_opened:
            self._side_was_opened = True
            self._side = self.log.side_file()
        return self._side

    def _known_before(self, start: int) -> IsKnown:
        """Tells a stretch that starts at `start` which ids are in lines before it."""

        def is_known(entry_id: str) -> bool | None:
            side = self._side_file()
            if side is None:
                return None
            where = side.find(entry_id)
            if where is not None:
                return where.offset < start
            return None if side.end < start else False

        return is_known

    def _keep_side_file(self, tree: Tree) -> None:
        """Leave what a complete reading found for the next opening, if all of it is sound."""
        if self.end <= SMALL_BYTES or tree.findings:
            return
        rows = list(side_rows(tree))
        self.log.save_side_file(rows, self.totals(), self.end)
