"""The tree of an open session and the tips of its branches, for a chat."""

from __future__ import annotations

from collections.abc import Iterator

from strandline.cli.gist import kind_of, words_of
from strandline.cli.outline import outline
from strandline.cli.output import columns
from strandline.cli.words import cut
from strandline.transcript.session import Session

LINE_COLUMNS = 100


def tree_lines(session: Session) -> Iterator[str]:
    """The tree, an entry a line; ``»`` marks where the conversation stands."""
    for before, node in outline(session.tree()):
        mark = "»" if node.is_leaf else " "
        label = f" [{node.label}]" if node.label else ""
        yield _cut(f"{mark} {before}{_line(session, node.id, label)}")


def branch_lines(session: Session) -> Iterator[str]:
    """The tip of every branch; ``»`` marks the branch that the conversation is on."""
    path = set(session.path())
    for tip in session.tips():
        mark = "»" if tip in path else " "
        label = session.label(tip)
        yield _cut(f"{mark} {_line(session, tip, f' [{label}]' if label else '')}")


def _line(session: Session, entry_id: str, label: str) -> str:
    entry = session.entry(entry_id)
    return f"{entry_id}{label} {kind_of(entry)}: {words_of(entry)}"


def _cut(line: str) -> str:
    return cut(line, min(LINE_COLUMNS, columns()))
