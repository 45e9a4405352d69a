"""Cool-downs by class of failure, and that they survive a restart."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.errors import ModelErrorKind
from strandline.runtime.cooldowns import (
    LONGEST_MS,
    MOST_REFS,
    CoolingDown,
    MemoryRecords,
    RecordedCooldowns,
)
from strandline.stores.cooldowns_file import CooldownsFile
from strandline.testing import SimulatedClock

REF = "acme/one"
MINUTE = 60_000


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "cooldowns.json"


# -- the policy -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "minutes"),
    [
        ("rate", [1, 2, 4, 8, 15, 15]),
        ("network", [0.5, 1, 2, 4, 8, 15, 15]),
        ("auth", [60, 60]),
        ("refused", [5, 5]),
        ("overflow", [None]),
        ("aborted", [None]),
    ],
)
def test_each_class_of_failure_has_its_own_cooldown(
    clock: SimulatedClock, kind: ModelErrorKind, minutes: list[float | None]
) -> None:
    cooldowns = RecordedCooldowns(MemoryRecords(), clock)
    for expected in minutes:
        cooldowns.note_failure(REF, kind)
        remaining = cooldowns.remaining_ms(REF)
        assert remaining == (expected and CoolingDown(int(expected * MINUTE), kind))
        clock.advance(remaining.ms if remaining else 0)
        assert cooldowns.remaining_ms(REF) is None


def test_what_the_server_asks_for_is_honoured_up_to_an_hour(clock: SimulatedClock) -> None:
    cooldowns = RecordedCooldowns(MemoryRecords(), clock)
    cooldowns.note_failure(REF, "rate", 7.5)
    assert cooldowns.remaining_ms(REF) == CoolingDown(7_500, "rate")
    cooldowns.note_failure(REF, "rate", 1e12)
    assert cooldowns.remaining_ms(REF) == CoolingDown(LONGEST_MS, "rate")


def test_a_success_and_another_class_begin_anew_and_others_are_untouched(
    clock: SimulatedClock,
) -> None:
    cooldowns = RecordedCooldowns(MemoryRecords(), clock)
    cooldowns.note_failure("acme/two", "auth")
    for _ in range(2):
        cooldowns.note_failure(REF, "rate")
    cooldowns.note_failure(REF, "network")
    assert cooldowns.remaining_ms(REF) == CoolingDown(MINUTE // 2, "network")
    cooldowns.note_success(REF)
    assert cooldowns.remaining_ms(REF) is None
    assert cooldowns.remaining_ms("acme/two") is not None


def test_a_clock_that_was_set_back_leaves_no_model_alone_for_years(clock: SimulatedClock) -> None:
    cooldowns = RecordedCooldowns(MemoryRecords(), clock)
    cooldowns.note_failure(REF, "rate")
    clock.advance(-365 * 24 * 60 * MINUTE)
    assert cooldowns.remaining_ms(REF) is None
    cooldowns.note_failure(REF, "rate")
    assert cooldowns.remaining_ms(REF) == CoolingDown(MINUTE, "rate")


def test_old_records_are_dropped_and_their_number_is_bounded(clock: SimulatedClock) -> None:
    records = MemoryRecords()
    cooldowns = RecordedCooldowns(records, clock)
    cooldowns.note_failure("old/one", "network")
    clock.advance(2 * LONGEST_MS)
    for number in range(MOST_REFS + 20):
        cooldowns.note_failure(f"acme/{number}", "network")
    assert len(records.read()) == MOST_REFS
    assert "old/one" not in records.read()
    assert f"acme/{MOST_REFS + 19}" in records.read()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
RECORD = st.fixed_dictionaries(
    {"kind": st.sampled_from(["rate", "auth", "x", []]), "failures": JSON, "untilMs": JSON}
)


@settings(max_examples=150)
@given(records=st.dictionaries(st.sampled_from([REF, "acme/two"]), RECORD | JSON))
def test_records_of_any_shape_are_understood_or_ignored(records: dict[str, Any]) -> None:
    kept = MemoryRecords()
    kept.update(lambda _: records)
    cooldowns = RecordedCooldowns(kept, SimulatedClock())
    cooldowns.remaining_ms(REF)
    cooldowns.note_failure("acme/three", "rate")
    assert cooldowns.remaining_ms("acme/three") == CoolingDown(MINUTE, "rate")


# -- the file ---------------------------------------------------------------------------------


def test_a_cooldown_survives_a_restart_and_goes_on_doubling(
    path: Path, clock: SimulatedClock
) -> None:
    RecordedCooldowns(CooldownsFile(path), clock).note_failure(REF, "network")
    again = RecordedCooldowns(CooldownsFile(path), clock)
    assert again.remaining_ms(REF) == CoolingDown(MINUTE // 2, "network")
    clock.advance(MINUTE)
    again.note_failure(REF, "network")
    assert again.remaining_ms(REF) == CoolingDown(MINUTE, "network")


def test_the_file_is_private_and_says_what_it_holds(path: Path, clock: SimulatedClock) -> None:
    RecordedCooldowns(CooldownsFile(path), clock).note_failure(REF, "auth")
    assert json.loads(path.read_text()) == {
        "version": 1,
        "models": {
            REF: {"kind": "auth", "failures": 1, "untilMs": clock.now_ms() + 60 * MINUTE},
        },
    }
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_damaged_file_leaves_no_model_alone_and_whoever_reads_is_not_told(
    path: Path, clock: SimulatedClock
) -> None:
    path.parent.mkdir()
    path.write_bytes(b"{")
    warnings: list[str] = []
    cooldowns = RecordedCooldowns(CooldownsFile(path, warn=warnings.append), clock)
    assert cooldowns.remaining_ms(REF) is None
    assert warnings == []
    cooldowns.note_failure(REF, "auth")
    assert cooldowns.remaining_ms(REF) is not None
    assert len(warnings) == 1
