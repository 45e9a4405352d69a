"""What went wrong with engines: what is kept, for how long, and that it survives."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.runtime.engine_health import (
    FORGOTTEN_AFTER_MS,
    MAX_WHAT_CHARS,
    MOST_FAILURES,
    EngineFailure,
    MemoryHealthRecords,
    NoHealth,
    RecordedEngineHealth,
)
from strandline.stores.engine_health_file import EngineHealthFile
from strandline.testing import SimulatedClock

KEY = "agent:main:main"


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "engine-health.json"


def told(phase: str = "assemble", what: str = "ValueError: no") -> tuple[str, str, str, str]:
    return "dag", phase, what, KEY


def failure(clock: SimulatedClock) -> EngineFailure:
    return EngineFailure(*told(), clock.now_ms())


# -- what is kept ---------------------------------------------------------------------------


def test_failures_are_told_with_the_newest_first(clock: SimulatedClock) -> None:
    health = RecordedEngineHealth(MemoryHealthRecords(), clock)
    health.note(*told())
    clock.advance(1000)
    health.note_declined("dag", KEY)
    newest, oldest = health.recent()
    assert (newest.phase, newest.declined, newest.at_ms) == ("compact", True, clock.now_ms())
    at_ms = clock.now_ms() - 1000
    assert oldest == EngineFailure("dag", "assemble", "ValueError: no", KEY, at_ms)


def test_the_same_failure_again_is_counted_and_takes_no_other_one_away(
    clock: SimulatedClock,
) -> None:
    health = RecordedEngineHealth(MemoryHealthRecords(), clock)
    health.note(*told("ingest"))
    for _ in range(MOST_FAILURES + 10):
        clock.advance(1000)
        health.note(*told())
    kept = health.recent()
    assert [(each.phase, each.times) for each in kept] == [("assemble", 60), ("ingest", 1)]
    assert kept[0].at_ms == clock.now_ms()


def test_their_number_their_length_and_their_age_are_bounded(clock: SimulatedClock) -> None:
    records = MemoryHealthRecords()
    health = RecordedEngineHealth(records, clock)
    for number in range(MOST_FAILURES + 10):
        health.note(*told(what=f"{number}: " + "x" * 10_000))
    assert len(records.read()) == MOST_FAILURES
    assert all(len(each.what) == MAX_WHAT_CHARS for each in health.recent())
    clock.advance(FORGOTTEN_AFTER_MS)
    assert health.recent() == []
    health.note(*told())
    assert len(records.read()) == 1


def test_what_a_wrong_clock_wrote_is_not_told_for_years(clock: SimulatedClock) -> None:
    health = RecordedEngineHealth(MemoryHealthRecords(), clock)
    health.note(*told())
    clock.advance(-365 * 24 * 3_600_000)
    assert health.recent() == []


def test_where_nothing_is_kept_nothing_is_told(clock: SimulatedClock) -> None:
    health = NoHealth()
    health.note(*told())
    health.note_declined("dag", KEY)
    assert health.recent() == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
RECORD = st.fixed_dictionaries(
    {"engine": st.just("dag") | JSON, "phase": st.just("assemble"), "what": st.text(max_size=5)},
    optional={"sessionKey": JSON, "atMs": JSON | st.just(0), "times": JSON, "declined": JSON},
)


@settings(max_examples=150, deadline=None)
@given(found=st.lists(RECORD | JSON, max_size=5))
def test_records_of_any_shape_are_understood_or_ignored(found: list[Any]) -> None:
    clock, records = SimulatedClock(), MemoryHealthRecords()
    records.update(lambda _: found)
    health = RecordedEngineHealth(records, clock)
    health.recent()
    health.note(*told("ingest"))
    assert health.recent()[0].phase == "ingest"


# -- the file -------------------------------------------------------------------------------


def test_a_failure_survives_a_restart(path: Path, clock: SimulatedClock) -> None:
    RecordedEngineHealth(EngineHealthFile(path), clock).note(*told())
    assert RecordedEngineHealth(EngineHealthFile(path), clock).recent() == [failure(clock)]


def test_the_file_is_private_and_says_what_it_holds(path: Path, clock: SimulatedClock) -> None:
    RecordedEngineHealth(EngineHealthFile(path), clock).note(*told(what="half: \ud83d"))
    record = {
        "engine": "dag",
        "phase": "assemble",
        "what": "half: \ud83d",
        "sessionKey": KEY,
        "atMs": clock.now_ms(),
        "declined": False,
        "times": 1,
    }
    assert json.loads(path.read_text()) == {"version": 1, "failures": [record]}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_damaged_file_reads_as_nothing_and_whoever_reads_is_told(
    path: Path, clock: SimulatedClock
) -> None:
    path.parent.mkdir()
    path.write_bytes(b"{")
    warnings: list[str] = []
    health = RecordedEngineHealth(EngineHealthFile(path, warn=warnings.append), clock)
    assert health.recent() == []
    assert len(warnings) == 1
    health.note(*told())
    assert health.recent() == [failure(clock)]
    assert len(warnings) == 2
    assert all(str(path) in warning for warning in warnings)
