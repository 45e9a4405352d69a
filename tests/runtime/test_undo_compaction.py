"""Undoing a compaction: the conversation in full, what came after it behind it, nothing gone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.errors import CompactionRefused, StoreWriteFailed
from strandline.manager import SessionManager
from strandline.runtime.agent import Agent
from strandline.runtime.conversation import Conversation
from strandline.runtime.registry import SessionRegistry
from strandline.runtime.undo import undo_compaction
from strandline.stores.jsonl import JsonlStore
from strandline.stores.rows_memory import RowsMemory
from strandline.testing import CountingIds, ScriptedModelServer, SimulatedClock
from strandline.transcript.messages import Message
from strandline.transcript.session import Session

AgentFor = Callable[..., Agent]


def user(text: str) -> Message:
    return {"role": "user", "content": [{"type": "text", "text": text}], "timestamp": 1}


def assistant(text: str) -> Message:
    return {
        "role": "assistant",
        "content": [{"type": "text", "text": text}],
        "stopReason": "stop",
        "provider": "test",
        "model": "scripted",
        "timestamp": 2,
    }


def new_session() -> SessionManager:
    return SessionManager.in_memory(clock=SimulatedClock())


def messages(session: Session) -> list[Message]:
    return list(session.build_context().messages)


def spoken(session: Session) -> list[Message]:
    """The messages without when plugins' notes were written, which copies cannot keep."""
    return [
        {k: v for k, v in m.items() if k != "timestamp"} if m["role"] == "custom" else m
        for m in messages(session)
    ]


def test_the_conversation_stands_in_full_and_nothing_is_removed() -> None:
    session = new_session()
    first, *_ = [session.append_message(m) for m in (user("1"), assistant("2"), user("3"))]
    before = messages(session)
    compaction = session.append_compaction("short", session.path()[-1], 100)
    session.append_message(assistant("4"))
    raw = [entry.raw for entry in session.entries()]
    undone = undo_compaction(session)
    assert (undone.compaction_id, undone.messages_copied) == (compaction, 1)
    assert messages(session) == [*before, assistant("4")]
    assert [entry.raw for entry in session.entries()][: len(raw)] == raw
    assert session.path()[0] == first
    assert session.verify() == []


def test_twice_undoes_the_one_before() -> None:
    session = new_session()
    for text in ("1", "2", "3"):
        kept = session.append_message(user(text))
    session.append_compaction("first", kept, 100)
    for text in ("4", "5"):
        kept = session.append_message(user(text))
    session.append_compaction("second", kept, 100)
    session.append_message(user("6"))
    undo_compaction(session)
    texts = [m.get("summary") or m["content"][0]["text"] for m in messages(session)]
    assert texts == ["first", "3", "4", "5", "6"]
    undo_compaction(session)
    texts = [m["content"][0]["text"] for m in messages(session)]
    assert texts == ["1", "2", "3", "4", "5", "6"]
    with pytest.raises(CompactionRefused) as refused:
        undo_compaction(session)
    assert refused.value.remedy


def test_a_compaction_at_the_very_beginning_is_undone_to_nothing() -> None:
    session = new_session()
    session.append_compaction("of another life", "", 100)
    session.append_message(user("1"))
    undo_compaction(session)
    assert messages(session) == [user("1")]


def test_settings_and_what_plugins_keep_come_along() -> None:
    session = new_session()
    kept = session.append_message(user("1"))
    session.append_compaction("short", kept, 100)
    session.append_model_change("test", "other")
    session.append_thinking_level_change("high")
    session.append_custom("plugin", {"count": 3})
    session.append_custom_message("weather", "it rains", display=False, details={"mm": 2})
    session.append_session_info("harbour")
    undo_compaction(session)
    context = session.build_context()
    assert context.model == {"provider": "test", "modelId": "other"}
    assert context.thinking_level == "high"
    assert session.name == "harbour"
    note = context.messages[-1]
    assert (note["content"], note["display"], note["details"]) == ("it rains", False, {"mm": 2})
    states = [session.entry(each).data for each in session.path()]
    assert [s["data"] for s in states if s["type"] == "custom"] == [{"count": 3}]


def test_a_label_goes_with_the_copy_so_that_it_still_names_one_entry() -> None:
    session = new_session()
    old = session.append_message(user("1"))
    session.append_label(old, "start")
    session.append_compaction("short", old, 100)
    late = session.append_message(user("2"))
    session.append_label(late, "pin")
    undo_compaction(session)
    assert session.find("start") == old
    pinned = session.find("pin")
    assert pinned != late
    assert pinned in session.path()
    assert session.entry(pinned).data["message"] == user("2")


