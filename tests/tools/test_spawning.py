"""The `spawn` tool, as a model uses it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from strandline.context.tokens import HeuristicCounter, MessageTokens
from strandline.models.openai_chat import OpenAIChatModel
from strandline.runtime.agent import Agent
from strandline.runtime.child_sessions import ChildSessions
from strandline.runtime.conversation import Conversation
from strandline.runtime.family import Household, Parent
from strandline.runtime.model import ModelInfo
from strandline.runtime.offline import OfflineSummarizer
from strandline.runtime.registry import SessionRegistry
from strandline.runtime.subagents import Subagents
from strandline.runtime.tools import Toolbox, ToolCall
from strandline.stores.memory import MemoryStore
from strandline.stores.rows_memory import RowsMemory
from strandline.testing import CountingIds, ScriptedModelServer, SimulatedClock
from strandline.tools.spawning import DESCRIPTION, NAME, PARAMETERS, spawn_tool
from strandline.transcript.messages import Message

CLOCK = SimulatedClock()


@pytest.fixture
def server() -> Iterator[ScriptedModelServer]:
    with ScriptedModelServer() as up:
        yield up


def parent_of(server: ScriptedModelServer) -> Conversation:
    """A conversation in memory that may have sub-agents."""
    rows, store, ids = RowsMemory(), MemoryStore(), CountingIds()
    registry = SessionRegistry("main", rows, store, cwd="/", clock=CLOCK, ids=ids)

    def make(_agent_id: str, _ref: str | None) -> Agent:
        counter = HeuristicCounter()
        model = OpenAIChatModel(server.base_url, clock=CLOCK)
        info = ModelInfo("test", "scripted", "openai-completions", 16_000, 500)
        return Agent("main", model, info, OfflineSummarizer(counter), MessageTokens(counter), CLOCK)

    def open_it(_agent_id: str, key: str, agent: Agent) -> Conversation:
        return Conversation(registry, agent, key, holder="a test")

    sessions = ChildSessions(rows, store, "/", CLOCK, ids, lambda _: None)
    household = Household(lambda _: sessions, make, open_it)

    def children(parent: Parent) -> tuple[Subagents, list[Any]]:
        return Subagents(parent, household, clock=CLOCK, ids=ids), []

    agent = make("main", None)
    return Conversation(registry, agent, "agent:main:main", holder="a test", children=children)


async def used(server: ScriptedModelServer, **arguments: Any) -> tuple[Message, Conversation]:
    """The tool's answer, and the conversation when the sub-agent is over."""
    parent = parent_of(server)
    assert parent.subagents is not None
    box = Toolbox([spawn_tool(parent.subagents)])
    call = ToolCall("call_1", NAME, arguments, "main", parent.key, 0)
    answer = await box.answer(call)
    await parent.settle()
    await parent.close()
    return answer, parent


async def test_it_returns_at_once_with_the_key_of_the_child(server: ScriptedModelServer) -> None:
    answer, parent = await used(server, task="Count to three", label="counter")
    assert answer["isError"] is False
    assert answer["details"]["sessionKey"].startswith("agent:main:subagent:")
    assert answer["details"]["sessionKey"] in answer["content"][0]["text"]
    assert parent.subagents is not None
    [child] = parent.subagents.list()
    assert (child.task, child.label, child.context) == ("Count to three", "counter", "isolated")
    assert child.spawned.run_id == answer["details"]["runId"]


async def test_it_takes_a_copy_of_the_conversation_along_where_that_is_wanted(
    server: ScriptedModelServer,
) -> None:
    _, parent = await used(server, task="Go on", context="fork")
    assert parent.subagents is not None
    assert [each.context for each in parent.subagents.list()] == ["fork"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({}, "'task' is a required property"),
        ({"task": ""}, "acceptable"),
        ({"task": "x", "context": "shared"}, "'shared' is not one of"),
        ({"task": "x", "model": "any/thing"}, "Additional properties"),
        ({"task": "x", "agent": "other"}, "may not be asked from here"),
        ({"task": "x", "agent": "../../etc"}, "cannot be an agent id"),
        ({"task": " \n"}, "the task has 0 characters"),
    ],
)
async def test_what_cannot_be_is_told_to_the_model(
    server: ScriptedModelServer, arguments: dict[str, Any], told: str
) -> None:
    answer, parent = await used(server, **arguments)
    assert answer["isError"] is True
    assert told in answer["content"][0]["text"]
    assert parent.subagents is not None
    assert parent.subagents.list() == ()


async def test_a_turn_that_is_stopped_does_not_stop_what_it_began(
    server: ScriptedModelServer,
) -> None:
    parent = parent_of(server)
    assert parent.subagents is not None
    box = Toolbox([spawn_tool(parent.subagents)])
    call = ToolCall("call_1", NAME, {"task": "Do it"}, "main", parent.key, 0)
    using = asyncio.create_task(box.answer(call))
    await using
    using.cancel()
    await parent.settle()
    assert [each.status for each in parent.subagents.list()] == ["completed"]
    await parent.close()


def test_its_description_is_the_same_bytes_in_every_conversation(
    server: ScriptedModelServer, tmp_path: Path
) -> None:
    """A provider's cache holds it; nothing of a session, a time or a machine is in it."""
    del tmp_path
    boxes = []
    for _ in range(2):
        parent = parent_of(server)
        assert parent.subagents is not None
        boxes.append(json.dumps(Toolbox([spawn_tool(parent.subagents)]).described()))
        asyncio.run(parent.close())
    assert boxes[0] == boxes[1]
    assert DESCRIPTION in boxes[0]
    assert PARAMETERS["additionalProperties"] is False
