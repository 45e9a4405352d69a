"""What the faulty disk does when it is told to fail, and what it leaves behind."""

from __future__ import annotations

import errno
import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.stores.disk import Disk
from strandline.testing import Faults, FaultyDisk, PowerCut, Tail

ROOT = Path("/state")
LOG = ROOT / "log.jsonl"
SEEDS = range(60)


def read(disk: FaultyDisk, path: Path = LOG) -> bytes:
    return disk.files[path]


def put(disk: Disk, path: Path, data: bytes) -> None:
    """A file written so that it lasts: everything that the seam asks for."""
    file = disk.create(path)
    file.append(data)
    file.sync()
    file.close()
    disk.sync_folder(path.parent)


def replace_safely(disk: Disk) -> None:
    """The usual way to replace a file, as a store does it."""
    put(disk, ROOT / "new", b"new content")
    disk.replace(ROOT / "new", LOG)


def replace_unsynced(disk: Disk) -> None:
    """The usual mistake: renamed before the content was synced."""
    file = disk.create(ROOT / "new")
    file.append(b"new content")
    file.close()
    disk.replace(ROOT / "new", LOG)


def crashes(scenario: Callable[[Disk], None], before: bytes) -> list[FaultyDisk]:
    """The dead disks of a cut at every operation of a scenario."""
    dead: list[FaultyDisk] = []
    for number in itertools.count(1):
        disk = FaultyDisk(Faults(power_cut_at=number))
        disk.plant(LOG, before)
        try:
            scenario(disk)
        except PowerCut:
            assert disk.operations == number
            dead.append(disk)
        else:
            return dead
    raise AssertionError


# -- what a power cut leaves ------------------------------------------------------------------


@given(
    steps=st.lists(st.one_of(st.binary(min_size=1, max_size=20), st.none()), max_size=12),
    rng=st.randoms(use_true_random=False),
    tail=st.sampled_from([None, "whole", "torn", "missing", "nul"]),
)
def test_synced_bytes_survive_and_the_rest_is_a_beginning_or_nul(
    steps: list[bytes | None], rng: Random, tail: Tail | None
) -> None:
    disk = FaultyDisk()
    put(disk, LOG, b"header\n")
    file = disk.open(LOG, write=True)
    synced = written = b"header\n"
    for step in steps:
        if step is None:
            file.sync()
            synced = written
        else:
            file.append(step)
            written += step
    found = read(disk.after_power_cut(rng, tail=tail))
    assert found.startswith(synced)
    assert len(found) <= len(written)
    beginning = found.rstrip(b"\0")
    assert written.startswith(beginning)
    assert read(disk) == written, "the dead disk stays as it was"


def test_each_kind_of_tail_can_be_chosen_and_all_of_them_are_drawn() -> None:
    disk = FaultyDisk()
    put(disk, LOG, b"kept|")
    disk.open(LOG, write=True).append(b"tail")
    assert read(disk.after_power_cut(1, tail="whole")) == b"kept|tail"
    assert read(disk.after_power_cut(1, tail="missing")) == b"kept|"
    torn = {read(disk.after_power_cut(seed, tail="torn")) for seed in SEEDS}
    assert torn == {b"kept|", b"kept|t", b"kept|ta", b"kept|tai", b"kept|tail"}
    nul = {read(disk.after_power_cut(seed, tail="nul")) for seed in range(300)}
    assert {b"kept|\0\0\0\0", b"kept|t\0\0\0", b"kept|ta\0", b"kept|"} <= nul
    drawn = {read(disk.after_power_cut(seed)) for seed in range(300)}
    assert torn < drawn
    assert any(b"\0" in found for found in drawn)


def test_the_same_seed_finds_the_same_disk() -> None:
    disk = FaultyDisk()
    for name in ("a", "b", "c"):
        disk.create(ROOT / name).append(b"some bytes")
    assert disk.after_power_cut(7).files == disk.after_power_cut(7).files
    assert len({str(disk.after_power_cut(seed).files) for seed in SEEDS}) > 20


def test_a_safe_replace_shows_the_old_or_the_new_content_whenever_the_power_goes() -> None:
    dead = crashes(replace_safely, b"old")
    assert len(dead) == 6  # create, append, sync, folder; name, folder
    found = {read(disk.after_power_cut(seed)) for disk in dead for seed in SEEDS}
    assert found == {b"old", b"new content"}
    last = {read(dead[-1].after_power_cut(seed)) for seed in SEEDS}
    assert last == {b"old", b"new content"}, "the rename was not yet made to last"


def test_a_replace_without_a_sync_is_caught_losing_content() -> None:
    disk = FaultyDisk()
    disk.plant(LOG, b"old")
    replace_unsynced(disk)
    found = {read(disk.after_power_cut(seed)) for seed in SEEDS}
    assert b"" in found
    assert b"old" not in found, "replace() promises that the name lasts"


