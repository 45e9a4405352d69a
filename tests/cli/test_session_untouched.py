"""Commands that look change nothing, and what is no transcript is refused in one line."""

from __future__ import annotations

import os
import pickle
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

READING = [
    ["show"],
    ["show", "--all", "--full"],
    ["show", "--json"],
    ["tree"],
    ["tree", "--json"],
    ["context"],
    ["context", "--json"],
    ["verify"],
    ["verify", "--json"],
    ["export"],
    ["export", "--format", "html"],
    ["export", "--json"],
]
ON_A_FILE = [[*command] for command in READING] + [
    ["repair"],
    ["branch", "x"],
    ["fork"],
    ["label", "x", "y"],
]


def snapshot(folder: Path) -> dict[str, tuple[int, int, int, bytes]]:
    """Names, times, modes and bytes of a folder and all that is in it."""
    found = {}
    for path in [folder, *folder.rglob("*")]:
        status = path.stat()
        content = path.read_bytes() if path.is_file() else b""
        found[str(path)] = (status.st_mtime_ns, status.st_size, status.st_mode, content)
    return found


@pytest.fixture
def folder(talk: Path, tmp_path: Path) -> Path:
    """Transcripts: a good one, an old one, damaged ones, a large one."""
    lines = talk.read_bytes().splitlines(keepends=True)
    (tmp_path / "damaged.jsonl").write_bytes(b"".join(lines[:3]) + b"\x00" * 9 + lines[4][:40])
    old = b'{"type":"session","id":"o","timestamp":"2025-01-01T00:00:00.000Z","cwd":"/"}\n'
    old += b'{"type":"message","timestamp":"2025-01-01T00:00:00.000Z","message":{"role":"user",'
    (tmp_path / "old.jsonl").write_bytes(old + b'"content":"Hi","timestamp":0}}\n')
    large = b"".join(lines)
    filler = b'{"type":"custom","id":"f%d","parentId":"asst0002","customType":"x","data":"%s"}\n'
    for number in range(30):
        large += filler % (number, b"x" * 30_000)
    (tmp_path / "large.jsonl").write_bytes(large)
    return tmp_path


@pytest.mark.parametrize("command", READING, ids=" ".join)
def test_looking_changes_no_byte_and_no_time_and_leaves_nothing(
    command: list[str], folder: Path, run: Any
) -> None:
    before = snapshot(folder)
    for path in sorted(folder.glob("*.jsonl")):
        assert run("session", command[0], path, *command[1:]).code in {0, 1}
    assert run("session", "list", folder).code == 0
    assert snapshot(folder) == before


def test_look_ups_are_kept_only_in_a_state_directory_that_is_there(
    folder: Path, run: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    state = tmp_path_factory.mktemp("state") / "new"
    assert run("--state-dir", state, "session", "verify", folder / "large.jsonl").code == 0
    assert not state.exists()
    state.mkdir()
    before = snapshot(folder)
    assert run("--state-dir", state, "session", "context", folder / "large.jsonl").code == 0
    assert snapshot(folder) == before
    assert list((state / "cache").iterdir())


@pytest.mark.parametrize("command", ON_A_FILE, ids=" ".join)
def test_what_is_no_transcript_is_refused_in_one_line(
    command: list[str], tmp_path: Path, run: Any
) -> None:
    (tmp_path / "empty.jsonl").write_bytes(b"")
    (tmp_path / "nul.jsonl").write_bytes(b"\x00" * 5000)
    (tmp_path / "binary.jsonl").write_bytes(bytes(range(256)) * 40)
    (tmp_path / "text.jsonl").write_bytes(b"just some text\n")
    (tmp_path / "other.jsonl").write_bytes(b'{"type":"session.started","traceId":"t"}\n{"a":1}\n')
    (tmp_path / "folder.jsonl").mkdir()
    os.mkfifo(tmp_path / "pipe.jsonl")
    before = snapshot_names(tmp_path)
    wanted = {
        "missing": "there is no transcript",
        "empty": "is empty",
        "nul": "NUL",
        "binary": "holds no line of a transcript",
        "text": "holds no line of a transcript",
        "other": "holds no line of a transcript",
        "folder": "is a folder",
        "pipe": "is not a regular file",
        "empty.jsonl/below": "there is no transcript",
        "x" * 300: "cannot open",
    }
    for name, what in wanted.items():
        ran = run("session", command[0], tmp_path / f"{name}.jsonl", *command[1:])
        assert ran.code == 2, (name, ran)
        assert ran.out == ""
        assert ran.err.startswith("strandline: ")
        assert what in ran.err
        assert ": " in ran.err.partition(what)[2], "a remedy follows"
        assert ran.err.count("\n") == 1
    assert snapshot_names(tmp_path) == before


def snapshot_names(folder: Path) -> set[str]:
    return {str(path) for path in folder.rglob("*")}


def as_nobody(action: Callable[[], Any]) -> Any:
    """What `action` returns in a process that may not read and write everything."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the child only runs commands
        child = os.fork()
    if not child:
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            os.write(writing, pickle.dumps(action()))
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        result = pickle.loads(stream.read())  # noqa: S301 - our own child wrote it
    os.waitpid(child, 0)
    return result


@pytest.fixture
def open_folder(folder: Path) -> Iterator[Path]:
    """The same transcripts where another user may come to, and write nothing."""
    place = Path(tempfile.mkdtemp(prefix="strandline-"))
    for path in folder.glob("*.jsonl"):
        (place / path.name).write_bytes(path.read_bytes())
        (place / path.name).chmod(0o444)
    place.chmod(0o555)
    yield place
    place.chmod(0o755)
    shutil.rmtree(place)


def test_everything_can_be_read_where_nothing_may_be_written(open_folder: Path, run: Any) -> None:
    def look() -> list[Any]:
        paths = sorted(open_folder.glob("*.jsonl"))
        return [run("session", c[0], path, *c[1:]) for c in READING for path in paths]

    wanted = look()  # also loads every module, which another user could not
    before = snapshot(open_folder)
    assert as_nobody(look) == wanted
    assert snapshot(open_folder) == before


def test_writing_where_nothing_may_be_written_is_refused_in_one_line(
    open_folder: Path, run: Any
) -> None:
    talk, damaged = open_folder / "talk.jsonl", open_folder / "damaged.jsonl"
    commands = [
        ("label", talk, "user0001", "x"),
        ("branch", talk, "user0001"),
        ("fork", talk),
        ("repair", damaged),
        ("export", talk, "-o", open_folder / "x.md"),
    ]

    def write() -> list[Any]:
        return [run("session", *command) for command in commands]

    run("session", "label", talk, "nowhere", "x")  # loads every module
    run("session", "repair", damaged, "-o", talk)
    run("session", "export", talk, "-o", talk)
    before = snapshot(open_folder)
    for ran in as_nobody(write):
        assert (ran.code, ran.out) == (1, "")
        assert "(Permission denied)" in ran.err
        assert ran.err.count("\n") == 1
    assert snapshot(open_folder) == before


@pytest.mark.parametrize("command", ON_A_FILE, ids=" ".join)
def test_a_file_that_may_not_be_read_is_refused_in_one_line(
    command: list[str], open_folder: Path, run: Any
) -> None:
    secret = open_folder / "talk.jsonl"
    secret.chmod(0)
    run("session", command[0], open_folder / "empty.jsonl", *command[1:])  # loads every module
    ran = as_nobody(lambda: run("session", command[0], secret, *command[1:]))
    assert (ran.code, ran.out) == (2, "")
    assert "(Permission denied)" in ran.err
    assert ran.err.count("\n") == 1
