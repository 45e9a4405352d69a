"""A disk that fails, fills up, writes short or loses power during any operation (C1, C8, F11).

Whatever happens: an error is one of ours, what was acknowledged is there, at most one line
is damaged, and the next thing that is said is written and read.
"""

from __future__ import annotations

import errno
import itertools
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from strandline import SessionManager
from strandline.errors import (
    StoreWriteFailed,
    StrandlineError,
    TranscriptNotFound,
    TranscriptUnreadable,
)
from strandline.stores.jsonl import JsonlStore
from strandline.testing import CountingIds, Faults, FaultyDisk, PowerCut, SimulatedClock, Tail
from strandline.transcript.append import SYNCED_TYPES
from strandline.transcript.codec import encode_object
from strandline.transcript.header import new_header

FOLDER = Path("/state/sessions")
NAME = "s.jsonl"
TAILS: list[Tail | None] = ["whole", "torn", "missing", "nul", None]
DAMAGE = {"torn-line", "malformed-line", "nul-bytes"}


def store_on(disk: FaultyDisk) -> JsonlStore:
    return JsonlStore(FOLDER, disk=disk)


def created(disk: FaultyDisk) -> SessionManager:
    header = encode_object(new_header("s", SimulatedClock(), "/", None)) + b"\n"
    return managed(disk, store_on(disk).create(NAME, header))


def managed(disk: FaultyDisk, log: object = None, first_id: int = 1) -> SessionManager:
    store = store_on(disk)
    return SessionManager(
        log or store.open(NAME),  # type: ignore[arg-type]
        store,
        clock=SimulatedClock(),
        ids=CountingIds(first_id),
    )


def user(text: str) -> dict[str, object]:
    return {"role": "user", "content": text, "timestamp": 1}


Said = list[tuple[str, str]]
"""Ids and types of acknowledged entries, in the order of the calls."""


def first(session: SessionManager) -> str:
    return next(iter(session.path()), "nothing was said")


STEPS: list[tuple[str, Callable[[SessionManager], str]]] = [
    ("message", lambda session: session.append_message(user("one"))),
    ("label", lambda session: session.append_label(first(session), "first")),
    ("message", lambda session: session.append_message(user("two" * 40))),
    ("custom", lambda session: session.append_custom("state", {"n": 1})),
    ("compaction", lambda session: session.append_compaction("sum", first(session), 5)),
    ("leaf", lambda session: session.branch(first(session))),
    ("message", lambda session: session.append_message(user("three"))),
]


def scenario(disk: FaultyDisk, said: Said) -> None:
    """A short conversation; goes on after every error, as a gateway would."""
    session = created(disk)
    said.append(("", "session"))
    for kind, step in STEPS:
        try:
            said.append((step(session), kind))
        except StrandlineError:
            continue
    session.close()


def cuts() -> Iterator[tuple[FaultyDisk, Said]]:
    """The disk after a cut during each operation of the scenario, and what had been said."""
    for number in itertools.count(1):
        disk, said = FaultyDisk(Faults(power_cut_at=number)), Said()
        try:
            scenario(disk, said)
        except PowerCut:
            yield disk, said
        else:
            assert number > len(STEPS)
            return


def damaged_lines(session: SessionManager) -> set[int]:
    return {finding.offset for finding in session.verify() if finding.kind in DAMAGE}


def assert_kept(disk: FaultyDisk, said: Said) -> None:
    """Everything acknowledged is there, in order; one more entry can be written and read."""
    try:
        session = managed(disk, first_id=100)
    except TranscriptNotFound:
        assert not said
        return
    present = [entry.id for entry in session.entries()]
    expected = [entry_id for entry_id, _ in said if entry_id]
    assert [entry_id for entry_id in present if entry_id in expected] == expected
    assert len(damaged_lines(session)) <= 1
    if not said and disk.files[FOLDER / NAME].strip(b"\0") and not session.header:
        with pytest.raises(TranscriptUnreadable):  # half a header, never acknowledged
            session.append_message(user("next"))
        return
    session.append_message(user("next"))
    session.close()
    again = managed(disk)
    assert again.build_context().messages[-1]["content"] == "next"
    assert [entry.id for entry in again.entries()][:-1] == present
    assert len(damaged_lines(again)) <= 1
    again.close()


