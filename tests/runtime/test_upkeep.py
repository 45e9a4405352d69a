"""A message that arrives while a compaction runs is never lost, and never waits for it longer
than it must.

The summariser is a server of its own, which answers when a test lets it.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strandline.errors import CompactionRefused, ModelError, SessionBusy, StrandlineError
from strandline.models.openai_chat import OpenAIChatModel
from strandline.runtime.agent import Agent
from strandline.runtime.conversation import Conversation
from strandline.runtime.events import (
    CompactionReceipt,
    CompactionStarted,
    Notice,
    TurnEvent,
    nobody,
)
from strandline.runtime.model import ModelInfo
from strandline.runtime.model_summarizer import ModelSummarizer
from strandline.runtime.registry import SessionRegistry
from strandline.sessions.rows import SessionRow
from strandline.stores.jsonl import JsonlStore
from strandline.stores.memory import MemoryStore
from strandline.stores.rows_file import RowsFile
from strandline.stores.rows_memory import RowsMemory
from strandline.testing import CountingIds, Reply, ScriptedModelServer, SimulatedClock

AgentFor = Callable[..., Agent]
KEY = "agent:main:main"
WINDOW = 8_000
LONG = Reply("The lantern of the harbour is lit. " * 125, chunk_chars=4_000)
"""About 1,100 tokens: the fourth such answer crosses the threshold of `WINDOW`."""
TOO_MUCH = "lantern harbour " * 1_200
"""More than half of the reserve, which a message may take while a summary is being written."""
SUMMARY = Reply("## Facts and findings\n- the lantern is lit")
WAIT_S = 20.0


class Summariser:
    """A server that writes summaries once it is let; `asked` is set when the first was wanted."""

    def __init__(self) -> None:
        self.asked = Event()
        self.may_answer = Event()
        self.server = ScriptedModelServer(self._script)

    def _script(self, _request: object) -> Reply:
        self.asked.set()
        self.may_answer.wait(WAIT_S)
        return SUMMARY

    @property
    def calls(self) -> int:
        return len(self.server.requests)

    async def wanted(self) -> None:
        assert await asyncio.to_thread(self.asked.wait, WAIT_S)


@pytest.fixture
def summariser() -> Iterator[Summariser]:
    made = Summariser()
    with made.server:
        try:
            yield made
        finally:
            made.may_answer.set()


@pytest.fixture
def registry(tmp_path: Path, clock: SimulatedClock) -> SessionRegistry:
    return registry_in(tmp_path, clock)


def registry_in(folder: Path, clock: SimulatedClock) -> SessionRegistry:
    rows = RowsFile(folder / "sessions.json", clock=clock)
    return SessionRegistry(
        "main", rows, JsonlStore(folder), cwd="/", clock=clock, ids=CountingIds()
    )


def summarised_by(agent: Agent, summariser: Summariser) -> Agent:
    """The agent with that summariser."""
    model = OpenAIChatModel(summariser.server.base_url, clock=agent.clock)
    info = ModelInfo("test", "summariser", "openai-completions", 100_000, 4_000)
    by = ModelSummarizer(model, info, agent.tokens, agent.clock)
    return replace(agent, summarizer=by, only_for_summaries=(model,))


def talk_of(
    registry: SessionRegistry, agent: Agent, key: str = KEY, wait_ms: int = 10_000
) -> Conversation:
    return Conversation(registry, agent, key, holder="a test", lock_timeout_ms=wait_ms)


async def fill(talk: Conversation, times: int = 4, listener: Any = nobody) -> None:
    """Say as much as crosses the threshold at the last time."""
    for number in range(times):
        await talk.say(f"message {number}", listener=listener)


async def until(ready: Callable[[], bool]) -> None:
    """Wait until something is so."""
    for _ in range(int(WAIT_S / 0.01)):
        if ready():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never came about")


def summaries_in(talk: Conversation) -> int:
    return [entry.type for entry in talk.session.entries()].count("compaction")


def said_by_people(talk: Conversation) -> list[str]:
    return [
        message["content"][0]["text"]
        for entry in talk.session.entries()
        if (message := entry.data.get("message")) and message["role"] == "user"
    ]


def notices(heard: list[TurnEvent]) -> str:
    return "\n".join(event.text for event in heard if isinstance(event, Notice))


def told_to_the_loop() -> list[str]:
    """What the event loop is told of that nobody caught, from here on."""
    told: list[str] = []

    def hear(_loop: object, context: dict[str, Any]) -> None:
        told.append(repr(context["exception"]))

    asyncio.get_running_loop().set_exception_handler(hear)
    return told


# -- messages that come meanwhile ------------------------------------------------------------


async def test_a_message_that_fits_is_answered_before_the_summary_is_written(
    registry: SessionRegistry, agent_for: AgentFor, summariser: Summariser
) -> None:
    with ScriptedModelServer([LONG, LONG, Reply("at once")]) as server:
        talk = talk_of(registry, summarised_by(agent_for(server, WINDOW), summariser))
        await fill(talk, 2)
        compacting = asyncio.create_task(talk.compact())
        await summariser.wanted()
        assert (await talk.say("meanwhile")).reply == "at once"
        assert not compacting.done(), "nobody waited for the summary"
        summariser.may_answer.set()
        receipt = await compacting
        assert receipt is not None
        roles = [m["role"] for m in talk.session.build_context().messages]
        assert roles[0] == "compactionSummary"
        assert roles[-2:] == ["user", "assistant"], "what came meanwhile stands behind it"
        assert receipt.messages_kept >= 2
        assert said_by_people(talk) == ["message 0", "message 1", "meanwhile"]
        assert talk.session.verify() == []
        await talk.close()


async def test_a_message_after_the_threshold_is_answered_before_the_summary_is_written(
    registry: SessionRegistry, agent_for: AgentFor, summariser: Summariser
) -> None:
    """The context is over its limit already; a part of the reserve serves until it is not."""
    with ScriptedModelServer([*[LONG] * 4, Reply("at once"), Reply("once more")]) as server:
        talk = talk_of(registry, summarised_by(agent_for(server, WINDOW), summariser))
        await fill(talk)
        await summariser.wanted()
        for reply in ("at once", "once more"):
            assert (await talk.say("meanwhile")).reply == reply
        assert summaries_in(talk) == 0, "nobody waited for the summary"
        summariser.may_answer.set()
        [receipt] = await talk.settle()
        assert receipt.messages_kept >= 4
        assert (summariser.calls, summaries_in(talk)) == (1, 1)
        assert talk.session.verify() == []
        await talk.close()


async def test_a_message_that_does_not_fit_joins_the_summary_that_is_being_written(
    registry: SessionRegistry, agent_for: AgentFor, summariser: Summariser
) -> None:
    with ScriptedModelServer([LONG] * 4 + [Reply("after it")]) as server:
        talk = talk_of(registry, summarised_by(agent_for(server, WINDOW), summariser))
        await fill(talk)
        await summariser.wanted()
        turn = asyncio.create_task(talk.say(TOO_MUCH))
        await until(
            lambda: len(said_by_people(talk)) == 5
        )  # it is in the transcript before anything else
        assert len(server.requests) == 4
        summariser.may_answer.set()
        result = await turn
        assert result.reply == "after it"
        [receipt] = result.compactions
        assert receipt.trigger == "threshold"
        assert await talk.settle() == (), "whoever was told is not told again"
        assert (summariser.calls, summaries_in(talk)) == (1, 1)
        row = talk.row
        assert row.compaction_count == 1, "one compaction is counted once"
        usages = [answer["usage"] for answer in answers_of(talk)]
        assert receipt.usage is not None
        assert row.input_tokens == sum(u["input"] for u in usages) + receipt.usage["input"]
        await talk.close()


def answers_of(talk: Conversation) -> list[Any]:
    messages = [entry.data.get("message") for entry in talk.session.entries()]
    return [m for m in messages if m and m["role"] == "assistant"]


async def test_settling_waits_for_the_compaction_and_tells_of_it_exactly_once(
    registry: SessionRegistry, agent_for: AgentFor, summariser: Summariser
) -> None:
    heard: list[TurnEvent] = []
    summariser.may_answer.set()
    with ScriptedModelServer([LONG] * 4) as server:
        talk = talk_of(registry, summarised_by(agent_for(server, WINDOW), summariser))
        await fill(talk, listener=heard.append)
        first, second = await asyncio.gather(talk.settle(), talk.settle())
        assert len([*first, *second]) == 1
        assert await talk.settle() == ()
        assert [e for e in heard if isinstance(e, CompactionReceipt)] == [*first, *second]
        assert talk.row.compaction_count == 1
        assert talk.row.total_tokens == (await talk.context_size())[0]
        await talk.close()


async def test_a_receipt_that_nobody_asked_for_outlives_a_change_of_the_model(
    registry: SessionRegistry, agent_for: AgentFor
) -> None:
    with ScriptedModelServer([LONG] * 4) as server:
        talk = talk_of(registry, agent_for(server, WINDOW))
        await fill(talk)
        await until(lambda: talk.row.compaction_count == 1)
        await talk.use(agent_for(server, WINDOW))
        assert len(await talk.settle()) == 1
        await talk.close()


async def test_what_is_said_at_the_same_time_is_answered_in_the_order_in_which_it_came(
    registry: SessionRegistry, agent_for: AgentFor
) -> None:
    with ScriptedModelServer() as server:
        talk = talk_of(registry, agent_for(server))
        await asyncio.gather(*(talk.say(f"number {count}") for count in range(8)))
        assert said_by_people(talk) == [f"number {count}" for count in range(8)]
        await talk.close()


# -- people who compact meanwhile --------------------------------------------------------------


async def test_compact_joins_the_automatic_compaction_that_is_running(
    registry: SessionRegistry, agent_for: AgentFor, summariser: Summariser
) -> None:
    heard: list[TurnEvent] = []
    with ScriptedModelServer([LONG] * 4) as server:
        talk = talk_of(registry, summarised_by(agent_for(server, WINDOW), summariser))
        await fill(talk)
        await summariser.wanted()
        joining = asyncio.create_task(talk.compact(listener=heard.append))
        await until(lambda: bool(heard))
        summariser.may_answer.set()
        receipt = await joining
        assert receipt is not None
        assert receipt.trigger == "threshold"
        assert [type(e) for e in heard] == [CompactionStarted, CompactionReceipt], "H23, H27"
        await talk.settle()
        assert (summariser.calls, summaries_in(talk), talk.row.compaction_count) == (1, 1, 1)
        await talk.close()


async def test_compact_with_a_wish_takes_the_place_of_the_automatic_one_which_says_so(
    registry: SessionRegistry, agent_for: AgentFor, summariser: Summariser
) -> None:
    heard: list[TurnEvent] = []
    with ScriptedModelServer([LONG] * 4) as server:
        talk = talk_of(registry, summarised_by(agent_for(server, WINDOW), summariser))
        await fill(talk, listener=heard.append)
        await summariser.wanted()
        wish = asyncio.create_task(talk.compact("keep the lantern"))
        await until(lambda: summariser.calls == 2)
        summariser.may_answer.set()
        receipt = await wish
        assert receipt is not None
        assert receipt.trigger == "manual"
        assert await talk.settle() == ()
        assert "another one took its place" in notices(heard), "announced, so it ends (H27)"
        assert summaries_in(talk) == 1
        assert not talk.row.compaction_count, "only automatic ones are counted"
        assert "keep the lantern" in str(summariser.server.requests[1].body)
        await talk.close()


# -- what ends upkeep --------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["reset", "move", "use", "close"])
async def test_a_summary_in_the_making_is_given_up_and_nothing_of_it_is_written(
    registry: SessionRegistry,
    agent_for: AgentFor,
    summariser: Summariser,
    tmp_path: Path,
    what: str,
) -> None:
    heard: list[TurnEvent] = []
    by_hand_heard: list[TurnEvent] = []
    with ScriptedModelServer([LONG] * 4) as server:
        talk = talk_of(registry, summarised_by(agent_for(server, WINDOW), summariser))
        await fill(talk, listener=heard.append)
        await summariser.wanted()
        by_hand = asyncio.create_task(talk.compact(listener=by_hand_heard.append))
        await until(lambda: bool(by_hand_heard))
        match what:
            case "reset":
                await talk.reset()
            case "move":
                await talk.move_to(None)
            case "use":
                await talk.use(agent_for(server, WINDOW))
            case "close":
                await talk.close()
        with pytest.raises(CompactionRefused, match="stopped"):
            await by_hand
        assert "stopped" in notices(heard)
        assert all(b'"compaction"' not in path.read_bytes() for path in tmp_path.glob("*.jsonl*"))
        assert not registry.find(KEY).compaction_count
        if what != "close":
            assert (await talk.say("and on")).reply
            await talk.settle()
            await talk.close()


async def test_a_message_that_waits_for_a_reset_goes_to_the_new_session(
    registry: SessionRegistry, agent_for: AgentFor
) -> None:
    with ScriptedModelServer([Reply("slow " * 6, chunk_chars=5, delay_s=0.03)]) as server:
        talk = talk_of(registry, agent_for(server))
        old = talk.session_id
        first = asyncio.create_task(talk.say("to the old one"))
        await asyncio.sleep(0)
        reset = asyncio.create_task(talk.reset())
        await asyncio.sleep(0)
        second = asyncio.create_task(talk.say("to the new one"))
        await asyncio.gather(first, reset, second)
        assert talk.session_id != old
        assert said_by_people(talk) == ["to the new one"]
        await talk.close()


async def test_a_model_is_changed_after_the_turn_that_runs_not_under_it(
    registry: SessionRegistry, agent_for: AgentFor
) -> None:
    with ScriptedModelServer([Reply("slow " * 6, chunk_chars=5, delay_s=0.03)]) as server:
        talk = talk_of(registry, agent_for(server))
        turn = asyncio.create_task(talk.say("one"))
        await asyncio.sleep(0)
        await talk.use(agent_for(server))
        assert turn.done()
        assert (await turn).reply == "slow " * 6
        await talk.close()


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=st.integers(0, 120))
async def test_a_compaction_that_is_cancelled_at_any_point_is_written_and_noted_or_neither(
    agent_for: AgentFor, steps: int
) -> None:
    clock = SimulatedClock()
    registry = SessionRegistry(
        "main", RowsMemory(), MemoryStore(), cwd="/", clock=clock, ids=CountingIds()
    )
    with ScriptedModelServer([Reply("a"), LONG, LONG]) as server:
        talk = talk_of(registry, agent_for(server, WINDOW))
        await fill(talk, 3)
        before = talk.row.total_tokens
        task = asyncio.create_task(talk.compact())
        for _ in range(steps):
            await asyncio.sleep(0.0002)
        task.cancel()
        await asyncio.wait([task])
        size = (await talk.context_size())[0] if summaries_in(talk) else before
        assert talk.row.total_tokens == size, "the row knows the context as it is"
        assert (await talk.say("and on")).reply
        assert await talk.settle() == ()
        assert summaries_in(talk) <= 1
        assert talk.session.verify() == []
        await talk.close()


async def test_the_last_who_waits_stops_the_summary_and_the_next_message_works(
    registry: SessionRegistry, agent_for: AgentFor, summariser: Summariser
) -> None:
    with ScriptedModelServer([LONG, LONG]) as server:
        talk = talk_of(registry, summarised_by(agent_for(server, WINDOW), summariser))
        await fill(talk, 2)
        compacting = asyncio.create_task(talk.compact())
        await summariser.wanted()
        compacting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await compacting
        summariser.may_answer.set()
        assert summaries_in(talk) == 0
        assert (await talk.say("and on")).reply
        assert await talk.compact() is not None, "stopping is no failure (H28)"
        await talk.close()


async def test_a_turn_that_is_stopped_while_it_waits_leaves_the_summary_to_the_upkeep(
    registry: SessionRegistry, agent_for: AgentFor, summariser: Summariser
) -> None:
    with ScriptedModelServer([LONG] * 4 + [Reply("on")]) as server:
        talk = talk_of(registry, summarised_by(agent_for(server, WINDOW), summariser))
        await fill(talk)
        await summariser.wanted()
        heard: list[TurnEvent] = []
        turn = asyncio.create_task(talk.say(TOO_MUCH, listener=heard.append))
        await until(lambda: CompactionStarted("threshold") in heard)
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
        summariser.may_answer.set()
        assert len(await talk.settle()) == 1
        assert (summariser.calls, summaries_in(talk), talk.row.compaction_count) == (1, 1, 1)
        assert (await talk.retry()).reply == "on"
        assert said_by_people(talk)[-1] == TOO_MUCH
        await talk.close()


async def test_h23_compact_while_a_turn_recovers_from_an_overflow_waits_and_the_turn_is_answered(
    registry: SessionRegistry, agent_for: AgentFor
) -> None:
    with ScriptedModelServer(context_window=6_000) as server:
        talk = talk_of(registry, agent_for(server, 100_000))
        for number in range(2):
            await talk.say(f"{number} " + "lantern harbour " * 900)
        turn = asyncio.create_task(talk.say("2 " + "lantern harbour " * 1_200))
        await asyncio.sleep(0)
        compacting = asyncio.create_task(talk.compact())
        result = await turn
        assert result.reply.startswith("I heard")
        assert [receipt.trigger for receipt in result.compactions] == ["overflow"]
        [after] = await asyncio.gather(compacting, return_exceptions=True)
        assert isinstance(after, CompactionReceipt | CompactionRefused)
        assert [text.split()[0] for text in said_by_people(talk)] == ["0", "1", "2"]
        assert (await talk.say("and on")).reply
        await talk.settle()
        await talk.close()


async def test_closing_under_a_turn_ends_it_with_an_error_that_says_so(
    registry: SessionRegistry, agent_for: AgentFor
) -> None:
    with ScriptedModelServer([Reply("slow " * 8, chunk_chars=5, delay_s=0.05)]) as server:
        talk = talk_of(registry, agent_for(server))
        begun = asyncio.Event()
        turn = asyncio.create_task(talk.say("go", listener=lambda _: begun.set()))
        await begun.wait()
        await talk.close()
        with pytest.raises(StrandlineError):
            await turn


# -- what goes wrong ---------------------------------------------------------------------------


class RowsThatBreak(RowsMemory):
    """A store of rows that raises what it is told to."""

    error: Exception | None = None
    when: Callable[[SessionRow, SessionRow], bool] = staticmethod(lambda _old, _new: False)

    def patch(self, key: str, change: Any, expected: SessionRow | None = None) -> Any:
        def changed(row: SessionRow | None) -> Any:
            new = change(row)
            if self.error is not None and row is not None and self.when(row, new):
                raise self.error
            return new

        return super().patch(key, changed, expected)


def counts_a_compaction(old: SessionRow, new: SessionRow) -> bool:
    return old.compaction_count != new.compaction_count and bool(new.compaction_count)


async def test_a_fault_in_the_upkeep_is_told_and_logged_and_the_next_turn_goes_on(
    agent_for: AgentFor, clock: SimulatedClock
) -> None:
    heard: list[TurnEvent] = []
    logged = told_to_the_loop()
    rows = RowsThatBreak()
    rows.error, rows.when = ZeroDivisionError("a bug"), counts_a_compaction
    registry = SessionRegistry("main", rows, MemoryStore(), cwd="/", clock=clock, ids=CountingIds())
    with ScriptedModelServer([LONG] * 4) as server:
        talk = talk_of(registry, agent_for(server, WINDOW))
        await fill(talk, listener=heard.append)
        await talk.settle()
        assert logged == ["ZeroDivisionError('a bug')"]
        assert "ZeroDivisionError" in notices(heard)
        rows.error = None
        assert (await talk.say("and on")).reply
        await talk.close()


async def test_a_compaction_that_could_not_be_noted_is_told_as_one_that_was_made(
    agent_for: AgentFor, clock: SimulatedClock
) -> None:
    heard: list[TurnEvent] = []
    rows = RowsThatBreak()
    rows.error, rows.when = SessionBusy("the rows are busy", holder="x"), counts_a_compaction
    registry = SessionRegistry("main", rows, MemoryStore(), cwd="/", clock=clock, ids=CountingIds())
    with ScriptedModelServer([LONG] * 4) as server:
        talk = talk_of(registry, agent_for(server, WINDOW))
        await fill(talk, listener=heard.append)
        assert len(await talk.settle()) == 1
        assert "not noted in the session's row" in notices(heard)
        assert "not compacted" not in notices(heard), "H29"
        await talk.close()


async def test_a_turn_that_could_not_be_noted_is_answered_all_the_same(
    agent_for: AgentFor, clock: SimulatedClock
) -> None:
    heard: list[TurnEvent] = []
    rows = RowsThatBreak()
    rows.error, rows.when = SessionBusy("the rows are busy", holder="x"), lambda *_: True
    registry = SessionRegistry("main", rows, MemoryStore(), cwd="/", clock=clock, ids=CountingIds())
    with ScriptedModelServer([Reply("here")]) as server:
        talk = talk_of(registry, agent_for(server))
        rows.when = lambda old, new: old.input_tokens != new.input_tokens
        assert (await talk.say("one", listener=heard.append)).reply == "here"
        assert "the turn was not noted" in notices(heard)
        await talk.close()


async def test_a_listener_that_raises_ends_no_upkeep_and_is_reported(
    registry: SessionRegistry, agent_for: AgentFor
) -> None:
    logged = told_to_the_loop()

    def broken(event: TurnEvent) -> None:
        if type(event) in {CompactionStarted, CompactionReceipt}:
            raise LookupError("a face fell")

    with ScriptedModelServer([LONG] * 4) as server:
        talk = talk_of(registry, agent_for(server, WINDOW))
        await fill(talk, listener=broken)
        assert len(await talk.settle()) == 1
        assert talk.row.compaction_count == 1
        assert logged == ["LookupError('a face fell')"] * 2
        assert (await talk.say("and on", listener=broken)).reply
        await talk.close()


async def test_a_summariser_that_fails_is_told_and_the_turn_that_joined_is_answered(
    registry: SessionRegistry, agent_for: AgentFor
) -> None:
    class Broken:
        name = "broken"

        async def summarize(self, request: object) -> Any:
            await asyncio.sleep(0.05)
            raise ModelError(f"it is away ({type(request).__name__})", kind="network")

    heard: list[TurnEvent] = []
    with ScriptedModelServer([LONG] * 4) as server:
        agent = replace(agent_for(server, WINDOW), summarizer=Broken())
        talk = talk_of(registry, agent)
        await fill(talk, listener=heard.append)
        assert (await talk.say("and on", listener=heard.append)).reply
        assert await talk.settle() == ()
        assert "it is away" in notices(heard)
        assert (summaries_in(talk), talk.row.compaction_count or 0) == (0, 0)
        await talk.close()


# -- two at the same session -------------------------------------------------------------------


async def test_two_conversations_on_one_session_compact_it_once(
    registry: SessionRegistry, agent_for: AgentFor, summariser: Summariser
) -> None:
    heard: list[TurnEvent] = []
    with ScriptedModelServer([LONG] * 4) as server:
        one = talk_of(registry, summarised_by(agent_for(server, WINDOW), summariser))
        two = talk_of(registry, summarised_by(agent_for(server, WINDOW), summariser))
        await fill(one, 3)
        tasks = [asyncio.create_task(each.compact(listener=heard.append)) for each in (one, two)]
        await until(lambda: summariser.calls == 2)
        summariser.may_answer.set()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert sorted(type(each).__name__ for each in done) == [
            "CompactionReceipt",
            "CompactionRefused",
        ]
        assert "went elsewhere" in notices(heard)
        one.session.refresh()
        assert summaries_in(one) == 1
        [receipt] = [each for each in done if isinstance(each, CompactionReceipt)]
        usages = [answer["usage"] for answer in answers_of(one)] + [receipt.usage] * 2
        assert one.row.output_tokens == sum(u["output"] for u in usages), "both were paid for"
        assert one.session.verify() == []
        await one.close()
        await two.close()


async def test_a_summary_that_could_not_be_appended_in_time_is_kept_for_the_next_who_needs_it(
    registry: SessionRegistry, agent_for: AgentFor, summariser: Summariser
) -> None:
    script = [LONG] * 4 + [Reply("slow " * 12, chunk_chars=5, delay_s=0.05), Reply("on")]
    heard: list[TurnEvent] = []
    with ScriptedModelServer(script) as server:
        agent = summarised_by(agent_for(server, WINDOW), summariser)
        talk = talk_of(registry, agent, wait_ms=150)
        other = talk_of(registry, agent_for(server, 4 * WINDOW))
        await fill(talk, listener=heard.append)
        await summariser.wanted()
        begun = asyncio.Event()
        long_turn = asyncio.create_task(other.say("long", listener=lambda _: begun.set()))
        await begun.wait()
        summariser.may_answer.set()
        assert await talk.settle() == ()
        assert "is held by a test" in notices(heard)
        await long_turn
        result = await talk.say("now")
        assert len(result.compactions) == 1
        assert summariser.calls == 1, "it was not paid for twice"
        await talk.close()
        await other.close()


async def test_another_process_talks_while_a_summary_is_written_and_nothing_is_lost(
    registry: SessionRegistry,
    agent_for: AgentFor,
    summariser: Summariser,
    tmp_path: Path,
) -> None:
    with ScriptedModelServer([LONG, LONG, Reply("to the other process")]) as server:
        talk = talk_of(registry, summarised_by(agent_for(server, WINDOW), summariser))
        await fill(talk, 2)
        compacting = asyncio.create_task(talk.compact())
        await summariser.wanted()
        said = await asyncio.to_thread(in_another_process, tmp_path, server.base_url)
        assert said == "to the other process"
        summariser.may_answer.set()
        await compacting
        messages = talk.session.build_context().messages
        assert messages[0]["role"] == "compactionSummary"
        assert messages[-1]["content"][0]["text"] == said
        assert said_by_people(talk)[-1] == "from another process"
        assert talk.session.verify() == []
        row = talk.row
        answers = [answer["usage"]["output"] for answer in answers_of(talk)]
        assert row.output_tokens is not None
        assert row.output_tokens >= sum(answers), "both wrote into one row"
        await talk.close()


def in_another_process(folder: Path, url: str) -> str:
    """Say something there under `KEY`; returns the reply."""
    program = f"""
        import asyncio
        from pathlib import Path
        from strandline.clock import RandomIds, SystemClock
        from strandline.context.tokens import HeuristicCounter, MessageTokens
        from strandline.models.openai_chat import OpenAIChatModel
        from strandline.runtime.agent import Agent
        from strandline.runtime.conversation import Conversation
        from strandline.runtime.model import ModelInfo
        from strandline.runtime.offline import OfflineSummarizer
        from strandline.runtime.registry import SessionRegistry
        from strandline.stores.jsonl import JsonlStore
        from strandline.stores.rows_file import RowsFile

        async def main():
            clock, folder = SystemClock(), Path({str(folder)!r})
            tokens = MessageTokens(HeuristicCounter())
            agent = Agent(
                "main", OpenAIChatModel({url!r}, clock=clock),
                ModelInfo("test", "scripted", "openai-completions", 100_000, 500),
                OfflineSummarizer(tokens.counter), tokens, clock,
            )
            registry = SessionRegistry(
                "main", RowsFile(folder / "sessions.json"), JsonlStore(folder),
                cwd="/", clock=clock, ids=RandomIds(),
            )
            talk = Conversation(registry, agent, {KEY!r}, holder="the other")
            print((await talk.say("from another process")).reply, end="")
            await talk.settle()
            await talk.close()

        asyncio.run(main())
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


