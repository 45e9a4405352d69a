"""The workspace of an agent as a folder that nothing leads out of.

A path is walked name by name: each folder is opened relative to the one above it, and the
system follows no link on the way. A link that stays inside is followed here, by reading
where it points; one that leads out is refused. So what is swapped in between a look and an
opening is not followed either. Devices, FIFOs and sockets are never opened. Hard links
are beyond what a path can tell. Source: spec 4, A turn (Tools).
"""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from strandline.errors import StrandlineError
from strandline.tools.paths import Names, leaving, names_of, refused, shown, steps_of_link

MAX_LINKS = 40
"""Links followed for one path, as the system itself counts them."""

MAX_FOLDERS = 100
"""Folders gone through for one path; each is open until the path's end is reached."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_SNIFFED_BYTES = 8192


@dataclass(frozen=True, slots=True)
class Place:
    """Where a path leads: `name` in `folder`, a descriptor that is open while the place is.

    `names` is the way from the workspace without links; `path` is what was asked for.
    `status` is what was there at the look, None for nothing. `name` is ``"."`` for the
    folder itself.
    """

    path: str
    folder: int
    name: str
    names: Names
    status: os.stat_result | None

    @property
    def is_folder(self) -> bool:
        """Whether a folder was there."""
        return self.status is not None and stat.S_ISDIR(self.status.st_mode)


class Workspace:
    """One workspace. Holds nothing open between calls; all its calls may block."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        real = Path(os.path.realpath(self.folder))  # `resolve` raises where links go in a ring
        self._roots = [self.folder.parts[1:], real.parts[1:]]

    def names(self, path: str) -> Names:
        """The names of `path` as it is given, links or not. Raises `StrandlineError`."""
        return names_of(path, self._roots)

    @contextmanager
    def place(self, path: str, *, make_folders: bool = False) -> Iterator[Place]:
        """Where `path` leads. `make_folders` makes those that are missing on the way, 0700.

        Raises `StrandlineError` for a path that leads out or goes through a missing folder,
        `OSError` for what the system refuses.
        """
        names = self.names(path)
        with ExitStack() as opened:
            if make_folders:
                _make_all(self.folder)
            yield _Walk(path, self._roots, opened, make_folders).go(self.folder, names)


class _Walk:
    """One walk; `trail` has the names and descriptors of the folders from the workspace on."""

    def __init__(self, path: str, roots: list[Names], opened: ExitStack, make: bool) -> None:  # noqa: FBT001 - private, called once
        self.path = path
        self.roots = roots
        self.opened = opened
        self.make = make
        self.links = self.folders = 0
        self.trail: list[tuple[str, int]] = []
        self.left: deque[str] = deque()

    def go(self, root: Path, names: Names) -> Place:
        try:
            top = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise StrandlineError(
                "the workspace does not exist yet", remedy="write a file; that makes it"
            ) from None
        self._enter("", top)
        self.left.extend(names)
        while self.left:
            place = self._step(self.left.popleft())
            if place is not None:
                return place
        return self._place(".", os.fstat(self.trail[-1][1]))

    def _step(self, name: str) -> Place | None:
        """One name further; the place, if it was the last."""
        if name == "..":  # of a link: a given path has none
            self.trail.pop()
            if not self.trail:
                raise leaving(self.path)
            return None
        status = _look(name, self.trail[-1][1])
        if status is not None and stat.S_ISLNK(status.st_mode):
            self._follow(name)
            return None
        if not self.left:
            return self._place(name, status)
        self._descend(name, status)
        return None

    def _follow(self, name: str) -> None:
        self.links += 1
        if self.links > MAX_LINKS:
            raise refused(self.path, "goes through too many links", "give another path")
        target = os.readlink(name, dir_fd=self.trail[-1][1])
        from_top, steps = steps_of_link(target, self.roots, self.path)
        if from_top:
            del self.trail[1:]
        self.left.extendleft(reversed(steps))

    def _descend(self, name: str, status: os.stat_result | None) -> None:
        folder = self.trail[-1][1]
        if status is None:
            if not self.make:
                raise nothing_there(self.path)
            _make(name, folder)
        elif not stat.S_ISDIR(status.st_mode):
            raise refused(self.path, f"goes through {shown(name)}, no folder", "look with list")
        self._enter(name, os.open(name, _FOLDER, dir_fd=folder))

    def _enter(self, name: str, descriptor: int) -> None:
        self.opened.callback(os.close, descriptor)
        self.folders += 1
        if self.folders > MAX_FOLDERS:
            raise refused(self.path, f"goes through more than {MAX_FOLDERS} folders", "shorten it")
        self.trail.append((name, descriptor))

    def _place(self, name: str, status: os.stat_result | None) -> Place:
        names = tuple(n for n, _ in self.trail[1:])
        whole = names if name == "." else (*names, name)
        return Place(self.path, self.trail[-1][1], name, whole, status)


def open_file(place: Place, flags: int = os.O_RDONLY) -> int:
    """A descriptor of the regular file at a place; the caller closes it.

    Raises `StrandlineError` if there is none and `flags` do not create it, or something else.
    """
    if place.status is None and not flags & os.O_CREAT:
        raise nothing_there(place.path)
    if place.is_folder:
        raise refused(place.path, "is a folder", "give the path of a file; list shows them")
    if place.status is not None:
        _check_regular(place.status, place.path)
    descriptor = os.open(place.name, flags | _FILE, 0o600, dir_fd=place.folder)
    try:
        _check_regular(os.fstat(descriptor), place.path)
    except StrandlineError:
        os.close(descriptor)
        raise
    return descriptor


def open_folder(name: str, folder: int) -> int:
    """A descriptor of the folder `name` in `folder`, no link; the caller closes it."""
    return os.open(name, _FOLDER, dir_fd=folder)


def contents(descriptor: int, max_bytes: int, path: str) -> bytes:
    """All bytes of an open file. Raises `StrandlineError` if there are more than `max_bytes`."""
    parts, size = [], 0
    while part := os.pread(descriptor, 1 << 20, size):
        parts.append(part)
        size += len(part)
        if size > max_bytes:
            raise StrandlineError(
                f"the file {shown(path)} has more than {max_bytes:,} bytes",
                remedy="no tool here takes a file of that size",
            )
    return b"".join(parts)


def is_text(data: bytes) -> bool:
    """Whether bytes look like text: no NUL at their beginning, and mostly UTF-8."""
    start = data[:_SNIFFED_BYTES]
    odd = start.decode("utf-8", "replace").count("\ufffd")
    return b"\0" not in start and odd <= 10 + len(start) // 10


def text_of(data: bytes) -> str:
    """The text of bytes: UTF-8 without a byte order mark; what is none becomes U+FFFD."""
    return data.decode("utf-8", "replace").removeprefix("\ufeff")


def nothing_there(path: str) -> StrandlineError:
    """The error for a path at which there is nothing."""
    return StrandlineError(f"there is no {shown(path)}", remedy="see what is there with list")


def _check_regular(status: os.stat_result, path: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise refused(path, "is no regular file", "only regular files are opened")


def _look(name: str, folder: int) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _make(name: str, folder: int) -> None:
    try:
        os.mkdir(name, 0o700, dir_fd=folder)
    except FileExistsError:
        return  # somebody else made it just now
    os.fsync(folder)


def _make_all(folder: Path) -> None:
    if not folder.is_dir():
        _make_all(folder.parent)
        folder.mkdir(0o700, exist_ok=True)
