"""The built-in tools of a workspace, put together. Source: spec 4, A turn (Tools)."""

from __future__ import annotations

from datetime import tzinfo
from pathlib import Path

from strandline.clock import Clock
from strandline.runtime.access import WorkspaceAccess, allows
from strandline.runtime.tools import Tool
from strandline.tools.listing import list_tool
from strandline.tools.memory import memory_search_tool, memory_write_tool
from strandline.tools.reading import read_tool
from strandline.tools.searching import search_tool
from strandline.tools.workspace import Workspace
from strandline.tools.writing import edit_tool, write_tool


def builtin_tools(
    workspace: Path, access: WorkspaceAccess, clock: Clock, *, timezone: tzinfo | None = None
) -> list[Tool]:
    """The tools that `access` to the folder `workspace` allows: all, the reading ones, or none.

    `clock` says which day a note belongs to, in `timezone` (None: that of the process).
    The folder need not exist: the first write makes it.
    """
    if access == "none":
        return []
    where = Workspace(workspace)
    tools = [
        edit_tool(where),
        list_tool(where),
        memory_search_tool(where),
        memory_write_tool(where, clock, timezone),
        read_tool(where),
        search_tool(where),
        write_tool(where),
    ]
    return [tool for tool in tools if allows(access, tool.needs)]
