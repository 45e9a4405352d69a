"""Hooks: what code of others says before a session is compacted or moved."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from strandline.errors import BranchRefused, CompactionRefused
from strandline.runtime.agent import Agent
from strandline.runtime.conversation import Conversation
from strandline.runtime.events import CompactionReceipt, Notice, TurnEvent
from strandline.runtime.hooks import BeforeCompact, BeforeTree, Cancel, Hooks, Say, Supply
from strandline.runtime.registry import SessionRegistry
from strandline.stores.memory import MemoryStore
from strandline.stores.rows_memory import RowsMemory
from strandline.testing import CountingIds, Reply, ScriptedModelServer, SimulatedClock

AgentFor = Callable[..., Agent]
WINDOW = 8_000
LONG = Reply("The lantern of the harbour is lit. " * 125, chunk_chars=8_000)


def open_talk(agent: Agent, clock: SimulatedClock) -> Conversation:
    registry = SessionRegistry(
        "main", RowsMemory(), MemoryStore(), cwd="/", clock=clock, ids=CountingIds()
    )
    return Conversation(registry, agent, "agent:main:main", holder="a test")


def compactions(talk: Conversation) -> list[dict[str, Any]]:
    return [e.data for e in talk.session.entries() if e.type == "compaction"]


def texts_of(heard: list[TurnEvent]) -> str:
    return "\n".join(event.text for event in heard if isinstance(event, Notice))


# -- before a compaction -----------------------------------------------------------------------


async def test_a_hook_gets_the_plan_and_is_asked_once_for_each_compaction(
    agent_for: AgentFor, clock: SimulatedClock
) -> None:
    events: list[BeforeCompact] = []

    def watch(event: BeforeCompact) -> Say:
        events.append(event)
        return None

    with ScriptedModelServer([LONG] * 6) as server:
        agent = agent_for(server, WINDOW, hooks=Hooks([watch]))
        talk = open_talk(agent, clock)
        for _ in range(2):
            await talk.say("go")
        await talk.preview_compaction()
        assert events == [], "a preview asks nobody"
        await talk.compact("keep the numbers")
        [event] = events
        assert (event.trigger, event.instructions) == ("manual", "keep the numbers")
        assert event.session is talk.session
        assert event.plan.summarised
        while not talk.row.compaction_count:
            await talk.say("go")
            await talk.settle()
        assert [e.trigger for e in events] == ["manual", "threshold"]
        await talk.close()


async def test_h29_a_hook_that_cancels_leaves_everything_as_it_was_and_the_person_is_told(
    agent_for: AgentFor, clock: SimulatedClock
) -> None:
    heard: list[TurnEvent] = []
    with ScriptedModelServer([LONG] * 5) as server:
        agent = agent_for(server, WINDOW, hooks=Hooks([lambda _: Cancel("not on Sundays")]))
        talk = open_talk(agent, clock)
        for _ in range(5):
            assert (await talk.say("go", listener=heard.append)).reply, "the turn goes on"
            await talk.settle()
        with pytest.raises(CompactionRefused, match="not on Sundays"):
            await talk.compact()
        assert compactions(talk) == []
        assert not any(isinstance(event, CompactionReceipt) for event in heard)
        assert not talk.row.compaction_count
        assert "not on Sundays" in texts_of(heard)
        await talk.close()


async def test_a_summary_that_a_hook_supplies_is_taken_bounded_and_marked(
    agent_for: AgentFor, clock: SimulatedClock
) -> None:
    supply = Supply("## Facts\n- from the hook\n" + "lantern " * 9_000, {"by": "me"})
    with ScriptedModelServer([LONG] * 2) as server:
        agent = agent_for(server, WINDOW, hooks=Hooks([lambda _: supply]))
        talk = open_talk(agent, clock)
        for _ in range(2):
            await talk.say("go")
        receipt = await talk.compact()
        assert receipt is not None
        [entry] = compactions(talk)
        assert entry["fromHook"] is True
        assert entry["details"]["by"] == "me"
        assert "from the hook" in entry["summary"]
        assert agent.tokens.counter.count(entry["summary"]) <= agent.budget().summary_cap
        assert (receipt.summarizer, receipt.usage) == ("hook", None)
        assert receipt.tokens_after < receipt.tokens_before
        await talk.close()


async def test_an_empty_summary_of_a_hook_is_refused_and_nothing_is_written(
    agent_for: AgentFor, clock: SimulatedClock
) -> None:
    with ScriptedModelServer([LONG] * 2) as server:
        agent = agent_for(server, WINDOW, hooks=Hooks([lambda _: Supply("  \n")]))
        talk = open_talk(agent, clock)
        for _ in range(2):
            await talk.say("go")
        with pytest.raises(CompactionRefused, match="empty"):
            await talk.compact()
        assert compactions(talk) == []
        await talk.close()


async def test_the_first_hook_that_says_something_decides_and_it_may_take_its_time(
    agent_for: AgentFor, clock: SimulatedClock
) -> None:
    asked: list[str] = []

    def silent(_event: BeforeCompact) -> Say:
        asked.append("silent")
        return None

    async def slow(_event: BeforeCompact) -> Say:
        await asyncio.sleep(0.01)
        asked.append("slow")
        return Supply("## Facts\n- the slow one")

    def late(_event: BeforeCompact) -> Say:
        asked.append("late")
        return Cancel("too late")

    with ScriptedModelServer([LONG] * 2) as server:
        agent = agent_for(server, WINDOW, hooks=Hooks([silent, slow, late]))
        talk = open_talk(agent, clock)
        for _ in range(2):
            await talk.say("go")
        await talk.compact()
        assert asked == ["silent", "slow"]
        assert "the slow one" in compactions(talk)[0]["summary"]
        await talk.close()


async def _waits_for_something_cancelled(_event: object) -> Say:
    task = asyncio.create_task(asyncio.sleep(60))
    task.cancel()
    await task
    return None


def _raises(_event: object) -> Say:
    raise ZeroDivisionError("a bug")


def _exits(_event: object) -> Say:
    raise SystemExit(3)


def _says_nonsense(_event: object) -> Any:
    return "yes"


def _supplies_nonsense(_event: object) -> Any:
    return Supply(None)  # type: ignore[arg-type]


BAD_HOOKS = [
    (_raises, "ZeroDivisionError: a bug"),
    (_exits, "SystemExit"),
    (_waits_for_something_cancelled, "CancelledError"),
    (_says_nonsense, "it said a str"),
    (_supplies_nonsense, "it supplied a NoneType"),
]


@pytest.mark.parametrize(("hook", "told"), BAD_HOOKS)
async def test_a_hook_that_fails_is_told_by_name_and_passed_over(
    agent_for: AgentFor, clock: SimulatedClock, hook: Any, told: str
) -> None:
    heard: list[TurnEvent] = []
    with ScriptedModelServer([LONG] * 2) as server:
        agent = agent_for(server, WINDOW, hooks=Hooks([hook], [hook]))
        talk = open_talk(agent, clock)
        for _ in range(2):
            await talk.say("go")
        await talk.compact(listener=heard.append)
        assert told in texts_of(heard)
        assert hook.__name__ in texts_of(heard)
        assert compactions(talk)[0].get("fromHook") is None
        heard.clear()
        await talk.branch(None, listener=heard.append)
        assert told in texts_of(heard)
        assert talk.session.leaf_id is None
        await talk.close()


async def test_a_person_can_stop_what_a_hook_holds_up(
    agent_for: AgentFor, clock: SimulatedClock
) -> None:
    asked = asyncio.Event()

    async def forever(_event: object) -> Say:
        asked.set()
        await asyncio.sleep(3600)
        return None

    with ScriptedModelServer([LONG] * 2) as server:
        agent = agent_for(server, WINDOW, hooks=Hooks([forever], [forever]))
        talk = open_talk(agent, clock)
        for _ in range(2):
            await talk.say("go")
        for work in (talk.compact(), talk.branch(None)):
            asked.clear()
            task = asyncio.create_task(work)
            await asked.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert compactions(talk) == []
        assert talk.session.leaf_id is not None
        assert (await talk.say("and on")).reply
        await talk.close()


# -- before going to another entry -------------------------------------------------------------


async def test_a_tree_hook_is_asked_once_with_what_is_left_and_where_to(
    agent_for: AgentFor, clock: SimulatedClock
) -> None:
    events: list[BeforeTree] = []

    async def watch(event: BeforeTree) -> Say:
        events.append(event)
        return None

    with ScriptedModelServer() as server:
        talk = open_talk(agent_for(server, hooks=Hooks([], [watch])), clock)
        first = await talk.say("one")
        second = await talk.say("two")
        leaf = talk.session.leaf_id
        await talk.branch(first.user_entry_id)
        [event] = events
        assert event.target_id == first.user_entry_id
        assert event.left[-2:] == [second.user_entry_id, leaf]
        assert len(event.left) == 3
        assert event.wants_summary is False
        await talk.close()


async def test_a_tree_hook_that_cancels_keeps_the_conversation_where_it_is(
    agent_for: AgentFor, clock: SimulatedClock
) -> None:
    with ScriptedModelServer() as server:
        talk = open_talk(agent_for(server, hooks=Hooks([], [lambda _: Cancel("stay")])), clock)
        first = await talk.say("one")
        leaf, count = talk.session.leaf_id, talk.session.entry_count
        for summarize in (True, False):
            with pytest.raises(BranchRefused, match="stay"):
                await talk.branch(first.user_entry_id, summarize=summarize)
        assert (talk.session.leaf_id, talk.session.entry_count) == (leaf, count)
        await talk.close()


async def test_a_tree_hook_supplies_a_summary_that_nobody_asked_for_bounded_and_marked(
    agent_for: AgentFor, clock: SimulatedClock
) -> None:
    supply = Supply("it was about lanterns " * 9_000, {"by": "me"})
    with ScriptedModelServer() as server:
        agent = agent_for(server, WINDOW, hooks=Hooks([], [lambda _: supply]))
        talk = open_talk(agent, clock)
        first = await talk.say("one")
        gone = await talk.branch(first.user_entry_id)
        assert gone.summary is not None
        assert gone.summary.by == "hook"
        entry = talk.session.entry(str(gone.leaf_id)).data
        assert (entry["type"], entry["fromHook"]) == ("branch_summary", True)
        assert entry["details"] == {"by": "me"}
        assert agent.tokens.counter.count(entry["summary"]) <= agent.budget().summary_cap
        assert len(server.requests) == 1, "no model was asked"
        await talk.close()


async def test_an_empty_summary_of_a_tree_hook_is_none(
    agent_for: AgentFor, clock: SimulatedClock
) -> None:
    with ScriptedModelServer() as server:
        talk = open_talk(agent_for(server, hooks=Hooks([], [lambda _: Supply(" ")])), clock)
        first = await talk.say("one")
        gone = await talk.branch(first.user_entry_id, summarize=True)
        assert (gone.leaf_id, gone.summary) == (first.user_entry_id, None)
        await talk.close()
