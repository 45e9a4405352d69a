"""Rows: a typed view that loses nothing, and fresh rows that inherit nothing of a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from strandline.sessions.rows import SessionRow, is_row, new_row, row_of, transcript_name

FIXTURE = Path(__file__).parents[2] / "../shared/fixtures/openclaw-state/agents/main/sessions"

USED = {
    "sessionId": "old",
    "sessionFile": "/home/ann/.openclaw/agents/main/sessions/old.jsonl",
    "updatedAt": 5,
    "thinkingLevel": "high",
    "verboseLevel": "on",
    "sendPolicy": "deny",
    "modelOverride": "m",
    "displayName": "Ann",
    "channel": "telegram",
    "inputTokens": 18_000,
    "outputTokens": 7,
    "totalTokens": 190_000,
    "contextTokens": 200_000,
    "cacheRead": 3,
    "estimatedCostUsd": 1.25,
    "compactionCount": 4,
    "memoryFlushAt": 4,
    "memoryFlushCompactionCount": 4,
    "abortedLastRun": True,
    "forkedFromParent": True,
    "status": "running",
    "cliSessionBindings": {"x": 1},
    "plugin.state": [1],
}


def test_a_row_reads_known_fields_and_keeps_the_others() -> None:
    row = row_of(USED)
    assert (row.session_id, row.total_tokens, row.estimated_cost_usd) == ("old", 190_000, 1.25)
    assert row.aborted_last_run is True
    assert row.send_policy == "deny"
    assert row.raw["plugin.state"] == [1]


def test_a_changed_row_keeps_order_and_unknown_keys_and_the_old_row_stays() -> None:
    row = row_of(USED)
    changed = row.with_changes(updated_at=9, memory_flush_at=None, room="r", session_id="new")
    expected = {key: value for key, value in USED.items() if key != "memoryFlushAt"}
    expected |= {"sessionId": "new", "updatedAt": 9, "room": "r"}
    assert list(changed.raw.items()) == list(expected.items())
    assert row == row_of(USED)
    assert changed != row


def test_absent_is_not_zero() -> None:
    row = row_of({"sessionId": "s", "memoryFlushCompactionCount": 0})
    assert row.memory_flush_compaction_count == 0
    assert row.compaction_count is None
    assert row.with_changes(memory_flush_compaction_count=None).raw == {"sessionId": "s"}


def test_a_value_of_the_wrong_type_reads_as_absent_and_is_kept() -> None:
    row = row_of({"sessionId": "s", "updatedAt": "soon", "abortedLastRun": 1, "inputTokens": True})
    assert (row.updated_at, row.aborted_last_run, row.input_tokens) == (None, None, None)
    assert row.with_changes(room="r").raw["updatedAt"] == "soon"


def test_a_field_that_does_not_exist_is_a_mistake_of_the_program() -> None:
    with pytest.raises(TypeError, match="compactions"):
        row_of(USED).with_changes(compactions=1)
    with pytest.raises(ValueError, match="session id"):
        row_of(USED).with_changes(session_id=None)


def test_a_row_cannot_be_changed_in_place() -> None:
    with pytest.raises(TypeError):
        row_of(USED).raw["sessionId"] = "x"  # type: ignore[index] # the point of the test


@pytest.mark.parametrize("value", [None, 1, [], {}, {"sessionId": ""}, {"sessionId": 1}], ids=str)
def test_what_has_no_session_id_is_no_row(value: object) -> None:
    assert not is_row(value)


def test_a_fresh_session_inherits_choices_and_labels_and_nothing_of_the_run() -> None:
    """E8: a row that was copied took the old file and its counters along."""
    row = new_row("new", 100, previous=row_of(USED))
    assert row.raw == {
        "sessionId": "new",
        "updatedAt": 100,
        "sessionStartedAt": 100,
        "lastInteractionAt": 100,
        "sessionFile": "new.jsonl",
        "channel": "telegram",
        "displayName": "Ann",
        "thinkingLevel": "high",
        "verboseLevel": "on",
        "sendPolicy": "deny",
        "modelOverride": "m",
    }


def test_a_new_row_stores_the_name_of_its_file_only() -> None:
    assert new_row("a/b", 1).session_file == "a%2Fb.jsonl"
    assert new_row("a", 1, session_file="a-topic-7.jsonl").session_file == "a-topic-7.jsonl"


@pytest.mark.parametrize(
    ("session_file", "name"),
    [
        (None, "s.jsonl"),
        ("", "s.jsonl"),
        ("x.jsonl", "x.jsonl"),
        ("/home/ann/.openclaw/agents/main/sessions/s-topic-2.jsonl", "s-topic-2.jsonl"),
        ("C:\\Users\\ann\\sessions\\boot-1.jsonl", "boot-1.jsonl"),
        ("../../../etc/passwd", "s.jsonl"),
        ("../x.jsonl", "x.jsonl"),
        ("/srv/sessions.json", "s.jsonl"),
        ("s.trajectory.jsonl", "s.jsonl"),
        ("a/..", "s.jsonl"),
        ("a\x00.jsonl", "s.jsonl"),
    ],
)
def test_a_transcript_is_always_a_file_of_that_name_in_the_folder(
    session_file: str | None, name: str
) -> None:
    row = row_of({"sessionId": "s", "sessionFile": session_file})
    assert transcript_name(row) == name


def test_a_session_id_that_is_a_path_still_names_a_file_in_the_folder() -> None:
    assert transcript_name(row_of({"sessionId": "../../x"})) == "%2E.%2F..%2Fx.jsonl"


@pytest.mark.skipif(not FIXTURE.exists(), reason="the recorded state is not here")
def test_the_rows_that_openclaw_wrote_name_their_transcripts() -> None:
    entries = json.loads((FIXTURE / "sessions.json").read_bytes())
    for entry in entries.values():
        row: SessionRow = row_of(entry)
        assert (FIXTURE / transcript_name(row)).is_file()
        assert row.updated_at == entry["updatedAt"]
        assert dict(row.raw) == entry
