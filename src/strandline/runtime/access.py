"""What tools may do in a workspace (source: spec 4, A turn: Tools)."""

from __future__ import annotations

from typing import Literal, get_args

WorkspaceAccess = Literal["none", "ro", "rw"]
"""Nothing, read, or read and write."""

ACCESSES: tuple[WorkspaceAccess, ...] = get_args(WorkspaceAccess)
"""Each allows what those before it do."""


def allows(access: WorkspaceAccess, needs: WorkspaceAccess) -> bool:
    """Whether a tool that `needs` so much may be offered where there is this `access`."""
    return ACCESSES.index(needs) <= ACCESSES.index(access)


def stricter(first: WorkspaceAccess, second: WorkspaceAccess) -> WorkspaceAccess:
    """The one of the two that allows less."""
    return min(first, second, key=ACCESSES.index)
