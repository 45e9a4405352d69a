"""No path reads or writes outside the workspace: real files, real links, a real race."""

from __future__ import annotations

import os
import socket
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

SECRET = "the secret of the house"
Use = Callable[..., Any]


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


EVERY = ["read", "write", "edit", "list", "search"]


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret.txt").write_text(SECRET)
    return folder


def arguments_for(tool: str, path: str) -> dict[str, Any]:
    return {
        "read": {"path": path},
        "list": {"path": path},
        "search": {"path": path, "query": "the"},
        "write": {"path": path, "content": "overwritten"},
        "edit": {"path": path, "old_text": "the", "new_text": "a"},
    }[tool]


def everything(folder: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@pytest.mark.parametrize("tool", EVERY)
@pytest.mark.parametrize(
    "path",
    [
        "../outside/secret.txt",
        "inside/../../outside/secret.txt",
        "/etc/passwd",
        "out/secret.txt",
        "up/outside/secret.txt",
        "inside/far/secret.txt",
        "secret",
        "ring/secret.txt",
        "~/secret.txt",
        "a\0b",
        "a\nb",
        "x" * 256,
        "y/" * 3000,
        "z/" * 200,
        "",
        "half \ud800",
    ],
)
def test_what_leaves_the_workspace_or_is_no_path_is_refused_with_a_remedy(
    tool: str, path: str, den: Path, outside: Path, use: Use
) -> None:
    (den / "inside").mkdir()
    (den / "inside" / "a.txt").write_text("the")
    (den / "out").symlink_to("../outside")
    (den / "up").symlink_to("..")
    (den / "inside" / "far").symlink_to(outside)
    (den / "secret").symlink_to(outside / "secret.txt")
    (den / "ring").symlink_to("ring")
    before = everything(outside)
    answer = use(tool, **arguments_for(tool, path))
    assert answer.is_error
    assert ": " in answer.text
    assert SECRET not in answer.text
    answer.text.encode()
    assert everything(outside) == before


def test_an_absolute_path_is_taken_inside_by_either_name_of_the_workspace(
    tmp_path: Path, den: Path, user_of: Callable[..., Use]
) -> None:
    (den / "a.txt").write_text("here")
    alias = tmp_path / "alias"
    alias.symlink_to(den)
    use = user_of(alias)
    assert use("read", path=str(alias / "a.txt")).text == "here"
    assert use("read", path=str(den / "a.txt")).text == "here"
    assert use("read", path=f"{den}x/a.txt").is_error


def test_a_link_that_stays_inside_is_followed_and_kept(den: Path, use: Use) -> None:
    (den / "deep").mkdir()
    (den / "a.txt").write_text("one")
    (den / "deep" / "back.txt").symlink_to("../a.txt")
    (den / "whole").symlink_to(den / "deep")
    assert use("read", path="whole/back.txt").text == "one"
    assert use("write", path="whole/back.txt", content="two").text.endswith(" to a.txt")
    assert (den / "deep" / "back.txt").is_symlink()
    assert (den / "a.txt").read_text() == "two"


def test_a_link_to_nothing_outside_makes_nothing_there(den: Path, outside: Path, use: Use) -> None:
    (den / "new").symlink_to(outside / "new.txt")
    assert use("write", path="new", content="x").is_error
    assert not (outside / "new.txt").exists()


@pytest.mark.parametrize("tool", ["read", "write", "edit", "search"])
@pytest.mark.parametrize("kind", ["fifo", "socket", "device"])
def test_fifos_sockets_and_devices_are_never_opened(
    tool: str, kind: str, den: Path, use: Use, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(den)  # the address of a socket is short
    with socket.socket(socket.AF_UNIX) as listener:
        if kind == "fifo":
            os.mkfifo("odd")
        elif kind == "socket":
            listener.bind("odd")
        else:
            try:
                os.mknod("odd", stat.S_IFCHR | 0o600, os.makedev(1, 3))
            except PermissionError:
                pytest.skip("only root makes devices")
        answer = use(tool, **arguments_for(tool, "odd"))
    assert answer.is_error or "files that cannot be read" in answer.text
    assert not stat.S_ISREG((den / "odd").lstat().st_mode)


@pytest.mark.parametrize("tool", ["read", "write", "edit", "list", "search"])
@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_link_swapped_in_between_the_look_and_the_opening_is_not_followed(
    tool: str, what: str, den: Path, outside: Path, use: Use, monkeypatch: pytest.MonkeyPatch
) -> None:
    (outside / "a.txt").write_text(SECRET)
    (den / "d").mkdir()
    (den / "d" / "a.txt").write_text("the")
    swapped = den / "d" if what == "folder" else den / "d" / "a.txt"
    target = outside if what == "folder" else outside / "a.txt"
    real_open, before = os.open, everything(outside)

    def open_after_the_swap(path: Any, flags: int, mode: int = 0o777, **more: Any) -> int:
        if path == swapped.name and not swapped.is_symlink():
            swapped.rename(den / "moved")
            swapped.symlink_to(target)
        return real_open(path, flags, mode, **more)

    monkeypatch.setattr(os, "open", open_after_the_swap)
    answer = use(tool, **arguments_for(tool, "d/a.txt" if tool != "list" else "d"))
    monkeypatch.undo()
    assert SECRET not in answer.text
    assert everything(outside) == before


def test_a_folder_that_is_swapped_all_the_time_never_leads_out(
    den: Path, outside: Path, use: Use
) -> None:
    (outside / "a.txt").write_text(f"{SECRET}, fine")
    before = everything(outside)
    folder, away = den / "d", den / "away"
    folder.mkdir()
    (folder / "a.txt").write_text("fine")
    done = threading.Event()

    def swap() -> None:
        while not done.is_set():
            folder.rename(away)
            folder.symlink_to(outside)
            folder.unlink()
            away.rename(folder)

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        for _ in range(150):
            assert SECRET not in use("read", path="d/a.txt").text
            use("edit", path="d/a.txt", old_text="fine", new_text="fine ")
    finally:
        done.set()
        swapper.join()
    assert everything(outside) == before


@pytest.fixture(scope="module")
def house() -> Iterator[Path]:
    """A folder with a workspace `den`, full of links, and a neighbour."""
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        (top / "outside" / "deep").mkdir(parents=True)
        for folder in (top / "outside", top / "outside" / "deep"):
            (folder / "secret.txt").write_text(SECRET)
        den = top / "den"
        (den / "inside" / "deep").mkdir(parents=True)
        (den / "inside" / "a.txt").write_text("the")
        for link, target in {
            "out": "../outside",
            "abs": str(top / "outside"),
            "up": "..",
            "in": "inside",
            "self": str(den),
            "ring": "ring",
            "inside/deep/far": "../../../outside/deep",
            "inside/deep/top": "../..",
            "odd": f"{den}/../outside",
        }.items():
            (den / link).symlink_to(target)
        yield top


NAMES = (
    ".. . out abs up in self ring inside deep far top odd den outside secret.txt a.txt new ~ etc"
)
PIECE = st.sampled_from(["", *NAMES.split()]) | st.text(max_size=5)


@settings(max_examples=150, deadline=None)
@given(
    pieces=st.lists(PIECE, max_size=8),
    start=st.sampled_from(["", "", "/", "top", "den"]),
    tool=st.sampled_from(EVERY),
)
def test_no_path_whatever_reads_or_writes_outside(
    house: Path, user_of: Callable[..., Use], pieces: list[str], start: str, tool: str
) -> None:
    prefix = {"top": f"{house}/", "den": f"{house}/den/"}.get(start, start)
    before = everything(house / "outside")
    beside = names_in(house)
    answer = user_of(house / "den")(tool, **arguments_for(tool, prefix + "/".join(pieces)))
    assert SECRET not in answer.text
    own = (house / "den" / "secret.txt").exists()  # an earlier example may have made it
    assert "secret.txt" not in answer.text or answer.is_error or "secret.txt" in pieces or own
    assert everything(house / "outside") == before
    assert names_in(house) == beside
