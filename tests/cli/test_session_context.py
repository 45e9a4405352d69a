"""``session context``: the context that the reference implementation builds."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

VECTORS = Path(__file__).parents[3] / "shared" / "vectors" / "context"
NAMES = sorted(path.name.removesuffix(".jsonl") for path in VECTORS.glob("*.jsonl"))
KEYS = ["entryCount", "leafId", "path", "sessionName", "model", "thinkingLevel", "messages"]


@pytest.mark.skipif(not NAMES, reason="../shared/vectors is not here")
@pytest.mark.parametrize("name", NAMES)
def test_each_vector_gives_the_reference_context(name: str, run: Any) -> None:
    got = run("session", "context", VECTORS / f"{name}.jsonl", "--json").json()
    wanted = json.loads((VECTORS / f"{name}.context.json").read_text("utf-8"))
    assert list(got) == KEYS
    for key, value in wanted.items():
        if value is not None:  # what the reference makes up for old versions is not compared
            assert got[key] == value, key


@pytest.mark.parametrize("name", ["before-compaction", "large-session"])
def test_real_sessions_of_pi_give_the_messages_that_pi_builds(
    name: str, shared: Path, run: Any
) -> None:
    folder = shared / "fixtures" / "pi"
    got = run("session", "context", folder / f"{name}.jsonl", "--json").json()
    wanted = json.loads((folder / f"{name}.context-digest.json").read_text())
    assert [_digest(message) for message in got["messages"]] == wanted["messageSha256"]
    assert got["entryCount"] == wanted["entryCount"]
    assert len(got["path"]) == wanted["pathLength"]
    assert got["model"] == wanted["model"]
    assert got["thinkingLevel"] == wanted["thinkingLevel"]


def _digest(message: Any) -> str:
    text = json.dumps(message, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def test_the_context_of_another_branch_is_asked_for_by_a_prefix_or_label(
    talk: Path, run: Any
) -> None:
    by_id = run("session", "context", talk, "--leaf", "aside001", "--json").json()
    assert by_id == run("session", "context", talk, "--leaf", "aside", "--json").json()
    assert by_id == run("session", "context", talk, "--leaf", "side way", "--json").json()
    assert by_id["leafId"] == "aside001"
    assert [m["content"] for m in by_id["messages"] if m["role"] == "user"] == ["Hello", "Or not"]


def test_an_entry_that_is_nowhere_is_refused(talk: Path, run: Any) -> None:
    ran = run("session", "context", talk, "--leaf", "nowhere")
    assert ran.code == 1
    assert ran.err.startswith("strandline: no entry in ")
    assert ran.err.count("\n") == 1


def test_people_get_a_table_of_messages_with_role_and_size(talk: Path, run: Any) -> None:
    lines = run("session", "context", talk).out.splitlines()
    assert lines[0].split() == ["#", "entry", "role", "size"]
    assert lines[1].split()[:3] == ["1", "compact1", "compaction"]
    assert lines[-1].startswith(f"{len(lines) - 2} messages, ")
    assert "model anthropic/claude" in lines[-1]


def test_lone_surrogates_and_endless_numbers_come_out_as_json(tmp_path: Path, run: Any) -> None:
    path = tmp_path / "odd.jsonl"
    path.write_text(
        '{"type":"session","version":3,"id":"s","timestamp":"2025-01-01T00:00:00.000Z","cwd":"/"}\n'
        '{"type":"message","id":"a","parentId":null,"timestamp":"2025-01-01T00:00:00.000Z",'
        '"message":{"role":"user","content":"cut \\ud83d short é","n":1e999,"timestamp":0}}\n'
    )
    ran = run("session", "context", path, "--json")
    assert "cut \\ud83d short é" in ran.out
    assert ran.json()["messages"][0]["n"] is None
    assert "cut \ufffd short é" in run("session", "show", path).out
