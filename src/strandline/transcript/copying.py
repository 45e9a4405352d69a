"""One branch of a session as lines for a new file: copied verbatim, byte for byte."""

from __future__ import annotations

from collections.abc import Iterator

from strandline.transcript.reading import Reader
from strandline.transcript.tree import Node, Tree


def branch_lines(reader: Reader, leaf_id: str | None) -> list[bytes]:
    """The lines of the branch that ends at `leaf_id`, in file order.

    Most often these are the lines of the path. Where an entry follows another one than
    its line names, since the conversation had been moved, the copy needs more lines to
    read as the original does.
    """
    path = [*reader.walk(leaf_id)][::-1]
    spoken = [reader.line(node) for node in path]
    lines: list[bytes] = []
    for nodes in _choices(reader.complete_tree(), path):
        lines = [reader.line(node) for node in sorted(nodes.values(), key=lambda n: n.offset)]
        if _path_of(lines) == spoken:
            break
    return lines


def _choices(tree: Tree, path: list[Node]) -> Iterator[dict[str, Node]]:
    """Ever more entries: path and named parents, moves among them, all that was written."""
    chosen: dict[str, Node] = {}
    for node in path:
        current: Node | None = node
        while current is not None and current.id not in chosen:
            chosen[current.id] = current
            named = current.head.parent_id
            current = tree.nodes.get(named) if isinstance(named, str) else None
    yield chosen
    end = path[-1].offset if path else 0
    before = {n.id: n for n in tree.nodes.values() if n.offset <= end}
    yield chosen | {
        n.id: n
        for n in before.values()
        if n.head.type == "leaf" and n.parent in chosen and n.head.append_parent_id in chosen
    }
    yield before


def _path_of(lines: list[bytes]) -> list[bytes | None]:
    """The lines of the path to the last one, as whoever opens the copy finds it."""
    copy = Tree(complete=True)
    copy.feed(b"".join(line + b"\n" for line in lines), 0)
    copy.settle()
    last = next(reversed(copy.nodes), None)
    return [node.raw for node in copy.walk(last)][::-1]
