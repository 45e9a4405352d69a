"""The contexts that the reference implementation builds from 58 transcripts and two real ones."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from strandline import SessionManager
from strandline.transcript.reading import Sizes
from strandline.transcript.session import Session

SHARED = Path(__file__).parents[3] / "shared"
VECTORS = sorted((SHARED / "vectors" / "context").glob("*.jsonl"))
DIGESTS = sorted((SHARED / "fixtures" / "pi").glob("*.context-digest.json"))
STATE = SHARED / "fixtures" / "openclaw-state" / "agents" / "main" / "sessions"
REAL = [path for path in sorted(STATE.glob("*.jsonl")) if "trajectory" not in path.name]
needs_shared = pytest.mark.skipif(not VECTORS, reason=f"the vectors are not in {SHARED}")


def outcome(session: SessionManager) -> dict[str, Any]:
    context = session.build_context()
    found = {
        "entryCount": session.entry_count,
        "leafId": session.leaf_id,
        "path": session.path(),
        "sessionName": session.name,
        "model": context.model,
        "thinkingLevel": context.thinking_level,
        "messages": context.messages,
    }
    as_json: dict[str, Any] = json.loads(json.dumps(found))
    return as_json


@needs_shared
def test_there_are_58_vectors_two_digests_and_the_sessions_of_openclaw() -> None:
    assert (len(VECTORS), len(DIGESTS), len(REAL)) == (58, 2, 9)


@needs_shared
@pytest.mark.parametrize("vector", VECTORS, ids=lambda path: path.stem)
def test_the_context_of_a_vector_is_the_reference_s_and_reading_changes_nothing(
    vector: Path, tmp_path: Path
) -> None:
    copy = tmp_path / vector.name
    shutil.copy(vector, copy)
    expected = json.loads(vector.with_suffix(".context.json").read_bytes())
    with SessionManager.open(copy) as session:
        found = outcome(session)
        session.verify()
    assert found == expected | {
        key: found[key] for key in ("leafId", "path") if expected[key] is None
    }
    assert copy.read_bytes() == vector.read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == [vector.name]


@needs_shared
@pytest.mark.parametrize("vector", VECTORS, ids=lambda path: path.stem)
def test_a_vector_read_from_its_end_gives_the_same(vector: Path) -> None:
    with SessionManager.open(vector) as whole:
        log = whole._store.open(vector.name)
        far = Session(log, clock=whole._clock, ids=whole._ids, sizes=Sizes(0, 64, 0, 1))
        assert far.build_context().messages == whole.build_context().messages
        assert (far.path(), far.name, far.entry_count) == (
            whole.path(),
            whole.name,
            whole.entry_count,
        )
        far.close()


def digest(message: Any) -> str:
    text = json.dumps(message, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@needs_shared
@pytest.mark.parametrize("expected_in", DIGESTS, ids=lambda path: path.name.split(".")[0])
def test_the_contexts_of_real_sessions_of_pi_have_the_reference_s_digests(
    expected_in: Path,
) -> None:
    expected = json.loads(expected_in.read_bytes())
    transcript = expected_in.with_name(expected_in.name.split(".")[0] + ".jsonl")
    with SessionManager.open(transcript) as session:
        found = outcome(session)
        assert session.verify() == []
    assert found["entryCount"] == expected["entryCount"]
    assert len(found["path"]) == expected["pathLength"]
    assert (found["model"], found["thinkingLevel"]) == (
        expected["model"],
        expected["thinkingLevel"],
    )
    assert [message["role"] for message in found["messages"]] == expected["roles"]
    assert [digest(message) for message in found["messages"]] == expected["messageSha256"]


@needs_shared
@pytest.mark.parametrize("transcript", REAL, ids=lambda path: path.stem)
def test_what_openclaw_wrote_reads_clean_and_is_copied_byte_for_byte(
    transcript: Path, tmp_path: Path
) -> None:
    with SessionManager.open(transcript) as session:
        assert session.verify() == []
        assert session.session_id
        lines = transcript.read_bytes().split(b"\n")
        assert set(session.branch_lines()) <= set(lines)
        with SessionManager.fork_from(transcript, session_dir=tmp_path) as fork:
            assert fork.build_context().messages == session.build_context().messages
            assert fork.path() == session.path()
