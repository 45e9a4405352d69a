"""What of a turn is delivered: the same as a stream and as a whole, whatever the server cuts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strandline.errors import ModelError
from strandline.runtime.agent import Agent
from strandline.runtime.conversation import Conversation
from strandline.runtime.events import AnswerKept, ReplyDiscarded, ReplyText, TurnEvent
from strandline.runtime.registry import SessionRegistry
from strandline.runtime.retrying import RetrySettings
from strandline.runtime.silence import Occasion, deliverable
from strandline.runtime.tools import Tool, Toolbox
from strandline.stores.memory import MemoryStore
from strandline.stores.rows_memory import RowsMemory
from strandline.testing import CountingIds, Reply, ScriptedModelServer, SimulatedClock
from strandline.testing.reply import ToolCall

AgentFor = Callable[..., Agent]
DIRECT, GROUP, ROOM = Occasion(), Occasion(chat_type="group"), Occasion(chat_type="room")
BACKGROUND = Occasion(background=True)
OCCASIONS = [DIRECT, GROUP, ROOM, BACKGROUND, Occasion(background=True, chat_type="group")]
WHOLE = [each for each in OCCASIONS if each.only_whole]
FRAGMENTS = [
    *("NO_REPLY", "no_reply", "NO_", "REPLY", "NO_REPLYING", "NO_REPLY.", "**NO_REPLY**"),
    *("All healthy.", "→ NO_REPLY", '{"action": "NO_REPLY"}', "[[reply_to_current]]", "緊急なし"),
    *("\n", "\n\n", " ", "!", "```", "The token NO_REPLY means silence", "👍🏽"),
]
TEXTS = st.lists(st.sampled_from(FRAGMENTS), min_size=1, max_size=5).map("".join)


def open_talk(agent: Agent, clock: SimulatedClock) -> Conversation:
    registry = SessionRegistry(
        "main", RowsMemory(), MemoryStore(), cwd="/", clock=clock, ids=CountingIds()
    )
    return Conversation(registry, agent, "agent:main:main", holder="a test")


def cut(text: str, places: Sequence[int]) -> list[str]:
    """The text in pieces that end at these places."""
    ends = sorted({place % (len(text) + 1) for place in places} | {len(text)})
    starts = [0, *ends[:-1]]
    return [piece for a, b in zip(starts, ends, strict=True) if (piece := text[a:b])]


def streamed(heard: Sequence[TurnEvent]) -> str:
    """What a face has shown in the end: all pieces but those that were voided."""
    shown: list[str] = []
    kept: list[str] = []
    for event in heard:
        match event:
            case ReplyText(text):
                shown.append(text)
            case ReplyDiscarded():
                shown = []
            case AnswerKept():
                kept += shown
                shown = []
    return "".join([*kept, *shown])


def kept_texts(talk: Conversation) -> list[str]:
    return [
        "".join(block.get("text", "") for block in message["content"])
        for message in talk.session.build_context().messages
        if message["role"] == "assistant"
    ]


def with_a_tool(agent_for: AgentFor, server: ScriptedModelServer, **more: Any) -> Agent:
    async def look(_call: object) -> str:
        return "all quiet"

    tool = Tool("look", "Look around.", {"type": "object", "properties": {}}, look)
    return agent_for(server, toolbox=Toolbox([tool]), **more)


@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    text=TEXTS.filter(str.strip),
    places=st.lists(st.integers(0, 60), max_size=6),
    occasion=st.sampled_from(OCCASIONS),
)
async def test_the_stream_is_the_delivery_however_the_answer_was_cut(
    agent_for: AgentFor, text: str, places: list[int], occasion: Occasion
) -> None:
    heard: list[TurnEvent] = []
    with ScriptedModelServer([Reply(cut(text, places))]) as server:
        talk = open_talk(agent_for(server), SimulatedClock())
        result = await talk.say("?", listener=heard.append, occasion=occasion)
        assert streamed(heard) == result.reply == deliverable(text, occasion)
        assert kept_texts(talk) == [text], "the transcript keeps what was said"
        await talk.close()


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    broken=TEXTS,
    text=TEXTS.filter(str.strip),
    size=st.integers(1, 9),
    occasion=st.sampled_from(OCCASIONS),
)
async def test_an_answer_that_broke_off_leaves_no_trace_in_what_is_delivered(
    agent_for: AgentFor, broken: str, text: str, size: int, occasion: Occasion
) -> None:
    heard: list[TurnEvent] = []
    pieces = len(range(0, len(broken), size))
    script = [
        Reply(broken, chunk_chars=size, disconnect_after=pieces),
        Reply(text, chunk_chars=size),
    ]
    with ScriptedModelServer(script) as server:
        agent = agent_for(server, retry=RetrySettings(attempts=2, min_delay_ms=1))
        talk = open_talk(agent, SimulatedClock())
        result = await talk.say("?", listener=heard.append, occasion=occasion)
        assert streamed(heard) == result.reply == deliverable(text, occasion)
        assert kept_texts(talk) == [text]
        await talk.close()


@pytest.mark.parametrize("occasion", WHOLE)
async def test_what_is_said_on_the_way_to_silence_is_silent_with_it(
    agent_for: AgentFor, clock: SimulatedClock, occasion: Occasion
) -> None:
    heard: list[TurnEvent] = []
    script = [Reply("Let me look.", tool_calls=[ToolCall("look", {})]), Reply("NO_REPLY")]
    with ScriptedModelServer(script) as server:
        talk = open_talk(with_a_tool(agent_for, server), clock)
        result = await talk.say("heartbeat", listener=heard.append, occasion=occasion)
        assert result.reply == ""
        assert streamed(heard) == ""
        assert kept_texts(talk) == ["Let me look.", "NO_REPLY"]
        await talk.close()


@pytest.mark.parametrize("occasion", WHOLE)
async def test_nothing_is_delivered_before_the_last_answer_of_a_turn_is_there(
    agent_for: AgentFor, clock: SimulatedClock, occasion: Occasion
) -> None:
    heard: list[TurnEvent] = []
    script = [Reply("Let me look.", tool_calls=[ToolCall("look", {})]), Reply("Fire!")]
    with ScriptedModelServer(script) as server:
        talk = open_talk(with_a_tool(agent_for, server), clock)
        result = await talk.say("well?", listener=heard.append, occasion=occasion)
        assert result.reply == "Fire!"
        said = [event.text for event in heard if isinstance(event, ReplyText)]
        assert said == ["Let me look.", "Fire!"]
        last = max(at for at, event in enumerate(heard) if isinstance(event, AnswerKept))
        assert not any(isinstance(event, ReplyText) for event in heard[:last])
        await talk.close()


async def test_an_answer_before_an_empty_one_is_delivered(
    agent_for: AgentFor, clock: SimulatedClock
) -> None:
    heard: list[TurnEvent] = []
    script = [Reply("It is 42.", tool_calls=[ToolCall("look", {})]), Reply("")]
    with ScriptedModelServer(script) as server:
        talk = open_talk(with_a_tool(agent_for, server), clock)
        await talk.say("?", listener=heard.append, occasion=GROUP)
        assert streamed(heard) == "It is 42."
        await talk.close()


async def test_in_a_direct_chat_each_answer_is_shown_as_it_comes_and_the_token_never(
    agent_for: AgentFor, clock: SimulatedClock
) -> None:
    heard: list[TurnEvent] = []
    call = [ToolCall("look", {})]
    script = [
        Reply("Let me look.\nNO_REPLY", tool_calls=call, chunk_chars=3),
        Reply("All quiet.\n\nNO_REPLY", chunk_chars=3),
    ]
    with ScriptedModelServer(script) as server:
        talk = open_talk(with_a_tool(agent_for, server), clock)
        result = await talk.say("?", listener=heard.append)
        assert result.reply == "All quiet."
        assert streamed(heard) == "Let me look.All quiet."
        kinds = [type(event) for event in heard]
        assert kinds.index(ReplyText) < kinds.index(AnswerKept)
        await talk.close()


@pytest.mark.parametrize("occasion", OCCASIONS)
@pytest.mark.parametrize("pieces", [["NO_", "RE"], ["All ", "is well\n", "NO_RE"]])
async def test_of_a_turn_that_failed_no_part_of_the_token_is_shown(
    agent_for: AgentFor, clock: SimulatedClock, pieces: list[str], occasion: Occasion
) -> None:
    heard: list[TurnEvent] = []
    script = [Reply(pieces, disconnect_after=len(pieces) + 1)]
    with ScriptedModelServer(script) as server:
        talk = open_talk(agent_for(server), clock)
        with pytest.raises(ModelError):
            await talk.say("?", listener=heard.append, occasion=occasion)
        shown = "" if occasion.only_whole or pieces[0] == "NO_" else "All is well"
        assert "".join(e.text for e in heard if isinstance(e, ReplyText)) == shown
        assert kept_texts(talk) == ["".join(pieces)]
        await talk.close()


async def test_a_turn_that_is_stopped_on_a_background_occasion_delivers_nothing(
    agent_for: AgentFor, clock: SimulatedClock
) -> None:
    heard: list[TurnEvent] = []
    with ScriptedModelServer([Reply("one two three four", chunk_chars=4, delay_s=0.2)]) as server:
        talk = open_talk(agent_for(server), clock)
        turn = asyncio.create_task(
            talk.say("heartbeat", listener=heard.append, occasion=BACKGROUND)
        )
        while not server.requests:  # noqa: ASYNC110 - the server runs in threads of its own
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
        assert not any(isinstance(event, ReplyText) for event in heard)
        await talk.close()
