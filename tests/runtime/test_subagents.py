"""Sub-agents of a conversation: begun, at work, over, announced; and what goes wrong."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from strandline.context.engine import (
    EngineInfo,
    LegacyEngine,
    Rollback,
    SubagentEnded,
    SubagentSpawn,
)
from strandline.errors import (
    ConfigError,
    EngineError,
    NothingToAnswer,
    SessionNotFound,
    SpawnRefused,
    StoreWriteFailed,
    StrandlineError,
)
from strandline.manager import SessionManager
from strandline.runtime.agent import Agent
from strandline.runtime.announcing import SUBAGENT
from strandline.runtime.child_sessions import ChildSessions
from strandline.runtime.conversation import Conversation
from strandline.runtime.engine_host import EngineHost
from strandline.runtime.events import Notice, TurnEvent
from strandline.runtime.family import Household, Parent, SubagentLimits, child_key, depth_of
from strandline.runtime.lanes import lane
from strandline.runtime.registry import ArchivingStore, SessionRegistry
from strandline.runtime.spawn_checks import may_spawn
from strandline.runtime.subagents import Subagents
from strandline.runtime.tools import Tool
from strandline.stores.jsonl import JsonlStore
from strandline.stores.rows_file import RowsFile
from strandline.testing import CountingIds, Reply, ScriptedModelServer, SimulatedClock
from strandline.testing.disk import Faults, FaultyDisk
from strandline.testing.reply import ToolCall
from strandline.testing.wire import RecordedRequest
from strandline.tools.spawning import spawn_tool

AgentFor = Callable[..., Agent]
KEY = "agent:main:main"


@dataclass
class Recorder(LegacyEngine):
    """An engine that notes what it is told of sub-agents, and fails where it is to."""

    info = EngineInfo("recorder", "Recorder")
    prepared: list[SubagentSpawn] = field(default_factory=list)
    rolled_back: list[str] = field(default_factory=list)
    ended: list[SubagentEnded] = field(default_factory=list)
    fails: frozenset[str] = frozenset()

    async def prepare_subagent_spawn(self, request: SubagentSpawn) -> Rollback | None:
        if "prepare" in self.fails:
            raise RuntimeError("no room")
        self.prepared.append(request)

        async def rollback() -> None:
            self.rolled_back.append(request.child.session_key)
            if "rollback" in self.fails:
                raise RuntimeError("stuck")

        return rollback

    async def on_subagent_ended(self, request: SubagentEnded) -> None:
        self.ended.append(request)
        if "ended" in self.fails:
            raise RuntimeError("deaf")

    @property
    def reasons(self) -> list[str]:
        return [each.reason for each in self.ended]


@dataclass
class Home:
    """A folder with conversations that may have sub-agents."""

    folder: Path
    clock: SimulatedClock
    make: Callable[[], Agent]
    limits: SubagentLimits = field(default_factory=SubagentLimits)
    engine: Recorder = field(default_factory=Recorder)
    ids: CountingIds = field(default_factory=CountingIds)
    transcripts: ArchivingStore | None = None
    wait_ms: int = 10_000

    def __post_init__(self) -> None:
        self.host = EngineHost(self.engine)
        self.rows = RowsFile(self.folder / "sessions.json", clock=self.clock)
        self.registry = SessionRegistry(
            "main", self.rows, JsonlStore(self.folder), cwd="/", clock=self.clock, ids=self.ids
        )

    def sessions(self, _agent_id: str) -> ChildSessions:
        store = self.transcripts or JsonlStore(self.folder)
        return ChildSessions(
            self.rows, store, "/", self.clock, self.ids, lambda name: str(self.folder / name)
        )

    def agent(self, _agent_id: str, model_ref: str | None) -> Agent:
        if model_ref == "no/such":
            raise ConfigError("no/such cannot be used", remedy="name another")
        return self.make()

    def open(self, _agent_id: str, key: str, agent: Agent) -> Conversation:
        household = Household(self.sessions, self.agent, self.open)

        def children(parent: Parent) -> tuple[Subagents, list[Tool]]:
            subagents = Subagents(
                parent, household, clock=self.clock, ids=self.ids, limits=self.limits
            )
            return subagents, [spawn_tool(subagents)] if may_spawn(key, self.limits) else []

        return Conversation(
            self.registry,
            agent,
            key,
            holder="a test",
            lock_timeout_ms=self.wait_ms,
            children=children,
        )

    @asynccontextmanager
    async def talk(self, key: str = KEY) -> AsyncIterator[Conversation]:
        conversation = self.open("main", key, self.make())
        try:
            yield conversation
        finally:
            await conversation.close()

    def transcript(self, session_id: str) -> Path:
        return self.folder / f"{session_id}.jsonl"


class Script:
    """Answers parents at once and children when they may; `said` are the words for each."""

    def __init__(self) -> None:
        self.parent: Callable[[RecordedRequest], Reply] = lambda _: Reply("Parent heard it.")
        self.child: Callable[[RecordedRequest], Reply] = lambda _: Reply("Forty-two.")
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.child_asked = threading.Event()

    def __call__(self, request: RecordedRequest) -> Reply:
        if not is_childs(request):
            return self.parent(request)
        self.child_asked.set()
        assert self.may_answer.wait(30)
        return self.child(request)

    async def until_asked(self) -> None:
        assert await asyncio.to_thread(self.child_asked.wait, 30)


async def until(holds: Callable[[], bool]) -> None:
    """Wait for what nobody tells of."""
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110 - as said
            await asyncio.sleep(0.01)


def texts(request: RecordedRequest) -> list[str]:
    """What each message of a request says."""
    told = []
    for message in request.body["messages"]:
        content = message.get("content") or ""
        told.append(content if isinstance(content, str) else json.dumps(content))
    return told


def is_childs(request: RecordedRequest) -> bool:
    return any("[A task from another agent" in text for text in texts(request))


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def server(script: Script) -> Iterator[ScriptedModelServer]:
    with ScriptedModelServer(script) as up:
        yield up
        script.may_answer.set()


@pytest.fixture
def home(
    tmp_path: Path, clock: SimulatedClock, agent_for: AgentFor, server: ScriptedModelServer
) -> Home:
    engine = Recorder()
    host = EngineHost(engine)
    folder = tmp_path / "sessions"
    return Home(folder, clock, lambda: agent_for(server, engine=host), engine=engine)


def subagents(conversation: Conversation) -> Subagents:
    assert conversation.subagents is not None
    return conversation.subagents


def announcements(conversation: Conversation) -> list[dict[str, Any]]:
    """The lines that announce something, as they stand in the parent's transcript."""
    conversation.session.refresh()
    entries = [entry.data for entry in conversation.session.entries()]
    return [each for each in entries if each.get("customType") == SUBAGENT]


