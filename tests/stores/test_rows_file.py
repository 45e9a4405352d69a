"""``sessions.json``: nothing of it is ever lost, whoever else writes, fails or dies."""

from __future__ import annotations

import errno
import itertools
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from strandline.clock import iso_from_ms
from strandline.errors import SessionBusy, StoreError, StoreWriteFailed
from strandline.sessions.rows import SessionRow, new_row, row_of
from strandline.stores.disk import RealDisk
from strandline.stores.foreign_lock import foreign_holder
from strandline.stores.rows_file import RowsFile, transcript_path
from strandline.stores.rows_memory import RowsMemory
from strandline.testing.clock import SimulatedClock
from strandline.testing.disk import Faults, FaultyDisk, PowerCut

FIXTURE = Path(__file__).parents[2] / "../shared/fixtures/openclaw-state/agents/main/sessions"
needs_fixture = pytest.mark.skipif(not FIXTURE.exists(), reason="the recorded state is not here")

KEY = "agent:main:main"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The sessions folder of agent ``main``, not made yet."""
    return tmp_path / "agents" / "main" / "sessions"


@pytest.fixture
def recorded(folder: Path) -> Path:
    """A copy of the recorded state that can be written."""
    shutil.copytree(FIXTURE, folder)
    for path in (folder, *folder.iterdir()):
        path.chmod(0o700 if path.is_dir() else 0o600)
    return folder


def no_pause(_: float) -> None:
    """Waiting costs nothing in these tests."""


def rows_in(folder: Path, **more: Any) -> RowsFile:
    return RowsFile(folder / "sessions.json", **{"pause": no_pause, **more})


def put(session_id: str) -> Callable[[SessionRow | None], SessionRow]:
    return lambda row: row or new_row(session_id, 1)


def always(row: SessionRow) -> Callable[[SessionRow | None], SessionRow]:
    return lambda _: row


def touch(row: SessionRow | None) -> SessionRow:
    assert row is not None
    return row.with_changes(updated_at=(row.updated_at or 0) + 1)


def write(folder: Path, content: bytes) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sessions.json").write_bytes(content)


# -- the file


def test_a_missing_file_is_an_empty_store_and_looking_makes_nothing(folder: Path) -> None:
    rows = rows_in(folder)
    assert rows.list() == {}
    assert rows.get(KEY) is None
    assert not folder.exists()


def test_a_row_is_there_for_the_next_process_and_private(folder: Path) -> None:
    old_mask = os.umask(0)
    try:
        rows_in(folder).patch(KEY, put("s"))
    finally:
        os.umask(old_mask)
    assert rows_in(folder).get(KEY) == new_row("s", 1)
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert sorted(path.name for path in folder.iterdir()) == [
        "sessions.json",
        "sessions.json.flock",
    ]


@needs_fixture
def test_a_change_leaves_every_other_byte_of_openclaws_file(recorded: Path) -> None:
    before = (recorded / "sessions.json").read_bytes()
    rows = rows_in(recorded)
    assert len(rows.list()) == 9
    rows.patch("agent:main:bench", touch)
    after = (recorded / "sessions.json").read_bytes()
    assert before.replace(b"1795982913124", b"1795982913125", 1) == after
    assert rows.warnings == []


def test_unknown_keys_odd_values_and_order_are_kept(folder: Path) -> None:
    content = (
        '{\n  "z": 5,\n  "b": {\n    "sessionId": "s\\ud83d",\n    "é\u2028": [\n      '
        "12345678901234567890123,\n      1e+22,\n      {}\n    ]\n  },\n  "
        '"a": null\n}'
    ).encode()
    write(folder, content)
    rows = rows_in(folder)
    assert list(rows.list()) == ["b"]
    rows.patch("c", put("t"))
    rows.delete("c")
    assert (folder / "sessions.json").read_bytes() == content
    (warning,) = rows.warnings
    assert "2 entries are no rows, 'z'" in warning


def test_a_change_that_changes_nothing_writes_nothing(folder: Path) -> None:
    rows = rows_in(folder)
    rows.patch(KEY, put("s"))
    before = (folder / "sessions.json").stat()
    rows.patch(KEY, lambda row: row)
    assert rows.patch(KEY, lambda _: None) is None
    assert rows.delete("agent:main:other") is False
    assert (folder / "sessions.json").stat() == before


def test_a_row_in_lower_case_is_found_when_there_is_no_exact_one(folder: Path) -> None:
    rows = rows_in(folder)
    rows.patch("agent:a:signal:group:abc", put("low"))
    exact = "agent:a:signal:group:AbC"
    assert rows.patch(exact, put("other")).session_id == "low"
    assert list(rows.list()) == ["agent:a:signal:group:abc"]
    assert rows.delete(exact)
    rows.patch(exact, put("exact"))
    rows.patch(exact.lower(), put("low"))
    assert rows.patch(exact, touch).session_id == "exact"


def test_an_expected_row_that_is_another_by_now_refuses_the_change(folder: Path) -> None:
    rows = rows_in(folder)
    seen = rows.patch(KEY, put("s"))
    rows_in(folder).patch(KEY, touch)
    with pytest.raises(StoreWriteFailed, match="changed by somebody else"):
        rows.patch(KEY, touch, expected=seen)
    now = rows.get(KEY)
    assert now is not None
    assert rows.patch(KEY, touch, expected=now).updated_at == 3


def test_a_row_that_json_cannot_hold_is_refused_before_anything_is_written(folder: Path) -> None:
    rows = rows_in(folder)
    rows.patch(KEY, put("s"))
    before = (folder / "sessions.json").read_bytes()
    for value in (float("nan"), b"x", {1, 2}):
        row = row_of({"sessionId": "s", "x": value})
        with pytest.raises(StoreWriteFailed, match="JSON"):
            rows.patch(KEY, always(row))
    assert (folder / "sessions.json").read_bytes() == before


def test_two_writes_in_one_tick_of_the_same_size_are_both_seen(folder: Path) -> None:
    """E6: time and size of a file do not tell whether it changed."""
    rows = rows_in(folder)
    rows.patch(KEY, put("aaa"))
    path = folder / "sessions.json"
    assert rows.get(KEY)
    status = path.stat()
    with path.open("r+b") as file:
        content = file.read().replace(b"aaa", b"bbb")
        file.seek(0)
        file.write(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert path.stat().st_mtime_ns == status.st_mtime_ns
    row = rows.get(KEY)
    assert row is not None
    assert row.session_id == "bbb"


def test_an_edit_by_hand_between_two_changes_is_kept(folder: Path) -> None:
    rows = rows_in(folder)
    rows.patch("a", put("1"))
    rows.patch("b", put("2"))
    entries = json.loads((folder / "sessions.json").read_bytes())
    del entries["a"]
    entries["b"]["displayName"] = "by hand"
    write(folder, b"\xef\xbb\xbf" + json.dumps(entries).encode())
    rows.patch("b", touch)
    assert list(rows.list()) == ["b"]
    assert rows.list()["b"].display_name == "by hand"


def test_a_file_that_cannot_be_read_is_an_error_and_no_empty_store(folder: Path) -> None:
    (folder / "sessions.json").mkdir(parents=True)
    with pytest.raises(StoreError, match="cannot be read"):
        rows_in(folder).list()


# -- several processes


FIFTY_CHANGES = """
import sys
from pathlib import Path
from strandline.sessions.rows import new_row
from strandline.stores.rows_file import RowsFile

