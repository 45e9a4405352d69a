"""Which entries set the model and the thinking level, and what a side file keeps of that."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from strandline.transcript.entries import Head
from strandline.transcript.store import LineAt, SideRow, Whereabouts
from strandline.transcript.tree import Tree

Setting = Literal["model", "thinking"]
NO_LINE: LineAt = (0, 0)


def sets(head: Head) -> Setting | None:
    """The setting that an entry sets, if it sets one (spec 1, Context of a path)."""
    if head.type == "thinking_level_change":
        return "thinking"
    if head.type == "model_change":
        return "model"
    if head.type == "message" and head.message and head.message.role == "assistant":
        return "model"
    return None


def side_rows(tree: Tree) -> Iterator[SideRow]:
    """The rows of a side file, from a complete tree without findings."""
    settings: dict[str | None, tuple[LineAt, LineAt]] = {None: (NO_LINE, NO_LINE)}
    for node in tree.nodes.values():
        parent = node.parent if isinstance(node.parent, str) else None
        model, thinking = settings[parent]
        own = sets(node.head)
        if own == "model":
            model = (node.offset, node.size)
        elif own == "thinking":
            thinking = (node.offset, node.size)
        settings[node.id] = model, thinking
        yield node.id, Whereabouts(node.offset, node.size, model, thinking)
