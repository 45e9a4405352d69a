"""``session branch``, ``fork`` and ``label``: each is appended lines, or a file of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from strandline.manager import SessionManager


@pytest.mark.parametrize("entry", ["aside001", "asi", "side way"])
def test_branch_moves_the_conversation_by_one_appended_line(
    entry: str, talk: Path, run: Any
) -> None:
    before = talk.read_bytes()
    ran = run("session", "branch", talk, entry)
    assert ran == (0, "the conversation stands at aside001 (user: Or not)\n", "")
    added = talk.read_bytes().removeprefix(before)
    assert added.count(b"\n") == 1
    assert {"type": "leaf", "parentId": "aside001", "targetId": "aside001"}.items() <= (
        json.loads(added).items()
    )
    assert "◉ aside001  user       Or not  [side way]  ← here" in run("session", "tree", talk).out


def test_branch_takes_a_summary_along(talk: Path, run: Any) -> None:
    got = run("session", "branch", talk, "aside001", "--summary", "It went well.", "--json").json()
    assert got["entryId"] == "aside001"
    with SessionManager.open(talk) as session:
        assert session.leaf_id == got["leafId"]
        assert session.build_context().messages[-1]["summary"] == "It went well."


def test_branch_to_an_entry_that_is_not_there_or_not_one_appends_nothing(
    talk: Path, run: Any
) -> None:
    before = talk.read_bytes()
    nowhere, many = run("session", "branch", talk, "zz"), run("session", "branch", talk, "user")
    assert (nowhere.code, many.code) == (1, 1)
    assert nowhere.err.startswith(f"strandline: no entry in {talk} for 'zz'")
    assert many.err.startswith(f"strandline: 2 entries in {talk} for 'user'")
    assert talk.read_bytes() == before


def test_branch_does_not_move_a_conversation_under_a_running_turn(talk: Path, run: Any) -> None:
    with SessionManager.open(talk) as session, session.run_lock(timeout_ms=0, holder="a chat"):
        ran = run("session", "branch", talk, "aside001")
        assert run("session", "label", talk, "user0001", "meanwhile").code == 0
    assert ran.code == 1
    assert "a chat" in ran.err
    assert ran.err.count("\n") == 1


def test_fork_prints_the_path_of_a_session_with_one_branch(
    talk: Path, tmp_path: Path, run: Any
) -> None:
    before = talk.read_bytes()
    path = Path(run("session", "fork", talk).out.strip())
    assert path.parent == tmp_path
    assert talk.read_bytes() == before
    with SessionManager.open(path) as fork, SessionManager.open(talk) as session:
        assert fork.header["parentSession"] == str(talk)
        assert fork.path() == session.path()
        assert fork.build_context().messages == session.build_context().messages
        assert fork.name == "A short talk"


def test_fork_of_an_entry_goes_to_another_folder(talk: Path, tmp_path: Path, run: Any) -> None:
    folder = tmp_path / "new" / "place"
    got = run("session", "fork", talk, "side way", "--to", folder, "--json").json()
    assert Path(got["file"]).parent == folder
    assert got["parentSession"] == str(talk)
    shown = run("session", "show", got["file"]).out
    assert shown.endswith("user  2025-06-01 10:03  aside001  [side way]\n  Or not\n")


def test_fork_notes_an_absolute_path_of_its_parent(
    talk: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(talk.parent)
    got = run("session", "fork", talk.name, "--json").json()
    assert got["parentSession"] == str(talk)
    assert Path(got["file"]).is_absolute()


def test_label_bookmarks_an_entry_and_clear_takes_it_away(talk: Path, run: Any) -> None:
    assert run("session", "label", talk, "asst0002", "the end").out == (
        "asst0002 is labelled 'the end'\n"
    )
    assert run("session", "context", talk, "--leaf", "the end").code == 0
    got = run("session", "label", talk, "the end", "--clear", "--json").json()
    assert got == {"file": str(talk), "entryId": "asst0002", "label": None}
    assert run("session", "context", talk, "--leaf", "the end").code == 1


def test_label_wants_either_a_label_or_clear(talk: Path, run: Any) -> None:
    for more in ([], ["x", "--clear"], [""]):
        ran = run("session", "label", talk, "user0001", *more)
        assert ran.code == 2
        assert ran.err.startswith("strandline: give a LABEL, or --clear: ")
    ran = run("session", "label", talk, "user0001", "--clear")
    assert (ran.code, ran.err) == (
        1,
        "strandline: entry user0001 has no label: there is nothing to clear\n",
    )


def test_the_first_change_of_an_old_file_keeps_it_as_it_was(tmp_path: Path, run: Any) -> None:
    path = tmp_path / "old.jsonl"
    message = {"role": "user", "content": "Hi", "timestamp": 0}
    entry = {"type": "message", "timestamp": "2025-01-01T00:00:00.000Z", "message": message}
    path.write_text('{"type":"session","id":"o"}\n' + json.dumps(entry) + "\n")
    old = path.read_bytes()
    entry_id = run("session", "tree", path, "--json").json()["leafId"]
    assert run("session", "label", path, entry_id[:4], "start").code == 0
    assert (tmp_path / "old.jsonl.v1.bak").read_bytes() == old
    assert "[start]" in run("session", "tree", path).out