@pytest.mark.parametrize("tail", TAILS)
def test_c1_after_a_power_cut_everything_that_was_synced_is_there(tail: Tail | None) -> None:
    for disk, said in cuts():
        synced = [(entry_id, kind) for entry_id, kind in said if kind in SYNCED_TYPES]
        for seed in range(6 if tail is None else 2):
            assert_kept(disk.after_power_cut(seed, tail=tail), synced)


def test_a_killed_process_leaves_everything_that_was_acknowledged() -> None:
    for disk, said in cuts():
        assert_kept(disk.after_process_kill(), said)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_f11_an_operation_that_fails_is_one_error_of_ours_and_the_conversation_goes_on(
    number: int,
) -> None:
    for operation in itertools.count(1):
        disk, said = FaultyDisk(Faults(fail_at=operation, fail_errno=number)), Said()
        try:
            scenario(disk, said)
        except StoreWriteFailed:
            assert not said  # it could not be created; trying again works
            scenario(disk, said)
            assert len(said) == 1 + len(STEPS)
        assert len(said) >= len(STEPS) - 1  # without a first message there is no label
        was_beyond, disk.faults.fail_at = disk.operations < operation, None
        assert_kept(disk, said)
        if was_beyond:
            return


def test_a_disk_that_is_full_from_any_byte_on_keeps_what_it_took() -> None:
    unlimited = FaultyDisk()
    scenario(unlimited, Said())
    for free in range(0, len(unlimited.files[FOLDER / NAME]), 7):
        disk, said = FaultyDisk(Faults(free_bytes=free)), Said()
        with suppress(StoreWriteFailed):
            scenario(disk, said)
        assert bool(said) == bool(disk.files)  # nothing half-made stands in the way
        disk.faults.free_bytes = None
        if said:
            assert_kept(disk, said)


def test_a_full_disk_is_said_to_be_full() -> None:
    with pytest.raises(StoreWriteFailed, match=r"cannot create .*No space left"):
        created(FaultyDisk(Faults(free_bytes=20)))
    session = created(FaultyDisk(faults := Faults(free_bytes=300)))
    with pytest.raises(StoreWriteFailed, match=r"did not take the whole.*No space left"):
        session.append_message(user("long" * 100))
    faults.free_bytes = None
    session.append_message(user("short"))
    assert session.build_context().messages == [user("short")]


@pytest.mark.parametrize("most", [1, 2, 3, 17])
def test_short_writes_make_the_same_file(most: int) -> None:
    whole, pieces = FaultyDisk(), FaultyDisk(Faults(max_write=most))
    for disk in (whole, pieces):
        scenario(disk, said := Said())
        assert len(said) == 1 + len(STEPS)
    assert pieces.files == whole.files


def test_what_a_failed_sync_dropped_was_never_acknowledged() -> None:
    """The kernel forgets bytes that it could not write; a later sync does not bring them back."""
    for operation in itertools.count(2):
        faults = Faults(fail_at=operation, failed_sync_drops=True)
        disk, said = FaultyDisk(faults), Said()
        try:
            scenario(disk, said)
        except StoreWriteFailed:
            continue
        synced = [(entry_id, kind) for entry_id, kind in said if kind in SYNCED_TYPES]
        for seed in range(4):
            found = managed(disk.after_power_cut(seed))
            present = {entry.id for entry in found.entries()}
            assert {entry_id for entry_id, _ in synced if entry_id} <= present
        if disk.operations < operation:
            return


def test_reading_writes_nothing() -> None:
    disk = FaultyDisk()
    scenario(disk, Said())
    files, operations = disk.files, disk.operations
    session = managed(disk)
    session.build_context()
    session.verify()
    session.tree()
    session.refresh()
    session.close()
    assert (disk.files, disk.operations) == (files, operations)


def test_a_file_that_is_gone_or_closed_is_said_so() -> None:
    disk = FaultyDisk()
    session = created(disk)
    disk.remove(FOLDER / NAME)
    with pytest.raises(StoreWriteFailed, match="is gone"):
        session.append_custom("t")
    session.close()
    with pytest.raises(StoreWriteFailed, match="was closed"):
        session.append_custom("t")
