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
    leaf: Parent = BEYOND if position is None else position.leaf
    parent: Parent = leaf if head.parent_id is UNSET else head.parent_id
    kind, here = head.type, Position(entry_id, entry_id)
    if kind == "leaf":
        return _leaf_line(position, leaf, head, is_known)
    if kind not in KNOWN_TYPES and head.parent_id is UNSET:
        return Step(position, parent)
    if kind not in KNOWN_TYPES or head.append_mode == "side":
        return Step(position and Position(position.leaf, entry_id), parent)
    if kind in {"label", "session_info"}:
        named = None if head.parent_id is UNSET else head.parent_id
        return Step(here if named == leaf else position, parent)
    if position is None:
        return Step(here, BEYOND)
    followed_a_detour = parent == position.append_parent != leaf
    return Step(here, leaf if followed_a_detour else parent)


def _leaf_line(position: Position | None, leaf: Parent, head: Head, is_known: IsKnown) -> Step:
    """A `leaf` line: the walk goes on at its target, and so does the conversation."""
    target = head.target_id
    known = target is None or (target is not UNSET and is_known(target))
    if known is None:
        return Step(None, BEYOND)
    if target is UNSET or not known:
        return Step(position, leaf, unknown_target=True)
    append_parent = target if head.append_parent_id is UNSET else head.append_parent_id
    return Step(Position(target, append_parent), target)
