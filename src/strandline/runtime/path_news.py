"""What is new on a path, for whoever was told of it before, and what it belongs to.

A message is known by the id of its entry. Source: spec 3, Engine slot; cases/faults, L1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from strandline.context.tokens import MessageTokens
from strandline.runtime.answers import text_of
from strandline.runtime.inbound import is_heartbeat
from strandline.transcript.context import PathMessage
from strandline.transcript.live_context import MessagesSoFar
from strandline.transcript.session import Session


def grew(told: Sequence[PathMessage], items: Sequence[PathMessage]) -> bool:
    """Whether `items` are what was told, and perhaps more behind it."""
    if isinstance(items, MessagesSoFar) and items.grew_from(told):
        return True
    if len(told) > len(items):
        return False
    return all(one.entry_id == other.entry_id for one, other in zip(told, items, strict=False))


class PathTokens:
    """What all messages of a path take, ours; where the path grew, one more costs one."""

    def __init__(self) -> None:
        self._items: Sequence[PathMessage] = ()
        self._total = 0

    def of(self, items: Sequence[PathMessage], tokens: MessageTokens) -> int:
        """The tokens of all messages of `items`."""
        if not grew(self._items, items):
            self._items, self._total = (), 0
        for item in items[len(self._items) :]:
            self._total += tokens.of(item.entry_id, item.message)
        self._items = items
        return self._total


def is_of_heartbeat(items: Sequence[PathMessage], place: int) -> bool:
    """Whether the message at `place` belongs to a heartbeat: asked by it, or part of its answer."""
    for before in range(place, -1, -1):
        message = items[before].message
        if message.get("role") == "user":
            return is_heartbeat(message)
    return False


def stretches(
    new: Sequence[PathMessage], *, beat: bool
) -> Iterator[tuple[bool, list[PathMessage]]]:
    """Messages in order, those of heartbeats apart from the others; `beat` is what went before."""
    marked: list[tuple[bool, PathMessage]] = []
    for item in new:
        if item.message.get("role") == "user":
            beat = is_heartbeat(item.message)
        marked.append((beat, item))
    for is_beat, stretch in groupby(marked, key=lambda each: each[0]):
        yield is_beat, [item for _, item in stretch]


def added_since(items: Sequence[PathMessage], newest_before: str | None) -> list[PathMessage]:
    """What came behind the entry `newest_before`; all but a summary where that is gone."""
    added: list[PathMessage] = []
    for item in reversed(items):
        if item.entry_id == newest_before:
            break
        added.append(item)
    return [item for item in reversed(added) if item.message.get("role") != "compactionSummary"]


def newest_before_request(session: Session) -> str | None:
    """The entry of the message before the newest that is a user's."""
    items = session.build_context().items
    for place in range(len(items) - 1, 0, -1):
        if items[place].message.get("role") == "user":
            return items[place - 1].entry_id
    return None


def newest(items: Sequence[PathMessage], role: str) -> PathMessage | None:
    """The newest message of a role."""
    return next((item for item in reversed(items) if item.message.get("role") == role), None)


def prompt(items: Sequence[PathMessage]) -> str | None:
    """The text of the newest message of a user."""
    asked = newest(items, "user")
    return None if asked is None else text_of(asked.message)