def origin(announcement: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = announcement["details"]["origin"]
    return found


# -- the way of a sub-agent --------------------------------------------------------------------


async def test_a_child_has_a_session_of_its_own_and_its_answer_is_announced(
    home: Home, server: ScriptedModelServer
) -> None:
    """M5: what it answers is a message with its origin, and no person's."""
    async with home.talk() as parent:
        await parent.say("Hello")
        spawned = await subagents(parent).spawn("What is six times seven?", label="sums")
        await parent.settle()
        [told] = announcements(parent)
        assert told["type"] == "custom_message"
        assert told["content"].endswith("answered:\n\nForty-two.")
        assert origin(told) | {"usage": None} == {
            "kind": "subagent",
            "sessionKey": spawned.key,
            "sessionId": spawned.session_id,
            "runId": spawned.run_id,
            "label": "sums",
            "status": "completed",
            "durationMs": 0,
            "usage": None,
        }
        assert origin(told)["usage"]["output"] > 0
        assert parent.session.build_context().messages[-1]["role"] == "assistant"
    asked = texts(server.requests[-1])
    assert "strandline.subagent; the person did not write this" in asked[-1]
    header, *lines = home.transcript(spawned.session_id).read_text().splitlines()
    assert json.loads(header)["parentSession"] == str(home.transcript(parent.session_id))
    [task] = [m for m in map(said, lines) if m.get("role") == "user"]
    assert task["content"][1]["text"] == "What is six times seven?"
    assert task["provenance"]["kind"] == "inter_session"
    assert task["provenance"]["sourceSessionKey"] == KEY


def said(line: str) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(line).get("message") or {}
    return message


async def test_an_isolated_child_knows_its_task_alone(
    home: Home, server: ScriptedModelServer
) -> None:
    async with home.talk() as parent:
        await parent.say("The password is swordfish")
        await subagents(parent).spawn("Count to three")
        await parent.settle()
    [asked] = [request for request in server.requests if is_childs(request)]
    assert "swordfish" not in json.dumps(asked.body)
    assert len(texts(asked)) == 2, "the system prompt and the task"


async def test_the_row_of_a_child_is_made_anew(home: Home) -> None:
    """E8: neither the file nor the counters of the parent are in it."""
    async with home.talk() as parent:
        await parent.say("Hello")
        parents = home.registry.find(KEY)
        spawned = await subagents(parent).spawn("Do it", context="fork", label="a  b")
        row = home.registry.find(spawned.key)
        await parent.settle()
    assert row.session_id == spawned.session_id
    assert row.session_file == f"{spawned.session_id}.jsonl" != parents.session_file
    assert row.input_tokens is None
    assert row.total_tokens is None
    assert row.forked_from_parent is True
    assert (row.raw["spawnedBy"], row.raw["spawnDepth"], row.raw["label"]) == (KEY, 1, "a b")


async def test_a_model_begins_a_child_and_goes_on_at_once(
    home: Home, script: Script, server: ScriptedModelServer
) -> None:
    """D6: a fork from within a turn ends before the answer whose calls are not done."""
    replies = iter(
        [
            Reply("Let me ask.", tool_calls=[ToolCall("spawn", {"task": "Go", "context": "fork"})]),
            Reply("It is being done."),
            Reply("It is done."),
        ]
    )
    script.parent = lambda _: next(replies)
    async with home.talk() as parent:
        result = await parent.say("See to it")
        assert result.reply == "It is being done."
        [answer] = await subagents(parent).wait()
        assert answer.reply == "It is done."
        assert subagents(parent).list()[0].status == "completed"
    [asked] = [request for request in server.requests if is_childs(request)]
    assert [m["role"] for m in asked.body["messages"]] == ["system", "user", "user"]
    assert server.refused == []


async def test_a_fork_brings_the_summary_and_what_was_kept_along(
    home: Home, server: ScriptedModelServer
) -> None:
    """N4: the child of a compacted parent has the same ids, its compaction and its pins."""
    async with home.talk() as parent:
        for number in range(4):
            await parent.say(f"Story {number}: " + "lantern harbour " * 300)
        pinned = parent.session.build_context().items[-2].entry_id
        parent.session.append_label(pinned, "pin")
        await parent.compact()
        before = [item.entry_id for item in parent.session.build_context().items]
        spawned = await subagents(parent).spawn("Go on", context="fork")
        await parent.settle()
    with SessionManager.open(home.transcript(spawned.session_id)) as child:
        items = child.build_context().items
        assert [item.entry_id for item in items][: len(before)] == before
        assert items[0].message["role"] == "compactionSummary"
        assert child.label(pinned) == "pin"
        assert child.verify() == []
    [asked] = [request for request in server.requests if is_childs(request)]
    assert "a summary of the earlier conversation" in texts(asked)[1]


async def test_several_announcements_are_answered_together(
    home: Home, script: Script, server: ScriptedModelServer
) -> None:
    script.may_answer.clear()
    async with home.talk() as parent:
        for task in "abc":
            await subagents(parent).spawn(task)
        script.may_answer.set()
        await parent.settle()
        assert len({origin(told)["runId"] for told in announcements(parent)}) == 3
        with pytest.raises(NothingToAnswer):
            await parent.retry()


async def test_silence_is_announced_to_nobody(
    home: Home, script: Script, server: ScriptedModelServer
) -> None:
    """J1: and the parent's agent is not asked either, now or later."""
    script.child = lambda _: Reply(" no_reply\n")
    async with home.talk() as parent:
        await parent.say("Hello")
        await subagents(parent).spawn("Look whether there is anything")
        await parent.settle()
        assert announcements(parent) == []
        assert len(server.requests) == 2
    async with home.talk() as parent:
        await parent.say("Still there?")
        assert announcements(parent) == []
    assert home.engine.reasons == ["completed"]


async def test_a_long_answer_is_bounded(home: Home, script: Script) -> None:
    script.child = lambda _: Reply("word " * 8000)
    async with home.talk() as parent:
        spawned = await subagents(parent).spawn("Write a book")
        await parent.settle()
        [told] = announcements(parent)
    assert len(told["content"]) < 21_000
    assert told["content"].endswith(f"characters are in the session {spawned.key}]")


# -- the lane of the parent ----------------------------------------------------------------------


@pytest.mark.parametrize("wait_ms", [0, 10_000])
async def test_an_announcement_waits_for_the_turn_that_is_being_built(
    home: Home, script: Script, wait_ms: int
) -> None:
    """E1: it comes behind the turn's answer, never between a call and its result."""
    home.wait_ms = wait_ms
    calls = iter([Reply("Wait.", tool_calls=[ToolCall("spawn", {"task": "quick"})])])
    go_on = threading.Event()

    def answer(_: RecordedRequest) -> Reply:
        reply = next(calls, None)
        if reply is None:
            assert go_on.wait(30)
        return reply or Reply("Done with the turn.")

    script.parent = answer
    async with home.talk() as parent:
        turn = asyncio.create_task(parent.say("Work"))
        await until(lambda: [each.status for each in subagents(parent).list()] == ["completed"])
        assert announcements(parent) == []
        go_on.set()
        await turn
        await parent.settle()
        roles = [m["role"] for m in parent.session.build_context().messages]
    assert roles == ["user", "assistant", "toolResult", "assistant", "custom", "assistant"]


async def test_a_message_that_comes_first_answers_the_announcement(
    home: Home, script: Script, server: ScriptedModelServer
) -> None:
    script.may_answer.clear()
    async with home.talk() as parent:
        await subagents(parent).spawn("Do it")
        async with lane(
            parent.session, holder="somebody"
        ):  # somebody has the floor when the child is done
            script.may_answer.set()
            await until(lambda: subagents(parent).list()[0].status == "completed")
        await parent.say("What now?")
        await parent.settle()
        messages = parent.session.build_context().messages
    assert messages[-1]["role"] == "assistant"
    assert sum(m["role"] == "custom" for m in messages) == 1


async def test_a_parent_that_compacts_meanwhile_hears_of_its_child(
    home: Home, script: Script
) -> None:
    script.may_answer.clear()
    async with home.talk() as parent:
        for number in range(4):
            await parent.say(f"Story {number}: " + "lantern harbour " * 300)
        await subagents(parent).spawn("Do it")
        await parent.compact()
        script.may_answer.set()
        await parent.settle()
        roles = [m["role"] for m in parent.session.build_context().messages]
    assert roles[0] == "compactionSummary"
    assert roles[-2:] == ["custom", "assistant"]


async def test_a_child_of_a_branch_that_was_left_is_told_as_such(
    home: Home, script: Script, server: ScriptedModelServer
) -> None:
    """D9: its result does not go for one of the branch that the parent is on now."""
    script.may_answer.clear()
    async with home.talk() as parent:
        first = await parent.say("One")
        await parent.say("Two")
        await subagents(parent).spawn("Do it")
        await parent.branch(first.user_entry_id)
        script.may_answer.set()
        before = len(server.requests)
        await parent.settle()
        [told] = announcements(parent)
    assert "begun on another branch of this conversation" in told["content"]
    assert len(server.requests) <= before + 1, "the child's own; nobody is asked to go on"


# -- refused ----------------------------------------------------------------------------------


async def unchanged(home: Home, parent: Conversation) -> None:
    """Nothing was begun, and the parent works (N3)."""
    assert [*home.folder.glob("*.jsonl")] == [home.transcript(parent.session_id)]
    assert [*home.registry.rows()] == [KEY]
    assert subagents(parent).list() == ()
    assert (await parent.say("Still there?")).reply == "Parent heard it."


async def test_a_fork_that_is_too_large_changes_nothing(home: Home) -> None:
    """N2, N3: counted no further than it must be, and refused before anything is touched."""
    home.limits = SubagentLimits(fork_tokens=500)
    async with home.talk() as parent:
        await parent.say("lantern harbour " * 500)
        before = home.transcript(parent.session_id).read_bytes()
        with pytest.raises(SpawnRefused, match=r"at least 1,\d{3} tokens; 500 are allowed"):
            await subagents(parent).spawn("Do it", context="fork")
        assert home.transcript(parent.session_id).read_bytes() == before
        assert home.engine.prepared == []
        await unchanged(home, parent)


async def test_any_size_may_be_forked_where_there_is_no_limit(home: Home) -> None:
    home.limits = SubagentLimits(fork_tokens=0)
    async with home.talk() as parent:
        await parent.say("lantern harbour " * 500)
        await subagents(parent).spawn("Do it", context="fork")
        await parent.settle()
        assert origin(announcements(parent)[0])["status"] == "completed"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"task": "  "}, "0 characters"),
        ({"task": "x" * 100_001}, "100,001 characters"),
        ({"task": "Do it", "label": "y" * 81}, "the label has 81"),
        ({"task": "Do it", "agent_id": "other"}, "agent other may not be asked"),
        ({"task": "Do it", "timeout_ms": 0}, "cannot work for 0 ms"),
        ({"task": "Do it", "model": "no/such"}, "no/such cannot be used"),
        ({"task": "Do it", "agent_id": "../x"}, "cannot be an agent id"),
    ],
)
async def test_what_may_not_be_is_refused_and_changes_nothing(
    home: Home, given: dict[str, Any], told: str
) -> None:
    async with home.talk() as parent:
        await parent.say("Hello")
        with pytest.raises(StrandlineError, match=told):
            await subagents(parent).spawn(**given)
        await unchanged(home, parent)
    assert home.engine.prepared == []


