"""``session show``, ``tree`` and ``list``: what people see of a transcript."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from strandline.cli.outline import in_order, outline
from strandline.manager import SessionManager
from strandline.transcript.entries import Head
from strandline.transcript.shape import TreeNode

FACTS = "/home/user/project · since 2025-06-01 10:00 · 10 entries · 2 branches · anthropic/claude"


def test_show_prints_the_active_branch_with_its_boundaries(talk: Path, run: Any) -> None:
    assert run("session", "show", talk).out.splitlines() == [
        "A short talk",
        f"talk · {FACTS}",
        "",
        "user  2025-06-01 10:00  user0001",
        "  Hello",
        "",
        "assistant  2025-06-01 10:01  asst0001  claude",
        "  ~ hmm",
        "  Hi!",
        "  → read  src/a.py",
        "  ← 3 lines, 13 B: one two three",
        "",
        "user  2025-06-01 10:05  user0002",
        "  Go on in red␇",
        "",
        "── compaction · 12,345 tokens before, kept from user0002 · 2025-06-01 10:07 · compact1 "
        + "─" * 33,
        "  They said hello.",
        "─" * 120,
        "",
        "· name A short talk  2025-06-01 10:08  name0001",
        "",
        "assistant  2025-06-01 10:09  asst0002  claude",
        "  Done.",
    ]


def test_show_full_prints_what_tools_got_and_gave(talk: Path, run: Any) -> None:
    lines = run("session", "show", talk, "--full").out.splitlines()
    at = lines.index("  → read  src/a.py")
    assert lines[at + 1 : at + 6] == [
        '    {"path": "src/a.py"}',
        "  ← read",
        *[f"    {word}" for word in ("one", "two", "three")],
    ]


def test_show_of_another_branch_ends_there_and_shows_its_label(talk: Path, run: Any) -> None:
    out = run("session", "show", talk, "--branch", "side way").out
    assert "user  2025-06-01 10:03  aside001  [side way]\n  Or not\n" in out
    assert "Done." not in out


def test_show_all_says_where_the_file_jumps_to_another_branch(talk: Path, run: Any) -> None:
    out = run("session", "show", talk, "--all").out
    assert out.index("Or not") < out.index("from here on behind tool0001") < out.index("Go on")
    assert out.count("from here on behind") == 1


def test_show_as_json_holds_the_entries_as_the_file_has_them(talk: Path, run: Any) -> None:
    got = run("session", "show", talk, "--json").json()
    lines = {e["id"]: e for e in map(json.loads, talk.read_text().splitlines())}
    assert list(got) == ["file", "sessionId", "name", "cwd", "leafId", "entries"]
    assert got["leafId"] == "asst0002"
    assert all(entry == lines[entry["id"]] for entry in got["entries"])
    assert len(run("session", "show", talk, "--all", "--json").json()["entries"]) == 10


def test_nothing_in_a_transcript_can_steer_the_terminal(tmp_path: Path, run: Any) -> None:
    evil = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202etxt.exe\x00\r\x1b]52;c;\x1b"
    with SessionManager.create(session_dir=tmp_path, session_id="evil", cwd=evil) as session:
        entry = session.append_message({"role": "user", "content": evil})
        session.append_message({"role": evil, "content": evil})
        session.append_message({"role": "toolResult", "toolName": evil, "content": evil})
        block = {"type": "toolCall", "id": "1", "name": evil, "arguments": {"path": evil}}
        answer: Any = {"role": "assistant", "model": evil, "content": [block, {"type": evil}]}
        session.append_message({**answer, "stopReason": "error", "errorMessage": evil})
        session.append_custom_message(evil, evil)
        session.append_model_change(evil, evil)
        session.append_label(entry, evil)
        session.append_compaction(evil, entry, 1)
        session.append_session_info(evil)
    path = tmp_path / "evil.jsonl"
    commands = [["show"], ["show", "--all", "--full"], ["tree"], ["context"], ["verify"]]
    for name, *more in [*commands, ["export"], ["export", "--format", "html"]]:
        out = run("session", name, path, *more).out
        assert not [c for c in out if c != "\n" and (c < " " or "\x7f" <= c < "\xa0")]
        assert "\u202e" not in out
    named = tmp_path / f"a{evil[10:12]}\n.jsonl".replace("\x00", "")
    named.write_text("")
    for command in ("show", "verify", "repair"):
        err = run("session", command, named).err
        assert err.count("\n") == 1
        assert "\x1b" not in err


def test_tree_marks_the_leaf_tips_and_labels_and_draws_branches_aside(talk: Path, run: Any) -> None:
    assert run("session", "tree", talk).out.splitlines()[3:] == [
        "● user0001  user       Hello",
        "● asst0001  assistant  Hi!",
        "● tool0001  tool       ← read one two three",
        "├─○ aside001  user       Or not  [side way]  tip",
        "● user0002  user       Go on in red␇",
        "● label001  label      side way on aside001",
        "● compact1  compaction They said hello.",
        "● name0001  name       A short talk",
        "◉ asst0002  assistant  Done.  ← here",
    ]


def test_tree_as_json_is_flat_with_the_parent_of_each_entry(talk: Path, run: Any) -> None:
    got = run("session", "tree", talk, "--json").json()
    by_id = {entry["id"]: entry for entry in got["entries"]}
    assert len(by_id) == 10
    assert by_id["aside001"] == {
        "id": "aside001",
        "parentId": "tool0001",
        "type": "message",
        "role": "user",
        "timestamp": "2025-06-01T10:03:00.000Z",
        "text": "Or not",
        "label": "side way",
        "onPath": False,
        "tip": True,
        "bridged": False,
    }
    assert got["leafId"] == "asst0002"


def test_tree_marks_bridged_entries(tmp_path: Path, talk: Path, run: Any) -> None:
    path = tmp_path / "gap.jsonl"
    lines = talk.read_text().splitlines(keepends=True)
    path.write_text("".join(each for each in lines if '"id": "tool0001"' not in each))
    assert "aside001  user       Or not  [side way]  (bridged: its parent is missing)" in (
        run("session", "tree", path).out
    )


def test_tree_of_an_entry_before_which_the_conversation_stands(talk: Path, run: Any) -> None:
    with SessionManager.open(talk) as session:
        session.reset_leaf()
    out = run("session", "tree", talk).out
    assert "the conversation stands before the first entry" in out
    assert "● " not in out


def test_a_conversation_of_100_000_entries_is_drawn_flat() -> None:
    root = last = _node("0")
    for number in range(1, 100_000):
        child = _node(str(number))
        last.children = [child] if number % 1000 else [_node(f"{number}-aside"), child]
        last = child
    drawn = list(outline([root]))
    assert len(drawn) == 100_099
    assert {before for before, _ in drawn} == {"", "├─"}
    assert sum(1 for _ in in_order([root])) == 100_099


def test_branches_of_branches_are_not_drawn_ever_further_to_the_right() -> None:
    root = last = _node("0")
    for number in range(1, 2000):
        aside = _node(f"{number}")
        last.children = [aside, _node(f"{number}-on")]
        last = aside
    assert max(len(before) for before, _ in outline([root])) < 70


def _node(entry_id: str) -> TreeNode:
    head = Head("message", entry_id)
    return TreeNode(entry_id, head, None, on_path=False, is_leaf=False, bridged=False)


def test_a_long_session_is_shown_whole(tmp_path: Path, run: Any) -> None:
    with SessionManager.create(
        session_dir=tmp_path, session_id="long", durability="none"
    ) as session:
        for number in range(3000):
            session.append_message({"role": "user", "content": f"message {number}"})
    path = tmp_path / "long.jsonl"
    assert run("session", "show", path).out.count("  message ") == 3000
    assert run("session", "tree", path).out.count("● ") == 2999


def test_list_names_the_transcripts_of_a_folder_and_of_those_in_it(
    talk: Path, tmp_path: Path, run: Any
) -> None:
    nested = tmp_path / "--home-user-project--"
    nested.mkdir()
    (nested / "2025_talk.jsonl").write_bytes(talk.read_bytes())
    (tmp_path / "broken.jsonl").write_text("no\n")
    (tmp_path / "talk.trajectory.jsonl").write_text('{"type":"session.started"}\n')
    got = run("session", "list", tmp_path, "--json").json()
    assert [Path(row["file"]).name for row in got["sessions"]] == [
        "broken.jsonl",
        "2025_talk.jsonl",
        "talk.jsonl",
    ]
    assert got["sessions"][0]["error"].startswith(f"{tmp_path / 'broken.jsonl'} holds no line")
    assert got["sessions"][2] == {
        "file": str(talk),
        "sessionId": "talk",
        "name": "A short talk",
        "cwd": "/home/user/project",
        "entries": 10,
        "lastAt": "2025-06-01T10:09:00.000Z",
        "error": None,
    }
    lines = run("session", "list", tmp_path).out.splitlines()
    assert lines[-1] == "2025-06-01 10:09      10 entries  talk.jsonl  A short talk"


def test_list_of_an_empty_folder_says_so(tmp_path: Path, run: Any) -> None:
    assert run("session", "list", tmp_path).out == f"no transcripts in {tmp_path}\n"
    assert run("session", "list", tmp_path, "--json").json()["sessions"] == []


@pytest.mark.parametrize("name", ["fixtures/pi/before-compaction", "fixtures/pi/large-session"])
def test_real_sessions_of_pi_are_shown(name: str, shared: Path, run: Any) -> None:
    path = shared / f"{name}.jsonl"
    out = run("session", "show", path).out
    assert out.count("\nuser  ") >= 50
    assert run("session", "tree", path).out.count("\n") > 900
