"""Going to another entry with a summary of exactly what is left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from threading import Event
from typing import Any

import pytest

from strandline.context.summarize import Summary, SummaryRequest
from strandline.errors import EntryNotFound, ModelError
from strandline.models.openai_chat import OpenAIChatModel
from strandline.runtime.agent import Agent
from strandline.runtime.conversation import Conversation
from strandline.runtime.events import Notice, TurnEvent
from strandline.runtime.model import ModelInfo
from strandline.runtime.model_summarizer import ModelSummarizer
from strandline.runtime.offline import OfflineSummarizer
from strandline.runtime.registry import SessionRegistry
from strandline.stores.memory import MemoryStore
from strandline.stores.rows_memory import RowsMemory
from strandline.testing import CountingIds, Reply, ScriptedModelServer, SimulatedClock

AgentFor = Callable[..., Agent]
WINDOW = 8_000
SUMMARY = "## Facts and findings\n- what was left"


@dataclass
class Watched:
    """A real summariser that remembers what it was given."""

    by: OfflineSummarizer
    name: str = "watched"
    requests: list[SummaryRequest] = field(default_factory=list)

    async def summarize(self, request: SummaryRequest) -> Summary:
        self.requests.append(request)
        return await self.by.summarize(request)

    @property
    def told(self) -> list[str]:
        """The first word of each message of the only request."""
        [request] = self.requests
        return [first_word(message) for message in request.messages]


def first_word(message: Any) -> str:
    content = message.get("content", message.get("summary"))
    text = content if isinstance(content, str) else content[0]["text"]
    return str(text).split()[0]


Open = Callable[..., Conversation]


@pytest.fixture
def open_talk(clock: SimulatedClock) -> Open:
    def make(agent: Agent) -> Conversation:
        registry = SessionRegistry(
            "main", RowsMemory(), MemoryStore(), cwd="/", clock=clock, ids=CountingIds()
        )
        return Conversation(registry, agent, "agent:main:main", holder="a test")

    return make


@pytest.fixture
def server() -> Iterator[ScriptedModelServer]:
    """Answers ``u3 …`` with ``a3 …``."""
    made = ScriptedModelServer()

    def answer(request: Any) -> Reply:
        asked = request.body["messages"][-1]["content"]
        text = asked if isinstance(asked, str) else asked[0]["text"]
        return Reply(text.replace("u", "a", 1)[:60])

    made.script = answer
    with made:
        yield made


def watched(agent: Agent) -> tuple[Agent, Watched]:
    by = Watched(OfflineSummarizer(agent.tokens.counter))
    return replace(agent, summarizer=by), by


async def say(talk: Conversation, *numbers: int, words: int = 20) -> list[str]:
    """Say ``u<number> …``; the ids of what was said."""
    return [
        (await talk.say(f"u{number} " + "the lantern is lit. " * (words // 4))).user_entry_id
        for number in numbers
    ]


def context_words(talk: Conversation) -> list[str]:
    return [first_word(message) for message in talk.session.build_context().messages]


async def test_the_summary_is_of_the_messages_that_only_the_left_branch_holds(
    agent_for: AgentFor, open_talk: Open, server: ScriptedModelServer
) -> None:
    agent, by = watched(agent_for(server))
    talk = open_talk(agent)
    ids = await say(talk, 1, 2, 3)
    answer_2 = talk.session.path()[talk.session.path().index(ids[2]) - 1]
    gone = await talk.branch(answer_2, summarize=True, instructions="mind the lantern")
    assert by.told == ["u3", "a3"]
    assert by.requests[0].instructions == "mind the lantern"
    assert gone.summary is not None
    assert context_words(talk)[:4] == ["u1", "a1", "u2", "a2"]
    roles = [message["role"] for message in talk.session.build_context().messages]
    assert roles == ["user", "assistant", "user", "assistant", "branchSummary"]
    assert talk.session.verify() == []
    assert (await talk.say("u4 go on")).reply
    await talk.close()


async def test_from_one_branch_to_another_what_they_share_is_not_told(
    agent_for: AgentFor, open_talk: Open, server: ScriptedModelServer
) -> None:
    agent, by = watched(agent_for(server))
    talk = open_talk(agent)
    ids = await say(talk, 1, 2, 3)
    tip = talk.session.leaf_id
    await talk.branch(ids[1])
    await say(talk, 4, 5)
    await talk.branch(tip, summarize=True)
    assert by.told == ["u4", "a4", "u5", "a5"]
    assert context_words(talk)[:6] == ["u1", "a1", "u2", "a2", "u3", "a3"]
    await talk.close()


async def test_to_the_very_beginning_everything_is_left(
    agent_for: AgentFor, open_talk: Open, server: ScriptedModelServer
) -> None:
    agent, by = watched(agent_for(server))
    talk = open_talk(agent)
    await say(talk, 1, 2)
    gone = await talk.branch(None, summarize=True)
    assert by.told == ["u1", "a1", "u2", "a2"]
    entry = talk.session.entry(str(gone.leaf_id)).data
    assert (entry["fromId"], entry["parentId"]) == ("root", None)
    assert [m["role"] for m in talk.session.build_context().messages] == ["branchSummary"]
    assert (await talk.say("u3 go on")).reply
    await talk.close()


async def test_where_nothing_is_left_there_is_nothing_to_summarise(
    agent_for: AgentFor, open_talk: Open, server: ScriptedModelServer
) -> None:
    agent, by = watched(agent_for(server))
    talk = open_talk(agent)
    await say(talk, 1)
    before, leaf = talk.session.build_context().messages, talk.session.leaf_id
    gone = await talk.branch(leaf, summarize=True)
    assert (gone.leaf_id, gone.summary, by.requests) == (leaf, None, [])
    assert talk.session.build_context().messages == before
    await talk.close()


async def test_an_entry_that_is_not_there_is_refused_and_nothing_is_written(
    agent_for: AgentFor, open_talk: Open, server: ScriptedModelServer
) -> None:
    talk = open_talk(agent_for(server))
    await say(talk, 1)
    count = talk.session.entry_count
    with pytest.raises(EntryNotFound):
        await talk.branch("deadbeef", summarize=True)
    assert talk.session.entry_count == count
    await talk.close()


async def test_what_a_compaction_on_the_branch_summarised_is_told_itself(
    agent_for: AgentFor, open_talk: Open, server: ScriptedModelServer
) -> None:
    agent, by = watched(agent_for(server, WINDOW))
    talk = open_talk(agent)
    ids = await say(talk, 1, 2, 3, 4, 5, words=900)
    await talk.compact()
    await say(talk, 6)
    await talk.compact()
    await say(talk, 7)
    by.requests.clear()
    assert ids[1] not in [item.entry_id for item in talk.session.build_context().items]
    await talk.branch(ids[1], summarize=True)
    both = [f"{who}{number}" for number in range(2, 8) for who in ("u", "a")]
    assert by.told == both[1:], "neither a summary of what stays, nor a gap"
    assert context_words(talk)[:3] == ["u1", "a1", "u2"]
    await talk.close()


async def test_where_nothing_stays_the_summary_of_a_compaction_stands_for_what_it_summarised(
    agent_for: AgentFor, open_talk: Open, server: ScriptedModelServer
) -> None:
    agent, by = watched(agent_for(server, WINDOW))
    talk = open_talk(agent)
    await say(talk, 1, 2, 3, words=900)
    await talk.compact()
    by.requests.clear()
    await talk.branch(None, summarize=True)
    [request] = by.requests
    assert len(request.messages) < 6
    assert "u1" in str(request.messages[0])
    await talk.close()


async def test_a_branch_larger_than_the_summarisers_window_is_told_in_parts(
    agent_for: AgentFor,
    open_talk: Open,
    server: ScriptedModelServer,
    clock: SimulatedClock,
) -> None:
    with ScriptedModelServer(lambda _: Reply(SUMMARY), context_window=8_000) as own:
        agent = agent_for(server, 4 * WINDOW)
        model = OpenAIChatModel(own.base_url, clock=clock)
        info = ModelInfo("test", "small", "openai-completions", 8_000, 1_000)
        by = ModelSummarizer(model, info, agent.tokens, clock)
        talk = open_talk(replace(agent, summarizer=by, only_for_summaries=(model,)))
        first, *_ = await say(talk, 1, 2, 3, 4, words=2_400)
        before = talk.row
        gone = await talk.branch(first, summarize=True)
        assert len(own.requests) > 1
        everything = "".join(str(request.body) for request in own.requests)
        assert all(f"u{number} " in everything for number in (2, 3, 4))
        assert "u1 " not in everything
        assert gone.summary is not None
        usage = gone.summary.usage
        assert usage is not None
        row = talk.row
        assert row.input_tokens == (before.input_tokens or 0) + usage["input"], "it is paid for"
        assert agent.tokens.counter.count(gone.summary.text) <= agent.budget().summary_cap
        await talk.close()


async def test_a_summary_that_fails_leaves_the_conversation_where_it_was(
    agent_for: AgentFor, open_talk: Open, server: ScriptedModelServer
) -> None:
    class Broken:
        name = "broken"

        async def summarize(self, request: SummaryRequest) -> Summary:
            raise ModelError(f"it is away, {request.max_tokens}", kind="network")

    talk = open_talk(replace(agent_for(server), summarizer=Broken()))
    first, _ = await say(talk, 1, 2)
    leaf, count = talk.session.leaf_id, talk.session.entry_count
    with pytest.raises(ModelError):
        await talk.branch(first, summarize=True)
    assert (talk.session.leaf_id, talk.session.entry_count) == (leaf, count)
    await talk.close()


async def test_stopped_while_the_summary_is_written_nothing_is_appended(
    agent_for: AgentFor,
    open_talk: Open,
    server: ScriptedModelServer,
    clock: SimulatedClock,
) -> None:
    asked, go_on = Event(), Event()

    def slow(_request: object) -> Reply:
        asked.set()
        go_on.wait(20)
        return Reply(SUMMARY)

    with ScriptedModelServer(slow) as own:
        agent = agent_for(server)
        model = OpenAIChatModel(own.base_url, clock=clock)
        info = ModelInfo("test", "slow", "openai-completions", 8_000, 1_000)
        by = ModelSummarizer(model, info, agent.tokens, clock)
        talk = open_talk(replace(agent, summarizer=by, only_for_summaries=(model,)))
        first, _ = await say(talk, 1, 2)
        leaf, count = talk.session.leaf_id, talk.session.entry_count
        going = asyncio.create_task(talk.branch(first, summarize=True))
        assert await asyncio.to_thread(asked.wait, 20)
        going.cancel()
        with pytest.raises(asyncio.CancelledError):
            await going
        go_on.set()
        assert (talk.session.leaf_id, talk.session.entry_count) == (leaf, count)
        assert (await talk.say("u3 go on")).reply
        await talk.close()


@pytest.mark.parametrize("steps", range(0, 24, 2))
async def test_stopped_at_any_point_there_are_both_lines_or_none_once_it_has_ended(
    agent_for: AgentFor, open_talk: Open, server: ScriptedModelServer, steps: int
) -> None:
    talk = open_talk(agent_for(server))
    first, _ = await say(talk, 1, 2)
    leaf, count = talk.session.leaf_id, talk.session.entry_count
    going = asyncio.create_task(talk.branch(first, summarize=True))
    for _ in range(steps):
        await asyncio.sleep(0.0005)
    going.cancel()
    await asyncio.wait([going])
    if talk.session.entry_count == count:
        assert talk.session.leaf_id == leaf
    else:
        assert talk.session.entry_count == count + 2
        assert talk.session.entry(str(talk.session.leaf_id)).type == "branch_summary"
    await talk.close()


async def test_what_a_summariser_has_to_say_reaches_the_person(
    agent_for: AgentFor, open_talk: Open, server: ScriptedModelServer
) -> None:
    @dataclass
    class Talkative:
        by: OfflineSummarizer
        name: str = "talkative"

        async def summarize(self, request: SummaryRequest) -> Summary:
            return replace(await self.by.summarize(request), notes=("the first model was away",))

    heard: list[TurnEvent] = []
    agent = agent_for(server)
    talk = open_talk(replace(agent, summarizer=Talkative(OfflineSummarizer(agent.tokens.counter))))
    first, _ = await say(talk, 1, 2)
    await talk.branch(first, summarize=True, listener=heard.append)
    assert Notice("the first model was away") in heard
    await talk.close()
