"""What the end of a transcript cannot tell: totals, far settings, which ids are taken.

Each is found in what was read, else in the side file, else by going through the log once;
what was found is remembered. Source: spec 1, Durability, writers, speed.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left

from strandline.transcript.codec import MalformedLine, decode_head
from strandline.transcript.context import ModelChoice
from strandline.transcript.entries import Head
from strandline.transcript.reading import Reader
from strandline.transcript.settings_on_path import Setting, sets
from strandline.transcript.store import LineAt, NeedsWholeLog, SideFile, Totals
from strandline.transcript.stretches import whole_lines
from strandline.transcript.tree import Tree

_OUR_ID = re.compile(rb'"id"\s*:\s*"([0-9a-f]{8})"')


class Lookups:
    """Looks far things up for a reader."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._tail: Tree | None = None
        self._tail_end = 0
        self._last_set: dict[Setting, tuple[Tree, str | None, Head | None]] = {}
        self._earlier: array[int] | None = None

    # -- totals --------------------------------------------------------------------------

    def totals(self) -> Totals:
        """Entry count, name and labels of the whole transcript."""
        return self._reader.consistently(self._totals)

    def _totals(self) -> Totals:
        reader = self._reader
        side = None if reader.tree.complete else reader.side_file()
        if side is None:
            return reader.complete_tree().totals()
        before, tail = side.totals(), self._tail_after(side)
        labels = {**before.labels, **tail.labels}
        return Totals(
            before.entries + tail.entry_count,
            tail.name if tail.name_is_set else before.name,
            {target: label for target, label in labels.items() if label is not None},
        )

    def _tail_after(self, side: SideFile) -> Tree:
        """The lines that the side file does not cover."""
        reader = self._reader
        if self._tail is None:
            self._tail, self._tail_end = Tree(complete=False, keep_raw=False), side.end
        for data, offset in whole_lines(reader.log, self._tail_end, reader.end):
            self._tail.feed(data, offset)
        self._tail_end = reader.end
        if not side.agrees(self._tail.offsets()):
            raise NeedsWholeLog
        return self._tail

    # -- settings ------------------------------------------------------------------------

    def last_setter(self, leaf_id: str | None, setting: Setting) -> Head | None:
        """The head of the entry that last set `setting` on the path to `leaf_id`."""
        head = self._reader.consistently(lambda: self._last_setter(leaf_id, setting))
        self._last_set[setting] = self._reader.tree, leaf_id, head
        return head

    def _last_setter(self, leaf_id: str | None, setting: Setting) -> Head | None:
        reader = self._reader
        side = None if reader.tree.complete else reader.side_file()
        tree, known_at, known = self._last_set.get(setting, (None, None, None))
        for node in reader.walk(leaf_id):
            if node.id == known_at and tree is reader.tree:
                return known
            if sets(node.head) == setting:
                return node.head
            where = side.find(node.id) if side and node.offset < side.end else None
            if where is not None:
                return self._head_at(where.model if setting == "model" else where.thinking, setting)
        return None

    def model(self, leaf_id: str | None) -> ModelChoice | None:
        """The model in force at the end of a path, or None if nothing set one."""
        head = self.last_setter(leaf_id, "model")
        if head is None:
            return None
        if head.message is not None:
            provider, model = head.message.provider, head.message.model
        else:
            provider, model = head.provider, head.model_id
        return {"provider": provider or "", "modelId": model or ""}

    def thinking_level(self, leaf_id: str | None) -> str:
        """The thinking level in force at the end of a path."""
        head = self.last_setter(leaf_id, "thinking")
        return (head.thinking_level if head else None) or "off"

    def _head_at(self, where: LineAt, setting: Setting) -> Head | None:
        offset, size = where
        if not size:
            return None
        try:
            head = decode_head(self._reader.log.read(offset, offset + size))
        except MalformedLine as error:
            raise NeedsWholeLog from error
        if sets(head) != setting:
            raise NeedsWholeLog
        return head

    # -- ids -----------------------------------------------------------------------------

    def is_taken(self, entry_id: str) -> bool:
        """Whether an id, of the form that we make, is in any line of the transcript."""
        tree = self._reader.tree
        if entry_id in tree.nodes or tree.complete:
            return entry_id in tree.nodes
        return self._reader.consistently(lambda: self._is_taken_earlier(entry_id))

    def _is_taken_earlier(self, entry_id: str) -> bool:
        reader = self._reader
        if reader.tree.complete:
            return entry_id in reader.tree.nodes
        side = reader.side_file()
        if side is not None and side.end >= reader.start:
            return side.find(entry_id) is not None
        if self._earlier is None:
            self._earlier = self._ids_before(reader.start)
        value = int(entry_id, 16)
        place = bisect_left(self._earlier, value)
        return place < len(self._earlier) and self._earlier[place] == value

    def _ids_before(self, stop: int) -> array[int]:
        """The ids in the lines before `stop`, as sorted numbers: four bytes for each."""
        found = array("I")
        for data, _ in whole_lines(self._reader.log, 0, stop):
            found.extend(int(entry_id, 16) for entry_id in _OUR_ID.findall(data))
        return array("I", sorted(found))
