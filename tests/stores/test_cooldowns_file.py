"""Cool-downs by class of failure, and that they survive a restart."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.errors import ModelErrorKind, StoreError
from strandline.runtime.cooldowns import (
    LONGEST_MS,
    MOST_REFS,
    CoolingDown,
    MemoryRecords,
    RecordedCooldowns,
    with_failure,
)
from strandline.stores.cooldowns_file import MAX_BYTES, CooldownsFile
from strandline.stores.disk import RealDisk
from strandline.testing import Faults, FaultyDisk, PowerCut, SimulatedClock

REF = "acme/one"
MINUTE = 60_000


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "cooldowns.json"


def no_pause(_: float) -> None:
    """Waiting costs nothing in these tests."""


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


def test_reading_makes_no_file(path: Path) -> None:
    assert CooldownsFile(path).read() == {}
    assert not path.parent.exists()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b'{"version": 9, "models": {}}',
        b'{"version": 1, "models": []}',
        b"[" * 100_000,
        b" " * MAX_BYTES + b'{"version": 1, "models": {}}',
    ],
    ids=["empty", "torn", "no-text", "list", "other-version", "odd", "deep", "large"],
)
def test_a_file_that_is_not_understood_is_kept_aside_with_a_warning(
    path: Path, clock: SimulatedClock, content: bytes
) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    warnings: list[str] = []
    cooldowns = RecordedCooldowns(CooldownsFile(path, warn=warnings.append), clock)
    assert cooldowns.remaining_ms(REF) is None
    assert warnings == []
    cooldowns.note_failure(REF, "auth")
    assert cooldowns.remaining_ms(REF) is not None
    assert path.with_name("cooldowns.json.unreadable").read_bytes() == content
    assert len(warnings) == 1
    assert str(path) in warnings[0]


def test_processes_that_write_at_once_lose_nothing(path: Path) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from strandline.clock import SystemClock\n"
        "from strandline.runtime.cooldowns import RecordedCooldowns\n"
        "from strandline.stores.cooldowns_file import CooldownsFile\n"
        "cooldowns = RecordedCooldowns(CooldownsFile(Path(sys.argv[1])), SystemClock())\n"
        "for n in range(10): cooldowns.note_failure(f'{sys.argv[2]}/{n}', 'auth')\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", code, path, name]) for name in "ab"]
    assert [process.wait(60) for process in running] == [0, 0]
    assert len(CooldownsFile(path).read()) == 20


def test_a_lock_that_is_never_given_back_is_an_error_that_names_the_file(path: Path) -> None:
    held = RealDisk().open(path.with_name("cooldowns.json.flock"), write=True, create=True)
    assert held.lock(wait=False)
    with pytest.raises(StoreError, match=r"cooldowns\.json is held by another"):
        CooldownsFile(path, pause=no_pause).update(dict)
    held.close()


def test_a_disk_that_fails_at_any_step_leaves_the_old_records_or_the_new(
    clock: SimulatedClock,
) -> None:
    path = Path("/state/cooldowns.json")
    now_ms = clock.now_ms()
    step, done = 0, False
    while not done:
        step += 1
        faults = Faults()
        disk = FaultyDisk(faults)
        CooldownsFile(path, disk=disk).update(lambda r: with_failure(r, "a/1", "auth", now_ms))
        before = disk.files[path]
        faults.fail_at = disk.operations + step
        try:
            CooldownsFile(path, disk=disk).update(lambda r: with_failure(r, "a/2", "auth", now_ms))
            done = True
        except StoreError:
            assert disk.files[path] == before or b"a/2" in disk.files[path]
        faults.fail_at = None
        CooldownsFile(path, disk=disk).update(lambda r: with_failure(r, "a/3", "auth", now_ms))
        assert b"a/3" in disk.files[path]
    assert step > 5


def test_after_a_power_cut_there_are_the_old_records_or_the_new(clock: SimulatedClock) -> None:
    path = Path("/state/cooldowns.json")
    now_ms = clock.now_ms()
    for step in range(1, 12):
        faults = Faults()
        disk = FaultyDisk(faults)
        CooldownsFile(path, disk=disk).update(lambda r: with_failure(r, "a/1", "auth", now_ms))
        faults.power_cut_at = disk.operations + step
        with suppress(PowerCut):
            CooldownsFile(path, disk=disk).update(lambda r: with_failure(r, "a/2", "auth", now_ms))
        for seed in range(5):
            found = CooldownsFile(path, disk=disk.after_power_cut(seed)).read()
            assert set(found) in ({"a/1"}, {"a/1", "a/2"})


def test_a_folder_that_cannot_be_read_is_an_error_with_its_remedy(tmp_path: Path) -> None:
    (tmp_path / "cooldowns.json").mkdir()
    file = CooldownsFile(tmp_path / "cooldowns.json")
    with pytest.raises(StoreError, match="cannot be read"):
        file.read()
    (tmp_path / "plain").write_text("")
    with pytest.raises(StoreError, match=r"plain/cooldowns\.json"):
        CooldownsFile(tmp_path / "plain" / "cooldowns.json").update(
            lambda records: with_failure(records, REF, "auth", 0)
        )
