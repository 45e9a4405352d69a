"""Where a conversation stands: the leaf, the append point, and how each line moves them.

Reading in file order keeps two places. *leaf* is where the conversation stands; *append
point* is the physical end of what was written. This module is the table of spec 1 ("Where
the conversation stands") and nothing else.

A reader that starts in the middle of a file does not know the two places yet. Any entry
that moves both to itself settles the question; until then the position is None and a
parent that would depend on it is `Beyond`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple

from msgspec import UNSET

from strandline.transcript.entries import KNOWN_TYPES, Head


class Beyond(Enum):
    """A parent that only earlier lines can tell."""

    BEYOND = "beyond"


BEYOND: Final = Beyond.BEYOND
Parent = str | None | Beyond


class Position(NamedTuple):
    """The two places: entry ids, or None for before the first entry."""

    leaf: str | None
    append_parent: str | None


START = Position(None, None)


class Step(NamedTuple):
    """What a line did: the position after it, the entry's parent on the walk to the root.

    `unknown_target` is True for a `leaf` line whose target is in no earlier line.
    """

    position: Position | None
    parent: Parent
    unknown_target: bool = False


IsKnown = Callable[[str], bool | None]
"""Whether an id is in an earlier line: None when that cannot be told yet."""


def advance(position: Position | None, head: Head, entry_id: str, is_known: IsKnown) -> Step:
    """How the line `head`, which holds entry `entry_id`, moves `position`."""
    own_parent = head.parent_id if head.parent_id is not UNSET else None
    kind, here = head.type, Position(entry_id, entry_id)
    if kind == "leaf":
        return _leaf_line(position, head, is_known)
    if kind not in KNOWN_TYPES and head.parent_id is UNSET:
        return Step(position, BEYOND if position is None else position.leaf)
    if kind not in KNOWN_TYPES or head.append_mode == "side":
        return Step(position and Position(position.leaf, entry_id), own_parent)
    if kind in {"label", "session_info"}:
        moves = position is not None and position.leaf == own_parent
        return Step(here if moves else position, own_parent)
    return Step(here, _logical_parent(position, own_parent))


def _logical_parent(position: Position | None, own_parent: str | None) -> Parent:
    """The parent of an ordinary entry: its own, or the leaf where it followed a detour."""
    if position is None:
        return BEYOND
    leaf, append_parent = position
    if own_parent is None or (own_parent == append_parent and leaf != append_parent):
        return leaf
    return own_parent


def _leaf_line(position: Position | None, head: Head, is_known: IsKnown) -> Step:
    """A `leaf` line: the walk goes on at its target, and so does the conversation."""
    target = head.target_id if head.target_id is not UNSET else None
    known = True if target is None else is_known(target)
    if known is None:
        return Step(None, target)
    if not known:
        return Step(position, BEYOND if position is None else position.leaf, unknown_target=True)
    append_parent = head.append_parent_id if head.append_parent_id is not UNSET else target
    return Step(Position(target, append_parent), target)
