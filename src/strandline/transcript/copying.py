"""One branch of a session as lines for a new file: copied verbatim, byte for byte.

The entries of the path stand in the copy one after the other. Most then follow the entry
before them by their own word. Where one names another parent (the conversation had been
moved, or something stood aside of it), a `leaf` line of ours before it says what it
follows, so that the copy reads as the original does.
"""

from __future__ import annotations

from collections.abc import Callable

from strandline.transcript.codec import encode_object
from strandline.transcript.messages import JsonObject
from strandline.transcript.position import advance
from strandline.transcript.tree import Node, Tree, derived_id

MakeLeaf = Callable[[str | None, str | None], JsonObject]
"""Makes a `leaf` entry of the target and the append point that it sets."""


class BranchCopy:
    """The `image` of a new file, begun with its `header` line, as it is put together."""

    def __init__(self, header: bytes, make_leaf: MakeLeaf) -> None:
        self._lines = [header]
        self.end: str | None = None
        self._make_leaf = make_leaf
        self._tree = Tree(complete=True)
        self._offset = len(header) + 1
        self._tree.feed_line(header, 0)

    @property
    def image(self) -> bytes:
        """The whole file."""
        return b"".join(line + b"\n" for line in self._lines)

    def add(self, node: Node, line: bytes) -> None:
        """Add the next entry of the path; `end` becomes its id in the copy."""
        if self._parent(node) != self.end:
            if node.head.type == "leaf":
                return  # it says nothing but where to go on, which is elsewhere in the copy
            self._write(encode_object(self._make_leaf(self.end, node.head.parent_id or None)))
        self.end = node.head.id or derived_id(self._offset, line)
        self._write(line)

    def _parent(self, node: Node) -> object:
        """What a reader of the copy would take the entry to follow."""
        known = self._tree.nodes.__contains__
        parent = advance(self._tree.position, node.head, node.id, known).parent
        missing = isinstance(parent, str) and not known(parent)
        return self.end if missing else parent  # a missing parent: the entry before stands in

    def _write(self, line: bytes) -> None:
        self._lines.append(line)
        self._tree.feed_line(line, self._offset)
        self._offset += len(line) + 1