async def test_an_engine_that_cannot_prepare_keeps_a_child_from_beginning(home: Home) -> None:
    home.engine.fails = frozenset({"prepare"})
    async with home.talk() as parent:
        await parent.say("Hello")
        with pytest.raises(EngineError, match="no room") as failed:
            await subagents(parent).spawn("Do it")
        assert failed.value.phase == "prepare_subagent_spawn"
        await unchanged(home, parent)
    assert home.engine.ended == []


@pytest.mark.parametrize("context", ["isolated", "fork"])
@pytest.mark.parametrize("fails", [frozenset[str](), frozenset({"rollback"})])
@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
async def test_a_disk_that_fails_at_any_step_leaves_no_child(
    home: Home, context: Any, fails: frozenset[str], number: int
) -> None:
    """The engine takes back what it prepared, once; where it cannot, the disk's error is told."""
    home.engine.fails = fails
    notices: list[TurnEvent] = []
    async with home.talk() as parent:
        await parent.say("Hello")
        subagents(parent).attend(notices.append)
        disk = FaultyDisk(Faults(fail_at=number))
        home.transcripts = JsonlStore(home.folder, disk=disk)
        with pytest.raises(StoreWriteFailed, match="cannot create"):
            await subagents(parent).spawn("Do it", context=context)
        home.transcripts = None
        [child] = home.engine.prepared
        assert home.engine.rolled_back == [child.child.session_key]
        assert home.engine.ended == []
        assert any("stuck" in e.text for e in notices if isinstance(e, Notice)) == bool(fails)
        await unchanged(home, parent)


