"""What counts as said and as called in a transcript that is replayed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from strandline.manager import SessionManager
from strandline.replay.recording import recorded, whole_path

SPACING = 90_000


@pytest.fixture
def session(tmp_path: Path) -> Any:
    with SessionManager.create(session_dir=tmp_path, session_id="s") as session:
        yield session


def user(text: str, at_ms: int) -> dict[str, Any]:
    return {"role": "user", "content": text, "timestamp": at_ms}


def answer(text: str, at_ms: int | None, **more: Any) -> dict[str, Any]:
    content = [{"type": "text", "text": text}]
    message = {"role": "assistant", "content": content, "stopReason": "stop", **more}
    return message if at_ms is None else {**message, "timestamp": at_ms}


def test_each_answer_is_a_call_at_its_time_with_what_the_provider_reported(session: Any) -> None:
    by = {"provider": "acme", "model": "one", "usage": {"output": 7}}
    session.append_message(user("Hello", 1000))
    first = session.append_message(answer("Hi", 2000, **by))
    session.append_message(user("More", 3000))
    second = session.append_message(answer("Yes", 4000))
    calls = recorded(session, None, SPACING).calls
    assert [(call.entry_id, call.at_ms) for call in calls] == [(first, 2000), (second, 4000)]
    assert [(call.model, call.output_tokens) for call in calls] == [("acme/one", 7), (None, None)]


def test_compactions_count_for_nothing_and_all_before_them_was_said(session: Any) -> None:
    ids = [session.append_message(user(str(n), n)) for n in range(4)]
    session.append_compaction("So far", ids[2], 1000)
    ids.append(session.append_message(user("4", 4)))
    session.append_compaction("And further", ids[4], 1000)
    ids.append(session.append_message(user("5", 5)))
    assert [item.entry_id for item in whole_path(session)] == ids
    assert len(session.build_context().items) == 3


def test_only_the_active_path_is_replayed_with_the_summary_of_the_branch_left(
    session: Any,
) -> None:
    start = session.append_message(user("Begin", 0))
    session.append_message(answer("The other way", 1))
    session.branch_with_summary(start, "They went another way")
    here = session.append_message(answer("This way", 2))
    recording = recorded(session, None, SPACING)
    assert [call.entry_id for call in recording.calls] == [here]
    roles = [item.message["role"] for item in recording.items]
    assert roles == ["user", "branchSummary", "assistant"]


def test_a_spacing_takes_the_place_of_recorded_times_everywhere(session: Any) -> None:
    session.append_message(user("Hello", 5_000_000))
    session.append_message(answer("Hi", 6_000_000))
    session.append_message(user("More", 7_000_000))
    session.append_message(answer("Yes", 8_000_000))
    recording = recorded(session, 1000, SPACING)
    assert [call.at_ms for call in recording.calls] == [0, 1000]
    assert [item.message["timestamp"] for item in recording.items] == [0, 0, 1000, 1000]


def test_answers_that_are_all_of_one_time_are_spaced(session: Any) -> None:
    for _ in range(3):
        session.append_message(user("Hello", 0))
        session.append_message(answer("Hi", 0))
    recording = recorded(session, None, SPACING)
    assert [call.at_ms for call in recording.calls] == [0, SPACING, 2 * SPACING]


def test_a_clock_that_went_back_does_not_take_calls_back(session: Any) -> None:
    for at_ms in (1000, 5000, 4000, 6000):
        session.append_message(answer("Hi", at_ms))
    calls = recorded(session, None, SPACING).calls
    assert [call.at_ms for call in calls] == [1000, 5000, 5000, 6000]


def test_pins_are_the_entries_with_that_label(session: Any) -> None:
    pinned = session.append_message(user("Mind this", 0))
    other = session.append_message(user("Or not", 0))
    session.append_label(pinned, "pin")
    session.append_label(other, "question")
    assert recorded(session, None, SPACING).pins == {pinned}
