"""Which tools there are for which access, and that they keep nobody waiting."""

from __future__ import annotations

import asyncio
import fcntl
from pathlib import Path

from strandline.context.files import MODIFYING, READING
from strandline.runtime.tools import Toolbox, ToolCall
from strandline.testing.clock import SimulatedClock
from strandline.tools import changing
from strandline.tools.builtin import builtin_tools

READERS = ["list", "memory_search", "read", "search"]
CLOCK = SimulatedClock()


def test_access_says_which_tools_there_are_and_each_says_what_it_needs(den: Path) -> None:
    assert builtin_tools(den, "none", CLOCK) == []
    assert Toolbox(builtin_tools(den, "ro", CLOCK)).names == READERS
    every = Toolbox(builtin_tools(den, "rw", CLOCK))
    assert every.names == sorted([*READERS, "edit", "memory_write", "write"])
    assert every.only(lambda tool: tool.needs == "ro").names == READERS


def test_compactions_know_the_tools_that_read_and_change_files() -> None:
    assert "read" in READING
    assert {"write", "edit"} <= MODIFYING


def test_the_tools_are_described_by_the_same_bytes_each_time(den: Path) -> None:
    first, second = (Toolbox(builtin_tools(den, "rw", CLOCK)).described() for _ in range(2))
    assert repr(first) == repr(second)


async def test_a_tool_that_waits_for_a_lock_keeps_the_loop_free(den: Path) -> None:
    (den / "a.txt").write_text("old")
    box = Toolbox(builtin_tools(den, "rw", CLOCK))
    with (den / "a.txt").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        arguments = {"path": "a.txt", "content": "new"}
        call = ToolCall("c", "write", arguments, "main", "agent:main:main", 0)
        answer = asyncio.create_task(box.answer(call))
        await asyncio.sleep(changing.LOCK_POLL_S * 4)
        assert not answer.done()
        assert (den / "a.txt").read_text() == "old"
        fcntl.flock(held, fcntl.LOCK_UN)
        assert not (await answer)["isError"]
    assert (den / "a.txt").read_text() == "new"
