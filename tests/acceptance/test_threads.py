"""A backend that keeps the conversation: the context goes there once, and then what is new.

An engine from a linked folder, settings from a file, a scripted Responses server that keeps
threads (and refuses one that it does not know). Source: spec 3, Engine slot.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from strandline.errors import EngineUnavailable
from strandline.runtime.conversation import Conversation
from strandline.runtime.tools import Tool
from strandline.testing import CountingIds, Reply, ScriptedModelServer, SimulatedClock
from strandline.testing.reply import ToolCall
from strandline.wiring import open_state

ENGINE = """
from pathlib import Path
from strandline.context.engine import (
    AssembleResult, ContextProjection, EngineInfo, LegacyEngine)


class Threads(LegacyEngine):
    info = EngineInfo("threads", "Threads", host_requirements=%r)

    def __init__(self, context):
        self._said = Path(context.workspace_dir) / "epoch.txt"

    async def assemble(self, request):
        epoch, fingerprint = self._said.read_text().split()
        projection = ContextProjection("thread_bootstrap", epoch, fingerprint)
        return AssembleResult(request.messages, 10, context_projection=projection)


def register(api):
    api.register_context_engine("threads", Threads)
"""


@dataclass
class Home:
    """A state directory with the engine; `api` is the format of its model."""

    folder: Path
    server: ScriptedModelServer

    def configure(self, *, api: str = "openai-responses", needs: tuple[str, ...] = ()) -> None:
        plugin = self.folder / "threads"
        plugin.mkdir(exist_ok=True)
        (plugin / "threads_of_it.py").write_text(ENGINE % (needs,))
        manifest = {"id": "threads", "module": "threads_of_it"}
        (plugin / "strandline-plugin.json").write_text(json.dumps(manifest))
        model, work = {"id": "one", "contextWindow": 32_000, "maxTokens": 500}, self.folder / "work"
        provider = {"baseUrl": self.server.base_url, "apiKey": "k", "api": api, "models": [model]}
        settings = {
            "models": {"providers": {"mine": provider}},
            "agents": {"defaults": {"model": {"primary": "mine/one"}, "workspace": str(work)}},
            "plugins": {
                "load": {"paths": ["threads"]},
                "entries": {"threads": {"enabled": True}},
                "slots": {"contextEngine": "threads"},
            },
        }
        (self.folder / "strandline.json").write_text(json.dumps(settings))

    def epoch(self, said: str) -> None:
        (self.folder / "work").mkdir(exist_ok=True)
        (self.folder / "work" / "epoch.txt").write_text(said)

    def conversation(self) -> Conversation:
        """As in a new process."""
        clock = SimulatedClock()
        state = open_state(self.folder, {}, clock=clock, ids=CountingIds())
        state.register_tool(Tool("look", "It looks.", {"type": "object"}, lambda _: "seen"))
        return state.conversation("main", "agent:main:main", holder="a test")

    @asynccontextmanager
    async def talking(self) -> AsyncIterator[Conversation]:
        conversation = self.conversation()
        try:
            yield conversation
        finally:
            await conversation.close()

    def sent(self, number: int = -1) -> tuple[list[Any], str | None]:
        """What a request said, as roles (or kinds) and texts, and after which answer."""
        body = self.server.requests[number].body
        return [_said(item) for item in body["input"]], body.get("previous_response_id")


def _said(item: dict[str, Any]) -> tuple[str, str]:
    if item.get("type") == "function_call_output":
        return "result", str(item["output"])
    content = item.get("content", "")
    text = content if isinstance(content, str) else "".join(b["text"] for b in content)
    return str(item.get("role", item.get("type"))), text


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    with ScriptedModelServer() as server:
        made = Home(tmp_path, server)
        made.configure()
        made.epoch("e1 f1")
        yield made
    assert server.refused == []


async def test_the_context_goes_once_and_then_only_what_is_new(home: Home) -> None:
    async with home.talking() as conversation:
        await conversation.say("one")
        await conversation.say("two")
        await conversation.say("three")
        answer = conversation.session.build_context().messages[-1]
    assert home.sent(0) == ([("user", "one")], None)
    assert home.sent(1) == ([("user", "two")], "resp_00000001")
    assert home.sent(2) == ([("user", "three")], "resp_00000002")
    assert all(r.body["store"] is True for r in home.server.requests)
    assert answer["thread"] == {"epoch": "e1", "fingerprint": "f1"}
    assert answer["responseId"] == "resp_00000003"
    assert len(home.server.kept.threads["resp_00000003"]) == 6


@pytest.mark.parametrize("said", ["e2 f1", "e1 f2"])
async def test_another_epoch_or_fingerprint_begins_with_the_context_as_the_developers(
    home: Home, said: str
) -> None:
    async with home.talking() as conversation:
        await conversation.say("one")
        home.epoch(said)
        await conversation.say("two")
        await conversation.say("three")
    items, after = home.sent(1)
    assert (items[0][0], items[1:], after) == ("developer", [("user", "two")], None)
    assert "[user] one\n[assistant] I heard 3 characters." in items[0][1]
    assert home.sent(2) == ([("user", "three")], "resp_00000002")


async def test_a_loop_of_tools_stays_in_the_thread(home: Home) -> None:
    calls = [ToolCall("look", {}, "call_1"), ToolCall("look", {}, "call_2")]
    home.server.script = [Reply("I look.", tool_calls=calls), Reply("Found.")]
    async with home.talking() as conversation:
        await conversation.say("one")
        await conversation.say("two")
    assert home.sent(1) == ([("result", "seen"), ("result", "seen")], "resp_00000001")
    assert home.sent(2) == ([("user", "two")], "resp_00000002")


async def test_after_a_restart_the_thread_is_found_in_the_transcript(home: Home) -> None:
    async with home.talking() as conversation:
        await conversation.say("one")
    async with home.talking() as conversation:
        await conversation.say("two")
    assert home.sent() == ([("user", "two")], "resp_00000001")


async def test_a_branch_goes_on_from_its_own_point(home: Home) -> None:
    async with home.talking() as conversation:
        await conversation.say("one")
        point = conversation.session.leaf_id
        await conversation.say("two")
        await conversation.branch(point)
        await conversation.say("two otherwise")
        await conversation.say("three")
    assert home.sent(2) == ([("user", "two otherwise")], "resp_00000001")
    assert home.sent(3) == ([("user", "three")], "resp_00000003")
    last = home.server.kept.threads["resp_00000004"]
    assert "two" not in [_said(item)[1] for item in last]


async def test_a_reset_begins_a_thread_of_its_own(home: Home) -> None:
    async with home.talking() as conversation:
        await conversation.say("one")
        await conversation.reset()
        await conversation.say("two")
    assert home.sent() == ([("user", "two")], None)


@pytest.fixture
def forgets(tmp_path: Path) -> Iterator[Home]:
    """The same, where the server will refuse."""
    with ScriptedModelServer() as server:
        made = Home(tmp_path, server)
        made.configure()
        made.epoch("e1 f1")
        yield made


async def test_a_thread_that_the_server_lost_is_begun_anew_in_the_same_turn(forgets: Home) -> None:
    calls = Reply("I look.", tool_calls=[ToolCall("look", {})])
    forgets.server.script = [Reply("1"), calls, Reply("Found."), Reply("3")]
    async with forgets.talking() as conversation:
        await conversation.say("one")
        forgets.server.forget()
        result = await conversation.say("two")
        assert result.reply == "Found."
        await conversation.say("three")
        said = [message["role"] for message in conversation.session.build_context().messages]
    assert len(forgets.server.refused) == 1
    items, after = forgets.sent(2)
    assert ([who for who, _ in items], after) == (["developer", "user"], None)
    assert forgets.sent(3) == ([("result", "seen")], "resp_00000003"), "and stays in that one"
    assert forgets.sent(4) == ([("user", "three")], "resp_00000004")
    assert said.count("user") == 3


async def test_a_server_that_keeps_nothing_is_an_error_and_no_loop(forgets: Home) -> None:
    """It says that it does not know a thread, whatever it is asked."""
    lost = {"error": {"code": "previous_response_not_found", "message": "not found"}}
    forgets.server.script = lambda _: Reply(status=400, error=lost)
    async with forgets.talking() as conversation:
        with pytest.raises(Exception, match="not found"):
            await conversation.say("one")
    assert len(forgets.server.requests) <= 4


async def test_a_model_without_threads_gets_the_whole_context_at_each_turn(home: Home) -> None:
    home.configure(api="openai-completions")
    async with home.talking() as conversation:
        await conversation.say("one")
        await conversation.say("two")
    sent = [m["content"] for m in home.server.requests[-1].body["messages"]]
    assert sent[1:] == ["one", "I heard 3 characters.", "two"]


def test_an_engine_that_needs_threads_is_not_used_with_a_model_without(home: Home) -> None:
    home.configure(api="openai-completions", needs=("thread_bootstrap",))
    with pytest.raises(EngineUnavailable, match="needs a model with threads") as refused:
        home.conversation()
    assert (refused.value.engine, refused.value.phase) == ("threads", "requirements")
    assert home.server.requests == []


async def test_an_engine_that_needs_threads_is_used_with_a_model_that_has_them(home: Home) -> None:
    home.configure(needs=("thread_bootstrap",))
    async with home.talking() as conversation:
        assert (await conversation.say("one")).reply
