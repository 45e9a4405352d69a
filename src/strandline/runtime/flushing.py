"""The memory flush: before a conversation is summarised, its agent writes down what lasts.

One silent turn for each compaction cycle: the context and a prompt go to the model, which
writes to its workspace's memory. The exchange is no part of the conversation (the next
request would pay for it, and the summary would tell of it); it is kept in a custom entry,
which no model sees. A flush that fails is told and forgotten: it never holds up a person's
turn. Source: spec 3, Memory flush.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace

from strandline.clock import iso_from_ms
from strandline.context.assemble import within
from strandline.context.budget import Budget
from strandline.context.shorten import shorten_message
from strandline.context.view import View
from strandline.errors import ModelError, StrandlineError
from strandline.runtime.agent import Agent
from strandline.runtime.cache_marks import cache_marks
from strandline.runtime.events import Listener, MemoryFlushed, Notice
from strandline.runtime.finishing import to_the_end
from strandline.runtime.fitting import Fitting
from strandline.runtime.model import Failed, Finished, ModelRequest
from strandline.runtime.spending import usage_sum
from strandline.runtime.tool_loop import calls_in
from strandline.runtime.tools import Toolbox, ToolCall
from strandline.transcript.messages import JsonObject, Message, Usage
from strandline.transcript.session import Session

CUSTOM_TYPE = "strandline.memory-flush"
"""The custom entry that keeps what a flush did."""

WRITES_MEMORY = "memory_write"
ALLOWED = frozenset({WRITES_MEMORY, "memory_search", "read", "list", "search"})
"""The tools that run in a flush. The others are described all the same: a request with other
tools would miss the provider's cache."""

MOST_ROUNDS = 8
MOST_HALVINGS = 3
"""So often the context becomes smaller because the model refuses its size."""

MOST_S = 120.0
"""A flush that takes longer is stopped: a person may be waiting for it."""


def can_flush(agent: Agent) -> bool:
    """Whether there is anything to write with: a tool for it, and a model that has tools."""
    settings, info = agent.flush, agent.info
    return settings.enabled and info.tools and WRITES_MEMORY in agent.toolbox.names


def looked_back_on(view: View) -> View:
    """What of a context a flush is shown: all but a message that waits for its answer."""
    end = len(view.messages)
    while end and view.messages[end - 1].message.get("role") == "user":
        end -= 1
    return View(view.messages[:end])


@dataclass
class Flush:
    """One flush of one session, whose context `fitting` looks at: it begins as a turn's does.

    `usage` is what it used so far. It counts as `done` as soon as the model has answered,
    whatever fails later: what is left of it is not worth a second one.
    """

    fitting: Fitting
    listener: Listener
    said: list[Message] = field(default_factory=list)
    notes: int = 0
    usage: Usage | None = None
    done: bool = False
    addition: str = ""
    budget: Budget = field(init=False)

    @property
    def agent(self) -> Agent:
        """Whose memory it is."""
        return self.fitting.agent

    async def run(self) -> None:
        """Do it. Raises nothing but cancellation and `EngineError`."""
        looked = await self.fitting.look()
        self.budget, self.addition = self.fitting.budget, looked.addition
        told = looked_back_on(looked.view)
        if not told.messages:
            return
        try:
            async with asyncio.timeout(MOST_S):
                await self._converse(told)
        except TimeoutError:
            self._missed(f"it took more than {MOST_S:g} s")
        except StrandlineError as error:
            self._missed(str(error))
        finally:
            if self.done:
                await to_the_end(asyncio.to_thread(self._keep))
        if self.done:
            self.listener(MemoryFlushed(self.notes, self.usage))

    @property
    def _session(self) -> Session:
        return self.fitting.memory.session

    def _missed(self, why: str) -> None:
        self.listener(Notice(f"the memory was not flushed{' to the end' * self.done}: {why}"))

    async def _converse(self, told: View) -> None:
        tools = self.agent.toolbox.only(lambda tool: tool.name in ALLOWED)
        self.said.append(self._prompt())
        for _ in range(MOST_ROUNDS):
            answer = await self._answer(told)
            self.said.append(answer)
            calls = calls_in(answer)
            if not calls:
                return
            for block in calls:
                self.said.append(await self._answered(tools, block))

    async def _answer(self, told: View) -> Message:
        """The next answer; to less of the context where the model refuses its size."""
        halvings = 0
        while True:
            view = await asyncio.to_thread(self._view, told)
            try:
                return await self._ask(view)
            except ModelError as error:
                if error.kind != "overflow" or halvings >= MOST_HALVINGS:
                    raise
            halvings += 1
            self.budget = replace(self.budget, limit=self.budget.limit // 2)

    def _view(self, told: View) -> View:
        tokens = self.agent.tokens
        limit = self.budget.view_limit - sum(map(tokens.count, self.said))
        smaller = replace(self.budget, limit=max(1, limit))
        return within(told, budget=smaller, tokens=tokens, limit="oldest_turns")

    def _prompt(self) -> Message:
        now_ms = self.agent.clock.now_ms()
        # The date stands in the newest message: in the system prompt it would cost the cache.
        text = f"{self.agent.flush.prompt}\n\n(Now: {iso_from_ms(now_ms)})"
        return {"role": "user", "content": [{"type": "text", "text": text}], "timestamp": now_ms}

    async def _ask(self, view: View) -> Message:
        agent = self.agent
        parts = [self.addition, agent.system_prompt, agent.flush.system_prompt]
        system = "\n\n".join(filter(None, parts))
        shown = self.fitting.memory.thoughts.shown
        said = (shown(agent.info, each.message) for each in view.messages)
        messages = [*said, *self.said]
        room = self.budget.answer_tokens(self.budget.limit, agent.info.max_output_tokens)
        request = ModelRequest(
            agent.info,
            system,
            messages,
            room,
            agent.described_tools,
            cache=cache_marks(agent.provider_cache, self._session.session_id, len(messages)),
        )
        async with aclosing(agent.model.stream(request)) as events:
            async for event in events:
                if isinstance(event, Finished):
                    self._spend(event.message)
                    self.done = True
                    return event.message
                if isinstance(event, Failed):
                    self._spend(event.partial)
                    raise event.error
        raise StrandlineError(f"{agent.info.ref} ended its stream without an answer")

    def _spend(self, message: Message | None) -> None:
        self.usage = usage_sum(self.usage, message.get("usage") if message else None)

    async def _answered(self, tools: Toolbox, block: JsonObject) -> Message:
        call = ToolCall(
            str(block["id"]),
            str(block["name"]),
            block["arguments"],
            self.agent.id,
            self.fitting.memory.engine.key,
            self.agent.clock.now_ms(),
        )
        result = await tools.answer(call)
        self.notes += call.name == WRITES_MEMORY and not result["isError"]
        cap, tokens = self.budget.tool_result_cap, self.agent.tokens
        return await asyncio.to_thread(shorten_message, result, cap, tokens)

    def _keep(self) -> None:
        data = {"notes": self.notes, "messages": self.said, "usage": self.usage}
        with suppress(StrandlineError):  # a full disk is told by the turn that meets it
            self._session.append_custom(CUSTOM_TYPE, data)
