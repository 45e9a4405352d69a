"""The tools that only read: read, list, search."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.tools import listing, reading, searching
from strandline.tools.reading import part_of

Use = Callable[..., Any]
PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)


def test_a_text_is_read_as_it_is_but_for_marks_and_line_ends(den: Path, use: Use) -> None:
    (den / "a.txt").write_bytes("\ufeffone\r\nzwei €\r\n".encode())
    assert use("read", path="a.txt").text == "one\nzwei €"


def test_a_long_text_is_read_in_parts_and_each_says_how_to_go_on(den: Path, use: Use) -> None:
    (den / "a.txt").write_text("".join(f"{n}\n" for n in range(1, 4501)))
    first = use("read", path="a.txt").text
    assert first.endswith("\n2000\n[lines 1 to 2000 of 4500; go on with offset 2001]")
    assert use("read", path="a.txt", offset=4499).text == "4499\n4500\n[lines 4499 to 4500 of 4500]"
    assert use("read", path="a.txt", offset=7, limit=1).text.startswith("7\n[lines 7 to 7 of")
    assert "smaller offset" in use("read", path="a.txt", offset=4501).text
    assert use("read", path="a.txt", offset=0).is_error


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text("ab \u20ac", max_size=30).map(lambda t: t * 400), max_size=60))
def test_the_parts_of_a_text_are_bounded_and_together_the_whole(lines: list[str]) -> None:
    text, first, got = "\n".join(lines), 1, []
    while True:
        part = part_of(text, first, 50)
        assert len(part) <= reading.MAX_CHARS + 200
        shown, _, note = part.rpartition("\n")
        if "go on with offset" not in note:
            got += part.split("\n")
            break
        got += shown.split("\n")
        following = int(note.removesuffix("]").rsplit(" ", 1)[1])
        assert following > first
        first = following
    whole = [line[: reading.MAX_LINE_CHARS] for line in text.removesuffix("\n").split("\n")]
    if any(whole):
        kept = [line[: reading.MAX_LINE_CHARS] for line in got if not line.startswith("[lines ")]
        assert kept == whole


def test_a_line_that_is_too_long_is_cut_and_says_so(den: Path, use: Use) -> None:
    (den / "a.json").write_text("🎉" * 400_000)
    text = use("read", path="a.json").text
    assert text.startswith("🎉" * reading.MAX_LINE_CHARS + " [390,000 more characters")
    assert len(text) < reading.MAX_LINE_CHARS + 100


def test_binary_files_and_those_that_are_too_large_are_refused(den: Path, use: Use) -> None:
    (den / "a.bin").write_bytes(b"ab\0cd")
    (den / "b.bin").write_bytes(bytes(range(128, 256)) * 9)
    (den / "c.txt").write_bytes(b"caf\xe9")
    with (den / "d.txt").open("wb") as file:
        file.truncate(reading.MAX_FILE_BYTES + 1)
    assert "binary" in use("read", path="a.bin").text
    assert "binary" in use("read", path="b.bin").text
    assert use("read", path="c.txt").text == "caf\ufffd"
    assert "more than 16,777,216 bytes" in use("read", path="d.txt").text


def test_what_is_missing_empty_or_a_folder_is_told(den: Path, use: Use) -> None:
    (den / "d").mkdir()
    (den / "empty").touch()
    assert "there is no 'x/y'" in use("read", path="x/y").text
    assert "is a folder" in use("read", path="d").text
    assert "no folder" in use("read", path="empty/x").text
    assert use("read", path="empty").text == "[the file is empty]"


@pytest.mark.parametrize(
    ("start", "kind"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0rest", "image/jpeg"),
        (b"GIF89a rest", "image/gif"),
        (b"RIFF\x01\x02\x03\x04WEBPrest", "image/webp"),
    ],
)
def test_an_image_is_shown_whole_by_what_it_holds_not_by_its_name(
    start: bytes, kind: str, den: Path, use: Use
) -> None:
    (den / "picture.txt").write_bytes(start)
    said, image = use("read", path="picture.txt").content
    assert said["text"] == f"picture.txt: {kind}, {len(start)} bytes"
    assert image == {"type": "image", "data": base64.b64encode(start).decode(), "mimeType": kind}


def test_h22_an_image_that_is_too_large_is_told_never_cut(den: Path, use: Use) -> None:
    (den / "a.png").write_bytes(PNG + bytes(reading.MAX_IMAGE_BYTES))
    answer = use("read", path="a.png")
    assert answer.is_error
    assert [block["type"] for block in answer.content] == ["text"]


def test_a_folder_is_listed_by_name_with_what_each_entry_is(den: Path, use: Use) -> None:
    (den / "b").mkdir()
    (den / "b" / "c.txt").write_text("123")
    (den / "a.txt").write_text("12")
    (den / "B").symlink_to("nowhere")
    (den / ".git").mkdir()
    (den / ".git" / "config").touch()
    assert use("list").text == ".git/\nB (a link)\na.txt (2 bytes)\nb/"
    everything = ".git/\nB (a link)\na.txt (2 bytes)\nb/\nb/c.txt (3 bytes)"
    assert use("list", recursive=True).text == everything
    assert use("list", path="b").text == "c.txt (3 bytes)"
    assert use("list", path=".git").text == "config (0 bytes)"
    assert "no folder" in use("list", path="a.txt").text


def test_lists_are_bounded_and_names_are_one_line_each(
    den: Path, use: Use, monkeypatch: pytest.MonkeyPatch
) -> None:
    (den / "a\nb").touch()
    (den / b"\xff".decode("utf-8", "surrogateescape")).touch()
    assert use("list").text == "a\ufffdb (0 bytes)\n\ufffd (0 bytes)"
    for number in range(4):
        (den / f"f{number}").touch()
    monkeypatch.setattr(listing, "MAX_ENTRIES", 3)
    assert use("list").text.endswith(
        "f1 (0 bytes)\n[only the first 3 entries; list a folder in it]"
    )
    monkeypatch.setattr(listing, "MAX_FOLDER_ENTRIES", 2)
    assert "[left out: the rest of folders of more than 2 entries, 1]" in use("list").text


def test_an_empty_and_a_missing_workspace_are_told(
    den: Path, use: Use, user_of: Callable[..., Use]
) -> None:
    assert use("list").text == "[the folder is empty]"
    assert "does not exist yet" in user_of(den / "none")("list").text


def test_lines_are_found_by_text_in_any_case_or_the_exact_one(den: Path, use: Use) -> None:
    (den / "d").mkdir()
    (den / "d" / "a.md").write_text("one\nTwo (.*) three\n")
    (den / "b.txt").write_text("two (.*) three")
    text = use("search", query="TWO (.*)").text
    assert text == "b.txt:1: two (.*) three\nd/a.md:2: Two (.*) three"
    assert use("search", query="Two", case_sensitive=True).text == "d/a.md:2: Two (.*) three"
    assert use("search", query="two", path="d").text == "d/a.md:2: Two (.*) three"
    assert use("search", query="two", path="b.txt").text == "b.txt:1: two (.*) three"
    assert use("search", query="two", files="*.md").text == "d/a.md:2: Two (.*) three"
    assert use("search", query="one\nb.txt\ntwo (.*) t", path="d").text.count("\n") == 1
    assert use("search", query="t.*ee").text == "[nothing found]"
    assert use("search", query=" \n").is_error
    assert use("search", query="\n".join("abcdefghijk")).is_error


def test_a_pattern_that_would_take_for_ever_is_only_text(den: Path, use: Use) -> None:
    (den / "a.txt").write_text("a" * 100_000)
    assert use("search", query="(a+)+$").text == "[nothing found]"
    assert use("search", query="aaa", files="*a" * 90 + "*").text == "[nothing found]"


def test_a_search_leaves_out_what_it_should_and_says_what(den: Path, use: Use) -> None:
    (den / ".git").mkdir()
    (den / ".git" / "a").write_text("word")
    (den / "a.bin").write_bytes(b"word\0")
    (den / "link").symlink_to("b.txt")
    (den / "b.txt").write_text("word")
    with (den / "c.txt").open("wb") as file:
        file.truncate(searching.MAX_FILE_BYTES + 1)
    assert use("search", query="word").text.split("\n") == [
        "b.txt:1: word",
        "[left out: binary files, 1]",
        "[left out: files of more than 4,194,304 bytes, 1]",
    ]


def test_a_long_line_is_shown_around_what_was_found(den: Path, use: Use) -> None:
    (den / "a.txt").write_text("x" * 70_000 + "needle" + "y" * 70_000)
    text = use("search", query="needle").text
    assert "xneedley" in text
    assert len(text) <= searching.MAX_LINE_CHARS + 20


def test_searches_are_bounded_in_matches_files_bytes_and_time(
    den: Path, use: Use, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        (den / name).write_text("word\n" * 3)
    monkeypatch.setattr(searching, "MAX_MATCHES", 2)
    answer = use("search", query="word").text
    assert answer.startswith("a:1: word\na:2: word\n[only the first 2 lines")
    monkeypatch.undo()
    for limit, value in {"MAX_FILES": 1, "MAX_SEARCHED_BYTES": 20}.items():
        with monkeypatch.context() as patch:
            patch.setattr(searching, limit, value)
            answer = use("search", query="word").text
            assert answer.count("word") == 3
            assert "[left out: all files from some file on" in answer
    monkeypatch.setattr(searching, "MAX_SEARCH_S", -1.0)
    assert "[left out: all files" in use("search", query="word").text


def test_a_tree_deeper_than_the_limit_is_walked_as_far_as_it_and_no_further(
    den: Path, use: Use
) -> None:
    deep = den
    for _ in range(listing.MAX_DEPTH + 2):
        deep /= "d"
        deep.mkdir()
        (deep / "a").write_text("word")
    answer = use("search", query="word").text
    assert answer.count("a:1: word") == listing.MAX_DEPTH
    assert "[left out: folders more than 32 deep, 1]" in answer