def test_a_new_file_lasts_only_when_its_folder_was_synced() -> None:
    disk = FaultyDisk()
    file = disk.create(LOG)
    file.append(b"x")
    file.sync()
    assert {LOG in disk.after_power_cut(seed).files for seed in SEEDS} == {True, False}
    disk.sync_folder(ROOT)
    assert {read(disk.after_power_cut(seed)) for seed in SEEDS} == {b"x"}


def test_a_removed_file_may_come_back_until_its_folder_is_synced() -> None:
    disk = FaultyDisk()
    disk.plant(LOG, b"x")
    disk.remove(LOG)
    assert {LOG in disk.after_power_cut(seed).files for seed in SEEDS} == {True, False}
    disk.sync_folder(ROOT)
    assert not any(disk.after_power_cut(seed).files for seed in SEEDS)


def test_a_rename_in_flight_never_loses_both_names() -> None:
    disk = FaultyDisk(Faults(power_cut_at=1))
    disk.plant(ROOT / "here" / "a", b"precious")
    disk.plant(ROOT / "there" / "b", b"old")
    with pytest.raises(PowerCut):
        disk.replace(ROOT / "here" / "a", ROOT / "there" / "b")
    found = [disk.after_power_cut(seed).files for seed in SEEDS]
    moved = {ROOT / "there" / "b": b"precious"}
    unmoved = {ROOT / "here" / "a": b"precious", ROOT / "there" / "b": b"old"}
    assert moved in found
    assert unmoved in found
    assert all(files in (moved, unmoved) for files in found)


def test_a_rename_to_another_folder_lasts_whole_once_the_call_returned() -> None:
    disk = FaultyDisk()
    disk.plant(ROOT / "there" / "b", b"old")
    file = disk.create(ROOT / "here" / "a")
    file.append(b"moved")
    file.sync()
    disk.replace(ROOT / "here" / "a", ROOT / "there" / "b")
    for seed in SEEDS:
        assert disk.after_power_cut(seed).files == {ROOT / "there" / "b": b"moved"}


def test_a_name_taken_again_after_an_unsynced_rename_never_costs_the_moved_content() -> None:
    disk = FaultyDisk(Faults(fail_at=2))
    disk.plant(ROOT / "a", b"precious")
    with pytest.raises(OSError, match="Input/output"):
        disk.replace(ROOT / "a", ROOT / "b")  # renamed, but the folder's sync failed
    assert disk.files == {ROOT / "b": b"precious"}
    file = disk.create(ROOT / "a")
    file.sync()
    found = [disk.after_power_cut(seed).files for seed in SEEDS]
    assert all(b"precious" in files.values() for files in found)
    assert {ROOT / "a": b"precious"} in found


def test_changes_of_one_name_last_in_their_order() -> None:
    disk = FaultyDisk()
    disk.create(LOG)
    disk.remove(LOG)
    disk.sync_folder(ROOT)
    assert not any(disk.after_power_cut(seed).files for seed in SEEDS)


def test_two_names_of_one_file_are_one_file_after_a_crash() -> None:
    disk = FaultyDisk()
    disk.plant(LOG, b"one")
    disk.link(LOG, ROOT / "second")
    disk.open(LOG, write=True).append(b" more")
    for seed in SEEDS:
        found = disk.after_power_cut(seed)
        assert read(found) == read(found, ROOT / "second")
        found.open(LOG, write=True).append(b"!")
        assert read(found) == read(found, ROOT / "second")


NAMES = st.sampled_from([ROOT / folder / name for folder in ("p", "q") for name in ("a", "b")])


@given(
    calls=st.lists(
        st.tuples(st.sampled_from(["create", "replace", "link", "remove", "sync"]), NAMES, NAMES),
        max_size=15,
    ),
    seed=st.integers(0, 2**32),
)
def test_a_name_leads_to_what_it_led_to_at_some_time_since_its_folder_was_synced(
    calls: list[tuple[str, Path, Path]], seed: int
) -> None:
    disk = FaultyDisk()
    paths = [ROOT / folder / name for folder in ("p", "q") for name in ("a", "b")]
    disk.plant(ROOT / "p" / "a", b"first")
    disk.plant(ROOT / "q" / "a", b"second")
    possible = {path: {disk.files.get(path)} for path in paths}
    for number, (name, path, other) in enumerate(calls):
        try:
            _call(disk, name, path, other, b"%d" % number)
        except OSError:
            continue
        synced = {"sync": path.parent, "replace": other.parent, "link": other.parent}.get(name)
        for each in paths:
            now = disk.files.get(each)
            possible[each] = {now} if each.parent == synced else possible[each] | {now}
    found = disk.after_power_cut(seed).files
    assert all(found.get(path) in possible[path] for path in paths)


