"""Summaries of layer 4 on disk: they survive a restart, and nothing there is trusted."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from strandline.errors import StoreError
from strandline.stores.disk import RealDisk
from strandline.stores.session_records import (
    DAY_MS,
    LONGEST_MS,
    MAX_BYTES,
    Records,
    SessionRecords,
)
from strandline.testing import Faults, FaultyDisk, SimulatedClock

ONE = {"covers": ["a"], "text": "half \ud83c", "by": "x", "madeMs": 5, "rules": "r"}
TWO = {**ONE, "text": "two"}


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state" / "records"


def no_pause(_: float) -> None:
    """Waiting costs nothing in these tests."""


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.json"))


def test_what_was_kept_is_there_after_a_restart_each_session_by_itself(
    folder: Path, clock: SimulatedClock
) -> None:
    memo = SessionRecords(folder, clock)
    memo.update("S", lambda records: [*records, ONE])
    memo.update("S", lambda records: [*records, TWO])
    memo.update("T", lambda records: [*records, TWO])
    again = SessionRecords(folder, clock)
    assert [again.read(session) for session in "STU"] == [[ONE, TWO], [TWO], []]


def test_files_are_private_and_their_names_tell_nothing(
    folder: Path, clock: SimulatedClock
) -> None:
    SessionRecords(folder, clock).update("agent:main:secret", lambda _: [ONE])
    (path,) = files(folder)
    assert json.loads(path.read_text()) == {
        "version": 1,
        "writtenMs": clock.now_ms(),
        "records": [ONE],
    }
    assert "secret" not in path.name
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(each.stat().st_mode) for each in folder.iterdir()} == {0o600}


def test_reading_makes_no_folder(folder: Path, clock: SimulatedClock) -> None:
    memo = SessionRecords(folder, clock)
    assert memo.read("S") == []
    assert not folder.parent.exists()


@pytest.mark.parametrize("session", ["../../etc/passwd", "", "a" * 5_000, "\ud83c", "a/b\0c"])
def test_any_session_id_has_a_file_in_the_folder(
    folder: Path, clock: SimulatedClock, session: str
) -> None:
    memo = SessionRecords(folder, clock)
    memo.update(session, lambda _: [ONE])
    assert len(files(folder)) == 1
    assert memo.read(session) == [ONE]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b'{"version":9,"records":[]}',
        b'{"version":1,"records":{}}',
        b"[" * 100_000,
        b" " * MAX_BYTES + b'{"version":1,"records":[]}',
    ],
    ids=["empty", "torn", "no-text", "list", "other-version", "odd", "deep", "large"],
)
def test_a_file_that_is_not_understood_reads_as_empty_with_a_warning_and_is_replaced(
    folder: Path, clock: SimulatedClock, content: bytes
) -> None:
    warnings: list[str] = []
    memo = SessionRecords(folder, clock, warn=warnings.append)
    memo.update("S", lambda _: [ONE])
    (path,) = files(folder)
    path.write_bytes(content)
    assert memo.read("S") == []
    assert len(warnings) == 1
    assert str(path) in warnings[0]
    memo.update("S", lambda records: [*records, TWO])
    assert memo.read("S") == [TWO]
    assert len(warnings) == 1


def test_records_that_are_none_are_left_out(folder: Path, clock: SimulatedClock) -> None:
    memo = SessionRecords(folder, clock)
    memo.update("S", lambda _: [ONE])
    (path,) = files(folder)
    path.write_text(json.dumps({"version": 1, "records": [None, 7, TWO]}))
    assert memo.read("S") == [TWO]


def test_older_summaries_make_room_in_a_file(folder: Path, clock: SimulatedClock) -> None:
    memo = SessionRecords(folder, clock)
    large = [{**ONE, "text": f"{n}" * (MAX_BYTES // 3)} for n in range(4)]
    memo.update("S", lambda _: large)
    assert memo.read("S") == large[2:]
    memo.update("S", lambda _: [{**ONE, "text": "x" * MAX_BYTES}])
    assert memo.read("S") == []


def test_files_that_nobody_wrote_to_for_a_month_go_and_strangers_stay(
    folder: Path, clock: SimulatedClock
) -> None:
    memo = SessionRecords(folder, clock)
    memo.update("old", lambda _: [ONE])
    stranger = folder / "notes.json"
    stranger.write_text("{}")
    (folder / "folder.json").mkdir()
    clock.advance(2 * DAY_MS)
    memo.update("newer", lambda _: [ONE])
    clock.advance(LONGEST_MS - DAY_MS)
    assert memo.read("old") == [ONE]
    memo.update("S", lambda _: [ONE])
    assert [memo.read(session) for session in ("old", "newer", "S")] == [[], [ONE], [ONE]]
    assert stranger.exists()


def test_processes_that_write_at_once_lose_nothing(folder: Path) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from strandline.clock import SystemClock\n"
        "from strandline.stores.session_records import SessionRecords\n"
        "memo = SessionRecords(Path(sys.argv[1]), SystemClock())\n"
        "for n in range(10): memo.update('S', lambda old: [*old, {'text': f'{sys.argv[2]}{n}'}])\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", code, folder, name]) for name in "ab"]
    assert [process.wait(60) for process in running] == [0, 0]
    assert len(SessionRecords(folder, SimulatedClock()).read("S")) == 20


def test_a_lock_that_is_never_given_back_is_an_error_that_names_the_folder(
    folder: Path, clock: SimulatedClock
) -> None:
    held = RealDisk().open(folder.with_name("records.flock"), write=True, create=True)
    assert held.lock(wait=False)
    with pytest.raises(StoreError, match="records is held by another"):
        SessionRecords(folder, clock, pause=no_pause).update("S", list)
    held.close()


def test_what_cannot_be_read_is_an_error_that_names_the_file(
    folder: Path, clock: SimulatedClock
) -> None:
    memo = SessionRecords(folder, clock)
    memo.update("S", lambda _: [ONE])
    (path,) = files(folder)
    path.unlink()
    path.mkdir()
    with pytest.raises(StoreError, match=r"\.json cannot be read"):
        memo.read("S")


def test_a_disk_that_fails_at_any_step_leaves_the_old_summaries_or_the_new(
    clock: SimulatedClock,
) -> None:
    step, done = 0, False
    while not done:
        step += 1
        faults = Faults()
        disk = FaultyDisk(faults)
        memo = SessionRecords(Path("/state/summaries"), clock, disk=disk)
        memo.update("S", lambda _: [ONE])
        faults.fail_at = disk.operations + step

        def add(records: Records) -> Records:
            return [*records, TWO]

        try:
            memo.update("S", add)
            done = True
        except StoreError:
            faults.fail_at = None
            assert memo.read("S") in ([ONE], [ONE, TWO])
        faults.fail_at = None
        memo.update("S", add)
        assert memo.read("S")[-1] == TWO
    assert step > 5
