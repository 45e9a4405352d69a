"""Threads, other openings and other programs on one transcript (spec 1, Durability; faults E)."""

from __future__ import annotations

import gc
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from strandline import SessionManager
from strandline.async_manager import AsyncSessionManager
from strandline.errors import TranscriptExists, TranscriptUnreadable
from strandline.stores.jsonl import JsonlStore
from strandline.testing import CountingIds, FaultyDisk, SimulatedClock
from strandline.transcript.codec import encode_object
from strandline.transcript.header import new_header

HEADER = encode_object(new_header("s", SimulatedClock(), "/", None)) + b"\n"
FOLDER = Path("/state")
THREADS, EACH = 64, 8


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text, "timestamp": 1}


def open_files() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


def managed(disk: FaultyDisk) -> SessionManager:
    store = JsonlStore(FOLDER, disk=disk)
    log = store.open("s.jsonl") if store.names() else store.create("s.jsonl", HEADER)
    return SessionManager(log, store, clock=SimulatedClock(), ids=CountingIds())


def test_64_threads_on_one_session_make_one_branch_of_synced_entries() -> None:
    disk = FaultyDisk()
    session = managed(disk)
    together = threading.Barrier(THREADS)

    def talk(number: int) -> list[str]:
        together.wait()
        return [session.append_message(user(f"{number} {n}")) for n in range(EACH)]

    with ThreadPoolExecutor(THREADS) as pool:
        said = list(pool.map(talk, range(THREADS)))
    expected = {entry_id for own in said for entry_id in own}
    assert len(expected) == THREADS * EACH
    assert set(session.path()) == expected
    for own in said:  # each thread's entries in the order of its calls
        assert [entry_id for entry_id in session.path() if entry_id in set(own)] == own
    found = managed(disk.after_power_cut(1, tail="missing"))
    assert found.path() == session.path()
    assert found.verify() == []


def test_looking_while_others_append_never_shows_half_of_anything() -> None:
    session = managed(FaultyDisk())
    stop = threading.Event()

    def look() -> int:
        longest = 0
        while not stop.is_set():
            context = session.build_context()
            assert [m["content"] for m in context.messages] == [*range(len(context.items))]
            assert len(context.items) >= longest
            longest = len(context.items)
            assert context.thinking_level == "off"
            session.tips()
        return longest

    with ThreadPoolExecutor(3) as pool:
        looking = [pool.submit(look) for _ in range(3)]
        for number in range(300):
            session.append_message({"role": "user", "content": number})
        stop.set()
        assert max(each.result() for each in looking) <= 300


def test_e1_what_a_sub_agent_appends_during_a_turn_is_read_and_gone_on_from(
    tmp_path: Path,
) -> None:
    with SessionManager.create(session_dir=tmp_path) as turn:
        turn.append_message(user("question"))
        with SessionManager.open(str(turn.path_name)) as sub_agent:
            announced = sub_agent.append_message(user("announced"))
            answer = turn.append_message({"role": "assistant", "content": []})
            assert turn.entry(answer).parent_id == announced
            assert not turn.refresh()
            assert sub_agent.refresh()
            assert sub_agent.path() == turn.path()


def test_e6_a_file_rewritten_with_the_same_size_at_the_same_time_is_read_again(
    tmp_path: Path,
) -> None:
    with SessionManager.create(session_dir=tmp_path) as session:
        session.append_message(user("one"))
        path = Path(str(session.path_name))
        times = path.stat().st_atime_ns, path.stat().st_mtime_ns
        content = path.read_bytes().replace(b'"one"', b'"two"')
        path.write_bytes(content)
        os.utime(path, ns=times)
        assert session.refresh()
        assert session.build_context().messages == [user("two")]


def test_a_file_that_another_program_swapped_in_is_the_session_from_then_on(
    tmp_path: Path,
) -> None:
    with SessionManager.create(session_dir=tmp_path) as session:
        session.append_message(user("one"))
        path = Path(str(session.path_name))
        for text in ("two", "a longer one"):
            fresh = tmp_path / "fresh"
            fresh.write_bytes(path.read_bytes().replace(b'"one"', f'"{text}"'.encode()))
            fresh.replace(path)
            said = session.append_message(user("next"))
            assert session.path()[-1] == said
            assert session.build_context().messages[0] == user(text)
            with SessionManager.open(path) as again:
                assert again.path() == session.path()
            path.write_bytes(path.read_bytes().replace(f'"{text}"'.encode(), b'"one"'))
            session.close()
            session = SessionManager.open(path)  # noqa: PLW2901 - closed by the outer block


def test_a_file_that_becomes_shorter_is_refused_and_not_written_to(tmp_path: Path) -> None:
    with SessionManager.create(session_dir=tmp_path) as session:
        session.append_message(user("one"))
        path = Path(str(session.path_name))
        path.write_bytes(path.read_bytes()[:50])
        for call in (session.refresh, lambda: session.append_message(user("two"))):
            with pytest.raises(TranscriptUnreadable, match="became shorter while it was open"):
                call()
        assert path.stat().st_size == 50


def test_a_torn_tail_that_somebody_cuts_off_does_not_stop_the_next_append(tmp_path: Path) -> None:
    with SessionManager.create(session_dir=tmp_path) as session:
        session.append_message(user("one"))
        path = Path(str(session.path_name))
        whole = path.read_bytes()
        path.write_bytes(whole + b'{"torn')
        session.refresh()
        assert [finding.kind for finding in session.verify()] == ["torn-line"]
        os.truncate(path, len(whole))
        session.append_message(user("two"))
        assert session.verify() == []
        assert session.build_context().messages == [user("one"), user("two")]


def test_e11_of_eight_who_create_the_same_session_one_does(tmp_path: Path) -> None:
    for number in range(20):
        together = threading.Barrier(8)

        def create(name: str, barrier: threading.Barrier) -> SessionManager | None:
            barrier.wait()
            try:
                return SessionManager.create(session_dir=tmp_path, session_id=name)
            except TranscriptExists:
                return None

        with ThreadPoolExecutor(8) as pool:
            made = list(pool.map(create, [f"s{number}"] * 8, [together] * 8))
        (session,) = [each for each in made if each is not None]
        assert session.verify() == []
        session.close()
    assert len(JsonlStore(tmp_path).names()) == 20


def test_no_file_stays_open(tmp_path: Path) -> None:
    (tmp_path / "none.jsonl").write_bytes(b"nothing\n")
    before = open_files()
    with SessionManager.create(session_dir=tmp_path) as session:
        path = str(session.path_name)
        with session.run_lock(timeout_ms=0, holder="a turn"):
            session.append_message(user("one"))
        with SessionManager.fork_from(path) as fork:
            fork.append_message(user("two"))
        for _ in range(5):
            SessionManager.open(path).build_context()  # forgotten, not closed
            with pytest.raises(TranscriptExists):
                SessionManager.create(session_dir=tmp_path, session_id=session.session_id)
            with pytest.raises(TranscriptUnreadable):
                SessionManager.open(tmp_path)
    gc.collect()
    assert open_files() == before


async def test_calls_of_an_asynchronous_session_keep_their_order(tmp_path: Path) -> None:
    async with await AsyncSessionManager.create(session_dir=str(tmp_path)) as twin:
        for number in range(20):
            await twin.append_message(user(f"{number}"))
        context = await twin.build_context()
        assert [message["content"] for message in context.messages] == [
            f"{number}" for number in range(20)
        ]