def _call(disk: FaultyDisk, name: str, path: Path, other: Path, content: bytes) -> None:
    if name == "create":
        file = disk.create(path)
        file.append(content)
        file.sync()
    elif name == "replace":
        disk.replace(path, other)
    elif name == "link":
        disk.link(path, other)
    elif name == "remove":
        disk.remove(path)
    else:
        disk.sync_folder(path.parent)


def test_without_power_nothing_works_but_letting_go() -> None:
    disk = FaultyDisk(Faults(power_cut_at=2))
    file = disk.create(LOG)
    assert file.lock(wait=False)
    with pytest.raises(PowerCut):
        file.append(b"x")
    for call in (
        file.size,
        file.sync,
        lambda: file.read_at(0, 1),
        lambda: file.append(b"y"),
        lambda: file.lock(wait=False),
        lambda: disk.open(LOG),
        lambda: disk.exists(LOG),
        lambda: disk.remove(LOG),
    ):
        with pytest.raises(PowerCut):
            call()
    file.unlock()
    file.close()
    assert disk.operations == 2


def test_a_power_cut_is_not_caught_by_code_that_handles_errors() -> None:
    assert not issubclass(PowerCut, Exception)


# -- what a killed process leaves -------------------------------------------------------------


def test_a_killed_process_loses_only_its_locks() -> None:
    dead = crashes(replace_safely, b"old")
    for number, disk in enumerate(dead, start=1):
        found = disk.after_process_kill()
        assert found.files == disk.files
        assert read(found) == (b"new content" if number >= 5 else b"old")
    disk = FaultyDisk()
    assert disk.create(LOG).lock(wait=False)
    assert disk.open(LOG).lock(wait=False) is False
    assert disk.after_process_kill().open(LOG).lock(wait=False) is True


def test_after_a_kill_a_power_cut_may_still_take_what_was_not_synced() -> None:
    disk = FaultyDisk()
    put(disk, LOG, b"kept|")
    disk.open(LOG, write=True).append(b"tail")
    disk.create(ROOT / "new")
    found = disk.after_process_kill()
    assert read(found) == b"kept|tail"
    later = [found.after_power_cut(seed, tail="missing") for seed in SEEDS]
    assert {read(each) for each in later} == {b"kept|"}
    assert {(ROOT / "new") in each.files for each in later} == {True, False}
    found.open(LOG, write=True).append(b"!")
    assert read(disk) == b"kept|tail", "the two disks share nothing"


# -- errors -----------------------------------------------------------------------------------


def test_short_writes_say_how_much_they_took() -> None:
    disk = FaultyDisk(Faults(max_write=3))
    file = disk.create(LOG)
    assert [file.append(b"abcde"), file.append(b"de"), file.append(b"")] == [3, 2, 0]
    assert read(disk) == b"abcde"


def test_a_full_disk_takes_what_fits_then_refuses_and_a_removed_file_makes_room() -> None:
    disk = FaultyDisk(Faults(free_bytes=6))
    file = disk.create(LOG)
    other = disk.create(ROOT / "other")
    assert [file.append(b"abcd"), other.append(b"efgh")] == [4, 2]
    for each in (file, other):
        with pytest.raises(OSError, match="No space left") as caught:
            each.append(b"x")
        assert caught.value.errno == errno.ENOSPC
    disk.link(ROOT / "other", ROOT / "twin")
    disk.remove(ROOT / "other")
    assert disk.faults.free_bytes == 0, "it still has a name"
    disk.replace(LOG, ROOT / "twin")
    assert disk.faults.free_bytes == 2
    assert file.append(b"yz!") == 2
    disk.faults.free_bytes = None
    assert file.append(b"no limit") == 8


@pytest.mark.parametrize("number", range(1, 7))
def test_an_operation_that_fails_changes_nothing_and_the_next_one_works(number: int) -> None:
    disk = FaultyDisk(Faults(fail_at=number))
    disk.plant(LOG, b"old")
    with pytest.raises(OSError, match="Input/output") as caught:
        replace_safely(disk)
    assert caught.value.errno == errno.EIO
    assert disk.operations == number
    assert read(disk) == (b"new content" if number == 6 else b"old")
    assert (ROOT / "new" in disk.files) == (2 <= number <= 5)
    put(disk, ROOT / "afterwards", b"works")


def test_the_error_can_be_another_one() -> None:
    disk = FaultyDisk(Faults(fail_at=1, fail_errno=errno.EROFS))
    with pytest.raises(OSError, match="Read-only"):
        disk.create(LOG)
    assert not disk.exists(LOG)