async def test_a_row_that_cannot_be_written_leaves_no_child(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with home.talk() as parent:
        await parent.say("Hello")
        broken = RowsFile(home.folder / "missing" / "sessions.json", clock=home.clock)
        (home.folder / "missing").write_text("a file where a folder would have to be")
        working, home.rows = home.rows, broken
        with pytest.raises(StrandlineError):
            await subagents(parent).spawn("Do it")
        home.rows = working
        assert len(home.engine.rolled_back) == 1
        assert [p.name.count(".deleted.") for p in home.folder.glob("*.jsonl.*")] == [1]
        await unchanged(home, parent)


async def test_a_parent_that_cannot_note_its_child_has_none(home: Home) -> None:
    """The last step: the child is open by then, and is closed and taken back."""
    async with home.talk() as parent:
        await parent.say("Hello")
        file = home.transcript(parent.session_id)
        away = file.rename(file.with_suffix(".away"))
        with pytest.raises(StoreWriteFailed, match="is gone"):
            await subagents(parent).spawn("Do it")
        away.rename(file)
        assert len(home.engine.rolled_back) == 1
        await unchanged(home, parent)


async def test_a_spawn_that_is_given_up_while_the_engine_prepares_is_taken_back(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, may_go_on = asyncio.Event(), asyncio.Event()
    prepare = home.engine.prepare_subagent_spawn

    async def slow(request: SubagentSpawn) -> Rollback | None:
        entered.set()
        await may_go_on.wait()
        return await prepare(request)

    monkeypatch.setattr(home.engine, "prepare_subagent_spawn", slow)
    async with home.talk() as parent:
        await parent.say("Hello")
        spawning = asyncio.create_task(subagents(parent).spawn("Do it"))
        await entered.wait()
        spawning.cancel()
        may_go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await spawning
        assert len(home.engine.rolled_back) == 1
        await unchanged(home, parent)


# -- limits -------------------------------------------------------------------------------------


def test_a_key_tells_whose_child_it_is() -> None:
    child = child_key(KEY, "main", "u1")
    grandchild = child_key(child, "helper", "u2")
    assert child == "agent:main:subagent:u1"
    assert grandchild == "agent:helper:subagent:u1:subagent:u2"
    assert [depth_of(key) for key in (KEY, child, grandchild)] == [0, 1, 2]
    assert depth_of("agent:main:telegram:group:subagent:9") == 0


async def test_no_more_than_so_many_run_at_a_time(home: Home, script: Script) -> None:
    home.limits = SubagentLimits(most_running=2)
    script.may_answer.clear()
    async with home.talk() as parent:
        for task in "ab":
            await subagents(parent).spawn(task)
        with pytest.raises(SpawnRefused, match="2 sub-agents are running"):
            await subagents(parent).spawn("c")
        script.may_answer.set()
        await parent.settle()
        await subagents(parent).spawn("c")
        await parent.settle()
        assert len(announcements(parent)) == 3


async def test_an_agent_cannot_go_on_begetting_by_itself(home: Home, script: Script) -> None:
    """Each answer to an announcement that begins another one would never come to an end."""
    home.limits = SubagentLimits(most_unattended=3)
    ids = iter(range(1000))

    def again(request: RecordedRequest) -> Reply:
        if request.body["messages"][-1]["role"] == "tool":
            return Reply("Now I wait.")
        call = ToolCall("spawn", {"task": "Again"}, f"call_{next(ids)}")
        return Reply("Another one.", tool_calls=[call])

    script.parent = again
    async with home.talk() as parent:
        await parent.say("Begin")
        await parent.settle()
        assert len(announcements(parent)) == 3


async def test_a_child_is_not_offered_what_it_may_not_do(
    home: Home, server: ScriptedModelServer
) -> None:
    async with home.talk() as parent:
        await parent.say("Hello")
        await subagents(parent).spawn("Do it")
        await parent.settle()
    offered = [bool(request.body.get("tools")) for request in server.requests]
    assert offered == [True, False, True]


async def test_children_of_children_report_to_their_own_parent(
    home: Home, script: Script, server: ScriptedModelServer
) -> None:
    home.limits = SubagentLimits(most_depth=2)

    def child(request: RecordedRequest) -> Reply:
        told = texts(request)
        if any("subagent:" in text and "[A task from" in text for text in told):
            return Reply("Grandchild's answer.")
        if any("Grandchild's answer." in text for text in told):
            return Reply("The child has it all.")
        if request.body["messages"][-1]["role"] == "tool":
            return Reply("Waiting for mine.")
        return Reply("", tool_calls=[ToolCall("spawn", {"task": "Do half of it"})])

    script.child = child
    async with home.talk() as parent:
        await subagents(parent).spawn("Do it")
        await parent.settle()
        [told] = announcements(parent)
    assert told["content"].endswith("The child has it all.")
    assert [depth_of(each.child.session_key) for each in home.engine.ended] == [2, 1]
    offered = [bool(request.body.get("tools")) for request in server.requests if is_childs(request)]
    assert offered.count(False) == 1, "the grandchild's"


def test_nobody_can_allow_more_than_two_generations() -> None:
    with pytest.raises(ConfigError, match="3 deep"):
        SubagentLimits(most_depth=3)


# -- ends -----------------------------------------------------------------------------------------


async def test_a_child_whose_model_fails_is_announced_in_a_line(home: Home, script: Script) -> None:
    script.child = lambda _: Reply(status=500)
    async with home.talk() as parent:
        await subagents(parent).spawn("Do it")
        await parent.settle()
        [told] = announcements(parent)
        assert origin(told)["status"] == "failed"
        assert " failed: " in told["content"]
        assert "\n" not in told["content"]
        assert (await parent.say("And now?")).reply == "Parent heard it."
    assert home.engine.reasons == ["completed"]


async def test_a_child_has_only_so_much_time(home: Home, script: Script) -> None:
    script.may_answer.clear()
    async with home.talk() as parent:
        spawned = await subagents(parent).spawn("Do it", timeout_ms=300)
        await parent.settle()
        [told] = announcements(parent)
        assert origin(told)["status"] == "timeout"
        script.may_answer.set()
    assert home.engine.reasons == ["swept"]
    with SessionManager.open(home.transcript(spawned.session_id)) as child:
        assert child.verify() == []


async def test_a_child_that_is_stopped_says_so(home: Home, script: Script) -> None:
    script.may_answer.clear()
    async with home.talk() as parent:
        spawned = await subagents(parent).spawn("Do it", label="slow")
        await subagents(parent).spawn("Do that", label="other")
        await script.until_asked()
        for unknown in ("", "nobody", "00000000"):
            with pytest.raises(SessionNotFound):
                await subagents(parent).stop(unknown)
        stopped = await subagents(parent).stop("slow")
        assert (stopped.spawned, stopped.status) == (spawned, "stopped")
        script.may_answer.set()
        await parent.settle()
        by_run = {origin(told)["runId"]: origin(told)["status"] for told in announcements(parent)}
    assert by_run[spawned.run_id] == "stopped"
    assert sorted(home.engine.reasons) == ["completed", "swept"]


async def test_a_child_whose_session_is_deleted_ends_as_deleted(home: Home, script: Script) -> None:
    script.may_answer.clear()
    async with home.talk() as parent:
        spawned = await subagents(parent).spawn("Do it")
        await script.until_asked()
        home.transcript(spawned.session_id).unlink()
        script.may_answer.set()
        await parent.settle()
        assert origin(announcements(parent)[0])["status"] == "failed"
    assert home.engine.reasons == ["deleted"]


async def test_an_engine_that_fails_at_the_end_takes_nothing_away(home: Home) -> None:
    """L8: told once, also where it fails."""
    home.engine.fails = frozenset({"ended"})
    heard: list[TurnEvent] = []
    async with home.talk() as parent:
        subagents(parent).attend(heard.append)
        await subagents(parent).spawn("Do it")
        await parent.settle()
        assert origin(announcements(parent)[0])["status"] == "completed"
    assert home.engine.reasons == ["completed"]
    assert any("deaf" in event.text for event in heard if isinstance(event, Notice))


async def test_a_parent_that_is_closed_gives_its_children_up(home: Home, script: Script) -> None:
    script.may_answer.clear()
    async with home.talk() as parent:
        spawned = await subagents(parent).spawn("Do it")
        await script.until_asked()
    assert home.engine.reasons == ["released"]
    script.may_answer.set()
    with pytest.raises(SpawnRefused, match="agent:main:main is closed"):
        await subagents(parent).spawn("Another one")
    async with home.talk() as parent:
        await parent.say("What became of it?")
        [told] = announcements(parent)
        assert origin(told)["runId"] == spawned.run_id
        assert origin(told)["status"] == "interrupted"


async def test_a_reset_conversation_hears_nothing_of_before(home: Home, script: Script) -> None:
    """M3: what was begun for one session is not told in the next."""
    script.may_answer.clear()
    async with home.talk() as parent:
        await parent.say("Hello")
        await subagents(parent).spawn("Do it")
        await script.until_asked()
        await parent.reset()
        script.may_answer.set()
        await parent.say("Anew")
        await parent.settle()
        assert announcements(parent) == []
    assert home.engine.reasons == ["released"]


# -- what is left by a process that was killed -----------------------------------------------------


def killed(home: Home, to: Path) -> Home:
    """What a SIGKILL leaves: the files as they are now, and locks that nobody holds."""
    shutil.copytree(home.folder, to)
    ids = CountingIds(1000)
    return Home(to, home.clock, home.make, engine=home.engine, ids=ids)


async def test_a_killed_process_leaves_a_parent_that_goes_on(
    home: Home, script: Script, tmp_path: Path
) -> None:
    script.may_answer.clear()
    async with home.talk() as parent:
        await parent.say("Hello")
        spawned = await subagents(parent).spawn("Do it")
        await script.until_asked()
        left = killed(home, tmp_path / "left")
        script.may_answer.set()
    with SessionManager.open(left.transcript(spawned.session_id)) as child:
        assert child.verify() == []
        assert [m["role"] for m in child.build_context().messages] == ["user"]
    async with left.talk() as parent:
        assert (await parent.say("What became of it?")).reply == "Parent heard it."
        [told] = announcements(parent)
        assert origin(told)["status"] == "interrupted"
        assert origin(told)["runId"] == spawned.run_id


@pytest.mark.parametrize("context", ["isolated", "fork"])
async def test_what_ended_unannounced_is_announced_once(
    home: Home, script: Script, tmp_path: Path, context: Any
) -> None:
    script.may_answer.clear()
    async with home.talk() as parent:
        await parent.say("Hello")
        spawned = await subagents(parent).spawn("Do it", context=context)
        async with lane(parent.session, holder="somebody"):
            script.may_answer.set()
            await until(lambda: bool(home.engine.ended))
            left = killed(home, tmp_path / "left")
    for _ in range(2):
        async with left.talk() as parent:
            await parent.say("And?")
            [told] = announcements(parent)
            assert origin(told)["runId"] == spawned.run_id
            assert told["content"].endswith("answered:\n\nForty-two.")


async def test_a_fork_that_never_began_answers_with_nothing_of_its_parents(
    home: Home, script: Script, tmp_path: Path
) -> None:
    """M3: what the copy of the branch ends with is none of the child's words."""
    script.may_answer.clear()
    async with home.talk() as parent:
        await parent.say("Hello")
        spawned = await subagents(parent).spawn("Do it", context="fork")
        await script.until_asked()
        left = killed(home, tmp_path / "left")
        script.may_answer.set()
    lines = left.transcript(spawned.session_id).read_bytes().splitlines(keepends=True)
    kept = [line for line in lines if b"inter_session" not in line]
    left.transcript(spawned.session_id).write_bytes(b"".join(kept))
    async with left.talk() as parent:
        await parent.say("And?")
        [told] = announcements(parent)
        assert origin(told)["status"] == "interrupted"


async def test_a_child_that_runs_elsewhere_is_left_alone(home: Home, script: Script) -> None:
    """Another process on the same conversation does not call a living child interrupted."""
    script.may_answer.clear()
    async with home.talk() as parent:
        await subagents(parent).spawn("Do it")
        await script.until_asked()
        async with home.talk() as other:
            await other.say("Hello from elsewhere")
            assert announcements(other) == []
        script.may_answer.set()
        await parent.settle()
        assert [origin(told)["status"] for told in announcements(parent)] == ["completed"]


async def test_a_note_that_claims_another_session_fetches_nothing(home: Home) -> None:
    """M3: a transcript can say what it likes; only the row says whose child a session is."""
    async with home.talk("agent:main:secret") as other:
        await other.say("The canary is yellow")
        claimed = {"sessionKey": other.key, "sessionId": other.session_id, "runId": "r1"}
    async with home.talk() as parent:
        parent.session.append_custom("strandline.spawn", claimed)
        await parent.say("Hello")
        assert announcements(parent) == []


# -- between conversations ------------------------------------------------------------------------


async def test_no_canary_crosses(home: Home, script: Script, server: ScriptedModelServer) -> None:
    """M3: conversations with children at the same time; each hears of its own alone."""
    script.child = lambda request: Reply("echo: " + texts(request)[-1][-60:])
    names = ("lark", "wren", "finch")

    async def one(name: str) -> None:
        async with home.talk(f"agent:main:{name}") as parent:
            await parent.say(f"canary-{name}")
            await subagents(parent).spawn(f"task-{name}", context="fork")
            await subagents(parent).spawn(f"task-{name}")
            await parent.settle()
            assert len(announcements(parent)) == 2

    await asyncio.gather(*map(one, names))
    for file in home.folder.glob("*.jsonl"):
        text = file.read_text()
        assert sum(f"-{name}" in text for name in names) == 1
    for request in server.requests:
        assert sum(f"-{name}" in json.dumps(request.body) for name in names) == 1


async def test_only_the_newest_that_are_over_are_remembered(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strandline.runtime.subagents.MOST_LISTED", 2)
    async with home.talk() as parent:
        for number in range(4):
            await subagents(parent).spawn(f"Task {number}")
            await parent.settle()
        listed = subagents(parent).list()
        assert [each.task for each in listed] in (
            [f"Task {number}" for number in range(start, 4)] for start in (1, 2)
        )
