"""Moving about in a tree: branches, tips, labels, copies (spec 1; faults D)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from strandline import SessionManager
from strandline.errors import EntryNotFound
from strandline.stores.memory import MemoryStore
from strandline.testing import CountingIds, SimulatedClock
from strandline.transcript.entries import BranchSummaryEntry, LeafEntry


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text, "timestamp": 1}


def texts(session: SessionManager, leaf_id: str | None = None) -> list[Any]:
    messages = session.build_context(leaf_id).messages
    return [message.get("content", message.get("summary")) for message in messages]


def managed(image: bytes) -> SessionManager:
    store = MemoryStore()
    log = store.create("t.jsonl", image)
    return SessionManager(log, store, clock=SimulatedClock(), ids=CountingIds())


def image_of(*entries: dict[str, Any]) -> bytes:
    header = {"type": "session", "version": 3, "id": "s", "timestamp": "", "cwd": ""}
    return b"".join(json.dumps(each).encode() + b"\n" for each in (header, *entries))


def said(entry_id: str, parent: str | None, **more: Any) -> dict[str, Any]:
    return {
        "type": "message",
        "id": entry_id,
        "parentId": parent,
        "message": user(f"said {entry_id}"),
        **more,
    }


@pytest.fixture
def session(tmp_path: Path) -> SessionManager:
    return SessionManager.create(
        session_dir=tmp_path, cwd="/c", clock=SimulatedClock(), ids=CountingIds()
    )


def reopened(session: SessionManager) -> SessionManager:
    assert session.path_name is not None
    return SessionManager.open(session.path_name, ids=CountingIds(500))


def test_a_branch_is_a_leaf_line_written_at_once_whose_parent_is_its_target(
    session: SessionManager,
) -> None:
    one = session.append_message(user("one"))
    session.append_message(user("two"))
    moved = session.branch(one)
    entry = session.entry(moved)
    assert isinstance(entry, LeafEntry)
    assert entry.target_id == entry.parent_id == one
    assert reopened(session).leaf_id == one
    session.append_message(user("three"))
    assert texts(session) == texts(reopened(session)) == ["one", "three"]


def test_after_reset_leaf_a_new_conversation_begins_in_the_same_file(
    session: SessionManager,
) -> None:
    session.append_message(user("one"))
    session.reset_leaf()
    assert (session.leaf_id, session.append_parent_id, session.path()) == (None, None, [])
    again = reopened(session)
    assert again.leaf_id is None
    again.append_message(user("anew"))
    session.refresh()
    assert texts(again) == texts(session) == ["anew"]
    assert len(session.children(None)) == 3  # the leaf line is a root too


def test_a_null_parent_is_a_root_as_pi_writes_one_and_not_a_continuation() -> None:
    session = managed(image_of(said("a", None), said("b", "a"), said("c", None)))
    assert session.path() == ["c"]
    assert session.tips() == ["b", "c"]


def test_a_summary_of_the_branch_that_is_left_comes_along(session: SessionManager) -> None:
    one = session.append_message(user("one"))
    session.append_message(user("two"))
    summary = session.entry(session.branch_with_summary(one, "tried two"))
    assert isinstance(summary, BranchSummaryEntry)
    assert (summary.parent_id, summary.from_id) == (one, one)
    assert texts(session) == texts(reopened(session)) == ["one", "tried two"]
    session.branch_with_summary(None, "all of it")
    assert texts(session) == texts(reopened(session)) == ["all of it"]


def test_d3_a_label_or_name_of_a_stale_client_does_not_rewind_the_conversation() -> None:
    stale = [
        {"type": "label", "id": "x", "parentId": "a", "targetId": "a", "label": "start"},
        {"type": "session_info", "id": "y", "parentId": "a", "name": "named"},
    ]
    session = managed(image_of(said("a", None), said("b", "a"), said("c", "b"), *stale))
    assert (session.leaf_id, session.append_parent_id) == ("c", "c")
    assert texts(session) == ["said a", "said b", "said c"]
    assert (session.label("a"), session.name) == ("start", "named")


def test_d5_older_compactions_inside_the_kept_part_are_skipped(session: SessionManager) -> None:
    first = session.append_message(user("one"))
    session.append_compaction("first", first, 10)
    second = session.append_message(user("two"))
    session.append_compaction("second", first, 10)
    session.append_message(user("three"))
    assert texts(reopened(session)) == ["second", "one", "two", "three"]
    session.append_compaction("third", second, 10)
    assert texts(session) == texts(reopened(session)) == ["third", "two", "three"]
    session.append_compaction("fourth", "nowhere", 10)
    assert texts(session) == texts(reopened(session)) == ["fourth"]


def test_d7_a_leaf_line_far_above_what_was_read_first_still_holds(tmp_path: Path) -> None:
    """Row 10 goes back to row 3; 5,000 rows follow; only the end of the file is read."""
    rows = [said(f"{n}", f"{n - 1}" if n else None) for n in range(9)]
    rows.append({"type": "leaf", "id": "l", "parentId": "2", "targetId": "2"})
    rows += [said(f"{n}", f"{n - 1}" if n > 10 else "2", x="y" * 90) for n in range(10, 5010)]
    path = tmp_path / "t.jsonl"
    path.write_bytes(image_of(*rows))
    session = SessionManager.open(path)
    assert not session._reader.tree.complete
    expected = ["0", "1", "2", *(str(n) for n in range(10, 5010))]
    assert session.path() == expected
    assert len(session.build_context().items) == len(expected)


def test_d8_every_tip_is_listed_and_can_be_gone_on_from(session: SessionManager) -> None:
    one = session.append_message(user("one"))
    old_end = session.append_message(user("two"))
    session.append_label(old_end, "before")
    session.branch(one)
    new_end = session.append_message(user("other"))
    again = reopened(session)
    assert again.tips() == [old_end, new_end]
    assert session.children(one) == again.children(one)
    assert {old_end, new_end} < set(again.children(one))  # beside the line that moved the leaf
    again.branch(old_end)
    again.append_message(user("resumed"))
    assert texts(reopened(again)) == ["one", "two", "resumed"]
    assert again.common_ancestor(again.tips()[0], again.tips()[1]) == one


def test_entries_are_found_by_id_its_beginning_or_their_label(session: SessionManager) -> None:
    one, two = session.append_message(user("one")), session.append_message(user("two"))
    session.append_label(two, "here")
    assert [session.find(key) for key in (one, "here", two)] == [one, two, two]
    for unclear in ("0000000", "nowhere", ""):
        with pytest.raises(EntryNotFound):
            session.find(unclear)
    session.append_label(two, None)
    assert session.labels() == {}
    for call in (session.branch, session.entry, session.path, session.build_context):
        with pytest.raises(EntryNotFound, match="no entry 'nowhere'"):
            call("nowhere")
    with pytest.raises(EntryNotFound):
        session.append_label("nowhere", "x")


def test_a_branched_session_holds_one_branch_byte_for_byte_and_names_its_parent(
    session: SessionManager, tmp_path: Path
) -> None:
    one = session.append_message(user("one"))
    session.append_model_change("p", "m")
    kept = session.append_message(user("two"))
    session.branch(one)
    session.append_message(user("other"))
    session.append_label(kept, "good")
    session.append_label(one, "first")
    before = Path(str(session.path_name)).read_bytes()
    fork = session.create_branched_session(kept, session_dir=tmp_path / "forks")
    assert Path(str(session.path_name)).read_bytes() == before
    assert texts(fork) == ["one", "two"]
    assert fork.labels() == {one: "first", kept: "good"}
    assert fork.build_context().model == {"provider": "p", "modelId": "m"}
    assert fork.header["parentSession"] == session.path_name
    assert (fork.cwd, fork.session_id == session.session_id) == ("/c", False)
    lines = Path(str(fork.path_name)).read_bytes().split(b"\n")
    assert lines[1:4] == before.split(b"\n")[1:4]
    assert reopened(fork).verify() == []


def test_c14_a_fork_at_the_first_entry_has_one_header_and_leaves_the_parent_alone(
    session: SessionManager, tmp_path: Path
) -> None:
    with pytest.raises(EntryNotFound, match="no entry to branch from"):
        session.create_branched_session()
    session.append_message(user("one"))
    before = Path(str(session.path_name)).read_bytes()
    fork = SessionManager.fork_from(str(session.path_name), session_dir=tmp_path / "f")
    fork.append_message(user("in the fork"))
    content = Path(str(fork.path_name)).read_bytes()
    assert content.count(b'"type":"session"') == 1
    assert Path(str(session.path_name)).read_bytes() == before
    assert texts(reopened(fork)) == ["one", "in the fork"]


def test_a_copy_of_a_branch_that_had_been_moved_to_reads_as_the_original_does() -> None:
    """The entry names the append point, which another branch wrote (as OpenClaw does)."""
    session = managed(
        image_of(
            said("a", None),
            said("b", "a"),
            {
                "type": "leaf",
                "id": "l",
                "parentId": "b",
                "targetId": "a",
                "appendParentId": "b",
            },
            said("c", "b"),
            said("side", "c", appendMode="side"),
            said("d", "side"),
        )
    )
    assert texts(session) == ["said a", "said c", "said d"]
    fork = session.create_branched_session()
    assert texts(fork) == ["said a", "said c", "said d"]
    assert fork.leaf_id == "d"
    aside = session.create_branched_session("side")
    assert texts(aside) == texts(session, "side") == ["said a", "said c", "said side"]
    assert aside.leaf_id == "side"


def test_a_very_deep_tree_can_be_looked_at(session: SessionManager) -> None:
    entries = [said(str(n), str(n - 1) if n else None) for n in range(30_000)]
    deep = managed(image_of(*entries))
    assert len(deep.path()) == 30_000
    (root,) = deep.tree()
    assert root.on_path
    assert deep.tips() == ["29999"]


def test_the_newest_entries_are_those_of_the_path_and_end_where_one_wants(
    session: SessionManager,
) -> None:
    said = [session.append_message(user(str(number))) for number in range(5)]
    session.append_compaction("so far", said[3], 10)
    assert [entry.id for entry in session.newest_entries(3)] == session.path()[:-4:-1]
    assert [entry.id for entry in session.newest_entries(99)] == session.path()[::-1]
    assert [entry.type for entry in session.newest_entries(99, until=said[4])] == ["compaction"]
    session.branch(said[1])
    assert [entry.id for entry in session.newest_entries(99)] == [said[1], said[0]]
