"""One branch of a session as lines for a new file: copied verbatim, byte for byte."""

from __future__ import annotations

from strandline.transcript.reading import Reader
from strandline.transcript.tree import Node


def branch_lines(reader: Reader, leaf_id: str | None) -> list[bytes]:
    """The lines of the branch that ends at `leaf_id`, oldest first.

    Entries that stand aside of the conversation come along where a line of the branch
    names one as its parent, so that the copy reads as the original does.
    """
    copied: dict[str, bytes] = {}
    for node in [*reader.walk(leaf_id)][::-1]:
        for needed in reversed(_chain(reader, node, copied)):
            copied[needed.id] = reader.line(needed)
    return list(copied.values())


def _chain(reader: Reader, node: Node, copied: dict[str, bytes]) -> list[Node]:
    """The node, then the entries its line hangs on that are not copied yet, newest first."""
    chain: list[Node] = []
    current: Node | None = node
    while current is not None and current.id not in copied and current not in chain:
        chain.append(current)
        parent = current.head.parent_id
        current = reader.tree.nodes.get(parent) if isinstance(parent, str) else None
    return chain