def test_a_branch_summary_behind_it_is_refused_with_the_remedy_and_nothing_is_written() -> None:
    session = new_session()
    kept = session.append_message(user("1"))
    compaction = session.append_compaction("short", kept, 100)
    session.append_message(user("2"))
    session.branch_with_summary(compaction, "what was tried")
    count, leaf = session.entry_count, session.leaf_id
    with pytest.raises(CompactionRefused, match="branch_summary") as refused:
        undo_compaction(session)
    assert "/branch" in refused.value.remedy
    assert (session.entry_count, session.leaf_id) == (count, leaf)


def test_a_message_of_others_that_cannot_be_said_is_refused_before_anything_is_written(
    tmp_path: Path,
) -> None:
    with SessionManager.create(session_dir=tmp_path, cwd="/", clock=SimulatedClock()) as made:
        kept = made.append_message(user("1"))
        compaction = made.append_compaction("short", kept, 100)
        [path] = tmp_path.glob("*.jsonl")
    line = (
        f'{{"type":"message","id":"0badf00d","parentId":"{compaction}","timestamp":null,'
        '"message":{"role":"branchSummary","summary":"x"}}\n'
    )
    path.write_text(path.read_text() + line)
    with SessionManager.open(path) as session:
        count = session.entry_count
        with pytest.raises(CompactionRefused, match="message"):
            undo_compaction(session)
        assert session.entry_count == count


def test_where_the_disk_fails_half_way_the_conversation_stands_where_it_stood(
    tmp_path: Path,
) -> None:
    with SessionManager.create(session_dir=tmp_path, cwd="/", clock=SimulatedClock()) as session:
        kept = session.append_message(user("1"))
        session.append_compaction("short", kept, 100)
        for text in ("2", "3", "4"):
            session.append_message(user(text))
        before, said = messages(session), 0
        append = session.append_message

        def full(message: Message) -> str:
            nonlocal said
            said += 1
            if said == 3:
                raise StoreWriteFailed("the disk is full", remedy="make room")
            return append(message)

        session.append_message = full  # type: ignore[method-assign]
        with pytest.raises(StoreWriteFailed):
            undo_compaction(session)
        assert messages(session) == before
        assert session.verify() == []


STEPS = st.lists(
    st.sampled_from(["user", "assistant", "note", "model", "level", "label", "compact"]),
    min_size=1,
    max_size=14,
)


@settings(max_examples=150, deadline=None)
@given(before=STEPS, after=STEPS)
def test_the_context_is_what_it_was_before_the_compaction_and_what_was_said_since(
    before: list[str], after: list[str]
) -> None:
    session = new_session()
    session.append_message(user("first"))
    for number, step in enumerate(before):
        do(session, step, number)
    stood = spoken(session)
    session.append_compaction("the last one", session.build_context().items[-1].entry_id, 100)
    compacted = len(messages(session))
    for number, step in enumerate(after):
        if step != "compact":
            do(session, step, 100 + number)
    since = spoken(session)[compacted:]
    raw = [entry.raw for entry in session.entries()]
    level = session.build_context().thinking_level
    undo_compaction(session)
    assert spoken(session) == [*stood, *since]
    assert session.build_context().thinking_level == level
    assert [entry.raw for entry in session.entries()][: len(raw)] == raw
    assert session.verify() == []
    session.append_compaction("again", session.build_context().items[-1].entry_id, 100)
    assert len(messages(session)) == 2, "and it can be compacted again"


def do(session: Session, step: str, number: int) -> None:
    match step:
        case "user":
            session.append_message(user(f"u{number}"))
        case "assistant":
            session.append_message(assistant(f"a{number}"))
        case "note":
            session.append_custom_message("weather", f"n{number}")
        case "model":
            session.append_model_change("test", f"m{number}")
        case "level":
            session.append_thinking_level_change("low" if number % 2 else "high")
        case "label":
            session.append_label(session.path()[number % len(session.path())], f"l{number}")
        case "compact":
            kept = session.build_context().items[-1].entry_id
            session.append_compaction(f"c{number}", kept, 100)


async def test_a_conversation_undoes_compacts_again_and_goes_on(
    agent_for: AgentFor, clock: SimulatedClock, tmp_path: Path
) -> None:
    registry = SessionRegistry(
        "main", RowsMemory(), JsonlStore(tmp_path), cwd="/", clock=clock, ids=CountingIds()
    )
    with ScriptedModelServer() as server:
        talk = Conversation(registry, agent_for(server), "agent:main:main", holder="a test")
        for number in range(4):
            await talk.say(f"{number} " + "lantern harbour " * 200)
        before = messages(talk.session)
        await talk.compact()
        await talk.say("since")
        since = messages(talk.session)[-2:]
        undone = await talk.undo_compaction()
        assert undone.messages_copied == 2
        assert messages(talk.session) == [*before, *since]
        receipt = await talk.compact()
        assert receipt is not None
        assert talk.session.entry(receipt.entry_id).type == "compaction"
        assert (await talk.say("and on")).reply
        assert talk.session.verify() == []
        await talk.close()
