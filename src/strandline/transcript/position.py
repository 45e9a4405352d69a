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
from typing import Final

import msgspec
from msgspec import UNSET

from strandline.transcript.entries import KNOWN_TYPES, MARKER_TYPES, Head


class Beyond(Enum):
    """A parent that only earlier lines can tell."""

    BEYOND = "beyond"


BEYOND: Final = Beyond.BEYOND
Parent = str | None | Beyond


class Position(msgspec.Struct, gc=False, frozen=True):
    """The two places: entry ids, or None for before the first entry."""

    leaf: str | None
    append_parent: str | None


START = Position(None, None)


class Step(msgspec.Struct, gc=False, frozen=True):
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
    named = head.parent_id
    parent: Parent = leaf if named is UNSET else named
    if head.type not in MARKER_TYPES and head.type in KNOWN_TYPES and head.append_mode != "side":
        if position is None or parent == position.append_parent:
            parent = leaf  # which is that entry, or where the conversation was moved to
        return Step(Position(entry_id, entry_id), parent)
    if head.type == "leaf":
        return _leaf_line(position, leaf, head, is_known)
    if head.type in KNOWN_TYPES and head.append_mode != "side":  # a label, a name
        moves = leaf == (None if named is UNSET else named)
        return Step(Position(entry_id, entry_id) if moves else position, parent)
    if head.type not in KNOWN_TYPES and named is UNSET:
        return Step(position, parent)
    return Step(position and Position(position.leaf, entry_id), parent)


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
