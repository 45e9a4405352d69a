"""A conversation that goes on for days, and its requests as they were on the wire."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from strandline.context.view import View
from strandline.runtime.conversation import Conversation
from strandline.runtime.events import (
    CacheUsed,
    CompactionReceipt,
    LayerSummarised,
    MemoryFlushed,
    PrefixChange,
    TurnEvent,
)
from strandline.runtime.model import ModelRequest
from strandline.runtime.prefix_watch import PrefixWatch
from strandline.runtime.silence import Occasion
from strandline.runtime.turn_result import TurnResult
from strandline.testing import (
    CountingIds,
    RecordedRequest,
    Reply,
    ScriptedModelServer,
    SimulatedClock,
)
from strandline.testing.wires import find_wire, model_of
from strandline.transcript.messages import JsonObject
from strandline.wiring import State, open_state

KEY = "agent:main:main"
MINUTE_MS = 60_000
PATHS = {
    "openai-completions": "/v1",
    "openai-responses": "/v1",
    "anthropic-messages": "",
    "google-generative-ai": "/v1beta",
}
MODELS = {
    "openai-completions": ("chat-one", "chat-two"),
    "openai-responses": ("responses-one", "responses-two"),
    "anthropic-messages": ("claude-sonnet-4-5", "claude-haiku-4-5"),
    "google-generative-ai": ("gemini-3-one", "gemini-3-two"),
}
FLUSH = "Write down what lasts of this."


class Prompt(NamedTuple):
    """What a provider's cache sees of a request, part by part, as JSON."""

    tools: str
    system: str
    messages: tuple[str, ...]


def prompt_of(body: JsonObject) -> Prompt:
    """The prompt of a request in any of the formats, without Anthropic's marks."""
    body = without_marks(body)
    system = body.get("system", body.get("instructions", body.get("systemInstruction", "")))
    said = next(body[key] for key in ("messages", "input", "contents") if key in body)
    if said and said[0].get("role") in {"system", "developer"}:
        system, said = said[0], said[1:]
    return Prompt(text(body.get("tools")), text(system), tuple(map(text, said)))


def text(part: Any) -> str:
    return json.dumps(part, ensure_ascii=False)


def without_marks(part: Any) -> Any:
    if isinstance(part, dict):
        return {k: without_marks(v) for k, v in part.items() if k != "cache_control"}
    return [without_marks(each) for each in part] if isinstance(part, list) else part


@dataclass
class Call:
    """A request of the conversation itself, when and under which circumstances it was made.

    `cuts` counts the compactions before it, `opened` how often the conversation was opened,
    `level` is how hard its model thinks. `view` is what it was made of; what was left out of it
    holds until the next call. `used` is what was told of the cache with its answer.
    """

    model: str
    body: JsonObject
    prompt: Prompt
    at_ms: int
    cuts: int
    opened: int
    level: str
    heartbeat: bool
    view: View
    used: CacheUsed | None = None


