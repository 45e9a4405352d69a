"""The first append to a file of an old version swaps it, whole and once (spec 1, C8)."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from strandline import SessionManager
from strandline.errors import StoreWriteFailed, StrandlineError
from strandline.stores.jsonl import JsonlStore
from strandline.testing import CountingIds, Faults, FaultyDisk, PowerCut, SimulatedClock

FOLDER = Path("/state/sessions")
FILE = FOLDER / "old.jsonl"
STAMP = "2025-01-01T00:00:01.000Z"


def image_of(*objects: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(each, separators=(",", ":")).encode() + b"\n" for each in objects)


def message(text: str, role: str = "user", **more: Any) -> dict[str, Any]:
    said = {"role": role, "content": text, "timestamp": 7}
    return {"type": "message", "timestamp": STAMP, "message": said, **more}


V1 = image_of(
    {"type": "session", "id": "s", "timestamp": STAMP, "cwd": "/x", "provider": "p"},
    message("one"),
    message("two"),
    {"type": "compaction", "timestamp": STAMP, "summary": "sum", "tokensBefore": 9}
    | {"firstKeptEntryIndex": 2},
    message("three"),
)
V2 = image_of(
    {"type": "session", "version": 2, "id": "s", "timestamp": STAMP, "cwd": "/x"},
    message("one", id="aaaaaaaa", parentId=None),
    message("hooked", "hookMessage", id="bbbbbbbb", parentId="aaaaaaaa"),
)
VERSIONS = pytest.mark.parametrize(
    ("image", "backup", "expected"),
    [
        (V1, "old.jsonl.v1.bak", ["sum", "two", "three"]),
        (V2, "old.jsonl.v2.bak", ["one", "hooked"]),
    ],
    ids=["v1", "v2"],
)


def disk_with(image: bytes, faults: Faults | None = None) -> FaultyDisk:
    disk = FaultyDisk(faults)
    disk.plant(FILE, image)
    return disk


def opened(disk: FaultyDisk) -> SessionManager:
    store = JsonlStore(FOLDER, disk=disk)
    log = store.open(FILE.name)
    return SessionManager(log, store, clock=SimulatedClock(), ids=CountingIds())


def texts(session: SessionManager) -> list[Any]:
    messages = session.build_context().messages
    return [each.get("content", each.get("summary")) for each in messages]


def say_next(session: SessionManager) -> str:
    return session.append_message({"role": "user", "content": "next", "timestamp": 8})


@VERSIONS
def test_reading_an_old_file_writes_nothing_and_gives_the_same_ids_each_time(
    image: bytes, backup: str, expected: list[str]
) -> None:
    disk = disk_with(image)
    first, second = opened(disk), opened(disk)
    assert texts(first) == texts(second) == expected
    assert first.path() == second.path()
    assert first.verify() == []
    assert all(len(entry.id) == 8 for entry in first.entries())
    assert (disk.files, disk.operations) == ({FILE: image}, 0)


@VERSIONS
def test_the_first_append_swaps_it_once_and_keeps_ids_and_the_old_file(
    image: bytes, backup: str, expected: list[str]
) -> None:
    disk = disk_with(image)
    session = opened(disk)
    before = session.path()
    new = [say_next(session), say_next(session)]
    assert session.path() == [*before, *new]
    assert set(disk.files) == {FILE, FOLDER / backup}
    assert disk.files[FOLDER / backup] == image
    again = opened(disk)
    assert again.path() == session.path()
    assert texts(again) == [*expected, "next", "next"]
    assert again.header["version"] == 3
    assert again.verify() == []
    roles = [each["role"] for each in again.build_context().messages]
    assert "hookMessage" not in roles
    assert ("custom" in roles) == (image is V2)


@VERSIONS
def test_c8_a_power_cut_at_any_moment_of_the_swap_loses_nothing(
    image: bytes, backup: str, expected: list[str]
) -> None:
    for number in itertools.count(1):
        disk = disk_with(image, Faults(power_cut_at=number))
        session, acknowledged = opened(disk), False
        before = session.path()
        try:
            say_next(session)
            acknowledged = True
            say_next(session)
        except PowerCut:
            pass
        else:
            break
        for seed in range(12):
            found = disk.after_power_cut(seed)
            after = opened(found)
            assert after.path()[: len(before)] == before
            assert texts(after)[: len(expected)] == expected
            if acknowledged:
                assert texts(after)[len(expected)] == "next"
            say_next(after)
            assert texts(opened(found))[-1] == "next"
            copies = {name.name: data for name, data in found.files.items() if name != FILE}
            assert copies == {backup: image}
    assert number > 4


@VERSIONS
def test_c8_a_swap_that_fails_says_so_and_the_next_try_works(
    image: bytes, backup: str, expected: list[str]
) -> None:
    for number in itertools.count(1):
        disk = disk_with(image, Faults(fail_at=number))
        session = opened(disk)
        try:
            say_next(session)
            break
        except StoreWriteFailed as error:
            said = str(error)
        assert "old.jsonl" in said
        assert texts(opened(disk))[: len(expected)] == expected
        say_next(session)
        assert texts(session)[-1] == texts(opened(disk))[-1] == "next"
        assert disk.files[FOLDER / backup] == image
        assert set(disk.files) == {FILE, FOLDER / backup}
    assert number > 4


@VERSIONS
def test_two_processes_that_both_begin_to_write_end_up_in_one_new_file(
    image: bytes, backup: str, expected: list[str]
) -> None:
    disk = disk_with(image)
    one, two = opened(disk), opened(disk)
    say_next(one)
    two.append_message({"role": "user", "content": "second", "timestamp": 8})
    one.refresh()
    assert texts(one) == texts(two) == [*expected, "next", "second"]
    assert {name.name for name in disk.files} == {FILE.name, backup}


def test_an_old_file_that_grows_while_it_is_open_is_read_again() -> None:
    disk = disk_with(V1)
    session = opened(disk)
    store = JsonlStore(FOLDER, disk=disk)
    store.open(FILE.name).append(image_of(message("four")), len(V1))
    session.refresh()
    assert texts(session) == ["sum", "two", "three", "four"]
    say_next(session)
    assert texts(opened(disk)) == ["sum", "two", "three", "four", "next"]


@pytest.mark.parametrize("image", [V1, V2], ids=["v1", "v2"])
def test_old_files_cut_or_flipped_anywhere_are_no_crash(image: bytes) -> None:
    for place in range(len(image)):
        for damaged in (image[:place], image[:place] + b"\x01" + image[place + 1 :]):
            disk = disk_with(damaged)
            session = opened(disk)
            before = session.path()
            assert opened(disk).path() == before
            try:
                say_next(session)
            except StrandlineError:
                assert disk.files == {FILE: damaged}
            else:
                assert opened(disk).path() == [*before, "00000001"]
                assert disk.files[FILE].startswith(damaged) or damaged in disk.files.values()
