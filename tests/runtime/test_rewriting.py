"""Other messages in the place of earlier ones: a branch grows, and no line is changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strandline.context.engine import Rewrite
from strandline.errors import EntryNotFound, InvalidEntry, StoreWriteFailed
from strandline.manager import SessionManager
from strandline.runtime import rewriting
from strandline.runtime.rewriting import rewrite
from strandline.stores.jsonl import JsonlStore
from strandline.testing import CountingIds, SimulatedClock
from strandline.testing.disk import Faults, FaultyDisk
from strandline.transcript.codec import encode_object
from strandline.transcript.header import new_header
from strandline.transcript.session import Session


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text, "timestamp": 1}


def texts(session: Session) -> list[str]:
    return [str(message.get("content")) for message in session.build_context().messages]


def say(session: Session, *said: str) -> list[str]:
    return [session.append_message(user(text)) for text in said]


def test_what_is_rewritten_is_other_and_all_behind_it_is_said_again(
    session: SessionManager,
) -> None:
    one, two, three = say(session, "one", "two", "three")
    file = Path(session.path_name or "")
    before = file.read_bytes()
    done = rewrite(session, [Rewrite(two, user("2"))])
    assert texts(session) == ["one", "2", "three"]
    assert session.path()[0] == one
    assert [*done.new_ids] == [two, three]
    assert session.path()[1:] == [done.new_ids[two], done.new_ids[three]]
    assert file.read_bytes().startswith(before)
    session.branch(three)
    assert texts(session) == ["one", "two", "three"], "the old branch is there"


def test_several_are_rewritten_at_once_whatever_their_order(session: SessionManager) -> None:
    ids = say(session, *"abcde")
    rewrite(session, [Rewrite(ids[3], user("D")), Rewrite(ids[1], user("B"))])
    assert texts(session) == ["a", "B", "c", "D", "e"]


def test_the_first_message_of_all_can_be_rewritten(session: SessionManager) -> None:
    first, _ = say(session, "one", "two")
    rewrite(session, [Rewrite(first, user("1"))])
    assert texts(session) == ["1", "two"]


def test_labels_move_to_what_is_said_again(session: SessionManager) -> None:
    one, two, three = say(session, "one", "two", "three")
    for entry_id, label in [(one, "start"), (two, "pin"), (three, "end")]:
        session.append_label(entry_id, label)
    new = rewrite(session, [Rewrite(two, user("2"))]).new_ids
    assert session.labels() == {one: "start", new[two]: "pin", new[three]: "end"}
    assert session.find("pin") == new[two]


def test_models_thinking_and_states_of_plugins_are_taken_along(session: SessionManager) -> None:
    (one,) = say(session, "one")
    session.append_model_change("openai", "gpt")
    session.append_thinking_level_change("high")
    session.append_custom("mine", {"n": 1})
    session.append_custom_message("mine", "a note", display=False, details=[1])
    session.append_session_info("A name")
    rewrite(session, [Rewrite(one, user("1"))])
    context = session.build_context()
    assert context.model == {"provider": "openai", "modelId": "gpt"}
    assert context.thinking_level == "high"
    assert session.name == "A name"
    assert texts(session) == ["1", "a note"]
    again = [session.entry(entry_id) for entry_id in session.path()]
    assert [entry.type for entry in again] == [
        "message",
        "model_change",
        "thinking_level_change",
        "custom",
        "custom_message",
    ]
    assert again[3].data["data"] == {"n": 1}


def test_nothing_to_rewrite_changes_nothing(session: SessionManager) -> None:
    say(session, "one")
    lines = session.entry_count
    assert rewrite(session, []).new_ids == {}
    assert session.entry_count == lines


def test_what_is_not_on_the_active_branch_is_not_rewritten(session: SessionManager) -> None:
    one, two = say(session, "one", "two")
    session.branch(one)
    say(session, "other")
    lines = session.entry_count
    for missing in (two, "nothing"):
        with pytest.raises(EntryNotFound, match="on the active branch"):
            rewrite(session, [Rewrite(one, user("1")), Rewrite(missing, user("2"))])
    assert session.entry_count == lines


def test_what_stands_before_a_compaction_is_not_rewritten_and_what_is_behind_it_is(
    session: SessionManager,
) -> None:
    one, two = say(session, "one", "two")
    session.append_compaction("Both said something.", two, 100)
    (three,) = say(session, "three")
    lines = session.entry_count
    with pytest.raises(InvalidEntry, match="compaction"):
        rewrite(session, [Rewrite(one, user("1"))])
    assert session.entry_count == lines
    rewrite(session, [Rewrite(three, user("3"))])
    assert texts(session)[1:] == ["two", "3"]


@pytest.mark.parametrize("message", [{}, {"role": 7}, {"role": "compactionSummary"}])
def test_another_message_that_is_none_is_refused(session: SessionManager, message: Any) -> None:
    (one,) = say(session, "one")
    with pytest.raises(InvalidEntry):
        rewrite(session, [Rewrite(one, message)])
    assert texts(session) == ["one"]


def test_a_rewrite_from_long_ago_is_refused(
    session: SessionManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewriting, "MOST_ENTRIES", 3)
    ids = say(session, *"abcd")
    with pytest.raises(InvalidEntry, match="4 entries would have to be said again"):
        rewrite(session, [Rewrite(ids[0], user("A"))])
    rewrite(session, [Rewrite(ids[1], user("B"))])
    assert texts(session) == ["a", "B", "c", "d"]


def test_a_disk_that_fails_on_the_way_leaves_the_conversation_where_it_stood() -> None:
    """Whichever write fails."""
    number = 0
    while True:
        number += 1
        faults = Faults()
        store = JsonlStore(Path("/state"), disk=FaultyDisk(faults))
        clock = SimulatedClock()
        header = encode_object(new_header("s", clock, "/", None)) + b"\n"
        session = Session(store.create("s.jsonl", header), clock=clock, ids=CountingIds())
        ids = say(session, "one", "two", "three")
        session.append_label(ids[1], "pin")
        faults.fail_at = _operations(store) + number
        try:
            rewrite(session, [Rewrite(ids[1], user("2"))])
        except StoreWriteFailed:
            again = Session(store.open("s.jsonl"), clock=clock, ids=CountingIds())
            assert texts(session) == texts(again) == ["one", "two", "three"]
            continue
        break
    assert number > 5
    assert texts(session) == ["one", "2", "three"]


def _operations(store: JsonlStore) -> int:
    disk: Any = store._disk
    count: int = disk.operations
    return count


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(0, 9), min_size=1, max_size=8), st.data())
def test_the_path_has_as_many_messages_as_before_and_only_those_are_other(
    tmp_path_factory: pytest.TempPathFactory, numbers: list[int], data: st.DataObject
) -> None:
    with SessionManager.in_memory(cwd="/", clock=SimulatedClock()) as session:
        ids = say(session, *(f"m{n}" for n in numbers))
        wanted = data.draw(st.sets(st.sampled_from(range(len(ids)))))
        done = rewrite(session, [Rewrite(ids[place], user(f"new {place}")) for place in wanted])
        expected = [f"new {p}" if p in wanted else f"m{n}" for p, n in enumerate(numbers)]
        assert texts(session) == expected
        first = min(wanted, default=len(ids))
        assert session.path() == [*ids[:first], *(done.new_ids[each] for each in ids[first:])]
        assert session.verify() == []


def test_a_note_of_a_plugin_is_rewritten_as_one(session: SessionManager) -> None:
    note = session.append_custom_message("mine", "a long note", display=False)
    rewrite(session, [Rewrite(note, {"role": "custom", "content": "short", "display": False})])
    (message,) = session.build_context().messages
    assert (message["customType"], message["content"], message["display"]) == (
        "mine",
        "short",
        False,
    )


def test_what_is_no_message_is_not_rewritten(session: SessionManager) -> None:
    change = session.append_model_change("openai", "gpt")
    with pytest.raises(InvalidEntry, match="model_change"):
        rewrite(session, [Rewrite(change, user("x"))])
