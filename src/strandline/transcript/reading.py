"""Reading a transcript from its end: the cost follows what is asked, not the history.

`Reader` keeps a tree of the last stretch of a log and reads further back only when a walk
needs it. What the end cannot tell is looked up in the log's side file (`lookups`), and
where there is none, by reading everything once. Nothing is guessed: wherever stretches
contradict each other, or a parent is missing, the complete tree decides. Source: spec 1,
Durability, writers, speed.

One thing no reading from the end can see without a side file: that an id was taken by a
line before all that was read (docs/format.md, Damage).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

from strandline.errors import TranscriptUnreadable
from strandline.transcript.codec import BOM, PADDING, MalformedLine, decode_head, decode_object
from strandline.transcript.damage import Finding
from strandline.transcript.garbage import collector_off
from strandline.transcript.messages import JsonObject
from strandline.transcript.position import BEYOND, START, IsKnown, Position
from strandline.transcript.settings_on_path import side_rows
from strandline.transcript.store import NeedsWholeLog, SideFile, TranscriptLog
from strandline.transcript.stretches import lines_before, whole_lines
from strandline.transcript.tree import Node, Tree

T = TypeVar("T")
REMEMBERED_BYTES = 64
"""How much of what was read last is compared, to see that the log was not rewritten."""
UNSOUND = frozenset({"missing-parent", "late-parent", "parent-cycle"})
"""Damage that keeps a side file from being made: later lines could change what it says."""


class Sizes(NamedTuple):
    """How much is read at a time, in bytes."""

    small: int = 1 << 19
    """Up to this size a log is simply read whole."""
    window: int = 1 << 16
    """The first stretch that is read from the end of a larger one; it grows as needed."""
    keep_raw: int = 1 << 27
    """Up to this size a complete reading keeps the lines in memory, not their heads alone."""
    largest_part: int = 8
    """A stretch is at most an eighth of the log; where that does not tell, all of it is read."""


DEFAULT_SIZES = Sizes()


class Reader:
    """What was read of a log so far, and the means to read more.

    `start` and `end` are the bytes between which every line was read; `torn` reports what
    stands between `end` and `log_end`, where the log ended when it was read, if that is no
    line yet. Whatever walks is to be called through `consistently`.
    """

    def __init__(self, log: TranscriptLog, sizes: Sizes = DEFAULT_SIZES) -> None:
        self.log = log
        self.sizes = sizes
        self.tree = Tree(complete=True)
        self.start = self.end = self.log_end = 0
        self.torn: Finding | None = None
        self._line_is_open = False
        self._last_bytes = b""
        self._window_bytes = sizes.window
        self._side: SideFile | None = None
        self._side_was_opened = False

    def consistently(self, look: Callable[[], T]) -> T:
        """What `look` finds; looked for again in the whole log where only that can tell."""
        try:
            return look()
        except NeedsWholeLog:
            self._side = None
            self._read_everything()
            return look()

    # -- opening and keeping up ----------------------------------------------------------

    def open(self) -> None:
        """Read enough to know where the conversation stands."""
        try:
            is_open = self.log.end() > self.sizes.small and self._read_window()
        except NeedsWholeLog:
            is_open, self._side = False, None
        if not is_open:
            self._read_everything()

    def refresh(self) -> bool:
        """Take in what was appended since, by anybody; True if there was a new line."""
        tree, end = self.tree, self.end
        self.consistently(self._catch_up)
        return self.end != end or self.tree is not tree

    def _catch_up(self) -> None:
        size, before = self.log.end(), self.end
        if size < before:
            raise TranscriptUnreadable(
                f"{self.log.name} became shorter while it was open ({before} to {size} bytes)",
                remedy="stop what else writes to it, then open it again",
            )
        if self.log.read(before - len(self._last_bytes), before) != self._last_bytes:
            raise NeedsWholeLog  # somebody rewrote it
        if size == self.log_end:
            return
        self.log_end, self.torn = size, None
        for data, offset in whole_lines(self.log, before, size):
            self._take(self.tree, data, offset)
        self.tree.settle()
        if self.tree.is_outdated:
            raise NeedsWholeLog

    def position(self) -> Position:
        """Where the conversation stands, as far as was read."""
        if self.tree.position is None:
            self._read_everything()
        return self.tree.position or START

    def appended(self, line: bytes, start: int) -> None:
        """Take in a line that was just written at `start` by this process."""
        if start != self.end:
            self.refresh()  # a line that lacked its end was ended first
            return
        self.tree.feed_line(line, start)
        self.tree.settle()
        self.end = self.log_end = start + len(line) + 1
        self._last_bytes = line[1 - REMEMBERED_BYTES :] + b"\n"

    def complete_tree(self) -> Tree:
        """The tree of every line; read once, then kept up to date by `refresh`."""
        if not self.tree.complete:
            self._read_everything()
        return self.tree

    def _read_everything(self) -> None:
        size = self.log.end()
        tree = Tree(complete=True, keep_raw=size <= self.sizes.keep_raw)
        self.tree, self.start, self.end, self._line_is_open = tree, 0, 0, False
        self.log_end, self.torn, self._last_bytes = size, None, b""
        with collector_off():
            for data, offset in whole_lines(self.log, 0, size):
                self._take(tree, data, offset)
            tree.settle()
        self._keep_side_file(tree)

    def _take(self, tree: Tree, data: bytes, offset: int) -> None:
        """Feed lines; what follows the last line end is a line only if it reads as one."""
        if self._line_is_open:
            if not data.startswith(b"\n"):
                raise NeedsWholeLog  # what read as a line goes on
            data, offset, self._line_is_open = data[1:], offset + 1, False
            self._last_bytes = (self._last_bytes + b"\n")[-REMEMBERED_BYTES:]
        cut = data.rfind(b"\n") + 1
        tree.feed(data[:cut], offset)
        self.end, self.torn, self.log_end = offset + cut, None, offset + len(data)
        self._last_bytes = data[max(0, cut - REMEMBERED_BYTES) : cut] or self._last_bytes
        if fragment := data[cut:]:
            self._take_fragment(tree, fragment)

    def _take_fragment(self, tree: Tree, fragment: bytes) -> None:
        bare = (fragment.removeprefix(BOM) if self.end == 0 else fragment).strip(PADDING)
        line = tree.line_count + 1 if tree.complete else None
        try:
            decode_head(bare)
        except MalformedLine as error:
            detail = f"{len(fragment)} bytes without a line end: {error}"
            if bare:
                self.torn = Finding("torn-line", self.end, detail, line)
            elif b"\x00" in fragment:
                detail = f"{fragment.count(0)} NUL bytes, as a power cut leaves them"
                self.torn = Finding("nul-bytes", self.end, detail, line)
        else:
            tree.feed(fragment, self.end)
            self.end += len(fragment)
            self._line_is_open = True
            self._last_bytes = fragment[-REMEMBERED_BYTES:]

    # -- stretches -----------------------------------------------------------------------

    def _read_window(self) -> bool:
        """Read a stretch from the end that settles the position; False if none may do."""
        size = self.log.end()
        while self._window_bytes <= size // self.sizes.largest_part:
            start, data = lines_before(self.log, size, self._window_bytes)
            tree = Tree(complete=False, is_known=self._known_before(start))
            self._line_is_open, self._last_bytes = False, b""
            if data:
                self._take(tree, data, start)
            if tree.position is not None:
                self._check(tree)
                self._merge(tree, self.tree)
                self.tree, self.start = tree, start
                return True
            self._window_bytes *= 4
        return False

    def _widen(self) -> None:
        self._window_bytes *= 4
        if not self._read_window():
            raise NeedsWholeLog

    def _read_stretch(self, stop: int, size: int) -> None:
        """Merge the lines that end at `stop` into the tree."""
        start, data = lines_before(self.log, stop, size)
        stretch = Tree(complete=start == 0, is_known=self._known_before(start))
        stretch.feed(data, start)
        self._check(stretch)
        self._merge(self.tree, stretch)

    def _check(self, tree: Tree) -> None:
        side = self.side_file()
        if side is not None and not side.agrees(tree.offsets()):
            raise NeedsWholeLog  # an earlier line has one of these ids

    def _merge(self, tree: Tree, other: Tree) -> None:
        if not tree.absorb(other):
            raise NeedsWholeLog

    # -- walking -------------------------------------------------------------------------

    def node(self, entry_id: str) -> Node | None:
        """An entry's place, wherever in the file it is; None if it is nowhere."""
        while True:
            node = self.tree.nodes.get(entry_id)
            if node is not None or self.tree.complete:
                return node
            side = self.side_file()
            where = side.find(entry_id) if side else None
            if where is not None:
                self._read_stretch(where.offset + where.size, self.sizes.window + where.size)
                if entry_id not in self.tree.nodes:
                    raise NeedsWholeLog  # the look-up does not fit after all
            elif side is not None and side.end >= self.start:
                return None
            else:
                self._widen()

    def walk(self, leaf_id: str | None) -> Iterator[Node]:
        """From an entry to the root, reading further back as the walk goes on.

        The walk ends early where a cycle begins.
        """
        if self.tree.complete:
            yield from self.tree.walk(leaf_id)
            return
        seen: set[str] = set()
        current = leaf_id
        began_at: int | None = None
        while current is not None and current not in seen:
            node = self.node(current)
            if node is None:
                raise NeedsWholeLog  # a parent is missing: only the whole log has the bridge
            seen.add(current)
            yield node
            began_at = node.offset if began_at is None else began_at
            current = self._parent(node, abs(began_at - node.offset))

    def _parent(self, node: Node, walked: int) -> str | None:
        """The next entry of a walk that is `walked` bytes long: the longer, the more is read."""
        size = max(self.sizes.window, walked)
        while node.parent is BEYOND:
            if size > max(self.log_end // self.sizes.largest_part, self.sizes.window):
                raise NeedsWholeLog
            self._read_stretch(node.offset + node.size, size + node.size)
            size *= 4
        return node.parent if isinstance(node.parent, str) else None

    # -- bodies --------------------------------------------------------------------------

    def line(self, node: Node) -> bytes:
        """The line of an entry, without padding and line end."""
        if node.raw is not None:
            return node.raw
        return self.log.read(node.offset, node.offset + node.size)

    def data(self, node: Node) -> JsonObject:
        """All keys of an entry."""
        try:
            return decode_object(self.line(node))
        except MalformedLine as error:
            raise TranscriptUnreadable(
                f"entry {node.id} of {self.log.name} changed while it was open ({error})",
                remedy="stop what else writes to it, then open it again",
            ) from error

    # -- the side file -------------------------------------------------------------------

    def side_file(self) -> SideFile | None:
        """The look-up of the log, while there is one and it fits."""
        if not self._side_was_opened:
            self._side_was_opened = True
            self._side = self.log.side_file()
        return self._side

    def _known_before(self, start: int) -> IsKnown:
        """Tells a stretch that starts at `start` which ids are in lines before it."""

        def is_known(entry_id: str) -> bool | None:
            side = self.side_file()
            if side is None:
                return None
            where = side.find(entry_id)
            if where is not None:
                return where.offset < start
            return None if side.end < start else False

        return is_known

    def _keep_side_file(self, tree: Tree) -> None:
        """Leave what a complete reading found for the next opening, if all of it is sound."""
        unsound = any(finding.kind in UNSOUND for finding in tree.findings)
        if self.end > self.sizes.small and not unsound:
            self.log.save_side_file(side_rows(tree), tree.totals(), self.end)
