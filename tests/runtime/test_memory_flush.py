"""The memory flush, with the real memory tools in a real folder: faults I1 to I11."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from strandline.context.budget import CompactionSettings
from strandline.context.view import View, ViewMessage
from strandline.errors import ModelError
from strandline.runtime import flushing
from strandline.runtime.access import WorkspaceAccess
from strandline.runtime.agent import Agent
from strandline.runtime.conversation import Conversation
from strandline.runtime.events import MemoryFlushed, Notice, TurnEvent, nobody
from strandline.runtime.flush_settings import FlushSettings
from strandline.runtime.flushing import CUSTOM_TYPE, looked_back_on
from strandline.runtime.registry import SessionRegistry
from strandline.runtime.tools import Toolbox
from strandline.stores.jsonl import JsonlStore
from strandline.stores.rows_file import RowsFile
from strandline.testing import CountingIds, Reply, ScriptedModelServer, SimulatedClock
from strandline.testing.reply import ToolCall
from strandline.testing.wire import RecordedRequest
from strandline.tools.builtin import builtin_tools

AgentFor = Callable[..., Agent]
KEY = "agent:main:main"
DAY_MS = 86_400_000
MIDNIGHT_MS = 1_767_225_600_000  # 2026-01-01, UTC
WINDOW = 16_000
PROMPT, SYSTEM = "Write down what lasts.", "Silent turn: only memory."
SOFT = 1_000
CLOSE = "The lantern of the harbour is lit. " * 250
"""About 2,250 tokens: three answers of it cross the flush line of `WINDOW`, four the limit."""
NEVER = FlushSettings(enabled=False)


def writes(note: str, call_id: str = "call_1") -> Reply:
    return Reply(tool_calls=[ToolCall("memory_write", {"note": note}, call_id)])


class Model:
    """Answers people with `says`, and flushes with what `flushes` holds for them, in order."""

    def __init__(self, *flushes: Reply, says: str | list[str] = CLOSE) -> None:
        self.flushes = list(flushes)
        self.says = says
        self.flush_requests: list[RecordedRequest] = []

    def __call__(self, request: RecordedRequest) -> Reply:
        if PROMPT not in str(request.body["messages"]):
            says = self.says if isinstance(self.says, str) else self.says.pop(0)
            return Reply(says, chunk_chars=8_000)
        self.flush_requests.append(request)
        return self.flushes.pop(0) if self.flushes else Reply("NO_REPLY")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture
def registry(tmp_path: Path, clock: SimulatedClock) -> SessionRegistry:
    rows = RowsFile(tmp_path / "sessions.json", clock=clock)
    return SessionRegistry(
        "main", rows, JsonlStore(tmp_path), cwd="/", clock=clock, ids=CountingIds()
    )


OpenTalk = Callable[..., Conversation]


@pytest.fixture
def open_talk(
    registry: SessionRegistry, agent_for: AgentFor, clock: SimulatedClock, workspace: Path
) -> OpenTalk:
    """Opens the conversation, with the tools that `access` allows."""

    def make(
        server: ScriptedModelServer,
        *,
        access: WorkspaceAccess = "rw",
        flush: FlushSettings | None = None,
        model_has_tools: bool = True,
        **more: Any,
    ) -> Conversation:
        agent = agent_for(
            server,
            WINDOW,
            toolbox=Toolbox(builtin_tools(workspace, access, clock, timezone=UTC)),
            flush=flush or FlushSettings(True, SOFT, PROMPT, SYSTEM),
            **more,
        )
        agent = replace(agent, info=replace(agent.info, tools=model_has_tools))
        return Conversation(registry, agent, KEY, holder="a test")

    return make


async def fill(talk: Conversation, times: int, listener: Any = nobody) -> None:
    for number in range(times):
        await talk.say(f"message {number}", listener=listener)
        await talk.settle()


def flushes_in(talk: Conversation) -> list[dict[str, Any]]:
    """What the flushes of a session left in it."""
    return [
        entry.data["data"]
        for entry in talk.session.entries()
        if entry.data.get("customType") == CUSTOM_TYPE
    ]


def compactions_in(talk: Conversation) -> int:
    return [entry.type for entry in talk.session.entries()].count("compaction")


def notices(heard: list[TurnEvent]) -> str:
    return "\n".join(event.text for event in heard if isinstance(event, Notice))


# -- what a flush is ---------------------------------------------------------------------------


async def test_near_the_limit_the_agent_writes_down_what_lasts_and_nobody_sees_it(
    open_talk: OpenTalk, workspace: Path
) -> None:
    heard: list[TurnEvent] = []
    model = Model(writes("- the lantern is lit"), Reply("NO_REPLY"))
    with ScriptedModelServer(model) as server:
        talk = open_talk(server)
        await fill(talk, 3, heard.append)
        assert (workspace / "memory/2026-01-01.md").read_text() == "- the lantern is lit\n"
        [flushed] = [event for event in heard if isinstance(event, MemoryFlushed)]
        assert flushed.notes == 1
        assert compactions_in(talk) == 0, "it comes before the compaction"
        assert "NO_REPLY" not in str(heard)
        context = str(talk.session.build_context().messages)
        assert PROMPT not in context
        assert "memory_write" not in context
        [kept] = flushes_in(talk)
        assert [m["role"] for m in kept["messages"]] == [
            "user",
            "assistant",
            "toolResult",
            "assistant",
        ]
        assert kept["usage"] == flushed.usage
        assert talk.session.verify() == []
        await talk.close()


async def test_the_prompts_are_those_of_the_settings_and_the_date_is_given(
    open_talk: OpenTalk,
) -> None:
    model = Model()
    with ScriptedModelServer(model) as server:
        talk = open_talk(server)
        await fill(talk, 3)
        [request] = model.flush_requests
        system, *_, asked = request.body["messages"]
        assert system["content"] == f"Be brief.\n\n{SYSTEM}"
        assert asked["role"] == "user"
        assert str(asked["content"]).startswith(PROMPT)
        assert "2026-01-01T00:00" in str(asked["content"]), "I7"
        answered = server.requests[0].body
        assert request.body["tools"] == answered["tools"], "the cache of the tools is hit"
        await talk.close()


async def test_what_the_flush_used_is_in_the_row_with_the_rest(open_talk: OpenTalk) -> None:
    with ScriptedModelServer(Model(writes("- a note"))) as server:
        talk = open_talk(server)
        await fill(talk, 3)
        [kept] = flushes_in(talk)
        answers = [
            message["usage"]
            for entry in talk.session.entries()
            if (message := entry.data.get("message")) and message["role"] == "assistant"
        ]
        row = talk.row
        assert row.input_tokens == sum(u["input"] for u in answers) + kept["usage"]["input"]
        assert row.output_tokens == sum(u["output"] for u in answers) + kept["usage"]["output"]
        assert row.memory_flush_at == MIDNIGHT_MS
        assert row.memory_flush_compaction_count == 0
        await talk.close()


async def test_only_the_tools_of_memory_run(open_talk: OpenTalk, workspace: Path) -> None:
    call = ToolCall("write", {"path": "AGENTS.md", "content": "obey"}, "call_1")
    with ScriptedModelServer(Model(Reply(tool_calls=[call]))) as server:
        talk = open_talk(server)
        await fill(talk, 3)
        assert not (workspace / "AGENTS.md").exists()
        [kept] = flushes_in(talk)
        refusal = kept["messages"][2]
        assert refusal["isError"]
        assert "there is no tool 'write'" in refusal["content"][0]["text"]
        await talk.close()


async def test_i6_notes_are_added_to_what_stands_there(
    open_talk: OpenTalk, workspace: Path
) -> None:
    today = workspace / "memory/2026-01-01.md"
    today.parent.mkdir()
    today.write_text("- written by a person\n")
    model = Model(writes("- a note\n- written by a person"))
    with ScriptedModelServer(model) as server:
        talk = open_talk(server)
        await fill(talk, 3)
        assert today.read_text() == "- written by a person\n- a note\n", "and nothing twice (I9)"
        await talk.close()


async def test_i7_a_flush_over_midnight_writes_to_the_day_that_it_is(
    open_talk: OpenTalk, workspace: Path, clock: SimulatedClock
) -> None:
    class OverMidnight(Model):
        def __call__(self, request: RecordedRequest) -> Reply:
            reply = super().__call__(request)
            if request in self.flush_requests:
                clock.advance(20_000)
            return reply

    clock.set(MIDNIGHT_MS + DAY_MS - 10_000)
    with ScriptedModelServer(OverMidnight(writes("- late"), writes("- later", "call_2"))) as server:
        talk = open_talk(server)
        await fill(talk, 3)
        assert not (workspace / "memory/2026-01-01.md").exists()
        assert (workspace / "memory/2026-01-02.md").read_text() == "- late\n- later\n"
        await talk.close()


async def test_a_tool_result_larger_than_the_window_does_not_break_the_flush(
    open_talk: OpenTalk, workspace: Path
) -> None:
    (workspace / "big.txt").write_text("harbour lantern\n" * 20_000)
    read = Reply(tool_calls=[ToolCall("read", {"path": "big.txt"}, "call_1")])
    heard: list[TurnEvent] = []
    model = Model(read, writes("- read it", "call_2"))
    with ScriptedModelServer(model, context_window=WINDOW) as server:
        talk = open_talk(server)
        await fill(talk, 3, heard.append)
        assert (workspace / "memory/2026-01-01.md").read_text() == "- read it\n"
        assert notices(heard) == ""
        await talk.close()


# -- when it runs ------------------------------------------------------------------------------


async def test_i1_every_cycle_has_its_flush_where_the_compaction_comes_after_the_turn(
    open_talk: OpenTalk,
) -> None:
    model = Model()
    with ScriptedModelServer(model) as server:
        talk = open_talk(server)
        for cycle in range(4):
            while compactions_in(talk) == cycle:
                await fill(talk, 1)
        assert len(model.flush_requests) == 4
        assert talk.row.compaction_count == 4
        assert talk.row.memory_flush_compaction_count == 3
        await talk.close()


async def test_i1_every_cycle_has_its_flush_where_the_compaction_comes_inside_the_turn(
    open_talk: OpenTalk,
) -> None:
    model = Model(says="yes")
    with ScriptedModelServer(model) as server:
        talk = open_talk(server)
        for cycle in range(4):
            flushed = len(model.flush_requests)
            while compactions_in(talk) == cycle:
                await talk.say("One result of 4,000 tokens jumps over the band (I3). " * 300)
                await talk.settle()
            assert len(model.flush_requests) == flushed + 1
        await talk.close()


async def test_i3_input_that_jumps_over_the_band_is_flushed_for_before_it_is_compacted(
    open_talk: OpenTalk,
) -> None:
    heard: list[TurnEvent] = []
    model = Model(says=[CLOSE, CLOSE, "yes"])
    with ScriptedModelServer(model) as server:
        talk = open_talk(server)
        await fill(talk, 2)
        assert model.flush_requests == []
        result = await talk.say("harbour lantern " * 1_800, listener=heard.append)
        assert len(result.compactions) == 1
        kinds = [type(event).__name__ for event in heard]
        assert kinds.index("MemoryFlushed") < kinds.index("CompactionStarted")
        assert "harbour lantern harbour" not in str(model.flush_requests[0].body["messages"])
        await talk.close()


async def test_i4_the_reserve_is_that_of_the_compaction(open_talk: OpenTalk) -> None:
    settings = CompactionSettings(reserve_tokens=4_000, reserve_tokens_floor=0)
    with ScriptedModelServer(Model()) as server:
        talk = open_talk(server, compaction=settings)
        budget = talk.agent.budget()
        assert budget.flush_line(SOFT) == budget.limit - SOFT
        assert budget.limit == WINDOW - 4_000 - budget.fixed
        await talk.close()


async def test_the_soft_threshold_is_at_most_a_quarter_of_what_messages_may_take(
    open_talk: OpenTalk,
) -> None:
    model = Model()
    flush = FlushSettings(True, 1_000_000, PROMPT, SYSTEM)
    with ScriptedModelServer(model) as server:
        talk = open_talk(server, flush=flush)
        assert talk.agent.budget().flush_line(1_000_000) >= talk.agent.budget().limit * 3 // 4
        await fill(talk, 2)
        assert model.flush_requests == []
        await talk.close()


async def test_a_manual_compaction_begins_a_new_cycle(open_talk: OpenTalk) -> None:
    model = Model()
    with ScriptedModelServer(model) as server:
        talk = open_talk(server)
        await fill(talk, 3)
        assert len(model.flush_requests) == 1
        await talk.compact()
        assert not talk.row.compaction_count
        while len(model.flush_requests) == 1:
            await fill(talk, 1)
            assert compactions_in(talk) == 1
        await talk.close()


async def test_i5_of_two_conversations_on_one_session_one_flushes(open_talk: OpenTalk) -> None:
    asked, go_on = Event(), Event()

    class Slow(Model):
        def __call__(self, request: RecordedRequest) -> Reply:
            reply = super().__call__(request)
            if request in self.flush_requests:
                asked.set()
                go_on.wait(20)
            return reply

    model = Slow()
    with ScriptedModelServer(model) as server:
        one, two = open_talk(server), open_talk(server)
        for number in range(3):
            await one.say(f"message {number}")
        assert await asyncio.to_thread(asked.wait, 20)
        heard: list[TurnEvent] = []
        model.says = "short"
        await two.say("meanwhile", listener=heard.append)
        await two.settle()
        assert not any(isinstance(event, MemoryFlushed) for event in heard)
        go_on.set()
        await one.settle()
        assert len(model.flush_requests) == 1
        await one.close()
        await two.close()


async def test_i1_a_flush_that_a_compaction_overtakes_belongs_to_the_cycle_in_which_it_began(
    open_talk: OpenTalk,
) -> None:
    asked, go_on = Event(), Event()

    class Slow(Model):
        def __call__(self, request: RecordedRequest) -> Reply:
            reply = super().__call__(request)
            if len(self.flush_requests) == 1 and not go_on.is_set():
                asked.set()
                if request in self.flush_requests:
                    go_on.wait(20)
            return reply

    model = Slow()
    with ScriptedModelServer(model) as server:
        talk = open_talk(server)
        for number in range(3):
            await talk.say(f"message {number}")
        assert await asyncio.to_thread(asked.wait, 20)
        model.says = "short"
        result = await talk.say("harbour lantern " * 1_800)
        assert len(result.compactions) == 1, "it did not wait for the flush"
        go_on.set()
        await talk.settle()
        row = talk.row
        assert (row.compaction_count, row.memory_flush_compaction_count) == (1, 0)
        assert compactions_in(talk) == 1, "and nothing is compacted twice"
        await talk.close()


async def test_where_compaction_is_off_the_memory_is_flushed_before_turns_are_left_out(
    open_talk: OpenTalk,
) -> None:
    model = Model()
    with ScriptedModelServer(model) as server:
        talk = open_talk(server, compaction=CompactionSettings(enabled=False))
        await fill(talk, 6)
        assert len(model.flush_requests) == 1
        assert compactions_in(talk) == 0
        await talk.close()


# -- when it does not --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "without",
    [
        {"access": "ro"},
        {"access": "none"},
        {"model_has_tools": False},
        {"flush": FlushSettings(False, SOFT, PROMPT, SYSTEM)},
    ],
)
async def test_i10_without_the_means_it_is_skipped_and_every_turn_is_delivered(
    open_talk: OpenTalk, without: dict[str, Any]
) -> None:
    heard: list[TurnEvent] = []
    model = Model()
    with ScriptedModelServer(model) as server:
        talk = open_talk(server, **without)
        await fill(talk, 5, heard.append)
        assert model.flush_requests == []
        assert compactions_in(talk) >= 1
        assert notices(heard) == ""
        assert talk.row.memory_flush_compaction_count is None
        await talk.close()


async def test_a_flush_without_an_answer_is_told_and_its_cycle_is_free_for_another(
    open_talk: OpenTalk, workspace: Path
) -> None:
    heard: list[TurnEvent] = []
    model = Model(Reply(status=500), writes("- at last"))
    with ScriptedModelServer(model) as server:
        talk = open_talk(server)
        await fill(talk, 3, heard.append)
        assert "the memory was not flushed" in notices(heard)
        assert not any(isinstance(event, MemoryFlushed) for event in heard)
        assert talk.row.memory_flush_compaction_count is None
        assert flushes_in(talk) == []
        model.says = "short"
        assert (await talk.say("and on")).reply == "short"
        await talk.settle()
        assert (workspace / "memory/2026-01-01.md").read_text() == "- at last\n"
        await talk.close()


async def test_a_flush_that_fails_half_way_counts_and_is_told_as_such(
    open_talk: OpenTalk, workspace: Path
) -> None:
    heard: list[TurnEvent] = []
    model = Model(writes("- the half"), Reply(status=500))
    with ScriptedModelServer(model) as server:
        talk = open_talk(server)
        await fill(talk, 3, heard.append)
        assert "not flushed to the end" in notices(heard)
        assert (workspace / "memory/2026-01-01.md").read_text() == "- the half\n"
        assert talk.row.memory_flush_compaction_count == 0
        [kept] = flushes_in(talk)
        assert kept["notes"] == 1
        await talk.close()


async def test_i10_a_flush_that_fails_inside_a_turn_leaves_the_turn_to_be_answered(
    open_talk: OpenTalk,
) -> None:
    heard: list[TurnEvent] = []
    model = Model(Reply(status=500), says=[CLOSE, CLOSE, "yes"])
    with ScriptedModelServer(model) as server:
        talk = open_talk(server)
        await fill(talk, 2)
        result = await talk.say("harbour lantern " * 1_800, listener=heard.append)
        assert result.reply == "yes"
        assert len(result.compactions) == 1
        assert "the memory was not flushed" in notices(heard)
        await talk.close()


async def test_a_flush_that_takes_too_long_is_stopped_and_the_turn_goes_on(
    open_talk: OpenTalk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flushing, "MOST_S", 0.2)
    heard: list[TurnEvent] = []
    stalling = Reply("NO_REPLY", stall_after=0, stall_s=20)
    model = Model(stalling, says=[CLOSE, CLOSE, "yes"])
    with ScriptedModelServer(model) as server:
        talk = open_talk(server)
        await fill(talk, 2)
        result = await talk.say("harbour lantern " * 1_800, listener=heard.append)
        assert result.reply == "yes"
        assert "it took more than 0.2 s" in notices(heard)
        await talk.close()


async def test_a_flush_that_is_given_up_frees_its_cycle(
    open_talk: OpenTalk, registry: SessionRegistry
) -> None:
    asked, go_on = Event(), Event()

    class Slow(Model):
        def __call__(self, request: RecordedRequest) -> Reply:
            reply = super().__call__(request)
            if request in self.flush_requests:
                asked.set()
                go_on.wait(20)
            return reply

    with ScriptedModelServer(Slow()) as server:
        talk = open_talk(server)
        for number in range(3):
            await talk.say(f"message {number}")
        assert await asyncio.to_thread(asked.wait, 20)
        claimed = registry.find(KEY).memory_flush_compaction_count
        await talk.close()
        go_on.set()
    assert (claimed, registry.find(KEY).memory_flush_compaction_count) == (0, None)


async def test_a_turn_that_fails_after_its_flush_has_both_in_its_row(open_talk: OpenTalk) -> None:
    class Failing(Model):
        def __call__(self, request: RecordedRequest) -> Reply:
            reply = super().__call__(request)
            return Reply(status=401) if reply.full_text == "fail" else reply

    model = Failing(says=[CLOSE, CLOSE, "fail"])
    with ScriptedModelServer(model) as server:
        talk = open_talk(server)
        await fill(talk, 2)
        before = talk.row
        with pytest.raises(ModelError):
            await talk.say("harbour lantern " * 1_800)
        row = talk.row
        [kept] = flushes_in(talk)
        assert row.input_tokens == (before.input_tokens or 0) + kept["usage"]["input"]
        assert (row.compaction_count, row.memory_flush_compaction_count) == (1, 0)
        assert row.aborted_last_run is True
        await talk.close()


def test_a_flush_looks_back_on_all_but_what_waits_for_its_answer() -> None:
    def seen_of(*roles: str) -> int:
        view = View(tuple(ViewMessage(str(at), {"role": role}, 1) for at, role in enumerate(roles)))
        return len(looked_back_on(view).messages)

    assert seen_of("user", "assistant", "user") == 2
    assert seen_of("user", "assistant", "toolResult") == 3
    assert seen_of("user") == 0
