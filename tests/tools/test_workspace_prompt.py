"""The workspace files of the system prompt."""

from __future__ import annotations

import os
import tempfile
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.tools.prompt import FILES, PromptFile, PromptFiles, workspace_prompt

TODAY = date(2026, 7, 28)
OLD, NEW = "memory/2026-07-26.md", "memory/2026-07-28.md"


def prompt(den: Path, per_file: int = 1000, total: int = 10_000) -> PromptFiles:
    return workspace_prompt(den, max_chars_per_file=per_file, max_chars=total, today=TODAY)


def fill(den: Path, texts: dict[str, str]) -> None:
    (den / "memory").mkdir(exist_ok=True)
    for name, text in texts.items():
        (den / name).write_text(text, encoding="utf-8", newline="")


def test_the_files_come_in_a_fixed_order_each_with_its_name(den: Path) -> None:
    names = [*FILES, OLD, NEW]
    fill(den, {name: f"text of {name}\n" for name in reversed(names)})
    found = prompt(den)
    assert [file.name for file in found.files] == names
    sections = [f"# Workspace file: {name}\ntext of {name}" for name in names]
    assert found.text == "\n\n".join(sections)
    assert not any(file.is_cut or file.problem for file in found.files)


def test_same_files_same_bytes_whatever_their_line_ends_marks_and_times(
    den: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    fill(den, {"SOUL.md": "one\ntwo", NEW: "x"})
    fill(other, {NEW: "x\r\n", "SOUL.md": "\ufeffone\r\ntwo\r\n\r\n"})
    os.utime(other / "SOUL.md", (0, 0))
    assert prompt(den) == prompt(other) == prompt(den)


def test_an_empty_a_missing_and_a_silent_workspace_give_no_text(den: Path) -> None:
    assert prompt(den) == prompt(den / "missing") == PromptFiles("", ())
    fill(den, {"AGENTS.md": " \n\n", "README.md": "not one of them"})
    assert prompt(den) == PromptFiles("", ())


def test_the_notes_of_the_two_newest_days_that_exist_and_are_not_to_come(den: Path) -> None:
    days = ["2026-07-20", "2026-07-25", "2026-07-27", "2026-07-29", "2026-13-40", "2026-7-28"]
    fill(den, {f"memory/{day}.md": day for day in days} | {"memory/2026-07-28-plan.md": "x"})
    assert [f.name for f in prompt(den).files] == ["memory/2026-07-25.md", "memory/2026-07-27.md"]


def test_a_long_file_keeps_its_head_and_tail_and_says_how_much_there_is(den: Path) -> None:
    fill(den, {"AGENTS.md": "first" + "x" * 5000 + "last", "USER.md": "short"})
    found = prompt(den, per_file=300)
    long, short = found.files
    assert long.is_cut
    assert (long.chars, short.chars, short.kept_chars) == (5009, 5, 5)
    body = found.text.split("\n", 1)[1].split("\n\n# Workspace")[0]
    assert body.startswith("first")
    assert body.endswith("last")
    assert "5,009 characters in all; read AGENTS.md" in body
    assert len(body) == 300


def test_where_all_is_too_much_the_largest_are_shortened_and_the_small_kept(den: Path) -> None:
    fill(den, {"AGENTS.md": "a" * 900, "MEMORY.md": "m" * 900, NEW: "today"})
    found = prompt(den, total=1000)
    assert [file.is_cut for file in found.files] == [True, True, False]
    assert found.text.endswith("today")
    assert 950 < len(found.text) <= 1000


@settings(max_examples=60, deadline=None)
@given(
    texts=st.dictionaries(st.sampled_from([*FILES, OLD, NEW]), st.binary(max_size=600)),
    per_file=st.integers(0, 700),
    total=st.integers(0, 2000),
)
def test_the_prompt_is_bounded_and_well_formed_whatever_the_files_hold(
    texts: dict[str, bytes], per_file: int, total: int
) -> None:
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "memory").mkdir()
        for file, data in texts.items():
            (Path(name) / file).write_bytes(data)
        found = prompt(Path(name), per_file, total)
    found.text.encode()
    assert len(found.text) <= total
    assert all(0 <= file.kept_chars <= min(file.chars, per_file) for file in found.files)
    assert {file.name for file in found.files} <= set(texts)


def test_what_is_there_and_cannot_be_read_is_named(tmp_path: Path, den: Path) -> None:
    (tmp_path / "secret.md").write_text("secret")
    (den / "AGENTS.md").symlink_to(tmp_path / "secret.md")
    (den / "SOUL.md").symlink_to("nowhere.md")
    (den / "TOOLS.md").mkdir()
    (den / "IDENTITY.md").write_bytes(b"a\0b")
    os.mkfifo(den / "USER.md")
    (den / "MEMORY.md").write_text("kept")
    found = prompt(den)
    assert "secret.md" not in found.text
    assert [(file.name, bool(file.problem)) for file in found.files] == [
        ("AGENTS.md", True),
        ("TOOLS.md", True),
        ("IDENTITY.md", True),
        ("USER.md", True),
        ("MEMORY.md", False),
    ]
    assert "# Workspace file: IDENTITY.md\n[cannot be read: it is binary, not text]" in found.text
    assert found.files[-1] == PromptFile("MEMORY.md", 4, 4)


def test_a_file_the_system_will_not_open_is_named(den: Path) -> None:
    (den / "USER.md").write_text("x")
    (den / "USER.md").chmod(0)
    if os.access(den / "USER.md", os.R_OK):
        pytest.skip("root reads everything")
    assert prompt(den).files[0].problem == "Permission denied"


def test_a_link_inside_the_workspace_is_followed(den: Path) -> None:
    (den / "CLAUDE.md").write_text("rules")
    (den / "AGENTS.md").symlink_to("CLAUDE.md")
    assert prompt(den).text == "# Workspace file: AGENTS.md\nrules"
