"""Messages that are brought more than once: one entry for each id (A14)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from strandline.errors import ModelError, NothingToAnswer
from strandline.runtime.agent import Agent, Backend
from strandline.runtime.conversation import Conversation
from strandline.runtime.inbound import is_answered
from strandline.runtime.registry import SessionRegistry
from strandline.runtime.tools import Tool, Toolbox
from strandline.stores.jsonl import JsonlStore
from strandline.stores.rows_file import RowsFile
from strandline.testing import CountingIds, Reply, ScriptedModelServer, SimulatedClock
from strandline.testing.reply import ToolCall

AgentFor = Callable[..., Agent]
KEY = "agent:main:main"


@pytest.fixture
def registry(tmp_path: Path, clock: SimulatedClock) -> SessionRegistry:
    rows = RowsFile(tmp_path / "sessions.json", clock=clock)
    return SessionRegistry(
        "main", rows, JsonlStore(tmp_path), cwd="/", clock=clock, ids=CountingIds()
    )


def talk_of(registry: SessionRegistry, agent: Agent) -> Conversation:
    return Conversation(registry, agent, KEY, holder="a test")


def asked(talk: Conversation) -> list[Any]:
    messages = [entry.data.get("message") for entry in talk.session.entries()]
    return [m["content"][0]["text"] for m in messages if m and m["role"] == "user"]


async def test_a_message_that_failed_with_all_models_is_one_entry_and_answered_when_it_comes_again(
    registry: SessionRegistry, agent_for: AgentFor
) -> None:
    script = [Reply(status=500)] * 12 + [Reply("at last")]
    with ScriptedModelServer(script) as server:
        agent = agent_for(server)
        others = tuple(Backend(agent.model, agent.info) for _ in range(3))
        talk = talk_of(registry, agent_for(server, fallbacks=others))
        for _ in range(3):
            with pytest.raises(ModelError):
                await talk.say("hello", inbound_id="m1")
        assert asked(talk) == ["hello"]
        result = await talk.say("hello", inbound_id="m1")
        assert result.reply == "at last"
        assert asked(talk) == ["hello"]
        roles = [m["role"] for m in server.requests[-1].body["messages"]]
        assert roles == ["system", "user"], "nothing piled up"
        await agent.model.aclose()
        await talk.close()


async def test_a_message_that_was_answered_is_not_answered_again(
    registry: SessionRegistry, agent_for: AgentFor
) -> None:
    with ScriptedModelServer() as server:
        talk = talk_of(registry, agent_for(server))
        await talk.say("hello", inbound_id="m1")
        with pytest.raises(NothingToAnswer):
            await talk.say("hello", inbound_id="m1")
        await talk.say("hello", inbound_id="m2")
        assert asked(talk) == ["hello", "hello"]
        await talk.close()
        again = talk_of(registry, agent_for(server))
        with pytest.raises(NothingToAnswer):
            await again.say("hello", inbound_id="m1")
        await again.close()


async def test_the_same_message_brought_twice_at_once_is_answered_once(
    registry: SessionRegistry, agent_for: AgentFor
) -> None:
    with ScriptedModelServer() as server:
        talks = [talk_of(registry, agent_for(server)) for _ in range(2)]
        done = await asyncio.gather(
            *(talk.say("hello", inbound_id="m1") for talk in [*talks, *talks]),
            return_exceptions=True,
        )
        assert [type(each).__name__ for each in done].count("TurnResult") == 1
        assert [type(each).__name__ for each in done].count("NothingToAnswer") == 3
        assert len(server.requests) == 1
        for talk in talks:
            await talk.close()


async def test_a_message_that_was_summarised_since_is_still_known(
    registry: SessionRegistry, agent_for: AgentFor
) -> None:
    with ScriptedModelServer() as server:
        talk = talk_of(registry, agent_for(server))
        await talk.say("lantern harbour " * 500, inbound_id="m1")
        for number in range(3):
            await talk.say(f"{number} " + "lantern harbour " * 300)
        await talk.compact()
        assert "m1" not in str(talk.session.build_context().messages)
        with pytest.raises(NothingToAnswer):
            await talk.say("again", inbound_id="m1")
        await talk.close()
        again = talk_of(registry, agent_for(server))
        with pytest.raises(NothingToAnswer):
            await again.say("again", inbound_id="m1")
        for number in range(3):
            await again.say(f"{number} " + "lantern harbour " * 600)
        await again.compact()
        with pytest.raises(NothingToAnswer):
            await again.say("again", inbound_id="m1")
        await again.close()


async def test_retry_answers_what_was_said_last_without_saying_it_again(
    registry: SessionRegistry, agent_for: AgentFor
) -> None:
    with ScriptedModelServer([Reply(status=500), Reply("here")]) as server:
        talk = talk_of(registry, agent_for(server))
        with pytest.raises(NothingToAnswer):
            await talk.retry()
        with pytest.raises(ModelError):
            await talk.say("hello")
        assert (await talk.retry()).reply == "here"
        assert asked(talk) == ["hello"]
        with pytest.raises(NothingToAnswer) as refused:
            await talk.retry()
        assert refused.value.remedy
        await talk.close()


async def test_retry_after_a_stopped_answer_asks_again(
    registry: SessionRegistry, agent_for: AgentFor
) -> None:
    script = [Reply("one two three four", chunk_chars=4, delay_s=0.2), Reply("whole")]
    with ScriptedModelServer(script) as server:
        talk = talk_of(registry, agent_for(server))
        begun = asyncio.Event()
        turn = asyncio.create_task(talk.say("go", listener=lambda _: begun.set()))
        await begun.wait()
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
        assert (await talk.retry()).reply == "whole"
        assert asked(talk) == ["go"]
        await talk.close()


async def test_a_turn_that_died_after_its_tools_goes_on_where_it_was(
    registry: SessionRegistry, agent_for: AgentFor
) -> None:
    calls: list[object] = []

    async def look(call: object) -> str:
        calls.append(call)
        return "all quiet"

    tool = Tool("look", "Look around.", {"type": "object", "properties": {}}, look)
    script = [Reply(tool_calls=[ToolCall("look", {})]), Reply(status=500), Reply("all quiet")]
    with ScriptedModelServer(script) as server:
        talk = talk_of(registry, agent_for(server, toolbox=Toolbox([tool])))
        with pytest.raises(ModelError):
            await talk.say("look", inbound_id="m1")
        result = await talk.say("look", inbound_id="m1")
        assert result.reply == "all quiet"
        assert len(calls) == 1, "what was done is not done again"
        assert asked(talk) == ["look"]
        await talk.close()


async def test_notes_of_plugins_neither_ask_nor_answer(
    registry: SessionRegistry, agent_for: AgentFor
) -> None:
    with ScriptedModelServer([Reply(status=500), Reply("here")]) as server:
        talk = talk_of(registry, agent_for(server))
        with pytest.raises(ModelError):
            await talk.say("hello", inbound_id="m1")
        talk.session.append_custom_message("weather", "it rains")
        assert not is_answered(talk.session)
        assert (await talk.say("hello", inbound_id="m1")).reply == "here"
        talk.session.append_custom_message("weather", "it stopped")
        assert is_answered(talk.session)
        await talk.close()


async def test_a_message_whose_turn_ran_hundreds_of_tools_is_still_known(
    registry: SessionRegistry, agent_for: AgentFor
) -> None:
    async def look(_call: object) -> str:
        return "all quiet"

    tool = Tool("look", "Look around.", {"type": "object", "properties": {}}, look)
    calls = [ToolCall("look", {}, id=f"call_{number}") for number in range(300)]
    with ScriptedModelServer([Reply(tool_calls=calls), Reply("all quiet")]) as server:
        talk = talk_of(registry, agent_for(server, 200_000, toolbox=Toolbox([tool])))
        await talk.say("look", inbound_id="m1")
        for each in (talk, talk_of(registry, agent_for(server, 200_000))):
            with pytest.raises(NothingToAnswer):
                await each.say("look", inbound_id="m1")
            await each.close()


async def test_a_message_of_two_compactions_ago_is_known_to_who_opens_the_session_anew(
    registry: SessionRegistry, agent_for: AgentFor
) -> None:
    with ScriptedModelServer() as server:
        talk = talk_of(registry, agent_for(server))
        await talk.say("lantern harbour " * 500, inbound_id="m1")
        for _ in range(2):
            for number in range(3):
                await talk.say(f"{number} " + "lantern harbour " * 600)
            await talk.compact()
        await talk.close()
        again = talk_of(registry, agent_for(server))
        with pytest.raises(NothingToAnswer):
            await again.say("again", inbound_id="m1")
        await again.close()
