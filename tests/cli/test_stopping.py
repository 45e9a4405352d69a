"""Ctrl-C, once and more often, in the middle of whatever a command does."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from strandline.cli.stopping import IMPATIENT_S, stoppable
from strandline.cli.stopping import run as run_work
from strandline.manager import SessionManager
from strandline.testing import RecordedRequest, Reply, ScriptedModelServer

STRANDLINE = [sys.executable, "-m", "strandline"]
WAIT_S = 30


def begin(*arguments: str) -> subprocess.Popen[bytes]:
    """The command with a standard input that stays open, and says nothing by itself."""
    return subprocess.Popen(
        [*STRANDLINE, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
    )


def type_in(process: subprocess.Popen[bytes], text: str) -> None:
    assert process.stdin is not None
    process.stdin.write(text.encode())


def until(happened: Callable[[], Any]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not happened():
        assert time.monotonic() < deadline, "it has not happened"
        time.sleep(0.01)


def ended(process: subprocess.Popen[bytes]) -> tuple[int, str, str]:
    """The exit code and what was printed, while standard input is still open."""
    assert process.stdout is not None
    assert process.stderr is not None
    code = process.wait(WAIT_S)
    told = process.stdout.read().decode(), process.stderr.read().decode()
    process.communicate()
    assert "Traceback" not in told[1]
    assert "Task " not in told[1]
    return code, *told


class Slow:
    """A server whose answers take their time; `asked` is set when one has begun."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.summaries = 0
        self.server = ScriptedModelServer(self._answer)

    def _answer(self, request: RecordedRequest) -> Reply:
        body = json.dumps(request.body)
        if "Write the summary now." in body:
            self.summaries += 1
            self.asked.set()
            return Reply("## Course", stall_after=1, stall_s=50)
        if "quick" in body:
            return Reply("done " * 900, chunk_chars=500)
        self.asked.set()
        return Reply("one two three four", chunk_chars=4, stall_after=4, stall_s=50)


@pytest.fixture
def slow(setup: Any) -> Iterator[Slow]:
    slow = Slow()
    with slow.server as server:
        setup(server, window=8_000, compaction={"memoryFlush": {"enabled": False}})
        yield slow


def came(state: Path) -> list[dict[str, Any]]:
    """The messages of the one transcript; none where it is not there yet."""
    transcript = next((state / "agents/main/sessions").glob("*.jsonl"), None)
    if transcript is None:
        return []
    with SessionManager.open(transcript) as session:
        return list(session.build_context().messages)


@pytest.mark.parametrize("presses", [1, 3])
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_it_stops_the_reply_of_agent_and_keeps_what_came(
    slow: Slow, state: Path, options: list[str], presses: int
) -> None:
    process = begin("agent", "-m", "count", *options)
    until(slow.asked.is_set)
    time.sleep(0.3)  # for the pieces to arrive
    for _ in range(presses):
        process.send_signal(signal.SIGINT)
    code, out, err = ended(process)
    assert code in ({130} if presses == 1 else {130, -signal.SIGINT})
    assert err.strip() == ""
    [said, answer] = came(state)
    assert said["role"] == "user"
    assert answer["stopReason"] == "aborted"
    kept = answer["content"][0]["text"]
    assert "one two three four".startswith(kept)
    assert out == ("" if options else f"{kept}\n")


def test_it_ends_a_chat_of_a_pipe_that_stays_open(slow: Slow, state: Path) -> None:
    process = begin("chat")
    type_in(process, "count\nquick\n")
    until(slow.asked.is_set)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    code, out, err = ended(process)
    assert (code, err.strip()) == (130, "stopped; what came is kept")
    assert [message["role"] for message in came(state)] == ["user", "assistant"]
    assert out.strip() == came(state)[1]["content"][0]["text"]


def test_it_ends_a_chat_that_waits_for_a_line(slow: Slow, state: Path) -> None:
    process = begin("chat")
    type_in(process, "quick\n")
    until(lambda: len(came(state)) == 2)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    code, _, err = ended(process)
    assert (code, err.strip()) == (130, "")


def test_it_stops_a_compaction_that_was_asked_for_and_nothing_is_written(
    slow: Slow, state: Path
) -> None:
    process = begin("chat")
    type_in(process, f"quick {'lantern ' * 100}\nquick again\n/compact\n")
    until(slow.asked.is_set)
    process.send_signal(signal.SIGINT)
    code, _, err = ended(process)
    assert code == 130
    assert err.splitlines()[0] == "🧹 Compacting (manual) …"
    assert err.splitlines()[-1].strip() in {"stopped", ""}
    assert [message["role"] for message in came(state)] == ["user", "assistant"] * 2


HANGING = """
import time
from pathlib import Path

def hang():
    Path({here!r}).touch()
    for _ in range({naps}):
        time.sleep(0.05)  # a press just before a long sleep would be heard after it
"""


