"""The context of the leaf, kept up to date: one more entry costs one entry.

Pure: it walks a `Reader` and remembers the result for the leaf it was asked about last.
Source: spec 1, Context of a path.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from strandline.clock import ms_from_iso
from strandline.transcript.context import ModelChoice, PathMessage, SessionContext
from strandline.transcript.messages import JsonObject, Message
from strandline.transcript.reading import Reader
from strandline.transcript.tree import Node


class LiveContext:
    """Builds `SessionContext`s for a reader, the one of the newest leaf incrementally."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._tree: object = None
        self._leaf: str | None = None
        self._items: list[PathMessage] = []

    def build(self, leaf_id: str | None) -> SessionContext:
        """The context of the path that ends at `leaf_id`."""
        reader = self._reader
        fresh = self._entries_since(leaf_id)
        if fresh is None:
            self._items = list(self._from_walk(leaf_id))
        else:
            for node in fresh:
                self._items.extend(_path_messages(node, reader))
        self._leaf, self._tree = leaf_id, reader.tree
        return SessionContext(
            items=self._items[:],
            leaf_id=leaf_id,
            find_model=lambda: _model(reader, leaf_id),
            find_thinking_level=lambda: _thinking_level(reader, leaf_id),
        )

    def _entries_since(self, leaf_id: str | None) -> Sequence[Node] | None:
        """What came after the remembered leaf, oldest first; None if that is no short way."""
        if leaf_id is None or self._leaf is None or self._tree is not self._reader.tree:
            return None
        added: list[Node] = []
        for node in self._reader.tree.walk(leaf_id):
            if node.id == self._leaf:
                return added[::-1]
            if node.head.type == "compaction":
                return None
            added.append(node)
            if len(added) > len(self._items) + 64:
                return None
        return None

    def _from_walk(self, leaf_id: str | None) -> Iterator[PathMessage]:
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


def _kept(walk: Iterator[Node], first_kept: str | None, reader: Reader) -> Iterator[PathMessage]:
    """What a compaction kept: from its first kept entry on; nothing if that is not on the path."""
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


def _path_messages(node: Node, reader: Reader) -> Iterator[PathMessage]:
    """The message that an entry puts into the context, if it puts one there."""
    if node.head.type not in _DERIVED:
        return
    message = _DERIVED[node.head.type](reader.data(node))
    if message is not None:
        yield PathMessage(node.id, message)


def _message(data: JsonObject) -> Message | None:
    message = data.get("message")
    return message if isinstance(message, dict) else None


def _custom_message(data: JsonObject) -> Message | None:
    message: Message = {"role": "custom"}
    for key in ("customType", "content", "display", "details"):
        if key in data:
            message[key] = data[key]
    return {**message, "timestamp": ms_from_iso(data.get("timestamp"))}


def _compaction(data: JsonObject) -> Message | None:
    return {
        "role": "compactionSummary",
        "summary": data.get("summary"),
        "tokensBefore": data.get("tokensBefore"),
        "timestamp": ms_from_iso(data.get("timestamp")),
    }


def _branch_summary(data: JsonObject) -> Message | None:
    if not data.get("summary"):
        return None
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


def _model(reader: Reader, leaf_id: str | None) -> ModelChoice | None:
    head = reader.last_setter(leaf_id, "model")
    if head is None:
        return None
    if head.message is not None:
        provider, model = head.message.provider, head.message.model
    else:
        provider, model = head.provider, head.model_id
    return {"provider": provider or "", "modelId": model or ""}


def _thinking_level(reader: Reader, leaf_id: str | None) -> str:
    head = reader.last_setter(leaf_id, "thinking")
    return (head.thinking_level if head else None) or "off"
