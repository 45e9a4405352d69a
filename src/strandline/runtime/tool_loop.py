"""Running the tools that an answer calls, one after the other.

Each result is appended as it comes, so that a run that is killed leaves what was done. A run
that is stopped leaves a result for every call: what did not run says so, and the next turn
works. Source: spec 4, A turn (Tools).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from strandline.clock import Clock
from strandline.runtime.events import Listener, ToolFinished, ToolStarted
from strandline.runtime.tools import Toolbox, ToolCall
from strandline.transcript.messages import JsonObject, Message

STOPPED = "(stopped by the person before it was done; its outcome is unknown)"
NOT_RUN = "(not run: the person stopped the turn before)"

Append = Callable[[Message], str]


@dataclass(frozen=True)
class ToolRun:
    """Runs the calls of a turn: for whom, with which tools, where results go."""

    toolbox: Toolbox
    append: Append
    listener: Listener
    clock: Clock
    agent_id: str
    session_key: str

    async def run(self, calls: Sequence[JsonObject]) -> None:
        """Run the calls in order, appending each result. Cancelling leaves none open."""
        for place, block in enumerate(calls):
            try:
                await self._run_one(block)
            except asyncio.CancelledError:
                await asyncio.shield(self._close(calls[place:]))
                raise

    async def refuse(self, calls: Sequence[JsonObject], why: str) -> None:
        """Answer calls without running them."""
        for block in calls:
            await asyncio.to_thread(self.append, self._refusal(block, why))

    async def _run_one(self, block: JsonObject) -> None:
        call = self._call(block)
        self.listener(ToolStarted(call.id, call.name, call.arguments))
        message = {**await self.toolbox.answer(call), "timestamp": self.clock.now_ms()}
        await asyncio.shield(asyncio.to_thread(self.append, message))
        self.listener(ToolFinished(call.id, call.name, message["isError"], message))

    async def _close(self, calls: Sequence[JsonObject]) -> None:
        for place, block in enumerate(calls):
            why = NOT_RUN if place else STOPPED
            await asyncio.to_thread(self.append, self._refusal(block, why))

    def _call(self, block: JsonObject) -> ToolCall:
        return ToolCall(
            str(block["id"]),
            str(block["name"]),
            block["arguments"],
            self.agent_id,
            self.session_key,
            self.clock.now_ms(),
        )

    def _refusal(self, block: JsonObject, why: str) -> Message:
        return {
            "role": "toolResult",
            "toolCallId": block["id"],
            "toolName": block["name"],
            "content": [{"type": "text", "text": why}],
            "isError": True,
            "timestamp": self.clock.now_ms(),
        }


def calls_in(message: Message) -> list[JsonObject]:
    """The tool calls of an answer that was finished."""
    return list(_calls(message)) if message.get("stopReason") == "toolUse" else []


def _calls(message: Message) -> Iterator[JsonObject]:
    content = message.get("content")
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and block.get("type") == "toolCall":
            yield block