def with_plugin(state: Path, code: str, slot: str = "legacy") -> Path:
    """Links and enables a plugin; the file that it writes when it has come so far."""
    folder = state.parent / "odd"
    folder.mkdir()
    here = state.parent / "here"
    (folder / "odd.py").write_text(HANGING.format(here=str(here), naps=WAIT_S * 20) + code)
    settings = json.loads((state / "strandline.json").read_text())
    settings["plugins"] = {
        "load": {"paths": [str(folder)]},
        "entries": {"odd": {}},
        "slots": {"contextEngine": slot},
    }
    (state / "strandline.json").write_text(json.dumps(settings))
    return here


@pytest.mark.parametrize("words", [["chat"], ["agent", "-m", "quick"], ["plugins", "list"]])
def test_a_plugin_that_hangs_as_it_is_imported_is_left_and_named(
    slow: Slow, state: Path, words: list[str]
) -> None:
    here = with_plugin(state, "hang()\ndef register(api): ...")
    process = begin(*words)
    until(here.exists)
    process.send_signal(signal.SIGINT)
    code, _, err = ended(process)
    assert code == 130
    assert err.strip() == (
        "strandline: stopped in the import of the plugin odd: `strandline plugins disable odd` if "
        "it hangs"
    )


ENGINE = """
from strandline.context.engine import EngineInfo, LegacyEngine
class Engine(LegacyEngine):
    info = EngineInfo("odd", "Odd")
    async def assemble(self, request):
        hang()
def register(api):
    api.register_context_engine("odd", lambda context: Engine())
"""


def test_an_engine_that_lets_nothing_else_run_is_left_at_the_second_press(
    slow: Slow, state: Path
) -> None:
    here = with_plugin(state, ENGINE, slot="odd")
    process = begin("agent", "-m", "quick")
    until(here.exists)
    process.send_signal(signal.SIGINT)
    time.sleep(IMPATIENT_S + 0.2)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    code, _, err = ended(process)
    assert (code, err) == (130, "")


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_it_skips_what_follows_the_turn_and_the_answer_stands(
    slow: Slow, state: Path, options: list[str]
) -> None:
    for _ in range(6):  # the answers fill the window; it is one of them that does
        process = begin("agent", "-m", "quick", *options)
        until(lambda: slow.asked.is_set() or process.poll() is not None)  # noqa: B023 - run here
        if slow.asked.is_set():
            break
        process.communicate()
    process.send_signal(signal.SIGINT)
    code, out, err = ended(process)
    assert code == 0
    if options:
        report = json.loads(out)
        assert (report["compactions"], report["reply"].split()[0]) == (0, "done")
        assert err in {"", "strandline: not compacted (threshold): it was stopped\n"}
    else:
        assert out.startswith("done done")
        assert err.splitlines()[-1] == "given up; the next turn does what it needs"
    assert came(state)[0]["role"] == "user", "nothing was compacted"


def test_it_stops_session_compact_and_nothing_is_written(slow: Slow, tmp_path: Path) -> None:
    with SessionManager.create(session_dir=tmp_path, session_id="talk") as session:
        for n in range(8):
            session.append_message({"role": "user", "content": "lantern " * 300, "timestamp": n})
    before = (tmp_path / "talk.jsonl").read_bytes()
    process = begin("session", "compact", str(tmp_path / "talk.jsonl"), "--model", "mine/one")
    until(slow.asked.is_set)
    process.send_signal(signal.SIGINT)
    code, out, err = ended(process)
    assert (code, out, err.strip()) == (130, "", "not compacted (manual): it was stopped")
    assert (tmp_path / "talk.jsonl").read_bytes() == before


# -- the parts ---------------------------------------------------------------------------------


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_what_is_stoppable_is_stopped_and_the_program_goes_on() -> None:
    async def work() -> str:
        press()
        await asyncio.sleep(WAIT_S)
        return "not stopped"

    async def program() -> list[str]:
        done = []
        for _ in range(2):
            try:
                done.append(await stoppable(work()))
            except asyncio.CancelledError:
                done.append("stopped")
        return [*done, await stoppable(asyncio.sleep(0, "went on"))]

    before = signal.getsignal(signal.SIGINT)
    assert run_work(program()) == ["stopped", "stopped", "went on"]
    assert signal.getsignal(signal.SIGINT) is before


def test_elsewhere_the_program_ends_in_order() -> None:
    closed: list[bool] = []

    async def program() -> None:
        try:
            press()
            await asyncio.sleep(WAIT_S)
        finally:
            press()  # at once: the same press, as far as a person can tell
            await asyncio.sleep(0.01)
            closed.append(True)

    with pytest.raises(KeyboardInterrupt):
        run_work(program())
    assert closed == [True]


def test_who_presses_again_leaves_a_program_that_does_not_end() -> None:
    script = """
import asyncio, os, signal
from strandline.cli.stopping import run
async def program():
    try:
        await asyncio.sleep(60)
    finally:
        print("closing", flush=True)
        await asyncio.sleep(60)
run(program())
"""
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert process.stdout is not None
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == b"closing\n"
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    assert process.wait(WAIT_S) == 130
    process.stdout.close()


def test_a_program_that_was_started_to_ignore_it_goes_on_doing_so() -> None:
    async def program() -> str:
        press()
        return await stoppable(asyncio.sleep(0.05, "went on"))

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert run_work(program()) == "went on"
    finally:
        signal.signal(signal.SIGINT, before)