def test_a_failed_sync_promises_nothing_and_can_drop_bytes_for_good() -> None:
    disk = FaultyDisk(Faults(failed_sync_drops=True))
    put(disk, LOG, b"kept|")
    file = disk.open(LOG, write=True)
    file.append(b"gone|")
    disk.faults.fail_at = disk.operations + 1
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    assert b"kept|" in {read(disk.after_power_cut(seed)) for seed in SEEDS}
    file.append(b"later")
    file.sync()
    found = {read(disk.after_power_cut(seed)) for seed in SEEDS}
    assert found == {b"kept|gone|later", b"kept|\0\0\0\0\0later"}


def test_a_failed_sync_is_made_good_by_the_next_one_unless_told_otherwise() -> None:
    disk = FaultyDisk()
    put(disk, LOG, b"kept|")
    file = disk.open(LOG, write=True)
    file.append(b"late")
    disk.faults.fail_at = disk.operations + 1
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    file.sync()
    assert {read(disk.after_power_cut(seed)) for seed in SEEDS} == {b"kept|late"}


def test_looking_and_locking_are_no_operations() -> None:
    disk = FaultyDisk()
    put(disk, LOG, b"x")
    count = disk.operations
    assert count == 4
    file = disk.open(LOG, write=True, create=True)
    file.lock(wait=True)
    file.unlock()
    file.size()
    file.read_at(0, 9)
    disk.exists(LOG)
    file.close()
    assert disk.operations == count


def test_misuse_is_refused_as_the_operating_system_refuses_it() -> None:
    disk = FaultyDisk()
    disk.plant(LOG, b"x")
    with pytest.raises(OSError, match="Bad file descriptor"):
        disk.open(LOG).append(b"read only")
    file = disk.open(LOG)
    file.close()
    for call in (file.size, file.close):
        with pytest.raises(OSError, match="Bad file descriptor"):
            call()
    with pytest.raises(NotADirectoryError):
        disk.create(LOG / "below")
    with pytest.raises(IsADirectoryError):
        disk.open(ROOT)
    with pytest.raises(IsADirectoryError):
        disk.replace(LOG, ROOT)
    with pytest.raises(FileExistsError):
        disk.create(ROOT)
    for move in (disk.replace, disk.link):
        with pytest.raises(FileNotFoundError):
            move(LOG, Path("/missing/log.jsonl"))
    assert disk.files == {LOG: b"x"}


# -- locks ------------------------------------------------------------------------------------


def test_a_lock_belongs_to_one_handle_until_it_is_given_back_or_closed() -> None:
    disk = FaultyDisk()
    one, other = disk.create(LOG), disk.open(LOG)
    assert one.lock(wait=False)
    assert one.lock(wait=False), "its own lock is no hindrance"
    assert other.lock(wait=False) is False
    other.unlock()
    assert other.lock(wait=False) is False, "only the holder can give it back"
    one.unlock()
    assert other.lock(wait=False)
    other.close()
    assert one.lock(wait=True)


def test_a_waiter_gets_the_lock_when_the_holder_lets_go() -> None:
    disk = FaultyDisk()
    holder = disk.create(LOG)
    holder.lock(wait=True)
    about_to_wait = threading.Event()

    def wait() -> bool:
        file = disk.open(LOG)
        about_to_wait.set()
        return file.lock(wait=True)

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait)
        about_to_wait.wait(10)
        holder.close()
        assert waiting.result(10) is True


def test_locks_keep_threads_apart() -> None:
    disk = FaultyDisk(Faults(max_write=1, lock_wait_s=60))
    disk.plant(LOG, b"")

    def add(letter: bytes) -> None:
        for _ in range(10):
            file = disk.open(LOG, write=True)
            file.lock(wait=True)
            for _ in range(4):
                file.append(letter)
            file.close()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, [b"a", b"b", b"c", b"d"], timeout=30))
    pieces = [read(disk)[start : start + 4] for start in range(0, 160, 4)]
    assert sorted(pieces) == [b"aaaa"] * 10 + [b"bbbb"] * 10 + [b"cccc"] * 10 + [b"dddd"] * 10


def test_a_thread_that_waits_for_itself_is_told_instead_of_hanging() -> None:
    disk = FaultyDisk(Faults(lock_wait_s=0.01))
    disk.create(LOG).lock(wait=True)
    with pytest.raises(OSError, match="deadlock") as caught:
        disk.open(LOG).lock(wait=True)
    assert caught.value.errno == errno.EDEADLK


def test_a_power_cut_ends_waiting() -> None:
    disk = FaultyDisk()
    holder = disk.create(LOG)
    holder.lock(wait=True)
    about_to_wait = threading.Event()

    def wait() -> bool:
        file = disk.open(LOG)
        about_to_wait.set()
        return file.lock(wait=True)

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait)
        about_to_wait.wait(10)
        disk.faults.power_cut_at = 1
        with pytest.raises(PowerCut):
            holder.append(b"x")
        with pytest.raises(PowerCut):
            waiting.result(10)
