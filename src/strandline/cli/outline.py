"""The tree of a transcript as lines: indented where branches leave, nowhere else.

Where a branch leaves, what left is drawn aside and the active branch (or the newest) goes
on in its column, so that a long conversation with many retries stays readable. Nothing
here recurses: a conversation may be a hundred thousand entries deep.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from strandline.transcript.entries import MARKER_TYPES
from strandline.transcript.shape import TreeNode

MOST_INDENT = 60
"""Branches of branches of branches are drawn no further to the right than this."""


def in_order(roots: Sequence[TreeNode]) -> Iterator[tuple[TreeNode, str | None]]:
    """Every node with the id of its parent, parents first."""
    stack: list[tuple[TreeNode, str | None]] = [(root, None) for root in reversed(roots)]
    while stack:
        node, parent = stack.pop()
        yield node, parent
        stack.extend((child, node.id) for child in reversed(node.children))


def outline(roots: Sequence[TreeNode]) -> Iterator[tuple[str, TreeNode]]:
    """What to draw before each node, and the node, from top to bottom.

    Labels, names and leaf lines are left out where nothing hangs on them.
    """
    children = _visible_children(roots)
    tops = [root for root in roots if root.id in children]
    stack = _forked(tops, "")
    while stack:
        node, before, column = stack.pop()
        while True:
            yield before, node
            before, below = column, children[node.id]
            if len(below) != 1:
                break
            node = below[0]
        stack.extend(_forked(below, column))


def _visible_children(roots: Sequence[TreeNode]) -> dict[str, list[TreeNode]]:
    """The children to draw of every node that is drawn."""
    visible: dict[str, list[TreeNode]] = {}
    for node, _ in reversed(list(in_order(roots))):
        below = [child for child in node.children if child.id in visible]
        if below or node.is_leaf or node.head.type not in MARKER_TYPES:
            visible[node.id] = below
    return visible


def _forked(nodes: list[TreeNode], column: str) -> list[tuple[TreeNode, str, str]]:
    """Siblings as a stack: those aside come off first, then the one that goes on."""
    if not nodes:
        return []
    main = next((node for node in nodes if node.on_path), nodes[-1])
    deeper = column if len(column) >= MOST_INDENT else column + "│ "
    aside = [(node, column + "├─", deeper) for node in reversed(nodes) if node is not main]
    return [(main, column, column), *aside]
