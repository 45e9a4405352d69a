"""Where a fork ends, what is copied, and what is found in a child later."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.context.assemble import prepare
from strandline.context.budget import CompactionSettings, resolve_budget
from strandline.context.engine import SessionRef
from strandline.context.tokens import HeuristicCounter, MessageTokens
from strandline.manager import SessionManager
from strandline.runtime.child_sessions import (
    ChildSessions,
    Fork,
    NewChild,
    fork_point,
    last_reply,
)
from strandline.stores.jsonl import JsonlStore
from strandline.stores.memory import MemoryStore
from strandline.stores.rows_memory import RowsMemory
from strandline.testing import CountingIds, SimulatedClock
from strandline.transcript.messages import Message
from strandline.transcript.session import Session

CLOCK = SimulatedClock()
PARENT = SessionRef("parent", "agent:main:main", "/parent.jsonl")


def user(text: str) -> Message:
    return {"role": "user", "content": text, "timestamp": 0}


def answer(*calls: str, reason: str | None = None) -> Message:
    blocks = [{"type": "toolCall", "id": each, "name": "look", "arguments": {}} for each in calls]
    return {
        "role": "assistant",
        "content": [{"type": "text", "text": "so"}, *blocks],
        "stopReason": reason or ("toolUse" if calls else "stop"),
        "timestamp": 0,
    }


def result(call: str) -> Message:
    return {
        "role": "toolResult",
        "toolCallId": call,
        "toolName": "look",
        "content": [{"type": "text", "text": "quiet"}],
        "isError": False,
        "timestamp": 0,
    }


def session_of(*messages: Message) -> SessionManager:
    session = SessionManager.in_memory(clock=CLOCK, ids=CountingIds())
    for message in messages:
        session.append_message(message)
    return session


@pytest.mark.parametrize(
    ("messages", "kept"),
    [
        ([], 0),
        ([user("a")], 1),
        ([user("a"), answer()], 2),
        ([user("a"), answer("x")], 1),
        ([user("a"), answer("x"), result("x")], 3),
        ([user("a"), answer("x", "y"), result("x")], 1),
        ([user("a"), answer("x", "y"), result("y"), result("x")], 4),
        ([user("a"), answer("x"), result("x"), answer("y")], 3),
        ([user("a"), answer("x", reason="aborted")], 2),
        ([user("a"), answer("x"), answer("y")], 1),
        ([user("a"), answer("x"), user("b")], 3),
        ([user("a"), answer("x"), user("b"), answer("y")], 3),
    ],
)
def test_a_fork_ends_at_the_last_complete_place(messages: list[Message], kept: int) -> None:
    """D6: what a running turn has not finished is left out, and nothing that came before."""
    session = session_of(*messages)
    path = session.path()
    assert fork_point(session) == (path[kept - 1] if kept else None)


def test_what_hangs_behind_an_open_call_is_cut_with_it() -> None:
    session = session_of(user("a"), answer("x"))
    session.append_custom("strandline.spawn", {"runId": "r"})
    session.append_label(session.path()[1], "here")
    assert fork_point(session) == session.path()[0]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("turn"), st.integers(0, 3), st.integers(0, 3)),
        st.tuples(st.sampled_from(["user", "compact", "back", "pin"]), st.integers(0, 20)),
    ),
    max_size=14,
)


def grown(session: Session, steps: list[tuple[Any, ...]]) -> None:
    """A conversation with turns left open, compactions, branches and labels."""
    session.append_message(user("begin"))
    for number, (kind, *more) in enumerate(steps):
        path = session.path()
        somewhere = path[more[0] % len(path)]
        match kind:
            case "user":
                session.append_message(user(f"said {number}"))
            case "turn":
                calls = [f"c{number}-{each}" for each in range(more[0])]
                for message in (answer(*calls), *map(result, calls[: more[1]])):
                    session.append_message(message)
            case "compact":
                session.append_compaction("a summary", somewhere, 100)
            case "back":
                session.branch(somewhere)
            case _:
                session.append_label(somewhere, "pin")


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_a_fork_reads_as_its_parent_does_at_that_place(steps: list[tuple[Any, ...]]) -> None:
    """N4, D6: same ids, same messages, same labels; no call of its last turn is open."""
    parent = SessionManager.in_memory(clock=CLOCK, ids=CountingIds())
    grown(parent, steps)
    before, end = parent.branch_lines(), fork_point(parent)
    store, rows, ids = MemoryStore(), RowsMemory(), CountingIds(500)
    sessions = ChildSessions(rows, store, "/", CLOCK, ids, lambda _: None)
    ref = sessions.ref("agent:main:subagent:u", "child")
    sessions.begin(NewChild(ref, PARENT, 1), Fork(parent, end))
    child = Session(store.open("child.jsonl"), clock=CLOCK, ids=ids)
    assert child.header["parentSession"] == "/parent.jsonl"
    assert parent.branch_lines() == before
    if end is None:
        assert child.entry_count == 0
        return
    assert child.build_context().items == parent.build_context(end).items
    here, there = parent.labels(), child.labels()
    assert {i: here.get(i) for i in child.path()} == {i: there.get(i) for i in child.path()}
    assert child.verify() == []
    assert fork_point(child) == child.path()[-1]
    budget = resolve_budget(16_000, CompactionSettings())
    prepare(child.build_context().items, budget=budget, tokens=MessageTokens(HeuristicCounter()))
    assert last_reply(child, end) is None, "the parent's words are none of its own"


def test_the_row_and_the_file_of_a_child_name_its_parent(tmp_path: Path) -> None:
    rows = RowsMemory()
    sessions = ChildSessions(
        rows, JsonlStore(tmp_path), "/work", CLOCK, CountingIds(), lambda n: str(tmp_path / n)
    )
    ref = sessions.ref("agent:main:subagent:u", "child")
    assert ref.session_file == str(tmp_path / "child.jsonl")
    sessions.begin(NewChild(ref, PARENT, 1, label="sums"), None)
    header = json.loads((tmp_path / "child.jsonl").read_text())
    assert (header["cwd"], header["parentSession"]) == ("/work", "/parent.jsonl")
    row = rows.get(ref.session_key)
    assert row is not None
    assert row.raw["spawnedBy"] == "agent:main:main"
    assert "forkedFromParent" not in row.raw
    assert sessions.is_there(ref)
    sessions.take_back(ref)
    assert not sessions.is_there(ref)
    assert rows.get(ref.session_key) is None
    assert [path.name.split(".deleted.")[0] for path in tmp_path.iterdir()] == ["child.jsonl"]


@pytest.mark.parametrize(
    ("messages", "reply"),
    [
        ([], None),
        ([user("task")], None),
        ([user("task"), answer()], "so"),
        ([user("task"), answer("x")], None),
        ([user("task"), answer("x"), result("x")], None),
        ([user("task"), answer(reason="error")], None),
        ([user("task"), answer(reason="length")], "so"),
    ],
)
def test_the_last_reply_is_that_of_a_finished_turn(
    messages: list[Message], reply: str | None
) -> None:
    session = session_of(user("before"), answer())
    forked_at = session.path()[-1]
    for message in messages:
        session.append_message(message)
    session.append_custom("strandline.spawn", {"runId": "r", "status": "completed"})
    assert last_reply(session, forked_at) == reply
