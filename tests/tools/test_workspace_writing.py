"""write and edit: whole or not at all, nothing else touched, memory only ever added to."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.errors import StrandlineError
from strandline.tools import changing, writing
from strandline.tools.writing import edited

Use = Callable[..., Any]


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


EDITOR = """
import asyncio, sys
from pathlib import Path
from strandline.clock import SystemClock
from strandline.runtime.tools import Toolbox, ToolCall
from strandline.tools.builtin import builtin_tools
box = Toolbox(builtin_tools(Path(sys.argv[1]), "rw", SystemClock()))
async def main():
    for number in range(40):
        arguments = {"path": "a.txt", "old_text": "END", "new_text": f"{sys.argv[2]}{number}\\nEND"}
        answer = await box.answer(ToolCall("c", "edit", arguments, "main", "main", 0))
        assert not answer["isError"], answer
asyncio.run(main())
"""


def test_a_new_file_is_0600_in_folders_of_0700_and_holds_what_was_said(den: Path, use: Use) -> None:
    old_mask = os.umask(0)
    try:
        answer = use("write", path="a/b/c.txt", content="one\r\ntwo €")
    finally:
        os.umask(old_mask)
    assert answer.text == "wrote 10 characters to a/b/c.txt"
    file = den / "a" / "b" / "c.txt"
    assert file.read_bytes() == "one\r\ntwo €".encode()
    assert file.stat().st_mode & 0o7777 == 0o600
    assert [d.stat().st_mode & 0o777 for d in (den / "a", den / "a" / "b")] == [0o700, 0o700]
    assert names_in(den / "a" / "b") == ["c.txt"]


def test_the_first_write_makes_the_workspace(den: Path, user_of: Callable[..., Use]) -> None:
    use = user_of(den / "x" / "y")
    assert not use("write", path="a", content="").is_error
    assert (den / "x" / "y").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("tool", ["write", "edit"])
def test_an_old_file_keeps_its_mode_and_who_has_it_open_keeps_the_old_text(
    tool: str, den: Path, use: Use
) -> None:
    file = den / "run.sh"
    file.write_text("old")
    file.chmod(0o755)
    with file.open() as reader:
        if tool == "write":
            use("write", path="run.sh", content="new")
        else:
            use("edit", path="run.sh", old_text="old", new_text="new")
        assert reader.read() == "old"
    assert file.read_text() == "new"
    assert file.stat().st_mode & 0o777 == 0o755


def test_what_root_writes_still_belongs_to_who_owned_it(den: Path, use: Use) -> None:
    file = den / "a.txt"
    file.write_text("old")
    try:
        os.chown(file, 65534, 65534)
    except PermissionError:
        pytest.skip("only root gives files away")
    use("write", path="a.txt", content="new")
    assert (file.read_text(), file.stat().st_uid) == ("new", 65534)


def test_a_disk_that_fails_leaves_the_old_file_and_no_draft(
    den: Path, use: Use, monkeypatch: pytest.MonkeyPatch
) -> None:
    (den / "a.txt").write_text("old")

    def fails(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fails)
        answer = use("write", path="a.txt", content="new")
    assert answer.is_error
    assert "No space left" in answer.text
    assert (den / "a.txt").read_text() == "old"
    assert names_in(den) == ["a.txt"]


def test_c5_half_a_character_is_never_written(den: Path, use: Use) -> None:
    assert "U+FFFD" in use("write", path="a.txt", content="cut \ud83c").text
    assert (den / "a.txt").read_text() == "cut \ufffd"
    use("edit", path="a.txt", old_text="cut", new_text="\ud83c\udf89 \udf89")
    assert (den / "a.txt").read_text() == "🎉 \ufffd \ufffd"


def test_files_that_would_be_too_large_are_refused(
    den: Path, use: Use, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "MAX_FILE_BYTES", 10)
    assert "11 bytes" in use("write", path="a", content="x" * 11).text
    assert not (den / "a").exists()
    (den / "b").write_text("x" * 10)
    assert use("edit", path="b", old_text="x" * 10, new_text="y" * 11).is_error
    assert (den / "b").read_text() == "x" * 10


def test_an_edit_needs_the_old_text_exactly_once_or_to_be_told_all(den: Path, use: Use) -> None:
    file = den / "a.txt"
    file.write_text("one two one aaa")
    assert "does not occur" in use("edit", path="a.txt", old_text="One", new_text="x").text
    assert "occurs 2 times" in use("edit", path="a.txt", old_text="one", new_text="x").text
    assert "occurs 2 times" in use("edit", path="a.txt", old_text="aa", new_text="x").text
    assert "there is no" in use("edit", path="b.txt", old_text="one", new_text="x").text
    assert file.read_text() == "one two one aaa"
    assert use("edit", path="a.txt", old_text="two", new_text="2").text.startswith("replaced 1 pl")
    answer = use("edit", path="a.txt", old_text="one", new_text="1", replace_all=True)
    assert answer.text == "replaced 2 places in a.txt"
    assert file.read_text() == "1 2 1 aaa"


@settings(max_examples=200, deadline=None)
@given(before=st.binary(), after=st.binary(), old=st.text(min_size=1), new=st.text())
def test_every_byte_outside_an_edit_stays(before: bytes, after: bytes, old: str, new: str) -> None:
    data = before + old.encode() + after
    try:
        result, count = edited(data, old, new, path="a", every=False)
    except StrandlineError:
        return  # it occurs in what surrounds it too, or all line ends are CRLF
    assert count == 1
    assert result.startswith(before)
    assert result.endswith(after)
    middle = result[len(before) : len(result) - len(after)]
    assert middle.replace(b"\r\n", b"\n") == new.encode().replace(b"\r\n", b"\n")


LINE = st.text("ab €", max_size=5)


@settings(max_examples=100, deadline=None)
@given(lines=st.lists(LINE, min_size=2), new=st.lists(LINE, min_size=1))
def test_in_a_file_of_crlf_an_edit_in_plain_line_ends_keeps_all_of_them_crlf(
    lines: list[str], new: list[str]
) -> None:
    data = "".join(f"{line}\r\n" for line in [*lines, "mark", "next"]).encode()
    result, _ = edited(data, "mark\nnext", "\n".join(new), path="a", every=False)
    assert result.count(b"\n") == result.count(b"\r\n") == len(lines) + len(new)


def test_an_edit_leaves_mixed_line_ends_and_bytes_that_are_no_text(den: Path, use: Use) -> None:
    (den / "a").write_bytes(b"\xff one\r\ntwo\nthree\r")
    use("edit", path="a", old_text="two\n", new_text="2\n\n")
    assert (den / "a").read_bytes() == b"\xff one\r\n2\n\nthree\r"


def test_i8_two_processes_that_edit_one_file_lose_nothing(den: Path) -> None:
    (den / "a.txt").write_text("END")
    editors = [
        subprocess.Popen([sys.executable, "-c", EDITOR, str(den), name], stderr=subprocess.PIPE)
        for name in ("x", "y")
    ]
    errors = [editor.communicate(timeout=60)[1] for editor in editors]
    assert errors == [b"", b""]
    lines = (den / "a.txt").read_text().split("\n")
    assert sorted(lines) == sorted([f"{n}{i}" for n in "xy" for i in range(40)] + ["END"])
    assert names_in(den) == ["a.txt"]


def test_a_lock_that_somebody_keeps_is_told(
    den: Path, use: Use, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl  # noqa: PLC0415 - for this test

    (den / "a.txt").write_text("old")
    monkeypatch.setattr(changing, "LOCK_WAIT_S", 0.0)
    with (den / "a.txt").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert "locked" in use("write", path="a.txt", content="new").text
    assert (den / "a.txt").read_text() == "old"


@pytest.mark.parametrize(
    "path", ["MEMORY.md", "memory/2026-01-01.md", "memory/a/b.txt", "short.md", "m/2026-01-01.md"]
)
def test_i6_memory_is_only_ever_added_to(path: str, den: Path, use: Use) -> None:
    (den / "short.md").symlink_to("MEMORY.md")
    (den / "m").symlink_to("memory")
    (den / "memory" / "a").mkdir(parents=True)
    (den / path).write_text("first\n")
    before = (den / path).stat().st_ino
    for content in ("", "second", "First\nsecond", "firs"):
        answer = use("write", path=path, content=content)
        assert answer.is_error
        assert "memory_write" in answer.text
    assert use("edit", path=path, old_text="first", new_text="second").is_error
    assert (den / path).read_text() == "first\n"
    assert not use("write", path=path, content="first\nsecond\n").is_error
    assert not use("edit", path=path, old_text="second\n", new_text="second\nthird\n").is_error
    assert (den / path).read_text() == "first\nsecond\nthird\n"
    assert (den / path).stat().st_ino == before


def test_i6_memory_that_is_a_link_is_kept_by_its_other_name_too(den: Path, use: Use) -> None:
    (den / "notes").mkdir()
    (den / "notes" / "2026-01-01.md").write_text("first")
    (den / "memory").symlink_to("notes")
    (den / "long.md").write_text("first")
    (den / "MEMORY.md").symlink_to("long.md")
    for path in ("notes/2026-01-01.md", "long.md", "MEMORY.md"):
        assert use("write", path=path, content="other").is_error
        assert (den / path).read_text() == "first"


@pytest.mark.parametrize("path", ["memory", "MEMORY.md/a", "memory/2026-01-01.md/a", "Memory"])
def test_nothing_takes_a_name_that_memory_needs(path: str, den: Path, use: Use) -> None:
    assert "kept for the agent's notes" in use("write", path=path, content="x").text
    assert names_in(den) == []


def test_a_new_file_of_memory_is_made_0600(den: Path, use: Use) -> None:
    assert not use("write", path="memory/2026-01-01.md", content="note").is_error
    assert (den / "memory" / "2026-01-01.md").stat().st_mode & 0o777 == 0o600
    assert (den / "memory").stat().st_mode & 0o777 == 0o700
