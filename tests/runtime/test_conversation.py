"""A conversation under a key: its row, its lane, its resets, its model."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from strandline.clock import SystemClock
from strandline.context.budget import CompactionSettings
from strandline.errors import (
    ConfigError,
    ContextOverflow,
    ModelError,
    SessionBusy,
)
from strandline.runtime.agent import Agent
from strandline.runtime.conversation import Conversation
from strandline.runtime.registry import SessionRegistry
from strandline.runtime.tools import Tool, Toolbox
from strandline.stores.jsonl import JsonlStore
from strandline.stores.memory import MemoryStore
from strandline.stores.rows_file import RowsFile
from strandline.stores.rows_memory import RowsMemory
from strandline.testing import CountingIds, Reply, ScriptedModelServer, SimulatedClock
from strandline.testing.reply import ToolCall
from strandline.testing.wire import RecordedRequest

AgentFor = Callable[..., Agent]
KEY = "agent:main:main"


@pytest.fixture
def registry(tmp_path: Path, clock: SimulatedClock) -> SessionRegistry:
    """Rows and transcripts in a folder."""
    rows = RowsFile(tmp_path / "sessions.json", clock=clock)
    return SessionRegistry(
        "main", rows, JsonlStore(tmp_path), cwd="/", clock=clock, ids=CountingIds()
    )


def open_it(
    registry: SessionRegistry, agent: Agent, key: str = KEY, wait_ms: int = 0
) -> Conversation:
    return Conversation(registry, agent, key, holder="a test", lock_timeout_ms=wait_ms)


async def test_a_conversation_goes_on_where_it_was_left(
    registry: SessionRegistry, agent_for: AgentFor
) -> None:
    with ScriptedModelServer([Reply("Hello."), Reply("Again.")]) as server:
        first = open_it(registry, agent_for(server))
        await first.say("one")
        session_id = first.session_id
        await first.close()
        second = open_it(registry, agent_for(server))
        await second.say("two")
        assert second.session_id == session_id
        sent = [m["content"] for m in server.requests[1].body["messages"]]
        await second.close()
    assert sent[-3:] == ["one", "Hello.", "two"]


async def test_the_row_adds_up_what_turns_used(
    registry: SessionRegistry, agent_for: AgentFor, clock: SimulatedClock
) -> None:
    with ScriptedModelServer() as server:
        conversation = open_it(registry, agent_for(server))
        one = await conversation.say("one")
        clock.advance(5_000)
        two = await conversation.say("two")
        await conversation.close()
    row = registry.find(KEY)
    used = [each.message["usage"] for each in (one, two)]
    assert row.input_tokens == sum(u["input"] for u in used)
    assert row.output_tokens == sum(u["output"] for u in used)
    assert row.total_tokens == two.context_tokens
    assert row.updated_at == clock.now_ms()
    assert row.aborted_last_run is False


async def test_a_failed_run_is_noted_and_the_next_one_clears_it(
    registry: SessionRegistry, agent_for: AgentFor
) -> None:
    with ScriptedModelServer([Reply(status=500), Reply("fine")]) as server:
        conversation = open_it(registry, agent_for(server))
        with pytest.raises(ModelError):
            await conversation.say("one")
        assert registry.find(KEY).aborted_last_run is True
        await conversation.say("two")
        assert registry.find(KEY).aborted_last_run is False
        await conversation.close()


async def test_reset_keeps_the_key_and_the_choices_and_archives_what_was_said(
    registry: SessionRegistry, agent_for: AgentFor, tmp_path: Path
) -> None:
    with ScriptedModelServer() as server:
        conversation = open_it(registry, agent_for(server))
        await conversation.say("remember me")
        old_id = conversation.session_id
        old_bytes = (tmp_path / f"{old_id}.jsonl").read_bytes()
        await conversation.use(agent_for(server))
        await conversation.reset()
        assert conversation.key == KEY
        assert conversation.session_id != old_id
        assert conversation.session.build_context().messages == []
        await conversation.say("who am I?")
        await conversation.close()
    archived = list(tmp_path.glob(f"{old_id}.jsonl.reset.*"))
    assert [path.read_bytes() for path in archived] == [old_bytes]
    row = registry.find(KEY)
    assert row.model_override == "scripted"


async def test_a_second_turn_waits_and_is_then_told_who_holds_the_session(
    registry: SessionRegistry, agent_for: AgentFor
) -> None:
    with ScriptedModelServer([Reply("slow " * 8, chunk_chars=5, delay_s=0.15)]) as server:
        first = open_it(registry, agent_for(server))
        second = open_it(registry, agent_for(server), wait_ms=100)
        begun = asyncio.Event()
        turn = asyncio.create_task(first.say("one", listener=lambda _: begun.set()))
        await begun.wait()
        with pytest.raises(SessionBusy, match="a test") as busy:
            await second.say("two")
        assert str(os.getpid()) in busy.value.holder
        await turn
        assert (await second.say("two")).reply, "and when it is free, it works"
        await first.close()
        await second.close()


async def test_turns_of_two_processes_worth_of_objects_share_one_tree(
    registry: SessionRegistry, agent_for: AgentFor
) -> None:
    with ScriptedModelServer() as server:
        one = open_it(registry, agent_for(server), wait_ms=5_000)
        two = open_it(registry, agent_for(server), wait_ms=5_000)
        await asyncio.gather(one.say("from one"), two.say("from two"))
        one.session.refresh()
        roles = [m["role"] for m in one.session.build_context().messages]
        assert roles == ["user", "assistant", "user", "assistant"]
        assert one.session.tips() == [one.session.leaf_id]
        await one.close()
        await two.close()


async def test_a_row_whose_transcript_is_gone_begins_a_new_one(
    registry: SessionRegistry, agent_for: AgentFor, tmp_path: Path
) -> None:
    with ScriptedModelServer() as server:
        conversation = open_it(registry, agent_for(server))
        await conversation.say("one")
        await conversation.close()
        for path in tmp_path.glob("*.jsonl"):
            path.unlink()
        again = open_it(registry, agent_for(server))
        assert (await again.say("two")).reply
        await again.close()


def test_an_explicit_key_uses_its_id_and_a_topic_has_a_file_of_its_own(
    registry: SessionRegistry, tmp_path: Path
) -> None:
    assert registry.open("agent:main:explicit:demo1").row.session_id == "demo1"
    registry.open("agent:main:telegram:group:7:topic:42")
    names = [path.name for path in tmp_path.glob("*.jsonl")]
    assert "demo1.jsonl" in names
    assert any(name.endswith("-topic-42.jsonl") for name in names)
    assert registry.key_of_session("demo1") == "agent:main:explicit:demo1"


def test_everything_is_private_to_its_owner(tmp_path: Path) -> None:
    folder = tmp_path / "state" / "agents" / "main" / "sessions"
    clock = SystemClock()
    rows = RowsFile(folder / "sessions.json", clock=clock)
    opened = SessionRegistry(
        "main", rows, JsonlStore(folder), cwd="/", clock=clock, ids=CountingIds()
    ).open(KEY)
    opened.session.close()
    for path in (tmp_path / "state").rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


async def test_nothing_below_a_face_needs_a_file_system(
    agent_for: AgentFor, clock: SimulatedClock
) -> None:
    registry = SessionRegistry(
        "main", RowsMemory(), MemoryStore(), cwd="/", clock=clock, ids=CountingIds()
    )
    with ScriptedModelServer([Reply("Hello.")]) as server:
        conversation = open_it(registry, agent_for(server))
        assert (await conversation.say("one")).reply == "Hello."
        await conversation.reset()
        assert conversation.session.entry_count == 0
        await conversation.close()


# -- rows: what calls used ---------------------------------------------------------------------


def look_around() -> Toolbox:
    async def look(_call: object) -> str:
        return "all quiet"

    return Toolbox([Tool("look", "Look around.", {"type": "object", "properties": {}}, look)])


def answers_in(conversation: Conversation) -> list[dict[str, Any]]:
    """Every answer in the transcript."""
    messages = [entry.data.get("message") for entry in conversation.session.entries()]
    return [m for m in messages if m and m["role"] == "assistant"]


def entries_of(conversation: Conversation, kind: str) -> list[dict[str, Any]]:
    return [entry.data for entry in conversation.session.entries() if entry.type == kind]


async def test_every_round_of_a_turn_is_counted(
    registry: SessionRegistry, agent_for: AgentFor
) -> None:
    script = [
        Reply("Let me look.", tool_calls=[ToolCall("look", {}, "call_1")]),
        Reply("Again.", tool_calls=[ToolCall("look", {}, "call_2")]),
        Reply("All quiet."),
    ]
    with ScriptedModelServer(script) as server:
        conversation = open_it(registry, agent_for(server, toolbox=look_around()))
        result = await conversation.say("look")
        row, used = conversation.row, [a["usage"] for a in answers_in(conversation)]
        assert len(used) == 3
        assert row.input_tokens == sum(u["input"] for u in used)
        assert row.output_tokens == sum(u["output"] for u in used)
        assert row.estimated_cost_usd == pytest.approx(sum(u["cost"]["total"] for u in used))
        assert result.usage is not None
        assert result.usage["output"] == row.output_tokens
        await conversation.close()


async def test_the_rounds_of_a_turn_that_failed_are_counted_too(
    registry: SessionRegistry, agent_for: AgentFor
) -> None:
    script = [Reply("Let me look.", tool_calls=[ToolCall("look", {})]), Reply(status=500)]
    with ScriptedModelServer(script) as server:
        conversation = open_it(registry, agent_for(server, toolbox=look_around()))
        with pytest.raises(ModelError):
            await conversation.say("look")
        [answer] = answers_in(conversation)
        row = conversation.row
        assert row.aborted_last_run is True
        assert (row.input_tokens, row.output_tokens) == (
            answer["usage"]["input"],
            answer["usage"]["output"],
        )
        await conversation.close()


async def test_the_compaction_of_a_turn_that_failed_is_counted_and_one_by_hand_is_not(
    registry: SessionRegistry, agent_for: AgentFor
) -> None:
    def answer(request: RecordedRequest) -> Reply:
        fails = "fail" in str(request.body["messages"][-1])
        return Reply(status=500) if fails else Reply("yes")

    with ScriptedModelServer(answer) as server:
        conversation = open_it(registry, agent_for(server, 8_000), wait_ms=5_000)
        for _ in range(2):
            await conversation.say("lantern harbour " * 400)
        await conversation.compact()
        counts = [conversation.row.compaction_count or 0]
        await conversation.say("lantern harbour " * 900)
        with pytest.raises(ModelError):
            await conversation.say("fail " + "lantern harbour " * 900)
        assert len(entries_of(conversation, "compaction")) == 2
        counts.append(conversation.row.compaction_count or 0)
        assert counts == [0, 1]
        await conversation.close()


async def test_a_stopped_turn_is_noted_as_such_before_anybody_hears_of_it(
    registry: SessionRegistry, agent_for: AgentFor
) -> None:
    with ScriptedModelServer([Reply("slow " * 8, chunk_chars=5, delay_s=0.2)]) as server:
        conversation = open_it(registry, agent_for(server))
        begun = asyncio.Event()
        turn = asyncio.create_task(conversation.say("go", listener=lambda _: begun.set()))
        await begun.wait()
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
        assert registry.find(KEY).aborted_last_run is True
        await conversation.close()


# -- rows: what a person chose -----------------------------------------------------------------


async def test_a_session_has_a_mode_of_its_own_until_it_goes_back_to_its_agents(
    registry: SessionRegistry, agent_for: AgentFor
) -> None:
    with ScriptedModelServer() as server:
        agent = agent_for(server, 8_000, CompactionSettings(enabled=False))
        conversation = open_it(registry, agent, wait_ms=5_000)
        modes = [conversation.compaction_mode]
        await conversation.set_compaction_mode("error")
        for _ in range(2):
            await conversation.say("lantern harbour " * 450)
        with pytest.raises(ContextOverflow):
            await conversation.say("lantern harbour " * 450)
        await conversation.set_compaction_mode("auto")
        assert (await conversation.retry()).compactions
        await conversation.set_compaction_mode(None)
        modes.append(conversation.compaction_mode)
        result = await conversation.say("lantern harbour " * 450)
        assert result.reply
        assert not result.compactions
        assert await conversation.settle() == ()
        await conversation.set_compaction_mode("error")
        await conversation.reset()
        modes.append(conversation.compaction_mode)
        assert modes == ["off", "off", "error"], "a choice outlives a reset"
        await conversation.close()


async def test_a_model_is_noted_once_where_it_begins_to_answer(
    registry: SessionRegistry, agent_for: AgentFor
) -> None:
    with ScriptedModelServer() as server:
        conversation = open_it(registry, agent_for(server))
        await conversation.say("one")
        await conversation.say("two")
        other = agent_for(server)
        await conversation.use(replace(other, info=replace(other.info, id="other")))
        await conversation.say("three")
        changes = [entry["modelId"] for entry in entries_of(conversation, "model_change")]
        assert changes == ["scripted", "other"]
        assert registry.chosen_model(KEY) == "test/other"
        assert conversation.row.raw["model"] == "other"
        await conversation.close()


async def test_a_new_session_thinks_as_its_person_chose_else_as_its_agent_does(
    registry: SessionRegistry, agent_for: AgentFor
) -> None:
    def levels() -> list[str]:
        entries = entries_of(conversation, "thinking_level_change")
        return [entry["thinkingLevel"] for entry in entries]

    with ScriptedModelServer() as server:
        agent = agent_for(server, thinking="high")
        agent = replace(agent, info=replace(agent.info, reasoning=True))
        conversation = open_it(registry, agent)
        await conversation.say("one")
        await conversation.say("two")
        assert levels() == ["high"]
        await conversation.set_thinking("low")
        await conversation.reset()
        await conversation.say("one")
        assert levels() == ["low"]
        await conversation.reset()
        await conversation.set_thinking("off")
        await conversation.say("one")
        assert levels() == ["off"], "no is a choice, too"
        await conversation.close()


async def test_a_preview_plans_as_the_real_one_and_writes_nothing(
    registry: SessionRegistry, agent_for: AgentFor, tmp_path: Path
) -> None:
    with ScriptedModelServer(token_factor=2.0) as server:
        first = open_it(registry, agent_for(server))
        for number in range(3):
            await first.say(f"{number} " + "lantern harbour " * 300)
        await first.close()
        other = agent_for(server)
        second = open_it(registry, replace(other, info=replace(other.info, id="other")))
        bytes_before = (tmp_path / f"{second.session_id}.jsonl").read_bytes()
        plan = await second.preview_compaction()
        assert (tmp_path / f"{second.session_id}.jsonl").read_bytes() == bytes_before
        receipt = await second.compact()
        assert receipt is not None
        assert len(plan.summarised) == receipt.messages_summarised
        assert plan.tokens_before == receipt.tokens_before
        await second.close()


async def test_the_system_prompt_is_made_anew_after_a_compaction_and_not_before(
    registry: SessionRegistry, agent_for: AgentFor
) -> None:
    made: list[str] = []

    def renew() -> str:
        made.append("again")
        if len(made) > 1:
            raise ConfigError("the workspace is gone", remedy="restore it")
        return "Be brief, again."

    with ScriptedModelServer() as server:
        conversation = open_it(registry, agent_for(server, renew_prompt=renew), wait_ms=5_000)
        for number in range(3):
            await conversation.say(f"{number} " + "lantern harbour " * 200)
        assert made == []
        await conversation.compact()
        await conversation.say("on")
        await conversation.say("lantern harbour " * 400)
        await conversation.compact()
        await conversation.say("on, with the prompt as it was")
        prompts = [request.body["messages"][0]["content"] for request in server.requests]
        assert prompts == ["Be brief."] * 3 + ["Be brief, again."] * 3
        await conversation.close()


async def test_closing_twice_or_without_a_word_is_harmless(
    registry: SessionRegistry, agent_for: AgentFor
) -> None:
    with ScriptedModelServer() as server:
        conversation = open_it(registry, agent_for(server))
        assert await conversation.settle() == ()
        await conversation.close()
        await conversation.close()
