"""What the copy of a branch takes over beyond its lines: where it stands, and its labels."""

from __future__ import annotations

from strandline.transcript.session import Session


def take_over(fork: Session, original: Session, end: str) -> None:
    """Let a copy stand where its branch ends, with the labels of the original.

    Labels that lines of other branches gave are given again.
    """
    if fork.leaf_id != end:
        fork.branch(end)
    here, there = original.labels(), fork.labels()
    if here == there:
        return
    for entry_id in fork.path():
        if here.get(entry_id) != there.get(entry_id):
            fork.append_label(entry_id, here.get(entry_id))