path, worker = Path(sys.argv[1]), sys.argv[2]
for number in range(50):
    RowsFile(path).patch(f"agent:main:w{worker}-{number}", lambda row: new_row("s", 1))
"""


def test_eight_processes_of_fifty_changes_lose_none(folder: Path) -> None:
    """E2: reading, changing and replacing a file is safe only under one lock."""
    command = [sys.executable, "-c", FIFTY_CHANGES, str(folder / "sessions.json")]
    workers = [subprocess.Popen([*command, str(worker)]) for worker in range(8)]
    assert [worker.wait(timeout=120) for worker in workers] == [0] * 8
    assert len(rows_in(folder).list()) == 400


def test_threads_on_one_row_lose_no_change(folder: Path) -> None:
    rows = RowsFile(folder / "sessions.json")
    rows.patch(KEY, put("s"))

    def work() -> None:
        for _ in range(20):
            rows.patch(KEY, touch)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    row = rows.get(KEY)
    assert row is not None
    assert row.updated_at == 81


def test_a_holder_that_does_not_let_go_is_named_after_the_timeout(folder: Path) -> None:
    rows = rows_in(folder, lock_timeout_ms=200)
    rows.patch(KEY, put("s"))
    held = RealDisk().open(folder / "sessions.json.flock", write=True)
    assert held.lock(wait=False)
    with pytest.raises(SessionBusy) as caught:
        rows.patch(KEY, touch)
    assert caught.value.holder == "another Strandline process"
    assert rows.get(KEY)  # reading waits for nobody
    held.close()
    rows.patch(KEY, touch)


# -- OpenClaw's lock file


NOW_MS = 1_767_225_600_000


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that lives until the test is over."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.communicate()


def start_time(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19])


def lock_file(folder: Path, age_ms: int, **payload: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "sessions.json.lock"
    made_ms = NOW_MS - age_ms
    text = json.dumps({**payload, "createdAt": iso_from_ms(made_ms)}) if payload else ""
    path.write_text(text, encoding="utf-8")
    os.utime(path, ns=(made_ms * 1_000_000, made_ms * 1_000_000))
    return path


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="start times need /proc")
def test_a_lock_counts_while_its_very_process_lives(
    folder: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    """E3: a dead process, or another one of the same number, holds nothing."""
    pid, hour = sleeper.pid, 3_600_000
    assert foreign_holder(folder / "sessions.json.lock", NOW_MS) is None
    held = f"process {pid}"
    started = start_time(pid)
    assert foreign_holder(lock_file(folder, 9 * hour, pid=pid, starttime=started), NOW_MS) == held
    assert foreign_holder(lock_file(folder, 0, pid=pid, starttime=started + 1), NOW_MS) is None
    assert foreign_holder(lock_file(folder, 60_000, pid=pid), NOW_MS) == held
    assert foreign_holder(lock_file(folder, hour, pid=pid), NOW_MS) is None
    assert foreign_holder(lock_file(folder, 0, pid=os.getpid()), NOW_MS) is None
    sleeper.send_signal(signal.SIGKILL)
    sleeper.wait()
    assert foreign_holder(lock_file(folder, 0, pid=pid, starttime=started), NOW_MS) is None


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": -1}', '{"pid": "x"}'])
def test_a_lock_without_a_name_counts_for_a_grace_and_no_longer(folder: Path, content: str) -> None:
    """E4: its owner may have paused between making the file and writing into it."""
    for age_ms, is_held in ((6_000, True), (40_000, False)):
        path = lock_file(folder, age_ms)
        path.write_text(content, encoding="utf-8")
        os.utime(path, ns=((NOW_MS - age_ms) * 1_000_000,) * 2)
        assert (foreign_holder(path, NOW_MS) is not None) is is_held


def test_a_living_openclaw_is_waited_for_and_a_dead_one_is_not(
    folder: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    clock = SimulatedClock(NOW_MS)
    lock = lock_file(folder, 1_000, pid=sleeper.pid)
    with pytest.raises(SessionBusy, match=f"process {sleeper.pid}"):
        rows_in(folder, clock=clock, lock_timeout_ms=50).patch(KEY, put("s"))

    def leave(_: float) -> None:
        lock.unlink(missing_ok=True)

    rows_in(folder, clock=clock, pause=leave).patch(KEY, put("s"))
    left_behind = lock_file(folder, 1_000, pid=2**22 + 1)
    rows_in(folder, clock=clock, lock_timeout_ms=0).patch(KEY, touch)
    assert left_behind.exists()  # theirs to remove


# -- damage


DAMAGE = {
    "empty": b"",
    "white space": b" \n",
    "NULs": b"\x00" * 300,
    "half a row": b'{\n  "agent:main:main": {\n    "sessionId": "s',
    "no map": b"[]",
    "no UTF-8": b'{"a": "\xff"}',
    "NaN": b'{"a": {"sessionId": "s", "x": NaN}}',
    "nested too deep": b'{"a": ' + b"[" * 100_000,
}


@pytest.mark.parametrize("content", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_file_is_set_aside_and_reported_and_the_store_works_on(
    folder: Path, content: bytes
) -> None:
    write(folder, content)
    heard: list[str] = []
    rows = rows_in(folder, clock=SimulatedClock(NOW_MS), warn=heard.append)
    rows.list()
    aside = folder / "sessions.json.damaged.2026-01-01T00-00-00.000Z"
    assert aside.read_bytes() == content
    assert stat.S_IMODE(aside.stat().st_mode) == 0o600
    assert heard == rows.warnings
    assert "was damaged" in heard[0]
    assert aside.name in heard[0]
    rows.patch("agent:main:new", put("n"))
    assert rows_in(folder).get("agent:main:new")


@needs_fixture
def test_an_emptied_file_is_rebuilt_from_the_transcripts(recorded: Path) -> None:
    """C15; the keys of two of them are told by their trajectories."""
    before = rows_in(recorded).list()
    write(recorded, b"")
    rows = rows_in(recorded)
    after = rows.list()
    assert {row.session_id for row in after.values()} == {r.session_id for r in before.values()}
    told = {key for key in after if ":explicit:" not in key}
    assert told == {"agent:main:bencha", "agent:main:c3"}
    assert all(after[key].session_id == before[key].session_id for key in told)
    assert "agent:main:explicit:demo1" in after
    assert after["agent:main:explicit:demo1"].session_started_at == 1795982724793
    assert "0 rows could still be read in it, 9 were made" in rows.warnings[0]


@needs_fixture
def test_rows_that_are_whole_in_a_torn_file_keep_everything(recorded: Path) -> None:
    before = rows_in(recorded).list()
    path = recorded / "sessions.json"
    path.write_bytes(path.read_bytes()[:-700])
    after = rows_in(recorded).list()
    whole = [key for key in before if key in after and after[key] == before[key]]
    assert whole == list(before)[:8]
    assert {row.session_id for row in after.values()} == {r.session_id for r in before.values()}


@needs_fixture
def test_rows_behind_a_broken_one_are_kept(recorded: Path) -> None:
    before = rows_in(recorded).list()
    path = recorded / "sessions.json"
    path.write_bytes(path.read_bytes().replace(b'"agentHarnessId": "openclaw"', b"\x00\x00,,", 1))
    after = rows_in(recorded).list()
    assert [key for key in before if after.get(key) == before[key]] == list(before)[1:]
    assert after["agent:main:explicit:demo1"].session_id == "demo1"


def test_of_two_maps_in_one_file_the_first_counts(folder: Path) -> None:
    write(folder, b'{"a": {"sessionId": "1"}}\n{"a": {"sessionId": "2"}, "b": {"sessionId": "3"}}')
    rows = rows_in(folder)
    assert {key: row.session_id for key, row in rows.list().items()} == {"a": "1"}


def header(session_id: str) -> bytes:
    return (
        f'{{"type":"session","version":3,"id":{json.dumps(session_id)},'
        '"timestamp":"2026-01-01T00:00:00.000Z","cwd":"/w"}\n'
    ).encode()


def test_transcripts_are_indexed_by_header_whatever_their_files_are_called(folder: Path) -> None:
    """C9, and what must not become a row: links, archives, trajectories, other files."""
    write(folder, b"")
    outside = folder.parent / "outside.jsonl"
    outside.write_bytes(header("outside"))
    (folder / "link.jsonl").symlink_to(outside)
    for name, content in {
        "boot-7.jsonl": header("in-the-header"),
        "x-topic-2.jsonl": b"\xef\xbb\xbf\n" + header("x"),
        "a.jsonl.reset.2026-01-01T00-00-00.000Z": header("reset"),
        "a.trajectory.jsonl": header("trajectory"),
        "no-header.jsonl": b'{"type":"message","id":"1"}\n',
        "torn.jsonl": b'{"type":"session","id":"to',
        "nothing.jsonl": b"",
        "slash.jsonl": header("../up"),
        "twice.jsonl": header("in-the-header"),
    }.items():
        (folder / name).write_bytes(content)
    found = {key: row.session_file for key, row in rows_in(folder).list().items()}
    prefix = "agent:main:explicit:"
    assert found.pop(prefix + "x") == "x-topic-2.jsonl"
    assert found.pop(prefix + "slash") == "slash.jsonl"
    newest, other = found.pop(prefix + "in-the-header"), *found.values()
    assert {newest, other} == {"boot-7.jsonl", "twice.jsonl"}
    assert found == {prefix + str(other).removesuffix(".jsonl"): other}


def test_a_torn_moment_of_an_editor_is_no_damage(folder: Path) -> None:
    write(folder, b"")

    def saved(_: float) -> None:
        write(folder, b'{"a": {"sessionId": "by hand"}}')

    rows = rows_in(folder, pause=saved)
    assert rows.list()["a"].session_id == "by hand"
    assert rows.warnings == []
    assert not list(folder.glob("*.damaged.*"))


@needs_fixture
def test_a_store_opened_for_reading_only_leaves_every_byte(recorded: Path) -> None:
    write(recorded, b"")
    before = {path: path.stat() for path in recorded.iterdir()}
    rows = rows_in(recorded, read_only=True)
    assert len(rows.list()) == 9
    assert len(rows.list()) == 9
    assert len(rows.warnings) == 1
    with pytest.raises(StoreWriteFailed, match="reading only"):
        rows.patch(KEY, put("s"))
    with pytest.raises(StoreWriteFailed, match="reading only"):
        rows.delete(KEY)
    after = {path: path.stat() for path in recorded.iterdir()}
    assert {path: status.st_mtime_ns for path, status in before.items()} == {
        path: status.st_mtime_ns for path, status in after.items()
    }


# -- a disk that fails


PATH = Path("/state/agents/main/sessions/sessions.json")


def on(disk: FaultyDisk, **more: Any) -> RowsFile:
    return RowsFile(PATH, disk=disk, pause=no_pause, clock=SimulatedClock(NOW_MS), **more)


def filled(faults: Faults | None = None, content: bytes | None = None) -> FaultyDisk:
    disk = FaultyDisk()
    on(disk).patch("kept", put("kept"))
    before = content if content is not None else disk.files[PATH]
    disk = FaultyDisk(faults)
    disk.plant(PATH, before)
    return disk


def test_whenever_the_power_goes_the_store_is_the_old_or_the_new_one() -> None:
    acknowledged = False
    for number in itertools.count(1):
        disk = filled(Faults(power_cut_at=number, max_write=40))
        try:
            on(disk).patch(KEY, put("new"))
            acknowledged = True
        except PowerCut:
            pass
        for seed in range(4):
            for found in (disk.after_power_cut(seed), disk.after_process_kill()):
                rows = on(found)
                keys = list(rows.list())
                assert keys in (["kept"], ["kept", KEY])
                assert rows.warnings == []
                assert keys == ["kept", KEY] or not acknowledged
                rows.patch("next", put("next"))  # whatever was left behind is in nobody's way
        if acknowledged:
            break
    assert number > 10


def test_whenever_the_power_goes_while_damage_is_mended_the_bad_file_is_kept() -> None:
    bad = b'{"kept": {"sessionId": "kept"}, "torn": {"ses'
    for number in itertools.count(1):
        disk = filled(Faults(power_cut_at=number), bad)
        try:
            on(disk).list()
        except PowerCut:
            pass
        else:
            break
        for seed in range(4):
            found = disk.after_power_cut(seed)
            assert list(on(found).list()) == ["kept"]
            assert bad in found.files.values()
    assert number > 6


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_write_that_fails_is_an_error_and_nothing_changed(code: int) -> None:
    for number in itertools.count(1):
        disk = filled(Faults(fail_at=number, fail_errno=code))
        rows = on(disk)
        try:
            rows.patch(KEY, put("new"))
            break
        except StoreWriteFailed as error:
            assert "nothing was changed" in str(error)  # noqa: PT017 - one of many tries
        disk.faults.fail_at = None
        assert "kept" in rows.list()
        rows.patch(KEY, put("again"))
        assert list(rows.list()) == ["kept", KEY]
    assert number > 5


def test_a_full_disk_keeps_the_old_store_and_leaves_no_litter() -> None:
    disk = filled(Faults(free_bytes=50))
    before = disk.files[PATH]
    with pytest.raises(StoreWriteFailed, match="No space left"):
        on(disk).patch(KEY, put("new"))
    assert disk.files[PATH] == before
    assert {path.suffix for path in disk.files} == {".json", ".flock"}


# -- where a transcript is


def test_a_link_that_leads_out_of_the_folder_is_refused(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder.parent / "outside.jsonl").write_bytes(b"x")
    (folder / "s.jsonl").symlink_to("../outside.jsonl")
    (folder / "t.jsonl").write_bytes(b"x")
    (folder / "u.jsonl").symlink_to("t.jsonl")
    with pytest.raises(StoreError, match="outside its folder"):
        transcript_path(folder, row_of({"sessionId": "s"}))
    for name in ("t", "u", "missing"):
        assert transcript_path(folder, row_of({"sessionId": name})) == folder / f"{name}.jsonl"
    elsewhere = row_of({"sessionId": "s", "sessionFile": "/etc/t.jsonl"})
    assert transcript_path(folder, elsewhere) == folder / "t.jsonl"


# -- the oracle

keys = st.sampled_from(["a", "A", "agent:b:x:group:Q", "agent:b:x:group:q", "é"])
values = st.text(max_size=5) | st.integers() | st.floats(allow_nan=False, allow_infinity=False)


class FileEqualsMemory(RuleBasedStateMachine):
    """Under any operations the file says what the store in memory says."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = FaultyDisk()
        self.file = on(self.disk)
        self.memory = RowsMemory()

    @rule(key=keys, value=values)
    def change(self, key: str, value: object) -> None:
        def changed(row: SessionRow | None) -> SessionRow:
            return row_of({"sessionId": key, **(row.raw if row else {}), "x": value})

        assert self.file.patch(key, changed) == self.memory.patch(key, changed)

    @rule(key=keys)
    def leave(self, key: str) -> None:
        assert self.file.patch(key, lambda row: row) == self.memory.patch(key, lambda row: row)

    @rule(key=keys, seen=keys)
    def change_what_was_seen(self, key: str, seen: str) -> None:
        expected = self.memory.get(seen)
        results: list[SessionRow | None] = []
        for store in (self.file, self.memory):
            try:
                results.append(store.patch(key, put("p"), expected))
            except StoreWriteFailed as error:
                results.append(None)
                assert error.remedy  # noqa: PT017 - both must agree, raise or not
        assert results[0] == results[1]

    @rule(key=keys)
    def delete(self, key: str) -> None:
        assert self.file.delete(key) == self.memory.delete(key)

    @rule()
    def start_again(self) -> None:
        self.disk = self.disk.after_power_cut(0)
        self.file = on(self.disk)

    @rule(key=keys)
    def another_process(self, key: str) -> None:
        on(self.disk).patch(key, put("other"))
        self.memory.patch(key, put("other"))

    @invariant()
    def equal(self) -> None:
        assert list(self.file.list().items()) == list(self.memory.list().items())
        for key in ("a", "A", "agent:b:x:group:Q", "nobody"):
            assert self.file.get(key) == self.memory.get(key)


TestFileEqualsMemory = FileEqualsMemory.TestCase
TestFileEqualsMemory.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
