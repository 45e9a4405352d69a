"""A conversation under a key: its row, its lane, its resets, its model."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from strandline.clock import SystemClock
from strandline.errors import ModelError, SessionBusy
from strandline.runtime.agent import Agent
from strandline.runtime.conversation import Conversation
from strandline.runtime.registry import SessionRegistry
from strandline.stores.jsonl import JsonlStore
from strandline.stores.memory import MemoryStore
from strandline.stores.rows_file import RowsFile
from strandline.stores.rows_memory import RowsMemory
from strandline.testing import CountingIds, Reply, ScriptedModelServer, SimulatedClock

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
