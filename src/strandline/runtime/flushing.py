"""The memory flush: before a conversation is summarised, its agent writes down what lasts.

One silent turn for each compaction cycle: the context and a prompt go to the model, which
writes to its workspace's memory. The exchange is no part of the conversation (the next
request would pay for it, and the summary would tell of it); it is kept in a custom entry,
which no model sees. A flush that fails is told and forgotten: it never holds up a person's
turn. Source: spec 3, Memory flush.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from functools import reduce

from strandline.clock import iso_from_ms
from strandline.context.assemble import assemble
from strandline.context.budget import Budget
from strandline.context.view import ViewMessage
from strandline.errors import StrandlineError
from strandline.runtime.agent import Agent
from strandline.runtime.events import Listener, MemoryFlushed, Notice
from strandline.runtime.model import Failed, Finished, ModelRequest
from strandline.runtime.spending import usage_sum
from strandline.runtime.tool_loop import calls_in
from strandline.runtime.tools import Toolbox, ToolCall
from strandline.transcript.context import PathMessage
from strandline.transcript.messages import JsonObject, Message, Usage
from strandline.transcript.session import Session

CUSTOM_TYPE = "strandline.memory-flush"
"""The custom entry that keeps what a flush did."""

WRITES_MEMORY = "memory_write"
ALLOWED = frozenset({WRITES_MEMORY, "memory_search", "read", "list", "search"})
"""The tools that run in a flush. The others are described all the same: a request with other
tools would miss the provider's cache."""

MOST_ROUNDS = 8


def can_flush(agent: Agent) -> bool:
    """Whether there is anything to write with: a tool for it, and a model that has tools."""
    settings, info = agent.flush, agent.info
    return settings.enabled and info.tools and WRITES_MEMORY in agent.toolbox.names


@dataclass
class Flush:
    """One flush of one session. `items` are the context that it looks back on."""

    session: Session
    agent: Agent
    budget: Budget
    listener: Listener
    session_key: str
    said: list[Message] = field(default_factory=list)
    notes: int = 0

    async def run(self, items: Sequence[PathMessage]) -> Usage | None:
        """Do it; returns what it used. Raises nothing but cancellation."""
        try:
            await self._converse(items)
        except StrandlineError as error:
            self.listener(Notice(f"the memory was not flushed: {error}"))
        usage = reduce(usage_sum, (message.get("usage") for message in self.said), None)
        await self._note(usage)
        self.listener(MemoryFlushed(self.notes, usage))
        return usage

    async def _converse(self, items: Sequence[PathMessage]) -> None:
        tools = self.agent.toolbox.only(lambda tool: tool.name in ALLOWED)
        prompt = self._prompt()
        room = self.agent.tokens.count(prompt)
        view = await asyncio.to_thread(self._view, items, room)
        messages = [said.message for said in view]
        self.said.append(prompt)
        for _ in range(MOST_ROUNDS):
            answer = await self._ask([*messages, *self.said])
            self.said.append(answer)
            calls = calls_in(answer)
            if not calls:
                return
            for block in calls:
                self.said.append(await self._answered(tools, block))

    def _view(self, items: Sequence[PathMessage], room: int) -> Sequence[ViewMessage]:
        smaller = replace(self.budget, limit=max(1, self.budget.limit - room))
        tokens = self.agent.tokens
        return assemble(items, budget=smaller, tokens=tokens, limit="oldest_turns").messages

    def _prompt(self) -> Message:
        now_ms = self.agent.clock.now_ms()
        # The date stands in the newest message: in the system prompt it would cost the cache.
        text = f"{self.agent.flush.prompt}\n\n(Now: {iso_from_ms(now_ms)})"
        return {"role": "user", "content": [{"type": "text", "text": text}], "timestamp": now_ms}

    async def _ask(self, messages: Sequence[Message]) -> Message:
        agent = self.agent
        system = "\n\n".join(filter(None, [agent.system_prompt, agent.flush.system_prompt]))
        answer_tokens = min(agent.info.max_output_tokens, max(1, self.budget.reserve // 2))
        request = ModelRequest(agent.info, system, messages, answer_tokens, agent.described_tools)
        async with aclosing(agent.model.stream(request)) as events:
            async for event in events:
                if isinstance(event, Finished):
                    return event.message
                if isinstance(event, Failed):
                    raise event.error
        raise StrandlineError(f"{agent.info.ref} ended its stream without an answer")

    async def _answered(self, tools: Toolbox, block: JsonObject) -> Message:
        call = ToolCall(
            str(block["id"]),
            str(block["name"]),
            block["arguments"],
            self.agent.id,
            self.session_key,
            self.agent.clock.now_ms(),
        )
        result = await tools.answer(call)
        self.notes += call.name == WRITES_MEMORY and not result["isError"]
        return result

    async def _note(self, usage: Usage | None) -> None:
        data = {"notes": self.notes, "messages": self.said, "usage": usage}
        with suppress(StrandlineError):  # a full disk is told by the turn that meets it
            await asyncio.to_thread(self.session.append_custom, CUSTOM_TYPE, data)
