"""What goes wrong around a turn takes nothing of it away: listeners, engines, cancelling."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from strandline.context.engine import AssembleResult
from strandline.context.tokens import HeuristicCounter, MessageTokens
from strandline.errors import EngineError
from strandline.runtime.agent import Agent
from strandline.runtime.conversation import Conversation
from strandline.runtime.events import CacheUsed, Notice, TurnEvent
from strandline.runtime.registry import SessionRegistry
from strandline.runtime.seat import Seat
from strandline.stores.jsonl import JsonlStore
from strandline.stores.rows_file import RowsFile
from strandline.testing import CountingIds, ScriptedModelServer, SimulatedClock

KEY = "agent:main:main"


async def test_a_listener_that_fails_on_the_caches_news_costs_no_answer(home: Any) -> None:
    """The answer was paid for: it is in the transcript before anybody hears of its cache."""

    def hear(event: TurnEvent) -> None:
        if isinstance(event, CacheUsed):
            raise OSError("the terminal is gone")

    with ScriptedModelServer() as server:
        conversation = home.open(server)
        with pytest.raises(OSError, match="the terminal is gone"):
            await conversation.say("one", listener=hear)
        said = [m["role"] for m in conversation.session.build_context().messages]
        assert said == ["user", "assistant"]
        await conversation.close()


async def test_an_engine_that_fails_after_the_answer_leaves_the_answer(home: Any) -> None:
    """It is asked how large the context is by then; that it failed is told and noted."""
    chosen: list[Any] = []

    def assemble(request: Any) -> AssembleResult:
        chosen.append(request)
        if len(chosen) > 1:
            raise ValueError("not again")
        return AssembleResult(request.messages, 10)

    home.engine.does["assemble"] = assemble
    heard: list[TurnEvent] = []
    with ScriptedModelServer() as server:
        conversation = home.open(server)
        result = await conversation.say("one", listener=heard.append)
        assert result.reply
        assert 0 < result.context_tokens < result.context_window == 16_000
        assert conversation.row.aborted_last_run is False
        told = [event.text for event in heard if isinstance(event, Notice)]
        assert "failed in assemble (ValueError: not again)" in told[0]
        with pytest.raises(EngineError):
            await conversation.say("two")
        await conversation.close()
    assert {failure.phase for failure in home.health.recent()} == {"assemble"}


async def test_a_turn_that_is_stopped_while_the_engine_is_told_of_it_is_in_the_row(
    home: Any,
) -> None:
    told = asyncio.Event()

    async def never_done(_: object) -> None:
        told.set()
        await asyncio.Event().wait()

    home.engine.does["after_turn"] = never_done
    with ScriptedModelServer() as server:
        conversation = home.open(server)
        turn = asyncio.create_task(conversation.say("one"))
        await told.wait()
        turn.cancel()
        await asyncio.wait([turn])
        assert turn.cancelled()
        assert conversation.row.output_tokens > 0
        await conversation.close()


async def test_an_addition_is_counted_once_however_often_the_budget_is_looked_at(
    home: Any,
) -> None:
    addition, counted = "Mind the bells. " * 50, []

    class Counting(HeuristicCounter):
        def count(self, text: str) -> int:
            counted.append(text)
            return super().count(text)

    home.engine.does["assemble"] = lambda request: AssembleResult(
        request.messages, 10, system_prompt_addition=addition
    )
    with ScriptedModelServer() as server:
        conversation = home.open(server, key=KEY)
        agent = replace(home.agent_for(server, engine=home.host), tokens=MessageTokens(Counting()))
        await conversation.use(agent)
        await conversation.say("one")
        await conversation.say("two")
        await conversation.close()
    assert counted.count(addition) == 1


async def test_closing_twice_gives_the_engine_back_once(home: Any) -> None:
    """Another conversation may still use it."""
    with ScriptedModelServer() as server:
        one, other = home.open(server), home.open(server, key="agent:main:explicit:other")
        await one.close()
        await one.close()
        assert home.engine.asked("dispose") == []
        await other.say("still here")
        await other.close()
        assert len(home.engine.asked("dispose")) == 1


async def test_a_conversation_that_cannot_be_opened_holds_no_engine(home: Any) -> None:
    with ScriptedModelServer() as server:
        good = home.open(server)
        with pytest.raises(Exception, match="cannot be in a session key"):
            home.open(server, key="no key at all:::")
        await good.close()
    assert len(home.engine.asked("dispose")) == 1


async def test_leaving_a_session_stops_what_is_done_beside_it_even_when_it_is_cancelled(
    tmp_path: Path, clock: SimulatedClock, agent_for: Callable[..., Agent]
) -> None:
    rows = RowsFile(tmp_path / "sessions.json", clock=clock)
    registry = SessionRegistry(
        "main", rows, JsonlStore(tmp_path), cwd="/", clock=clock, ids=CountingIds()
    )
    leaving = asyncio.Event()

    async def never_left() -> None:
        leaving.set()
        await asyncio.Event().wait()

    with ScriptedModelServer() as server:
        agent = agent_for(server)
        seat = Seat(registry, agent, KEY, holder="a test", lock_timeout_ms=0, leaving=never_left)
        beside = asyncio.create_task(asyncio.sleep(3600))
        seat.standing.upkeep._task = beside
        going = asyncio.create_task(seat.leave(registry.open("agent:main:explicit:next")))
        await leaving.wait()
        going.cancel()
        await asyncio.wait([going])
        assert beside.cancelled()
        assert seat.standing.at.key == "agent:main:explicit:next"
        seat.standing.session.close()
        await agent.aclose()


async def test_what_was_used_beside_the_turns_is_noted_before_the_model_is_changed(
    home: Any,
) -> None:
    usage: Any = {"input": 7, "output": 1, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 8}
    with ScriptedModelServer() as server:
        conversation: Conversation = home.open(server)
        before = conversation._standing
        before.engine.spent(usage)
        await conversation.use(home.agent_for(server, engine=home.host))
        assert not before._notes
        assert conversation.row.input_tokens == 7
        await conversation.close()
