"""Transcripts of versions 1 and 2: what an original sees is the same after we brought them up.

Source: spec 1, Old versions.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from strandline import SessionManager

Original = Callable[..., dict[str, Any]]

VECTORS = Path(__file__).resolve().parents[3] / "shared" / "vectors" / "context"


def written(path: Path, *lines: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def message(text: str, role: str = "user", **more: Any) -> dict[str, Any]:
    said = {"role": role, "content": [{"type": "text", "text": text}], "timestamp": 1, **more}
    return {"type": "message", "timestamp": "2025-11-01T10:00:00.000Z", "message": said}


def answer(text: str) -> dict[str, Any]:
    return message(text, "assistant", provider="fake", model="small", stopReason="stop")


def version_1(path: Path) -> Path:
    """A list: no version, no ids; the compaction keeps from line 4 on, the header being 0."""
    compaction = {
        "type": "compaction",
        "timestamp": "2025-11-01T10:05:00.000Z",
        "summary": "Long ago.",
        "firstKeptEntryIndex": 4,
        "tokensBefore": 9000,
    }
    header = {"type": "session", "id": "old-1", "timestamp": "2025-11-01T10:00:00Z", "cwd": "/w"}
    level = {"type": "thinking_level_change", "timestamp": "t", "thinkingLevel": "high"}
    said = (message("one"), answer("One."), level, message("two"), answer("Two."))
    return written(path, header, *said, compaction, message("three"), answer("Three."))


def version_2(path: Path) -> Path:
    """A tree in which plugins speak as `hookMessage`."""
    header = {"type": "session", "version": 2, "id": "old-2", "timestamp": "", "cwd": "/w"}
    return written(
        path,
        header,
        {**message("one"), "id": "aaaaaaaa", "parentId": None},
        {**message("a hook", "hookMessage", customType="h", display=True), "id": "bbbbbbbb"}
        | {"parentId": "aaaaaaaa"},
        {**answer("One."), "id": "cccccccc", "parentId": "bbbbbbbb"},
    )


OWN = (version_1, version_2)


def check(original: Original, path: Path) -> None:
    """Both read the old file alike; both read ours, brought up to date, alike."""
    theirs = original(shutil.copy(path, path.with_name("theirs.jsonl")))["context"]["messages"]
    before = path.read_bytes()
    with SessionManager.open(path) as session:
        assert session.build_context().messages == theirs
        assert path.read_bytes() == before
        session.append_message({"role": "user", "content": "again", "timestamp": 2})
        again = original(path)
        assert again["header"]["version"] == 3
        assert again["context"]["messages"][:-1] == theirs
        assert again["context"]["messages"] == session.build_context().messages
        assert again["context"]["model"] == session.build_context().model
        assert again["context"]["thinkingLevel"] == session.build_context().thinking_level
    (kept,) = path.parent.glob(f"{path.name}.v*.bak")
    assert kept.read_bytes() == before


@pytest.mark.parametrize("old", OWN)
def test_an_old_transcript_that_we_brought_up_to_date_reads_the_same(
    original: Original, old: Callable[[Path], Path], tmp_path: Path
) -> None:
    check(original, old(tmp_path / "old.jsonl"))


@pytest.mark.parametrize("old", OWN)
def test_an_old_transcript_that_an_original_brought_up_to_date_reads_the_same(
    original: Original, old: Callable[[Path], Path], tmp_path: Path
) -> None:
    path = old(tmp_path / "old.jsonl")
    with SessionManager.open(path) as session:
        before = session.build_context().messages
    theirs = original(path, ("appendMessage", {"role": "user", "content": "x", "timestamp": 3}))
    with SessionManager.open(path) as session:
        assert session.build_context().messages == theirs["context"]["messages"]
        assert session.build_context().messages[:-1] == before


def test_old_vectors_that_we_brought_up_to_date_read_the_same(pi: Original, tmp_path: Path) -> None:
    """Every transcript of an old version in the vectors, damaged ones included."""
    if not VECTORS.is_dir():
        pytest.skip("the vectors are not beside the repository (../shared/vectors/context)")
    old = sorted([*VECTORS.glob("*-v1.jsonl"), *VECTORS.glob("*-v2.jsonl")])
    assert old
    for vector in old:
        folder = tmp_path / vector.stem
        folder.mkdir()
        check(pi, Path(shutil.copyfile(vector, folder / vector.name)))