@dataclass
class Talk:
    """The conversation of `KEY`, opened through the settings as the command line opens it."""

    folder: Path
    server: ScriptedModelServer
    clock: SimulatedClock
    api: str
    settings: JsonObject
    calls: list[Call] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    flushes: list[Reply] = field(default_factory=list)
    receipts: list[CompactionReceipt] = field(default_factory=list)
    flushed: list[MemoryFlushed] = field(default_factory=list)
    layers: list[LayerSummarised] = field(default_factory=list)
    flush_calls: list[RecordedRequest] = field(default_factory=list)
    call_ms: int = 2_000
    opened: int = 0
    level: str = "off"
    heartbeat: bool = False
    key: str = KEY
    ids: CountingIds = field(default_factory=CountingIds)
    view: View = field(default_factory=lambda: View(()))

    def __post_init__(self) -> None:
        self.server.script = self.script
        (self.folder / "strandline.json").write_text(json.dumps(self.settings))
        self.workspace.mkdir(exist_ok=True)
        self.open()

    @property
    def workspace(self) -> Path:
        return self.folder / "workspace"

    def state(self) -> State:
        return open_state(self.folder, {}, clock=self.clock, ids=self.ids)

    def open(self, model: str | None = None) -> None:
        """As a process does that begins."""
        self.talk: Conversation = self.state().conversation("main", self.key, model, holder="test")
        self.opened += 1

    async def restart(self) -> None:
        await self.talk.settle()
        await self.talk.close()
        self.open()

    async def use(self, number: int) -> None:
        """Let the first or the second model answer, as somebody wants it who opened anew."""
        self.opened += 1
        await self.talk.use(self.state().agent("main", f"mine/{MODELS[self.api][number]}"))

    async def think(self, level: Any) -> None:
        self.level = level
        await self.talk.set_thinking(level)

    async def say(self, words: str, *replies: Reply, heartbeat: bool = False) -> TurnResult:
        """A turn that is answered with these replies; waits for what follows it."""
        self.replies, self.heartbeat = list(replies), heartbeat
        self.look_on(self.talk._standing.memory.watch)
        occasion = Occasion(background=True, heartbeat=True) if heartbeat else None
        result = await self.talk.say(words, listener=self.hear, occasion=occasion)
        await self.talk.settle()
        return result

    def look_on(self, watch: PrefixWatch) -> None:
        """Note the views of requests, which the watch gets to see."""
        seen = watch.sends

        def sends(request: ModelRequest, view: View, addition: str = "") -> PrefixChange | None:
            self.view = view
            return seen(request, view, addition)

        if "sends" not in vars(watch):
            watch.sends = sends  # type: ignore[method-assign]

    def hear(self, event: TurnEvent) -> None:
        match event:
            case CacheUsed():
                self.calls[-1].used = event
            case CompactionReceipt() if event not in self.receipts:
                self.receipts.append(event)
            case MemoryFlushed():
                self.flushed.append(event)
            case LayerSummarised():
                self.layers.append(event)

    def script(self, request: RecordedRequest) -> Reply:
        wire = find_wire(request.path)
        assert wire is not None
        if FLUSH in wire.last_user_text(request.body) or FLUSH in text(request.body):
            self.flush_calls.append(request)
            return self.flushes.pop(0) if self.flushes else Reply("NO_REPLY")
        prompt = prompt_of(request.body)
        if "keep the memory of an assistant" in prompt.system:
            return Reply("## Facts\n- the lanterns of the harbour are lit\n")
        self.calls.append(
            Call(
                model_of(request),
                request.body,
                prompt,
                self.clock.now_ms(),
                len(self.receipts),
                self.opened,
                self.level,
                self.heartbeat,
                self.view,
            )
        )
        self.clock.advance(self.call_ms)
        return self.replies.pop(0) if self.replies else Reply("Fine.")


TalkFor = Callable[..., Talk]


def settings_for(
    api: str, server: ScriptedModelServer, window: int, own: dict[str, Any]
) -> JsonObject:
    models = [
        {"id": name, "contextWindow": window, "maxTokens": 2_000, "reasoning": True}
        for name in MODELS[api]
    ]
    provider = {
        "baseUrl": server.root_url + PATHS[api],
        "apiKey": "a key",
        "api": api,
        "models": models,
    }
    defaults = {"model": {"primary": f"mine/{MODELS[api][0]}"}, **own}
    return {"models": {"providers": {"mine": provider}}, "agents": {"defaults": defaults}}


@pytest.fixture
def talk_for(tmp_path: Path) -> Iterator[TalkFor]:
    """Opens conversations, each with a state directory, a server and a clock of its own.

    `own` are the agent's settings, `token_factor` how much finer the server counts.
    """
    with ExitStack() as servers:

        def make(api: str, window: int = 200_000, token_factor: float = 1.0, **own: Any) -> Talk:
            clock = SimulatedClock()
            made = ScriptedModelServer(now_ms=clock.now_ms, token_factor=token_factor)
            server = servers.enter_context(made)
            folder = tmp_path / server.root_url.rpartition(":")[2]
            folder.mkdir()
            return Talk(folder, server, clock, api, settings_for(api, server, window, own))

        yield make