async def test_a_reset_by_another_is_followed_at_the_next_message(
    registry: SessionRegistry, agent_for: AgentFor
) -> None:
    with ScriptedModelServer() as server:
        here = talk_of(registry, agent_for(server))
        there = talk_of(registry, agent_for(server))
        await here.say("one")
        await there.reset()
        await here.say("two")
        assert here.session_id == there.session_id
        assert said_by_people(here) == ["two"]
        assert registry.find(KEY).session_id == here.session_id
        await here.close()
        await there.close()


async def test_a_row_that_was_taken_out_comes_back_with_the_session_that_is_open(
    registry: SessionRegistry, agent_for: AgentFor, tmp_path: Path, clock: SimulatedClock
) -> None:
    with ScriptedModelServer() as server:
        talk = talk_of(registry, agent_for(server))
        await talk.say("one")
        RowsFile(tmp_path / "sessions.json", clock=clock).delete(KEY)
        await talk.say("two")
        assert registry.find(KEY).session_id == talk.session_id
        assert said_by_people(talk) == ["one", "two"]
        await talk.close()


async def test_m3_sessions_that_compact_at_once_know_nothing_of_each_other(
    registry: SessionRegistry, agent_for: AgentFor
) -> None:
    canaries = ["ALBATROSS-71", "BITTERN-82", "CORMORANT-93"]
    with ScriptedModelServer() as server:
        shared = agent_for(server, WINDOW)
        talks = [talk_of(registry, shared, f"agent:main:explicit:{c}") for c in canaries]
        for talk, canary in zip(talks, canaries, strict=True):
            for count in range(3):
                text = f"Remember the number {canary}. " + f"It was {canary} again. " * 100
                await talk.say(f"{count}: {text}")
        await asyncio.gather(*(talk.compact() for talk in talks))
        for talk, canary in zip(talks, canaries, strict=True):
            text = str(talk.session.build_context().messages)
            assert canary in text
            assert not any(other in text for other in canaries if other != canary)
        for talk in talks:
            await talk.close()
