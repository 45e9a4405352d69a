"""A tool whose work blocks: it runs on a thread, and what the system refuses is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from strandline.errors import StrandlineError
from strandline.runtime.access import WorkspaceAccess
from strandline.runtime.tools import Tool, ToolCall, ToolOutput
from strandline.tools.paths import shown
from strandline.transcript.messages import JsonObject

_THREADS = ThreadPoolExecutor(4, thread_name_prefix="strandline-tool")
"""Threads of their own: a search of seconds must not hold up what is appended meanwhile."""

Work = Callable[[JsonObject], ToolOutput | str]
"""What a tool does with its arguments, which fit its schema. May block, may raise `OSError`."""


def blocking_tool(
    name: str,
    description: str,
    properties: JsonObject,
    work: Work,
    *,
    needs: WorkspaceAccess,
    required: Sequence[str] = (),
) -> Tool:
    """The tool `name`; `properties` are the JSON Schemas of its arguments by name."""
    parameters: JsonObject = {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }

    async def run(call: ToolCall) -> ToolOutput | str:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(_THREADS, _told, work, call.arguments)

    return Tool(name, description, parameters, run, needs)


def _told(work: Work, arguments: JsonObject) -> ToolOutput | str:
    try:
        return work(arguments)
    except OSError as error:
        where = shown(str(arguments.get("path", "."))) if "path" in arguments else "the workspace"
        raise StrandlineError(
            f"the system refuses {where}: {error.strerror or error}",
            remedy="see what is there with list, or try again if it was changed meanwhile",
        ) from error
