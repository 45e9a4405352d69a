"""Running the tools that an answer calls, one after the other.

Each result is appended as it comes, so that a run that is killed leaves what was done. A run
that is stopped leaves a result for every call: what did not run says so, and the next turn
works. Source: spec 4, A turn (Tools).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from strandline.clock import Clock
from strandline.runtime.events import Listener, ToolFinished, ToolStarted
from strandline.runtime.finishing import cancellings, to_the_end
from strandline.runtime.tools import Toolbox, ToolCall
from strandline.transcript.messages import JsonObject, Message

STOPPED = "(stopped by the person before it was done; its outcome is unknown)"
NOT_RUN = "(not run: the person stopped the turn before)"
CUT_OFF = "(not run: the answer reached its limit, and the call may have been cut off)"

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
        left, running, asked_to_stop = deque(calls), False, cancellings()
        try:
            while left:
                running = True
                result = await self._result_of(left[0])
                left.popleft()
                running = False
                await to_the_end(asyncio.to_thread(self.append, result))
                call_id, name = result["toolCallId"], result["toolName"]
                self.listener(ToolFinished(call_id, name, result["isError"], result))
                _stop_if(cancellings() > asked_to_stop)
        except asyncio.CancelledError:
            await to_the_end(self._close(left, STOPPED if running else NOT_RUN))
            raise

    async def refuse(self, calls: Sequence[JsonObject], why: str) -> None:
        """Answer calls without running them."""
        await to_the_end(self._close(calls, why))

    async def _result_of(self, block: JsonObject) -> Message:
        call = self._call(block)
        self.listener(ToolStarted(call.id, call.name, call.arguments))
        return {**await self.toolbox.answer(call), "timestamp": self.clock.now_ms()}

    async def _close(self, calls: Iterable[JsonObject], why: str) -> None:
        for block in calls:
            await asyncio.to_thread(self.append, self._refusal(block, why))
            why = NOT_RUN if why == STOPPED else why

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


def _stop_if(asked: bool) -> None:  # noqa: FBT001 - its name reads as a sentence with it
    """End the turn although a tool has caught the `CancelledError` that was to end it."""
    if asked:
        raise asyncio.CancelledError


def calls_in(message: Message) -> list[JsonObject]:
    """The tool calls of an answer that was finished."""
    return list(_calls(message)) if message.get("stopReason") == "toolUse" else []


def calls_cut_off(message: Message) -> list[JsonObject]:
    """The tool calls of an answer that reached its limit: what they were to say is not known."""
    return list(_calls(message)) if message.get("stopReason") == "length" else []


def _calls(message: Message) -> Iterator[JsonObject]:
    content = message.get("content")
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and block.get("type") == "toolCall":
            yield block
