"""``session verify`` and ``repair``: damage is told, and a new file is without it."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def damaged(talk: Path, tmp_path: Path) -> Path:
    """The talk with a torn line before another entry, a lost parent, NULs and a torn end."""
    lines = talk.read_bytes().splitlines(keepends=True)
    lines[2] = lines[2][:60] + lines[2]  # asst0001 behind a torn copy of itself
    lines[3] = b'{"torn\n'  # tool0001 is gone
    lines[8] = lines[8][:-1] + b"\x00" * 16 + b"\n"
    path = tmp_path / "damaged.jsonl"
    path.write_bytes(b"".join(lines) + b'{"type":"message","id":"zz')
    return path


def test_verify_of_a_clean_file_exits_0(talk: Path, run: Any) -> None:
    ran = run("session", "verify", talk)
    assert ran == (0, f"{talk}: version 3, 10 entries, clean\n", "")
    got = run("session", "verify", talk, "--json").json()
    assert got == {"file": str(talk), "version": 3, "entries": 10, "findings": [], "clean": True}


def test_verify_names_every_damaged_line_and_exits_1(damaged: Path, run: Any) -> None:
    ran = run("session", "verify", damaged)
    lines = ran.out.splitlines()
    assert ran.code == 1
    assert [line.split()[:3] for line in lines[:-2]] == [
        ["line", "3", "malformed-line"],
        ["line", "4", "malformed-line"],
        ["line", "5", "missing-parent"],
        ["line", "6", "unknown-leaf-target"],
        ["line", "7", "missing-parent"],
        ["line", "9", "nul-bytes"],
        ["line", "12", "torn-line"],
    ]
    assert lines[-2].startswith(f"{damaged}: version 3, 8 entries, 7 findings: 2 malformed-line, ")
    assert lines[-1] == f"`strandline session repair {damaged}` writes a new file without them"


def test_verify_as_json_has_line_offset_kind_and_why(damaged: Path, run: Any) -> None:
    ran = run("session", "verify", damaged, "--json")
    got = ran.json()
    assert ran.code == 1
    assert got["clean"] is False
    found = got["findings"][2]
    assert {key: found[key] for key in ("line", "kind", "entryId")} == {
        "line": 5,
        "kind": "missing-parent",
        "entryId": "aside001",
    }
    assert damaged.read_bytes()[: found["offset"]].count(b"\n") == 4
    assert "tool0001" in found["detail"]


def test_verify_counts_the_rest_of_a_long_row_of_one_kind(talk: Path, run: Any) -> None:
    talk.write_bytes(talk.read_bytes().replace(b"\n", b"\n\n" * 50))
    lines = run("session", "verify", talk).out.splitlines()
    assert len(lines) < 60
    assert any(line.endswith("more like these") for line in lines)


def test_verify_tells_lines_of_an_old_version_as_they_are_in_the_file(
    tmp_path: Path, run: Any
) -> None:
    path = tmp_path / "v2.jsonl"
    header = '{"type":"session","version":2,"id":"s","timestamp":"2025-01-01T00:00:00.000Z"}\n'
    hook = {"role": "hookMessage", "customType": "x", "content": "hi", "timestamp": 0}
    entry = {"type": "message", "id": "a", "parentId": None, "timestamp": "", "message": hook}
    lost = {**entry, "id": "b", "parentId": "lost"}
    path.write_text(header + json.dumps(entry) + "\n" + json.dumps(lost) + "\n")
    got = run("session", "verify", path, "--json").json()
    assert got["version"] == 2
    assert [(f["line"], f["kind"]) for f in got["findings"]] == [(3, "missing-parent")]


def test_repair_writes_a_clean_file_and_keeps_the_old_one(damaged: Path, run: Any) -> None:
    old = damaged.read_bytes()
    ran = run("session", "repair", damaged)
    out = damaged.with_name("damaged.repaired.jsonl")
    kept = damaged.with_name("damaged.repaired.jsonl.damaged")
    assert ran.code == 0
    assert damaged.read_bytes() == old
    assert run("session", "verify", out).code == 0
    assert kept.read_bytes().splitlines()[:2] == old.splitlines()[2:4]
    assert kept.read_bytes().splitlines()[-1] == old.splitlines()[-1]
    assert [stat.S_IMODE(path.stat().st_mode) for path in (out, kept)] == [0o600, 0o600]
    lines = ran.out.splitlines()
    assert lines[1].split()[:3] == ["line", "3", "salvaged"]
    assert lines[-2].startswith(f"{out}: 9 entries, ")
    assert lines[-1] == f"{kept}: 6 old lines, byte for byte"


def test_a_repaired_session_has_every_message_of_the_damaged_one(damaged: Path, run: Any) -> None:
    out = damaged.with_name("whole.jsonl")
    got = run("session", "repair", damaged, "-o", out, "--json").json()
    assert got["out"] == str(out)
    assert got["damaged"] == f"{out}.damaged"
    assert got["entries"] == 9
    assert got["changes"][1]["kind"] == "salvaged"
    before = run("session", "show", damaged, "--json").json()["entries"]
    after = run("session", "show", out, "--json").json()["entries"]
    said = [entry["message"] for entry in after if entry["type"] == "message"]
    assert all(entry["message"] in said for entry in before if entry["type"] == "message")
    assert any(message.get("model") == "claude" for message in said)


def test_good_lines_of_a_repaired_file_are_the_bytes_of_the_old_one(
    damaged: Path, run: Any
) -> None:
    run("session", "repair", damaged)
    new = damaged.with_name("damaged.repaired.jsonl").read_bytes().splitlines()
    old = damaged.read_bytes().splitlines()
    assert [old[0], old[1], old[7], old[8].rstrip(b"\x00"), old[9], old[10]] == [
        *new[:2],
        *new[-4:],
    ]


def test_repair_replaces_no_file(damaged: Path, run: Any) -> None:
    for name in ("damaged.repaired.jsonl", "damaged.repaired.jsonl.damaged"):
        taken = damaged.with_name(name)
        taken.write_bytes(b"mine")
        ran = run("session", "repair", damaged)
        assert ran.code == 1
        assert ran.err == f"strandline: {taken} exists already: choose another name\n"
        assert taken.read_bytes() == b"mine"
        taken.unlink()
    ran = run("session", "repair", damaged, "-o", damaged)
    assert ran.code == 1
    assert sorted(path.name for path in damaged.parent.iterdir()) == ["damaged.jsonl", "talk.jsonl"]


def test_there_is_nothing_to_repair_in_a_clean_file(talk: Path, run: Any) -> None:
    assert run("session", "repair", talk) == (
        0,
        f"{talk} is clean: there is nothing to repair\n",
        "",
    )
    got = run("session", "repair", talk, "--json").json()
    assert (got["out"], got["changes"]) == (None, [])
    assert [path.name for path in talk.parent.iterdir()] == ["talk.jsonl"]


def test_entries_that_only_repair_can_read_are_brought_back(tmp_path: Path, run: Any) -> None:
    path = tmp_path / "one.jsonl"
    path.write_text(
        '{"type":"session","version":3,"id":"s","timestamp":"2025-01-01T00:00:00.000Z","cwd":"/"}'
        '{"type":"message","id":"a","parentId":null,"timestamp":"2025-01-01T00:00:00.000Z",'
        '"message":{"role":"user","content":"Hello","timestamp":0}}\n'
    )
    assert run("session", "show", path).code == 2
    assert run("session", "repair", path).code == 0
    assert "  Hello" in run("session", "show", tmp_path / "one.repaired.jsonl").out


def test_every_vector_that_is_damaged_is_repaired_with_its_context(
    shared: Path, tmp_path: Path, run: Any
) -> None:
    repaired = 0
    for path in sorted((shared / "vectors" / "context").glob("*.jsonl")):
        out = tmp_path / path.name
        if run("session", "repair", path, "-o", out, "--json").json()["out"] is None:
            continue
        repaired += 1
        assert run("session", "verify", out).code == 0
        before, after = (run("session", "context", each, "--json").json() for each in (path, out))
        assert after["messages"] == before["messages"]
    assert repaired > 5
