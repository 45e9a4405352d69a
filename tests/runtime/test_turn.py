"""A turn, against a real server on loopback that answers, refuses, stalls and hangs up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strandline.context.budget import CompactionSettings
from strandline.errors import CompactionRefused, ContextOverflow, ModelError
from strandline.manager import SessionManager
from strandline.runtime.agent import Agent
from strandline.runtime.compacting import Compactor
from strandline.runtime.events import (
    CompactionReceipt,
    Notice,
    ReplyDiscarded,
    ReplyText,
    TurnEvent,
    nobody,
)
from strandline.runtime.fitting import Fitting
from strandline.runtime.turn import run_turn, user_message
from strandline.runtime.turn_memory import TurnMemory
from strandline.testing import Reply, ScriptedModelServer, SimulatedClock

AgentFor = Callable[..., Agent]


def said(session: SessionManager) -> list[tuple[str, str]]:
    """Role and text of every message of the branch, compactions left out."""
    out = []
    for message in session.build_context().messages:
        blocks = message["content"] if "content" in message else message["summary"]
        text = blocks if isinstance(blocks, str) else "".join(b.get("text", "") for b in blocks)
        out.append((message["role"], text))
    return out


async def compact_now(
    session: SessionManager, agent: Agent, instructions: str | None = None
) -> CompactionReceipt:
    compactor = Compactor(session, agent)
    return await compactor.compact(agent.budget(), "manual", nobody, instructions)


async def ask(session: SessionManager, agent: Agent, text: str, **options: Any) -> Any:
    try:
        return await run_turn(session, agent, user_message(text, 1), **options)
    finally:
        await agent.model.aclose()


async def test_a_turn_appends_the_question_and_the_answer(
    session: SessionManager, agent_for: AgentFor
) -> None:
    with ScriptedModelServer([Reply("A harbour.")]) as server:
        result = await ask(session, agent_for(server), "Name one.")
    assert said(session) == [("user", "Name one."), ("assistant", "A harbour.")]
    assert result.reply == "A harbour."
    assert result.message["usage"]["cost"]["total"] > 0
    assert 0 < result.context_tokens < result.context_window == 16_000


async def test_the_answer_streams_while_it_comes(
    session: SessionManager, agent_for: AgentFor
) -> None:
    heard: list[TurnEvent] = []
    with ScriptedModelServer([Reply(["Har", "bour", "."])]) as server:
        await ask(session, agent_for(server), "?", listener=heard.append)
    assert "".join(e.text for e in heard if isinstance(e, ReplyText)) == "Harbour."
    assert len(heard) >= 3


async def test_what_the_person_said_survives_a_model_that_fails(
    session: SessionManager, agent_for: AgentFor
) -> None:
    with ScriptedModelServer([Reply(status=500), Reply("back")]) as server:
        with pytest.raises(ModelError) as failed:
            await ask(session, agent_for(server), "first")
        assert failed.value.kind == "network"
        assert said(session) == [("user", "first")], "no empty answer piles up (A13)"
        await ask(session, agent_for(server), "second")
    assert said(session)[-1] == ("assistant", "back")


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (Reply(status=401), "auth"),
        (Reply(status=429, retry_after_s=1), "rate"),
        (Reply(status=503), "network"),
        (Reply(status=404), "refused"),
        (Reply("half an ans", disconnect_after=2), "network"),
    ],
)
async def test_every_failure_has_a_class_and_the_next_message_works(
    session: SessionManager, agent_for: AgentFor, reply: Reply, kind: str
) -> None:
    with ScriptedModelServer([reply, Reply("fine")]) as server:
        with pytest.raises(ModelError) as failed:
            await ask(session, agent_for(server), "first")
        assert failed.value.kind == kind
        assert failed.value.remedy
        assert (await ask(session, agent_for(server), "second")).reply == "fine"


async def test_what_came_before_a_disconnect_is_kept_as_a_failed_answer(
    session: SessionManager, agent_for: AgentFor
) -> None:
    reply = Reply("half an answer", chunk_chars=4, disconnect_after=3)
    with ScriptedModelServer([reply]) as server, pytest.raises(ModelError):
        await ask(session, agent_for(server), "go")
    last = session.build_context().messages[-1]
    assert last["stopReason"] == "error"
    assert last["errorMessage"]
    assert said(session)[-1][1].startswith("half")


async def test_stopping_a_reply_keeps_what_came_and_the_next_turn_works(
    session: SessionManager, agent_for: AgentFor
) -> None:
    script = [Reply("one two three four", chunk_chars=4, delay_s=0.2), Reply("again")]
    with ScriptedModelServer(script) as server:
        agent = agent_for(server)
        some = asyncio.Event()
        task = asyncio.create_task(
            run_turn(session, agent, user_message("go", 1), listener=lambda _: some.set())
        )
        await some.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        last = session.build_context().messages[-1]
        assert (last["role"], last["stopReason"]) == ("assistant", "aborted")
        assert last["usage"]["cost"]["total"] == 0, "pi adds up the cost of every answer"
        assert "one two three four".startswith(said(session)[-1][1])
        assert (await ask(session, agent, "more")).reply == "again"


async def test_a_full_context_is_compacted_before_it_is_sent_not_after_a_refusal(
    session: SessionManager, agent_for: AgentFor
) -> None:
    with ScriptedModelServer(context_window=16_000) as server:
        agent = agent_for(server)
        receipts: list[CompactionReceipt] = []
        for number in range(8):
            result = await ask(session, agent, f"note {number}: " + "lantern harbor " * 1_000)
            receipts += result.compactions
        assert len(server.requests) == 8, "never refused"
    assert receipts
    assert all(r.tokens_after < r.tokens_before for r in receipts)
    assert session.verify() == []


async def test_a_window_smaller_than_we_believe_is_learnt_from_the_refusal(
    session: SessionManager, agent_for: AgentFor
) -> None:
    heard: list[TurnEvent] = []
    with ScriptedModelServer(context_window=4_000) as server:
        agent = agent_for(server, window=100_000)
        for number in range(4):
            text = f"note {number}: " + "lantern harbor " * 900
            result = await ask(session, agent, text, listener=heard.append)
            assert result.reply
    assert any(isinstance(event, CompactionReceipt) for event in heard)


async def test_a_provider_that_always_refuses_is_asked_four_times_and_no_more(
    session: SessionManager, agent_for: AgentFor
) -> None:
    with ScriptedModelServer(context_window=1) as server:
        with pytest.raises((ModelError, ContextOverflow)):
            await ask(session, agent_for(server), "hello " * 400)
        assert 1 <= len(server.requests) <= 4
    assert said(session)[-1][0] == "user"


async def test_mode_error_gives_a_typed_error_that_names_the_largest_parts(
    session: SessionManager, agent_for: AgentFor
) -> None:
    with ScriptedModelServer() as server:
        agent = agent_for(server, 8_000, CompactionSettings(mode="error"))
        await ask(session, agent, "lantern harbor " * 900)
        await ask(session, agent, "lantern harbor " * 900)
        with pytest.raises(ContextOverflow, match="largest parts"):
            await ask(session, agent, "lantern harbor " * 900)


async def test_mode_off_leaves_the_oldest_turns_out_and_answers(
    session: SessionManager, agent_for: AgentFor
) -> None:
    with ScriptedModelServer(context_window=8_000) as server:
        agent = agent_for(server, 8_000, CompactionSettings(enabled=False))
        for number in range(6):
            result = await ask(session, agent, f"{number} " + "lantern harbor " * 900)
            assert result.reply
            assert not result.compactions
    assert len(said(session)) == 12, "the transcript keeps everything"


async def test_a_compaction_that_cannot_help_is_refused_and_nothing_is_written(
    session: SessionManager, agent_for: AgentFor
) -> None:
    with ScriptedModelServer([Reply("short")]) as server:
        agent = agent_for(server)
        await ask(session, agent, "hi")
        before = session.entry_count
        with pytest.raises(CompactionRefused):
            await compact_now(session, agent)
    assert session.entry_count == before


async def test_compacting_on_request_appends_one_entry_and_changes_nothing_else(
    session: SessionManager, agent_for: AgentFor
) -> None:
    with ScriptedModelServer() as server:
        agent = agent_for(server)
        for number in range(4):
            await ask(session, agent, f"{number} " + "lantern harbor " * 300)
        entries = [entry.raw for entry in session.entries()]
        used, _ = await Fitting.of_first(TurnMemory.of(session, agent)).size()
        receipt = await compact_now(session, agent, "keep the numbers")
        assert [entry.raw for entry in session.entries()][:-1] == entries
        assert session.entry(receipt.entry_id).type == "compaction"
        assert (await Fitting.of_first(TurnMemory.of(session, agent)).size())[0] < used


async def test_a_summariser_that_fails_costs_the_compaction_not_the_turn(
    session: SessionManager, agent_for: AgentFor
) -> None:
    class Broken:
        name = "broken"

        async def summarize(self, request: object) -> str:
            raise ModelError(f"it is away, {len(str(request)):,} characters", kind="network")

    heard: list[TurnEvent] = []
    with ScriptedModelServer(context_window=8_000) as server:
        agent = agent_for(server, 8_000)
        object.__setattr__(agent, "summarizer", Broken())
        for number in range(5):
            text = f"{number} " + "lantern harbor " * 900
            assert (await ask(session, agent, text, listener=heard.append)).reply
    assert any(isinstance(event, Notice) and "it is away" in event.text for event in heard)
    assert all(entry.type != "compaction" for entry in session.entries())


async def test_an_overflow_in_the_middle_of_a_stream_voids_what_came(
    session: SessionManager, agent_for: AgentFor
) -> None:
    heard: list[TurnEvent] = []
    script = [
        Reply("too f", finish_reason="model_context_window_exceeded"),
        Reply("whole answer"),
    ]
    with ScriptedModelServer(script) as server:
        result = await ask(session, agent_for(server), "x", listener=heard.append)
    assert result.reply == "whole answer"
    if any(isinstance(event, ReplyText) and event.text == "too f" for event in heard):
        assert any(isinstance(event, ReplyDiscarded) for event in heard)


async def test_d6_a_branch_that_ends_in_an_open_tool_call_takes_its_next_message(
    session: SessionManager, agent_for: AgentFor
) -> None:
    call = {"type": "toolCall", "id": "call_1", "name": "read", "arguments": {"path": "a"}}
    session.append_message(user_message("read it", 1))
    asked = session.append_message(
        {"role": "assistant", "content": [call], "stopReason": "toolUse", "timestamp": 2}
    )
    session.append_message(user_message("never mind", 3))
    with session.create_branched_session(asked) as fork, ScriptedModelServer() as server:
        assert (await ask(fork, agent_for(server), "go on")).reply
        roles = [message["role"] for message in server.requests[0].body["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "user"], "the call got its result (A4)"


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    window=st.integers(2_000, 40_000),
    factor=st.floats(0.5, 3.0),
    sizes=st.lists(st.integers(1, 60_000), min_size=1, max_size=8),
    style=st.sampled_from(["openai", "openai-no-counts", "vllm", "llama.cpp", "z.ai"]),
)
async def test_no_sequence_of_messages_makes_a_session_that_cannot_take_its_next_one(
    agent_for: AgentFor, window: int, factor: float, sizes: list[int], style: Any
) -> None:
    session = SessionManager.in_memory(clock=SimulatedClock())
    with ScriptedModelServer(context_window=window, token_factor=factor, overflow=style) as server:
        agent = agent_for(server, window)
        try:
            for number, size in enumerate(sizes):
                text = f"{number}: " + ("lantern " * (size // 8 + 1))[:size]
                message = user_message(text, number)
                assert (await run_turn(session, agent, message)).reply
        finally:
            await agent.model.aclose()
    assert session.verify() == []
