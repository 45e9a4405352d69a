"""Real processes: killed while they write, writing at once, holding the lock (C1, D2, E3, E4)."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from strandline import SessionManager
from strandline.errors import SessionBusy

ROUNDS = 15
LONGEST_ROUND_S = 0.25
ANSWER_S = 30

WRITER = """
import os, sys
from strandline import SessionManager
session = SessionManager.open(sys.argv[1], durability="none")
for number in range(10_000):
    text = "x" * (number % 700)
    entry_id = session.append_message({"role": "user", "content": text, "timestamp": number})
    os.write(1, entry_id.encode() + b"\\n")
"""
TALKER = """
import sys
from strandline import SessionManager
session = SessionManager.open(sys.argv[1], durability="none")
print("ready", flush=True)
sys.stdin.readline()
for number in range(60):
    text = f"{sys.argv[2]} {number}"
    said = session.append_message({"role": "user", "content": text, "timestamp": number})
    if number % 5 == 0:
        session.append_label(said, text)
"""
HOLDER = """
import sys
from strandline import SessionManager
session = SessionManager.open(sys.argv[1])
with session.run_lock(timeout_ms=0, holder="the other turn"):
    print("held", flush=True)
    sys.stdin.readline()
print("given back", flush=True)
"""


@contextmanager
def process(code: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", code, *arguments]
    child = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
    )
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


@pytest.fixture
def transcript(tmp_path: Path) -> str:
    with SessionManager.create(session_dir=tmp_path) as session:
        return str(session.path_name)


def test_c1_a_writer_killed_again_and_again_loses_nothing_it_acknowledged(transcript: str) -> None:
    draw = random.Random(7)
    acknowledged: list[str] = []
    for number in range(ROUNDS):
        with process(WRITER, transcript) as writer:
            assert writer.stdout is not None
            acknowledged.append(writer.stdout.readline().strip())
            time.sleep(draw.uniform(0, LONGEST_ROUND_S))
            writer.send_signal(signal.SIGKILL)
            rest, _ = writer.communicate()
        acknowledged += [line for line in rest.split("\n") if len(line) == 8]
        with SessionManager.open(transcript) as session:
            present = [entry.id for entry in session.entries()]
            known = set(acknowledged)
            assert [each for each in present if each in known] == acknowledged
            assert len(session.verify()) <= number + 1
            acknowledged.append(session.append_message({"role": "user", "content": "alive"}))
            assert session.path() == [*present, acknowledged[-1]]
    assert len(acknowledged) > 2 * ROUNDS


def test_d2_two_processes_on_one_file_grow_one_branch_and_each_keeps_its_order(
    transcript: str,
) -> None:
    with process(TALKER, transcript, "a") as one, process(TALKER, transcript, "b") as two:
        for talker in (one, two):
            assert talker.stdout is not None
            assert talker.stdout.readline() == "ready\n"
        for talker in (one, two):
            assert talker.stdin is not None
            talker.stdin.write("go\n")
            talker.stdin.flush()
        assert [talker.wait(ANSWER_S) for talker in (one, two)] == [0, 0]
    with SessionManager.open(transcript) as session:
        said = [message["content"] for message in session.build_context().messages]
        for name in "ab":
            own = [text for text in said if text.startswith(name)]
            assert own == [f"{name} {number}" for number in range(60)]
        assert len(said) == 120
        assert len(session.path()) == len(session.entries()) == 120 + 24
        assert sorted(session.labels().values()) == sorted(
            f"{name} {number}" for name in "ab" for number in range(0, 60, 5)
        )
        assert session.verify() == []
        assert len(session.tips()) == 1


def test_a_second_turn_waits_and_is_then_told_who_holds_the_session(transcript: str) -> None:
    with process(HOLDER, transcript) as holder, SessionManager.open(transcript) as session:
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        begun = time.monotonic()
        with (
            pytest.raises(SessionBusy, match="the other turn") as busy,
            session.run_lock(timeout_ms=150, holder="ours"),
        ):
            pass
        assert time.monotonic() - begun >= 0.15
        assert f"process {holder.pid}" in busy.value.holder
        session.append_message({"role": "user", "content": "a label or message goes through"})
        holder.stdin.write("enough\n")
        holder.stdin.flush()
        with session.run_lock(timeout_ms=ANSWER_S * 1000, holder="ours"):
            assert holder.stdout.readline() == "given back\n"


def test_e3_the_lock_of_a_killed_process_is_free_at_once(transcript: str) -> None:
    with process(HOLDER, transcript) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    assert Path(transcript + ".run").exists()
    with (
        SessionManager.open(transcript) as session,
        session.run_lock(timeout_ms=1000, holder="ours"),
    ):
        assert b"ours" in Path(transcript + ".run").read_bytes()
    assert not Path(transcript + ".run").exists()


@pytest.mark.parametrize("note", [b"", b'{"pid": 1', b"\x00" * 40, b'{"holder": "x"}'])
def test_e4_a_lock_file_without_a_name_in_it_holds_nobody_up(transcript: str, note: bytes) -> None:
    """The operating system has the lock; what the file says is for people."""
    Path(transcript + ".run").write_bytes(note)
    with (
        SessionManager.open(transcript) as session,
        session.run_lock(timeout_ms=1000, holder="ours"),
    ):
        assert b"ours" in Path(transcript + ".run").read_bytes()


def test_openclaw_s_own_lock_is_respected_while_its_process_lives(transcript: str) -> None:
    lock = Path(transcript + ".lock")
    lock.write_text(f'{{"pid": {os.getppid()}}}')
    with SessionManager.open(transcript) as session:
        with (
            pytest.raises(SessionBusy, match=f"process {os.getppid()}"),
            session.run_lock(timeout_ms=0, holder="ours"),
        ):
            pass
        lock.write_text('{"pid": 999999999}')
        with session.run_lock(timeout_ms=0, holder="ours"):
            assert lock.exists()
