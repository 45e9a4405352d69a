"""The shape of a complete tree: roots with children, tips of branches, common ancestors."""

from __future__ import annotations

from dataclasses import dataclass, field

from strandline.transcript.entries import MARKER_TYPES, Head
from strandline.transcript.tree import Tree


@dataclass(slots=True)
class TreeNode:
    """An entry of the tree that a person looks at. `on_path` is True from root to leaf."""

    id: str
    head: Head
    label: str | None
    on_path: bool
    is_leaf: bool
    bridged: bool
    children: list[TreeNode] = field(default_factory=list)


class Families:
    """Who follows whom directly, gone through once for as long as the tree stays the same."""

    def __init__(self) -> None:
        self._of: tuple[Tree, int] | None = None
        self._children: dict[object, list[str]] = {}

    def children(self, tree: Tree, parent: str | None) -> list[str]:
        """The ids of the entries that follow `parent`, in file order."""
        if self._of != (tree, len(tree.nodes)):
            self._of, self._children = (tree, len(tree.nodes)), {}
            for node in tree.nodes.values():
                self._children.setdefault(node.parent, []).append(node.id)
        return self._children.get(parent, [])[:]


def roots(tree: Tree) -> list[TreeNode]:
    """All entries as a forest; file order among siblings. Entries in a cycle hang nowhere."""
    leaf = tree.position.leaf if tree.position else None
    path = {node.id for node in tree.walk(leaf)}
    made = {
        node.id: TreeNode(
            node.id,
            node.head,
            tree.labels.get(node.id),
            node.id in path,
            node.id == leaf,
            node.bridged,
        )
        for node in tree.nodes.values()
    }
    top: list[TreeNode] = []
    for node in tree.nodes.values():
        parent = made.get(node.parent) if isinstance(node.parent, str) else None
        (parent.children if parent else top).append(made[node.id])
    return top


def tips(tree: Tree) -> list[str]:
    """Entries that no further entry follows, labels and the like not counted."""
    inner: set[str] = set()
    for node in tree.nodes.values():
        if node.head.type in MARKER_TYPES:
            continue
        parent = node.parent
        while isinstance(parent, str) and parent in tree.nodes and parent not in inner:
            inner.add(parent)
            if tree.nodes[parent].head.type not in MARKER_TYPES:
                break
            parent = tree.nodes[parent].parent
    return [
        node.id
        for node in tree.nodes.values()
        if node.id not in inner and node.head.type not in MARKER_TYPES
    ]


def common_ancestor(path: list[str], other: list[str]) -> str | None:
    """The last id that two paths from the root share."""
    shared: str | None = None
    for a, b in zip(path, other, strict=False):
        if a != b:
            break
        shared = a
    return shared
