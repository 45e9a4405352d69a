"""The context of the leaf, kept up to date: one more entry costs one entry.

Pure: it walks a `Reader` and remembers the result for the leaf it was asked about last.
Source: spec 1, Context of a path.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

from strandline.clock import ms_from_iso
from strandline.transcript.codec import decode_object
from strandline.transcript.context import PathMessage
from strandline.transcript.garbage import collector_off
from strandline.transcript.messages import JsonObject, Message
from strandline.transcript.reading import Reader
from strandline.transcript.tree import Node

Kept = list["Node | PathMessage"]
"""Messages, those that nobody has looked at yet as the places of their entries."""


class MessagesSoFar(Sequence[PathMessage]):
    """The first messages of a list that only ever grows: a copy that costs nothing.

    A message is decoded when it is first looked at, and then for every copy.
    """

    def __init__(self, growing: Kept) -> None:
        self._growing = growing
        self._count = len(growing)

    def grew_from(self, earlier: object) -> bool:
        """Whether `earlier` was the same list when it had no more than this."""
        if not isinstance(earlier, MessagesSoFar) or earlier._growing is not self._growing:  # noqa: SLF001
            return False
        return len(earlier) <= self._count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[PathMessage]:
        with collector_off():
            return iter([self._at(place) for place in range(self._count)])

    @overload
    def __getitem__(self, index: int) -> PathMessage: ...
    @overload
    def __getitem__(self, index: slice) -> list[PathMessage]: ...
    def __getitem__(self, index: int | slice) -> PathMessage | list[PathMessage]:
        if isinstance(index, slice):
            return [self._at(place) for place in range(self._count)[index]]
        return self._at(range(self._count)[index])

    def _at(self, place: int) -> PathMessage:
        item = self._growing[place]
        if isinstance(item, Node):
            item = self._growing[place] = _decoded(item, decode_object(item.raw or b""))
        return item

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))


class LiveContext:
    """The messages on a path, for a reader; those of the newest leaf incrementally."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._tree: object = None
        self._leaf: str | None = None
        self._items: Kept = []

    def messages(self, leaf_id: str | None) -> Sequence[PathMessage]:
        """The messages that a model would see of the path that ends at `leaf_id`."""
        tree = self._reader.tree
        added = self._entries_since(leaf_id)
        if added is None:
            with collector_off():
                self._items = list(self._from_walk(leaf_id))
        else:
            self._items += [item for node in added for item in _path_messages(node, self._reader)]
        self._leaf, self._tree = leaf_id, tree
        return MessagesSoFar(self._items)

    def _entries_since(self, leaf_id: str | None) -> Sequence[Node] | None:
        """What came after the remembered leaf, oldest first; None if that is no short way."""
        tree = self._reader.tree
        if leaf_id is None or self._leaf is None or self._tree is not tree or tree.has_cycles:
            return None
        added: list[Node] = []
        for node in tree.walk(leaf_id):
            if node.id == self._leaf:
                return added[::-1]
            if node.head.type == "compaction":
                return None
            added.append(node)
            if len(added) > len(self._items) + 64:
                return None
        return None

    def _from_walk(self, leaf_id: str | None) -> Iterator[Node | PathMessage]:
        """Messages oldest first: the last compaction's summary, what it kept, what followed."""
        reader = self._reader
        after: list[Node] = []
        walk = reader.walk(leaf_id)
        for node in walk:
            if node.head.type == "compaction":
                yield from _path_messages(node, reader)
                yield from _kept(walk, node.head.first_kept_entry_id, reader)
                break
            after.append(node)
        for node in reversed(after):
            yield from _path_messages(node, reader)


def _kept(
    walk: Iterator[Node], first_kept: str | None, reader: Reader
) -> Iterator[Node | PathMessage]:
    """What a compaction kept: from its first kept entry on; nothing if that is not on the path."""
    if first_kept is None or reader.node(first_kept) is None:
        return
    kept: list[Node] = []
    for node in walk:
        kept.append(node)
        if node.id == first_kept:
            break
    else:
        return
    for node in reversed(kept):
        if node.head.type != "compaction":
            yield from _path_messages(node, reader)


def _path_messages(node: Node, reader: Reader) -> Iterator[Node | PathMessage]:
    """The message that an entry puts into the context, if it puts one there.

    Where the line is at hand, the node stands for it: a long history is decoded as far as
    somebody looks. What is not in memory is read now, while the log is open.
    """
    kind = node.head.type
    if kind == "message" and node.head.message is None:
        return
    if kind == "branch_summary":
        data = reader.data(node)
        if data.get("summary"):
            yield _decoded(node, data)
    elif kind in _DERIVED:
        yield node if node.raw is not None else _decoded(node, reader.data(node))


def _decoded(node: Node, data: JsonObject) -> PathMessage:
    message = _DERIVED[node.head.type](data)
    if isinstance(message, dict) and isinstance(message.get("timestamp"), int | float):
        return PathMessage(node.id, message)
    return PathMessage(node.id, message, ms_from_iso(data.get("timestamp")))


def _message(data: JsonObject) -> Message:
    message: Message = data["message"]
    return message


def _custom_message(data: JsonObject) -> Message:
    message: Message = {"role": "custom"}
    for key in ("customType", "content", "display", "details"):
        if key in data:
            message[key] = data[key]
    return {**message, "timestamp": ms_from_iso(data.get("timestamp"))}


def _compaction(data: JsonObject) -> Message:
    return {
        "role": "compactionSummary",
        "summary": data.get("summary"),
        "tokensBefore": data.get("tokensBefore"),
        "timestamp": ms_from_iso(data.get("timestamp")),
    }


def _branch_summary(data: JsonObject) -> Message:
    return {
        "role": "branchSummary",
        "summary": data["summary"],
        "fromId": data.get("fromId"),
        "timestamp": ms_from_iso(data.get("timestamp")),
    }


_DERIVED = {
    "message": _message,
    "custom_message": _custom_message,
    "compaction": _compaction,
    "branch_summary": _branch_summary,
}
