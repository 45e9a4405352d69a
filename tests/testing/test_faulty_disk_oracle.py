"""Without faults, the faulty disk and the operating system's cannot be told apart."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from strandline.stores.disk import Disk, DiskFile, RealDisk
from strandline.testing import FaultyDisk

NAMES = st.sampled_from(["a", "b", "c", "sub/a", "sub/b", "sub/deep/a"])
FOLDERS = st.sampled_from([".", "sub", "sub/deep", "a"])
PICKS = st.integers(min_value=0)


def outcome(call: Callable[[], Any]) -> tuple[str, Any]:
    """What a call returned, or the error that a caller can tell apart."""
    try:
        value = call()
    except OSError as error:
        return ("error", (type(error), error.errno))
    return ("value", value)


class BothDisks(RuleBasedStateMachine):
    """The same calls to both; every answer must be the same."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self.roots = (Path(self._folder.name), Path("/disk"))
        self.disks: tuple[Disk, Disk] = (RealDisk(), FaultyDisk())
        self.handles: list[tuple[DiskFile, DiskFile]] = []
        self.create("first")

    def teardown(self) -> None:
        for pair in self.handles:
            for handle in pair:
                handle.close()
        self._folder.cleanup()

    def both(self, call: Callable[[Disk, Path], Any]) -> Any:
        real, faulty = (
            outcome(lambda d=disk, r=root: call(d, r))  # type: ignore[misc]
            for disk, root in zip(self.disks, self.roots, strict=True)
        )
        assert real == faulty
        return real

    def opened(self, call: Callable[[Disk, Path], DiskFile]) -> None:
        """Like `both` for calls that return a file: only errors can be compared."""
        files: list[DiskFile] = []

        def keep(disk: Disk, root: Path) -> None:
            files.append(call(disk, root))

        if self.both(keep)[0] == "value":
            self.handles.append((files[0], files[1]))

    def with_file(self, pick: int, call: Callable[[DiskFile], Any]) -> None:
        if self.handles:
            real, faulty = self.handles[pick % len(self.handles)]
            assert outcome(lambda: call(real)) == outcome(lambda: call(faulty))

    @rule(name=NAMES)
    def create(self, name: str) -> None:
        self.opened(lambda disk, root: disk.create(root / name))

    @rule(name=NAMES, write=st.booleans(), create=st.booleans())
    def open(self, name: str, write: bool, create: bool) -> None:  # noqa: FBT001 - drawn
        self.opened(lambda disk, root: disk.open(root / name, write=write, create=create))

    @rule(name=NAMES)
    def exists(self, name: str) -> None:
        self.both(lambda disk, root: disk.exists(root / name))

    @rule(folder=FOLDERS, suffix=st.sampled_from(["", "a", "b", "none"]))
    def names(self, folder: str, suffix: str) -> None:
        self.both(lambda disk, root: sorted(disk.names(root / folder, suffix)))

    @rule(pick=PICKS, name=NAMES)
    def is_same(self, pick: int, name: str) -> None:
        if self.handles:
            pair = self.handles[pick % len(self.handles)]
            sides = zip(self.disks, pair, self.roots, strict=True)
            real, faulty = (disk.is_same(file, root / name) for disk, file, root in sides)
            assert real == faulty

    @rule(old=NAMES, new=NAMES)
    def replace(self, old: str, new: str) -> None:
        self.both(lambda disk, root: disk.replace(root / old, root / new))

    @rule(old=NAMES, new=NAMES)
    def link(self, old: str, new: str) -> None:
        self.both(lambda disk, root: disk.link(root / old, root / new))

    @rule(name=NAMES)
    def remove(self, name: str) -> None:
        self.both(lambda disk, root: disk.remove(root / name))

    @rule(folder=FOLDERS)
    def sync_folder(self, folder: str) -> None:
        self.both(lambda disk, root: disk.sync_folder(root / folder))

    @rule(pick=PICKS, data=st.binary(max_size=40))
    def append(self, pick: int, data: bytes) -> None:
        self.with_file(pick, lambda file: file.append(data))

    @rule(pick=PICKS, offset=st.integers(-1, 60), size=st.integers(0, 60))
    def read(self, pick: int, offset: int, size: int) -> None:
        self.with_file(pick, lambda file: (file.size(), file.read_at(offset, size)))

    @rule(pick=PICKS)
    def sync(self, pick: int) -> None:
        self.with_file(pick, lambda file: file.sync())

    @rule(pick=PICKS)
    def lock(self, pick: int) -> None:
        self.with_file(pick, lambda file: file.lock(wait=False))

    @rule(pick=PICKS)
    def unlock(self, pick: int) -> None:
        self.with_file(pick, lambda file: file.unlock())

    @rule(pick=PICKS)
    def close(self, pick: int) -> None:
        if self.handles:
            for handle in self.handles.pop(pick % len(self.handles)):
                handle.close()


TestBothDisks = BothDisks.TestCase
TestBothDisks.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def test_of_two_names_of_one_file_neither_disk_moves_one_over_the_other(tmp_path: Path) -> None:
    disks: tuple[Disk, Disk] = (RealDisk(), FaultyDisk())
    for disk, root in zip(disks, (tmp_path, Path("/disk")), strict=True):
        disk.create(root / "a").close()
        disk.link(root / "a", root / "b")
        disk.replace(root / "a", root / "b")
        assert sorted(disk.names(root, "")) == ["a", "b"]
