"""The chat at a terminal: a pseudo-terminal is typed into, and what it shows is read."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from strandline.testing import RecordedRequest, Reply, ScriptedModelServer

STRANDLINE = [sys.executable, "-m", "strandline"]
WAIT_S = 30
WHERE = b"\x1b[6n"
"""Asks a terminal where its cursor is; it answers through its input."""

STYLE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
DIM = "\x1b[2m"


class Terminal:
    """A command in a terminal of its own."""

    def __init__(self, *arguments: str, columns: int = 80, **environment: str) -> None:
        self._end, inner = pty.openpty()
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        self.process = subprocess.Popen(
            [*STRANDLINE, *arguments],
            stdin=inner,
            stdout=inner,
            stderr=inner,
            env={**os.environ, "TERM": "xterm", "COLUMNS": str(columns), **environment},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - Ctrl-C
        )
        os.close(inner)
        self.raw = ""
        self._seen = 0

    def until_it_asks(self) -> None:
        """Read on until there is a prompt, which asks where the cursor is."""
        self.until(WHERE.decode())

    def type(self, text: str) -> None:
        os.write(self._end, text.encode())

    def until(self, text: str) -> str:
        """Read on until `text` is shown behind what was waited for last; what was shown."""
        deadline = time.monotonic() + WAIT_S
        while text not in self.raw[self._seen :]:
            assert time.monotonic() < deadline, (text, self.shown)
            if not self._read():
                raise AssertionError((text, self.shown))
        self._seen = self.raw.index(text, self._seen) + len(text)
        return self.shown

    def has_come(self, text: str) -> bool:
        """Whether `text` has been shown by now."""
        while select.select([self._end], [], [], 0)[0] and self._read():
            pass
        return text in self.shown

    def ended(self) -> int:
        """Its exit code, once it is over."""
        deadline = time.monotonic() + WAIT_S
        while self._read():
            assert time.monotonic() < deadline, self.shown
        return self.process.wait(WAIT_S)

    @property
    def shown(self) -> str:
        """All that was printed, without styles."""
        return STYLE.sub("", self.raw).replace("\r", "")

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._end)

    def _read(self) -> bool:
        ready, _, _ = select.select([self._end], [], [], 0.1)
        if not ready:
            return True
        piece = b""
        with suppress(OSError):  # the other end is closed
            piece = os.read(self._end, 65536)
        if WHERE in piece:
            os.write(self._end, b"\x1b[1;1R")
        self.raw += piece.decode(errors="replace")
        return bool(piece)


@contextmanager
def terminal(*arguments: str, **options: Any) -> Iterator[Terminal]:
    opened = Terminal(*arguments, **options)
    try:
        yield opened
    finally:
        opened.close()


class Serving:
    """A server whose summaries wait until `summarise` is set."""

    def __init__(self) -> None:
        self.summarise = threading.Event()
        self.replies: list[Reply] = []
        self.server = ScriptedModelServer(self._answer)

    def _answer(self, request: RecordedRequest) -> Reply:
        if "Write the summary now." in json.dumps(request.body):
            self.summarise.wait(WAIT_S)
            return Reply("## Course of the conversation\nThey spoke of lanterns.")
        return self.replies.pop(0) if self.replies else Reply("done " * 900, chunk_chars=500)


@pytest.fixture
def serving(setup: Any) -> Iterator[Serving]:
    serving = Serving()
    with serving.server as server:
        setup(server, window=8_000, compaction={"memoryFlush": {"enabled": False}})
        yield serving
        serving.summarise.set()


def until_it_compacts(chat: Terminal) -> None:
    """Talk until the answers fill the window and a compaction begins beside the chat."""
    chat.until_it_asks()
    for _ in range(6):
        chat.type("more\r")
        chat.until("done done")
        chat.until_it_asks()
        time.sleep(0.5)  # whether something begins is not known before
        if chat.has_come("🧹 Compacting (threshold) …"):
            return
    raise AssertionError(chat.shown)


def test_answers_come_piece_by_piece_and_one_that_is_taken_back_is_called_void(
    serving: Serving,
) -> None:
    serving.replies = [
        Reply("void words", chunk_chars=5, delay_s=0.3, disconnect_after=3),
        Reply("good words"),
    ]
    with terminal("chat", "--new") as chat:
        chat.until("/help for commands")
        chat.type("Hello\r")
        chat.until("void words\r\n")
        chat.until("the answer so far is void")
        chat.until("asking mine/one again in")
        chat.until("good words\r\n")
        chat.until_it_asks()
        chat.type("\x04")
        assert chat.ended() == 0


def test_a_compaction_that_ends_while_one_types_leaves_the_line_alone(serving: Serving) -> None:
    with terminal("chat", "--new", columns=200) as chat:
        until_it_compacts(chat)
        chat.type("half a li")
        chat.until("half a li")
        serving.summarise.set()
        chat.until("🧹 Auto-compaction complete (count 1)")
        chat.until("> half a li")
        serving.replies = [Reply("It was whole.")]
        chat.type("ne\r")
        chat.until("It was whole.")
        assert "half a line" in json.dumps(serving.server.requests[-1].body)
        chat.type("/quit\r")
        assert chat.ended() == 0


def test_leaving_waits_visibly_and_ctrl_c_leaves_at_once(serving: Serving) -> None:
    with terminal("chat", "--new", columns=200) as chat:
        until_it_compacts(chat)
        chat.type("/quit\r")
        chat.until("finishing what follows the turn; Ctrl-C leaves at once")
        chat.type("\x03")
        chat.until("given up; the next turn does what it needs")
        assert chat.ended() == 0
        assert "not compacted" not in chat.shown


def test_ctrl_c_stops_the_reply_and_the_chat_goes_on(serving: Serving) -> None:
    serving.replies = [Reply("one two three", chunk_chars=4, stall_after=3), Reply("Yes.")]
    with terminal("chat", "--new") as chat:
        chat.until_it_asks()
        chat.type("\x03")
        chat.type("count\r")
        chat.until("one two ")
        chat.type("typed ahead\x03")
        chat.until("stopped; what came is kept")
        chat.until_it_asks()
        chat.type("again\r")
        chat.until("Yes.")
        assert "^C" not in chat.shown
        chat.type("/quit\r")
        assert chat.ended() == 0


def test_a_long_wait_is_told_and_the_line_goes_away(serving: Serving) -> None:
    serving.replies = [Reply("At last.", stall_after=0, stall_s=1.5)]
    with terminal("agent", "-m", "Hello") as ran:
        ran.until("… 1 s (Ctrl-C stops)")
        ran.until("\r\x1b[K")
        ran.until("At last.")
        assert ran.ended() == 0
    serving.replies = [Reply("At last.", stall_after=0, stall_s=1.5)]
    with terminal("agent", "-m", "Hello", TERM="dumb") as ran:
        assert ran.ended() == 0
        assert ran.shown == "At last.\n"


@pytest.mark.parametrize("environment", [{}, {"NO_COLOR": "1"}])
def test_colours_are_left_out_where_they_are_not_wanted(
    serving: Serving, environment: dict[str, str]
) -> None:
    serving.replies = [Reply("Yes.", stall_after=0, stall_s=1.2)]
    with terminal("chat", "--new", columns=40, **environment) as chat:
        chat.until_it_asks()
        chat.type("Hello\r")
        chat.until("Yes.")
        chat.type("/tools\r")
        chat.until("write ")
        chat.type("/quit\r")
        assert chat.ended() == 0
    assert (DIM in chat.raw) is not bool(environment)
    lines = chat.shown.partition("/tools")[2].splitlines()[1:-1]
    assert max(len(line) for line in lines) <= 40


def test_the_conversation_is_asked_for_until_one_is_named(serving: Serving, run: Any) -> None:
    serving.replies = [Reply("Yes."), Reply("Again.")]
    run("agent", "-m", "about lanterns")
    with terminal("chat") as chat:
        chat.until("about lanterns")
        chat.until("Which one? [1]: ")
        chat.type("²\r")
        chat.until("say a number from 1 to 1, or n")
        chat.type("1\r")
        chat.until("going on with ")
        chat.until_it_asks()
        chat.type("more\r")
        chat.until("Again.")
        chat.until_it_asks()
        chat.type("\x04")
        assert chat.ended() == 0
