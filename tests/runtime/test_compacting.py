"""Carrying out a compaction: one entry or none, joined, stopped, and never without an end."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from strandline.clock import SystemClock
from strandline.context.budget import CompactionSettings
from strandline.context.summarize import Summarizer, Summary, SummaryRequest
from strandline.context.tokens import HeuristicCounter, MessageTokens
from strandline.errors import (
    CompactionRefused,
    ModelError,
    SessionBusy,
    StoreWriteFailed,
    StrandlineError,
)
from strandline.manager import SessionManager
from strandline.runtime.agent import Agent, Backend
from strandline.runtime.compacting import Compactor
from strandline.runtime.conversation import Conversation
from strandline.runtime.events import (
    CompactionReceipt,
    CompactionStarted,
    CompactionTrigger,
    Notice,
    TurnEvent,
    nobody,
)
from strandline.runtime.hooks import Cancel, Hooks, Supply
from strandline.runtime.offline import OfflineSummarizer
from strandline.runtime.registry import SessionRegistry
from strandline.runtime.tools import Tool, Toolbox
from strandline.runtime.turn import run_turn, user_message
from strandline.stores.jsonl import JsonlStore
from strandline.stores.memory import MemoryStore
from strandline.stores.rows_memory import RowsMemory
from strandline.testing import (
    CountingIds,
    Faults,
    FaultyDisk,
    Reply,
    ScriptedModelServer,
    SimulatedClock,
    ToolCall,
)
from strandline.transcript.codec import encode_object
from strandline.transcript.header import new_header
from strandline.transcript.messages import Message

BackendFor = Callable[..., Backend]
CHAT = "openai-completions"
SHORT = "## Goal\n- they talk of lanterns\n"


class Told:
    """A summariser that writes what it is told, once the gate is open; counts its calls."""

    name = "told"

    def __init__(self, text: str | Exception = SHORT, *, is_open: bool = True) -> None:
        self.text = text
        self.began = asyncio.Event()
        self.gate = asyncio.Event()
        self.asked = 0
        if is_open:
            self.gate.set()

    async def summarize(self, request: SummaryRequest) -> Summary:
        self.asked += bool(request.messages)
        self.began.set()
        await self.gate.wait()
        if isinstance(self.text, Exception):
            raise self.text
        return Summary(self.text, self.name)


def agent_of(backend: Backend, summarizer: Summarizer | None = None, **more: Any) -> Agent:
    tokens = MessageTokens(HeuristicCounter())
    return Agent(
        "main",
        backend.model,
        backend.info,
        summarizer or OfflineSummarizer(tokens.counter),
        tokens,
        SystemClock(),
        **{"system_prompt": "Be brief.", **more},
    )


@pytest.fixture
async def server() -> AsyncIterator[ScriptedModelServer]:
    with ScriptedModelServer(context_window=16_000) as opened:
        yield opened


def talk(session: SessionManager, turns: int = 12, chars: int = 3_000) -> None:
    """Turns of about 1,500 tokens."""
    for number in range(turns):
        text = f"{number}: " + "lantern harbour " * (chars // 16)
        session.append_message(user_message(text, number))
        session.append_message(answer(f"{number}, yes: " + text))


def answer(text: str) -> Message:
    content = [{"type": "text", "text": text}]
    return {"role": "assistant", "content": content, "stopReason": "stop", "timestamp": 1}


@pytest.fixture
def session(tmp_path: Path) -> SessionManager:
    made = SessionManager.create(session_dir=tmp_path, cwd="/", durability="none")
    talk(made)
    return made


def compactions(session: SessionManager) -> list[str]:
    return [entry.id for entry in session.entries() if entry.type == "compaction"]


def ends(heard: Sequence[TurnEvent]) -> list[str]:
    """How each compaction that was begun has ended, as this listener heard it."""
    out, begun = [], 0
    for event in heard:
        if isinstance(event, CompactionStarted):
            begun += 1
        elif isinstance(event, CompactionReceipt):
            out.append("receipt")
        elif isinstance(event, Notice) and event.text.startswith("not compacted"):
            out.append(event.text)
    assert begun == len(out), "every one that was begun has ended, once (H27)"
    return out


# -- one entry, and nothing else -----------------------------------------------------------


async def test_a_compaction_appends_one_entry_after_bytes_that_stay_as_they_were(
    session: SessionManager, server: ScriptedModelServer, backend_for: BackendFor
) -> None:
    path, heard = Path(str(session.path_name)), list[TurnEvent]()
    before, count = path.read_bytes(), session.entry_count
    agent = agent_of(backend_for(CHAT, server))
    compactor = Compactor(session, agent)
    receipt = await compactor.compact(agent.budget(), "manual", heard.append)
    after = path.read_bytes()
    assert after.startswith(before)
    assert after[len(before) :].count(b"\n") == 1
    assert session.entry_count == count + 1
    assert compactions(session) == [receipt.entry_id]
    assert receipt.tokens_after < receipt.tokens_before
    assert (receipt.tokens_freed, ends(heard)) == (
        receipt.tokens_before - receipt.tokens_after,
        ["receipt"],
    )
    assert session.verify() == []


async def test_what_is_said_while_the_summary_is_written_is_kept_by_the_compaction(
    session: SessionManager, server: ScriptedModelServer, backend_for: BackendFor
) -> None:
    summarizer = Told(is_open=False)
    agent = agent_of(backend_for(CHAT, server), summarizer)
    compactor = Compactor(session, agent)
    making = asyncio.create_task(compactor.compact(agent.budget(), "threshold", nobody))
    await summarizer.began.wait()
    said = [session.append_message(user_message(f"meanwhile {n}", n)) for n in range(3)]
    summarizer.gate.set()
    receipt = await making
    assert [item.entry_id for item in session.build_context().items][-3:] == said
    assert receipt.messages_kept + receipt.messages_summarised == 24 + 3
    assert receipt.tokens_after < receipt.tokens_before


async def test_a_result_that_came_late_does_not_keep_the_session_from_being_compacted(
    session: SessionManager, server: ScriptedModelServer, backend_for: BackendFor
) -> None:
    """In the view it stands beside its call, on the path after a message that is kept."""
    talk(session, 6)
    call = {"type": "toolCall", "id": "late", "name": "read", "arguments": {}}
    session.append_message({**answer(""), "content": [call], "stopReason": "toolUse"})
    session.append_message(user_message("are you there? " + "harbour " * 2_000, 1))
    late = {"type": "text", "text": "so late " * 400}
    session.append_message(
        {
            "role": "toolResult",
            "toolCallId": "late",
            "toolName": "read",
            "content": [late],
            "isError": False,
            "timestamp": 1,
        }
    )
    session.append_message(answer("yes"))
    agent = agent_of(backend_for(CHAT, server, 8_000), Told())
    compactor = Compactor(session, agent)
    receipt = await compactor.compact(agent.budget(), "overflow", nobody)
    assert receipt.tokens_freed > 0
    assert len(compactions(session)) == 1


# -- joining and stopping ------------------------------------------------------------------


async def test_who_needs_a_compaction_joins_the_one_in_the_making_and_all_hear_its_end(
    session: SessionManager, server: ScriptedModelServer, backend_for: BackendFor
) -> None:
    summarizer, one, two = Told(is_open=False), list[TurnEvent](), list[TurnEvent]()
    agent = agent_of(backend_for(CHAT, server), summarizer)
    compactor, lane = Compactor(session, agent), asyncio.Lock()

    async def compact(trigger: CompactionTrigger, heard: list[TurnEvent]) -> CompactionReceipt:
        async with lane:
            pending = await compactor.begin(agent.budget(), trigger, heard.append)
        return await compactor.finish(pending, heard.append, lambda: lane)

    both = asyncio.gather(compact("threshold", one), compact("overflow", two))
    await summarizer.began.wait()
    summarizer.gate.set()
    first, second = await both
    assert first is second
    assert ends(one) == ends(two) == ["receipt"]
    assert summarizer.asked == len(compactions(session)) == 1


async def test_one_who_is_cancelled_does_not_take_the_compaction_from_another(
    session: SessionManager, server: ScriptedModelServer, backend_for: BackendFor
) -> None:
    summarizer, one, two = Told(is_open=False), list[TurnEvent](), list[TurnEvent]()
    agent = agent_of(backend_for(CHAT, server), summarizer)
    compactor = Compactor(session, agent)
    first = asyncio.create_task(compactor.compact(agent.budget(), "threshold", one.append))
    await summarizer.began.wait()
    second = asyncio.create_task(compactor.compact(agent.budget(), "overflow", two.append))
    await asyncio.sleep(0.05)
    first.cancel()
    await asyncio.wait([first])
    summarizer.gate.set()
    assert (await second).tokens_freed > 0
    assert ends(one) == ends(two) == ["receipt"]


async def test_a_compaction_that_is_cancelled_leaves_nothing_and_the_next_one_works(
    session: SessionManager, server: ScriptedModelServer, backend_for: BackendFor
) -> None:
    summarizer, heard = Told(is_open=False), list[TurnEvent]()
    agent = agent_of(backend_for(CHAT, server), summarizer)
    compactor = Compactor(session, agent)
    before = Path(str(session.path_name)).read_bytes()
    making = asyncio.create_task(compactor.compact(agent.budget(), "manual", heard.append))
    await summarizer.began.wait()
    making.cancel()
    with pytest.raises(asyncio.CancelledError):
        await making
    assert Path(str(session.path_name)).read_bytes() == before
    assert ends(heard) == ["not compacted (manual): it was stopped"]
    summarizer.gate.set()
    assert (await compactor.compact(agent.budget(), "manual", nobody)).tokens_freed > 0


async def test_one_that_another_takes_the_place_of_is_refused_not_cancelled(
    session: SessionManager, server: ScriptedModelServer, backend_for: BackendFor
) -> None:
    """H23: ``/compact keep the names`` while an automatic one is being made."""
    summarizer, heard = Told(is_open=False), list[TurnEvent]()
    agent = agent_of(backend_for(CHAT, server), summarizer)
    compactor = Compactor(session, agent)
    first = asyncio.create_task(compactor.compact(agent.budget(), "threshold", heard.append))
    await summarizer.began.wait()
    wish = compactor.compact(agent.budget(), "manual", nobody, "keep the names")
    second = asyncio.create_task(wish)
    with pytest.raises(CompactionRefused, match="another one took its place"):
        await first
    summarizer.gate.set()
    assert (await second).trigger == "manual"
    assert ends(heard) == ["not compacted (threshold): another one took its place"]
    assert len(compactions(session)) == 1


async def test_a_compaction_cancelled_while_it_is_appended_is_told_before_the_cancelling(
    session: SessionManager, server: ScriptedModelServer, backend_for: BackendFor
) -> None:
    heard, made = list[TurnEvent](), list[asyncio.Task[Any]]()
    append = session.append_compaction

    def stopping(*arguments: Any, **named: Any) -> str:
        made[0].get_loop().call_soon_threadsafe(made[0].cancel)
        return append(*arguments, **named)

    object.__setattr__(session, "append_compaction", stopping)
    agent = agent_of(backend_for(CHAT, server), Told())
    compactor = Compactor(session, agent)
    made.append(asyncio.create_task(compactor.compact(agent.budget(), "manual", heard.append)))
    with pytest.raises(asyncio.CancelledError):
        await made[0]
    assert len(compactions(session)) == 1
    assert ends(heard) == ["receipt"]


async def test_a_lane_that_is_not_given_keeps_the_summary_for_the_next_who_needs_it(
    session: SessionManager, server: ScriptedModelServer, backend_for: BackendFor
) -> None:
    @asynccontextmanager
    async def busy() -> AsyncIterator[None]:
        raise SessionBusy("a turn holds the session", holder="it")
        yield

    summarizer, one, two = Told(), list[TurnEvent](), list[TurnEvent]()
    agent = agent_of(backend_for(CHAT, server), summarizer)
    compactor = Compactor(session, agent)
    pending = await compactor.begin(agent.budget(), "threshold", one.append)
    with pytest.raises(SessionBusy):
        await compactor.finish(pending, one.append, busy)
    assert ends(one) == ["not compacted (threshold): a turn holds the session"]
    assert (await compactor.compact(agent.budget(), "overflow", two.append)).tokens_freed > 0
    assert (ends(two), summarizer.asked) == (["receipt"], 1)


# -- every path has an end (H27) -----------------------------------------------------------

ENDINGS: dict[str, tuple[str | Exception, str]] = {
    "the summariser's model fails": (ModelError("it is away", kind="network"), "it is away"),
    "the summariser is broken": (KeyError("oops"), "the summariser told failed"),
    "the summary is empty": (" \n", "the summary is empty"),
    "the summary is longer than what it replaces": ("word " * 50_000, "receipt"),
}


@pytest.mark.parametrize("ending", ENDINGS)
async def test_h27_whatever_comes_of_a_summary_its_end_is_told_and_the_turn_is_answered(
    session: SessionManager, server: ScriptedModelServer, backend_for: BackendFor, ending: str
) -> None:
    text, told = ENDINGS[ending]
    heard = list[TurnEvent]()
    agent = agent_of(backend_for(CHAT, server), Told(text))
    before = len(session.entries())
    result = await run_turn(session, agent, user_message("go on", 1), listener=heard.append)
    await agent.aclose()
    assert result.reply
    assert all(told in end for end in ends(heard))
    assert ends(heard)
    written = len(compactions(session))
    assert written == ends(heard).count("receipt")
    assert len(session.entries()) == before + 2 + written
    assert all(r.tokens_after < r.tokens_before for r in result.compactions)
    assert server.refused == []


async def test_h27_a_hook_that_says_no_is_an_end_too(
    session: SessionManager, server: ScriptedModelServer, backend_for: BackendFor
) -> None:
    heard = list[TurnEvent]()
    hooks = Hooks(session_before_compact=[lambda _: Cancel("not now")])
    agent = agent_of(backend_for(CHAT, server), hooks=hooks)
    with pytest.raises(CompactionRefused, match="not now"):
        await Compactor(session, agent).compact(agent.budget(), "manual", heard.append)
    assert len(ends(heard)) == 1
    assert compactions(session) == []


async def test_h27_a_conversation_that_went_elsewhere_meanwhile_is_an_end_too(
    session: SessionManager, server: ScriptedModelServer, backend_for: BackendFor
) -> None:
    summarizer, heard = Told(is_open=False), list[TurnEvent]()
    agent = agent_of(backend_for(CHAT, server), summarizer)
    compactor = Compactor(session, agent)
    making = asyncio.create_task(compactor.compact(agent.budget(), "threshold", heard.append))
    await summarizer.began.wait()
    session.branch(session.path()[3])
    summarizer.gate.set()
    with pytest.raises(CompactionRefused, match="went elsewhere"):
        await making
    assert len(ends(heard)) == 1
    assert compactions(session) == []


async def test_h27_a_disk_that_is_full_is_an_end_too(
    server: ScriptedModelServer, backend_for: BackendFor
) -> None:
    faults, heard = Faults(), list[TurnEvent]()
    store = JsonlStore(Path("/state"), disk=FaultyDisk(faults))
    log = store.create("s.jsonl", encode_object(new_header("s", SystemClock(), "/", None)) + b"\n")
    full = SessionManager(log, store)
    talk(full)
    faults.free_bytes = 0
    agent = agent_of(backend_for(CHAT, server), Told())
    with pytest.raises(StoreWriteFailed):
        await Compactor(full, agent).compact(agent.budget(), "manual", heard.append)
    assert len(ends(heard)) == 1
    faults.free_bytes = None
    assert (await Compactor(full, agent).compact(agent.budget(), "manual", nobody)).tokens_freed


async def test_a_summary_by_a_hook_is_bounded_like_any_other(
    session: SessionManager, server: ScriptedModelServer, backend_for: BackendFor
) -> None:
    hooks = Hooks(session_before_compact=[lambda _: Supply("word " * 50_000)])
    agent = agent_of(backend_for(CHAT, server), hooks=hooks)
    receipt = await Compactor(session, agent).compact(agent.budget(), "manual", nobody)
    assert receipt.tokens_after < receipt.tokens_before


async def test_h3_a_short_conversation_is_not_made_longer_by_a_summary(
    server: ScriptedModelServer, backend_for: BackendFor
) -> None:
    session, heard = SessionManager.in_memory(), list[TurnEvent]()
    talk(session, 3, 40)
    agent = agent_of(backend_for(CHAT, server), Told("word " * 2_000))
    with pytest.raises(CompactionRefused):
        await Compactor(session, agent).compact(agent.budget(), "manual", heard.append)
    assert compactions(session) == ends(heard) == []


# -- in turns ------------------------------------------------------------------------------


async def test_h4_thirty_turns_with_a_large_prompt_compact_seldom_and_always_gain(
    backend_for: BackendFor,
) -> None:
    """A fixed prompt of 17k, 20k to be kept, tools that fill a window of 44k again."""

    async def look(_: object) -> str:
        return "what the tool saw " * 180

    tool = Tool("look", "It looks.", {"type": "object"}, look)
    settings = CompactionSettings(keep_recent_tokens=20_000)
    session, heard = SessionManager.in_memory(), list[TurnEvent]()
    gains = []

    def script(_: object) -> Reply:
        called = Reply(tool_calls=[ToolCall("look", {})])
        return Reply("seen") if len(mine.requests) % 2 == 0 else called

    with ScriptedModelServer(script, context_window=44_000) as mine:
        agent = agent_of(
            backend_for(CHAT, mine, 44_000),
            system_prompt="Mind the gap. " * 4_850,
            compaction=settings,
            toolbox=Toolbox([tool]),
        )
        assert 16_900 < agent.prompt_tokens < 17_100
        for number in range(30):
            message = user_message(f"question {number}", number)
            result = await run_turn(session, agent, message, listener=heard.append)
            gains.append([(r.tokens_before, r.tokens_after) for r in result.compactions])
        await agent.aclose()
        assert len(mine.requests) == 60, "never refused"
    made = [gain for turn in gains for gain in turn]
    assert made
    assert all(after < before * 3 // 4 for before, after in made), "each gained, and not a little"
    assert not any(len(turn) > 1 for turn in gains)
    assert not any(a and b for a, b in itertools.pairwise(gains)), "never two in a row"
    assert set(ends(heard)) == {"receipt"}


async def test_h6_refusals_are_counted_anew_once_the_model_has_answered(
    backend_for: BackendFor,
) -> None:
    """A long tool loop may meet its limit more often than one answer may."""

    async def look(_: object) -> str:
        return "nothing new"

    def script(_: object) -> Reply:
        asked = len(mine.requests)
        if asked % 2 == 1:
            return Reply(finish_reason="model_context_window_exceeded")
        return Reply("Done.") if asked == 16 else Reply(tool_calls=[ToolCall("look", {})])

    session = SessionManager.in_memory()
    talk(session, 4)
    with ScriptedModelServer(script) as mine:
        tool = Tool("look", "It looks.", {"type": "object"}, look)
        agent = agent_of(backend_for(CHAT, mine, 64_000), toolbox=Toolbox([tool]))
        result = await run_turn(session, agent, user_message("go", 1))
        await agent.aclose()
    assert result.reply == "Done."


async def test_a_refusal_that_nothing_explains_ends_after_four_tries(
    session: SessionManager, backend_for: BackendFor
) -> None:
    refusing = Reply(finish_reason="model_context_window_exceeded")
    with ScriptedModelServer(lambda _: refusing) as server:
        agent = agent_of(backend_for(CHAT, server, 64_000))
        with pytest.raises(StrandlineError):
            await run_turn(session, agent, user_message("go", 1))
        await agent.aclose()
        assert len(server.requests) == 4


def conversation(agent: Agent) -> Conversation:
    store, rows, clock = MemoryStore(), RowsMemory(), SimulatedClock()
    registry = SessionRegistry("main", rows, store, cwd="/", clock=clock, ids=CountingIds())
    return Conversation(registry, agent, "agent:main:main", holder="a test")


async def test_h23_compacting_by_hand_while_a_turn_compacts_loses_nothing_and_keeps_the_order(
    server: ScriptedModelServer, backend_for: BackendFor
) -> None:
    summarizer = Told(is_open=False)
    agent = agent_of(backend_for(CHAT, server), summarizer)
    talking = conversation(agent)
    talk(talking.session)  # type: ignore[arg-type]
    one, hand = list[TurnEvent](), list[TurnEvent]()
    first = asyncio.create_task(talking.say("first", listener=one.append))
    await summarizer.began.wait()
    by_hand = asyncio.create_task(talking.compact(listener=hand.append))
    second = asyncio.create_task(talking.say("second"))
    await asyncio.sleep(0.05)
    summarizer.gate.set()
    done = await asyncio.gather(first, by_hand, second, return_exceptions=True)
    assert done[0].reply  # type: ignore[union-attr]
    assert done[2].reply  # type: ignore[union-attr]
    assert isinstance(done[1], CompactionReceipt | CompactionRefused)
    assert ends(one) == ["receipt"]
    ends(hand)
    texts = [e.data["message"] for e in talking.session.entries() if e.type == "message"][-4:]
    assert [m["role"] for m in texts] == ["user", "assistant"] * 2
    assert [texts[0]["content"][0]["text"], texts[2]["content"][0]["text"]] == ["first", "second"]
    assert talking.session.verify() == []
    await talking.close()


async def test_a_message_is_answered_while_the_summary_for_the_one_before_is_written(
    backend_for: BackendFor,
) -> None:
    """And when it is stopped for good, its listeners hear that."""
    summarizer, heard = Told(is_open=False), list[TurnEvent]()
    with ScriptedModelServer() as server:
        backend = backend_for(CHAT, server)
        agent = agent_of(replace(backend, info=replace(backend.info, context_window=24_000)))
        agent = replace(agent, summarizer=summarizer)
        talking = conversation(agent)
        # Just under the line before the answer, over it after.
        budget = agent.budget()
        while budget.limit - size_of(talking, agent) > 800:
            talk(talking.session, 1, 300)  # type: ignore[arg-type]
        server.script = [Reply("word " * 1_200), Reply("Quick.")]
        await talking.say("a long answer, please", listener=heard.append)
        await summarizer.began.wait()
        talk_on = asyncio.create_task(talking.say("short"))
        await asyncio.sleep(0.05)
        summarizer.gate.set()
        assert (await talk_on).reply == "Quick."
        await talking.close()
    assert len(ends(heard)) == 1


def size_of(talking: Conversation, agent: Agent) -> int:
    items = talking.session.build_context().items
    return sum(agent.tokens.of(item.entry_id, item.message) for item in items)
