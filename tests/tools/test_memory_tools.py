"""memory_write and memory_search (faults I6 to I9)."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from pathlib import Path
from typing import Any

import pytest

from strandline.runtime.tools import Toolbox, ToolCall
from strandline.testing.clock import SimulatedClock
from strandline.tools import memory
from strandline.tools.builtin import builtin_tools

Use = Callable[..., Any]


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


LATE_MS = int(datetime(2026, 7, 28, 23, 59, 50, tzinfo=UTC).timestamp()) * 1000

WRITER = """
import asyncio, sys
from datetime import UTC
from pathlib import Path
from strandline.runtime.tools import Toolbox, ToolCall
from strandline.testing.clock import SimulatedClock
from strandline.tools.builtin import builtin_tools
box = Toolbox(builtin_tools(Path(sys.argv[1]), "rw", SimulatedClock(0), timezone=UTC))
async def main():
    for number in range(100):
        arguments = {"note": f"{sys.argv[2]} {number}\\n{sys.argv[2]} {number} again"}
        answer = await box.answer(ToolCall("c", "memory_write", arguments, "main", "main", 0))
        assert not answer["isError"], answer
asyncio.run(main())
"""


def note_at(clock: SimulatedClock, den: Path, zone: tzinfo | None, note: str) -> str:
    box = Toolbox(builtin_tools(den, "rw", clock, timezone=zone))
    call = ToolCall("c", "memory_write", {"note": note}, "main", "agent:main:main", 0)
    return str(asyncio.run(box.answer(call))["content"][0]["text"])


def test_i7_a_note_goes_to_the_day_of_the_call_also_after_midnight(den: Path) -> None:
    clock = SimulatedClock(LATE_MS)
    assert note_at(clock, den, UTC, "before") == "memory/2026-07-28.md: 1 line added"
    clock.advance(20_000)
    assert note_at(clock, den, UTC, "after") == "memory/2026-07-29.md: 1 line added"
    assert (den / "memory" / "2026-07-28.md").read_text() == "before\n"
    assert (den / "memory" / "2026-07-29.md").read_text() == "after\n"


def test_i7_one_box_that_was_made_before_midnight_retargets(den: Path) -> None:
    clock = SimulatedClock(LATE_MS)
    box = Toolbox(builtin_tools(den, "rw", clock, timezone=UTC))
    for note in ("before", "after"):
        call = ToolCall("c", "memory_write", {"note": note}, "main", "agent:main:main", LATE_MS)
        asyncio.run(box.answer(call))
        clock.advance(20_000)
    assert names_in(den / "memory") == ["2026-07-28.md", "2026-07-29.md"]


def test_a_day_is_one_of_the_time_zone(den: Path) -> None:
    clock = SimulatedClock(LATE_MS)
    assert "2026-07-29" in note_at(clock, den, timezone(timedelta(hours=2)), "x")
    assert "2026-07-28" in note_at(clock, den, timezone(timedelta(hours=-2)), "x")
    local = datetime.fromtimestamp(LATE_MS / 1000).astimezone().date().isoformat()
    assert local in note_at(clock, den, None, "y")


def test_i6_notes_are_added_behind_what_is_there_and_files_are_0600(den: Path, use: Use) -> None:
    (den / "MEMORY.md").write_text("no end of line")
    answer = use("memory_write", note="likes tea", long_term=True)
    assert answer.text == "MEMORY.md: 1 line added"
    assert (den / "MEMORY.md").read_text() == "no end of line\nlikes tea\n"
    use("memory_write", note="x")
    (file,) = (den / "memory").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700


def test_i8_two_processes_lose_no_line(den: Path) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(den), name], stderr=subprocess.PIPE)
        for name in ("x", "y")
    ]
    assert [writer.communicate(timeout=60)[1] for writer in writers] == [b"", b""]
    lines = (den / "memory" / "1970-01-01.md").read_text().splitlines()
    expected = [f"{n} {i}{end}" for n in "xy" for i in range(100) for end in ("", " again")]
    assert sorted(lines) == sorted(expected)
    assert all(lines[at] + " again" == lines[at + 1] for at in range(0, len(lines), 2))


def test_i9_a_line_that_is_there_already_is_skipped_and_that_is_said(den: Path, use: Use) -> None:
    (den / "MEMORY.md").write_text("- tea\n")
    note = "- tea\n- coffee\n\n- coffee  \n- Tea"
    answer = use("memory_write", note=note, long_term=True).text
    assert answer == "MEMORY.md: 2 lines added, 2 skipped that stood there already or came twice"
    assert (den / "MEMORY.md").read_text() == "- tea\n- coffee\n\n- Tea\n"
    again = use("memory_write", note=note, long_term=True).text
    assert again.startswith("MEMORY.md: 0 lines added, 4 skipped")
    assert (den / "MEMORY.md").read_text() == "- tea\n- coffee\n\n- Tea\n"


@pytest.mark.parametrize("note", ["x" * 1001, "x\n" * 5000, " \n\t", "a\0b", "bell \x07", "a\rb"])
def test_i9_notes_that_are_too_large_empty_or_no_text_are_refused(
    note: str, den: Path, use: Use
) -> None:
    answer = use("memory_write", note=note)
    assert answer.is_error
    assert ": " in answer.text
    assert names_in(den) == []


def test_c5_half_a_character_never_gets_into_memory(den: Path, use: Use) -> None:
    use("memory_write", note="cut \ud83c", long_term=True)
    assert (den / "MEMORY.md").read_text() == "cut \ufffd\n"


def test_a_memory_file_that_is_full_takes_no_more(
    den: Path, use: Use, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "MAX_MEMORY_FILE_BYTES", 20)
    (den / "MEMORY.md").write_text("x" * 15)
    assert "full" in use("memory_write", note="12345", long_term=True).text
    assert (den / "MEMORY.md").read_text() == "x" * 15


def test_a_disk_that_takes_half_a_note_is_left_without_it(
    den: Path, use: Use, monkeypatch: pytest.MonkeyPatch
) -> None:
    (den / "MEMORY.md").write_text("old\n")
    real = os.write

    def half(descriptor: int, data: bytes) -> int:
        return real(descriptor, data[:3]) if data.startswith(b"new") else real(descriptor, data)

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", half)
        assert use("memory_write", note="new note", long_term=True).is_error
    assert (den / "MEMORY.md").read_text() == "old\n"


def test_memory_that_leads_out_of_the_workspace_is_refused(
    tmp_path: Path, den: Path, use: Use
) -> None:
    (tmp_path / "else").mkdir()
    (den / "memory").symlink_to("../else")
    (den / "MEMORY.md").symlink_to(tmp_path / "else.md")
    assert use("memory_write", note="x").is_error
    assert use("memory_write", note="x", long_term=True).is_error
    assert names_in(tmp_path) == ["den", "else"]
    assert names_in(tmp_path / "else") == []


def test_memory_is_searched_by_words_the_most_first_then_the_newest(den: Path, use: Use) -> None:
    (den / "memory").mkdir()
    (den / "memory" / "2026-01-01.md").write_text("Anna likes tea\n")
    (den / "memory" / "2026-01-02.md").write_text("tea is out\nbirthday of ANNA: May 4\n")
    (den / "MEMORY.md").write_text("Anna is the sister\n")
    (den / "other.md").write_text("Anna, tea")
    assert use("memory_search", query="anna, tea?").text.split("\n") == [
        "memory/2026-01-01.md:1: Anna likes tea",
        "MEMORY.md:1: Anna is the sister",
        "memory/2026-01-02.md:1: tea is out",
        "memory/2026-01-02.md:2: birthday of ANNA: May 4",
    ]
    assert use("memory_search", query="coffee").text == "[nothing found]"
    assert use("memory_search", query="?!").is_error


def test_a_memory_search_is_bounded_and_memory_may_be_missing(den: Path, use: Use) -> None:
    assert use("memory_search", query="tea").text == "[nothing found]"
    (den / "MEMORY.md").write_text("".join(f"tea {n}\n" for n in range(200)))
    lines = use("memory_search", query="tea").text.split("\n")
    assert lines == [f"MEMORY.md:{n + 1}: tea {n}" for n in range(memory.MAX_FOUND)]
