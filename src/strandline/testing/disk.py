"""A disk in memory that writes short, fills up, fails, and loses power between any two calls.

`FaultyDisk` satisfies `strandline.stores.disk.Disk`. Without faults it behaves like
`RealDisk`; beyond that it knows what would survive a power cut. A test runs a scenario once
for every operation of the disk::

    for number in itertools.count(1):
        disk = FaultyDisk(Faults(power_cut_at=number))
        try:
            scenario(disk)
        except PowerCut:
            check(disk.after_power_cut(seed))  # or disk.after_process_kill()
        else:
            break  # the scenario has fewer operations

An operation is a call that changes something: a file made, `append`, `sync`, a name moved,
linked or removed, `sync_folder`. `replace` and `link` are two, the name and then the folder,
as on a real disk. Looking and locking are none: a cut there finds what a cut at the operation
before finds. Source: spec 1, Damage and Durability.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from threading import Condition

from strandline.stores.disk import DiskFile
from strandline.testing.platter import Change, Directory, Inode, Tail


class PowerCut(BaseException):  # not an Exception: no handler of the code under test may live on
    """The power went, or the process was killed, during an operation of the disk."""


@dataclass(slots=True)
class Faults:
    """What goes wrong. A test may change any of them while the disk is in use.

    `max_write`: one append takes at most so many bytes.
    `free_bytes`: appends take from it, removed files give back; no room is ENOSPC.
    `fail_at`: the operation of that number fails with `fail_errno` and changes nothing.
    `failed_sync_drops`: bytes whose sync failed may be NUL after a power cut even where a
    later sync succeeded, as with Linux, which forgets that a page it could not write is dirty.
    `power_cut_at`: the power goes during the operation of that number (or the next one that
    does not fail), when its effect can be seen and none of it is sure to last.
    `lock_wait_s`: a lock that is not given within so many seconds is EDEADLK, because a test
    that hangs says nothing.
    """

    max_write: int | None = None
    free_bytes: int | None = None
    fail_at: int | None = None
    fail_errno: int = errno.EIO
    failed_sync_drops: bool = False
    power_cut_at: int | None = None
    lock_wait_s: float = 10.0


@dataclass(slots=True)
class _Machine:
    """What a disk and its open files share: faults, count, power, locks.

    `changed` guards all of the disk and is notified when a lock or the power goes.
    """

    faults: Faults
    operations: int = 0
    off: bool = False
    holders: dict[Inode, FaultyFile] = field(default_factory=dict)
    changed: Condition = field(default_factory=Condition)

    @contextmanager
    def powered(self) -> Iterator[None]:
        with self.changed:
            self.need_power()
            yield

    @contextmanager
    def operation(self) -> Iterator[None]:
        """Around the visible effect of an operation; what makes it last comes after."""
        self.operations += 1
        if self.operations == self.faults.fail_at:
            raise _os_error(self.faults.fail_errno)
        yield
        cut_at = self.faults.power_cut_at
        if cut_at is not None and self.operations >= cut_at:
            self.off = True
            self.changed.notify_all()
            self.need_power()

    def need_power(self) -> None:
        if self.off:
            raise PowerCut(f"the power went in operation {self.operations} of the disk")

    def space_for(self, size: int) -> int:
        """How many of `size` bytes an append takes: at least one, unless `size` is 0."""
        faults = self.faults
        size = size if faults.max_write is None else min(size, max(faults.max_write, 1))
        if faults.free_bytes is None or size == 0:
            return size
        if faults.free_bytes <= 0:
            raise _os_error(errno.ENOSPC)
        size = min(size, faults.free_bytes)
        faults.free_bytes -= size
        return size


def _os_error(number: int, path: Path | None = None) -> OSError:
    return OSError(number, os.strerror(number), path and str(path))


class FaultyFile:
    """An open file of a `FaultyDisk`; satisfies `DiskFile`."""

    def __init__(self, machine: _Machine, inode: Inode, *, writable: bool) -> None:
        self._machine = machine
        self._inode = inode
        self._writable = writable
        self._open = True

    def size(self) -> int:
        with self._using() as inode:
            return len(inode.data)

    def is_of(self, inode: Inode) -> bool:
        """Whether this is that file, open."""
        with self._using() as mine:
            return mine is inode

    def read_at(self, offset: int, size: int) -> bytes:
        with self._using() as inode:
            if offset < 0:
                raise _os_error(errno.EINVAL)
            return bytes(inode.data[offset : offset + size])

    def append(self, data: bytes) -> int:
        with self._using() as inode:
            if not self._writable:
                raise _os_error(errno.EBADF)
            with self._machine.operation():
                taken = self._machine.space_for(len(data))
                inode.data += data[:taken]
            return taken

    def sync(self) -> None:
        with self._using() as inode:
            try:
                with self._machine.operation():
                    pass
            except OSError:
                if self._machine.faults.failed_sync_drops:
                    inode.dropped.append((inode.synced, len(inode.data)))
                raise
            inode.synced = len(inode.data)

    def lock(self, *, wait: bool) -> bool:
        """As `DiskFile.lock`; waiting longer than `Faults.lock_wait_s` is `OSError` (EDEADLK)."""
        with self._using() as inode:
            machine = self._machine
            patience_s = machine.faults.lock_wait_s if wait else 0.0
            given = machine.changed.wait_for(
                lambda: machine.off or machine.holders.get(inode, self) is self, patience_s
            )
            machine.need_power()
            if given:
                machine.holders[inode] = self
            elif wait:
                raise _os_error(errno.EDEADLK)
            return given

    def unlock(self) -> None:
        with self._machine.changed:
            if self._machine.holders.get(self._inode) is self:
                del self._machine.holders[self._inode]
                self._machine.changed.notify_all()

    def close(self) -> None:
        """As `DiskFile.close`. Allowed without power, like `unlock`: both stand in `finally`."""
        with self._machine.changed:
            if not self._open:
                raise _os_error(errno.EBADF)
            self.unlock()
            self._open = False

    @contextmanager
    def _using(self) -> Iterator[Inode]:
        with self._machine.powered():
            if not self._open:
                raise _os_error(errno.EBADF)
            yield self._inode


class FaultyDisk:
    """Files and folders in memory; `faults` says what goes wrong, by default nothing.

    May be used by any number of threads at once.
    """

    def __init__(self, faults: Faults | None = None) -> None:
        self.faults = faults or Faults()
        self._machine = _Machine(self.faults)
        self._directory = Directory()

    @property
    def operations(self) -> int:
        """How many operations there were so far."""
        return self._machine.operations

    @property
    def files(self) -> dict[Path, bytes]:
        """Every file as a program sees it now, synced or not; told without power too."""
        with self._machine.changed:
            return {path: bytes(inode.data) for path, inode in self._directory.names.items()}

    def plant(self, path: Path, data: bytes) -> None:
        """Put a new file there, which lasts as if it had always been there. No operation."""
        with self._machine.changed:
            self._make_folders(path)
            self._directory.change({path: Inode(bytearray(data), len(data))})
            self._directory.settle(path.parent)

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> FaultyFile:
        with self._machine.powered():
            if path in self._directory.folders:
                raise _os_error(errno.EISDIR, path)
            if create and path not in self._directory.names:
                return self._make(path, writable=write)
            return FaultyFile(self._machine, self._inode(path), writable=write)

    def create(self, path: Path) -> FaultyFile:
        with self._machine.powered():
            if self.exists(path):
                raise _os_error(errno.EEXIST, path)
            return self._make(path, writable=True)

    def exists(self, path: Path) -> bool:
        """Whether there is a file; a folder counts, as with `RealDisk`."""
        with self._machine.powered():
            return path in self._directory.names or path in self._directory.folders

    def is_same(self, file: DiskFile, path: Path) -> bool:
        with self._machine.powered():
            inode = self._directory.names.get(path)
            return inode is not None and isinstance(file, FaultyFile) and file.is_of(inode)

    def names(self, folder: Path, suffix: str) -> list[str]:
        """As `Disk.names`, in no order that a caller could rely on."""
        with self._machine.powered():
            there = [path.name for path in self._directory.names if path.parent == folder]
            return [name for name in there if name.endswith(suffix)]

    def replace(self, source: Path, target: Path) -> None:
        with self._machine.powered():
            inode = self._inode(source)
            self._need_folder(target.parent)
            if target in self._directory.folders:
                raise _os_error(errno.EISDIR, target)
            old = self._directory.names.get(target)
            # Of two names of one file, POSIX leaves both where they are.
            self._rename({} if old is inode else {source: None, target: inode}, old)
            self.sync_folder(target.parent)

    def link(self, source: Path, target: Path) -> None:
        with self._machine.powered():
            inode = self._inode(source)
            self._need_folder(target.parent)
            if self.exists(target):
                raise _os_error(errno.EEXIST, target)
            self._rename({target: inode})
            self.sync_folder(target.parent)

    def remove(self, path: Path) -> None:
        with self._machine.powered():
            self._rename({path: None}, self._inode(path))

    def sync_folder(self, path: Path) -> None:
        with self._machine.powered():
            self._need_folder(path)
            with self._machine.operation():
                pass
            self._directory.settle(path)

    def after_power_cut(self, seed: int | Random, *, tail: Tail | None = None) -> FaultyDisk:
        """The disk as it is found when the machine starts again, without faults.

        Synced bytes are there. Of every file's other bytes that is left which `tail` says, or
        what is drawn from `seed` where it is None. Every name made, moved or removed since its
        folder was synced is there or not, as drawn. This disk stays as it is, so that several
        outcomes of one cut can be looked at.
        """
        rng = seed if isinstance(seed, Random) else Random(seed)  # noqa: S311 - a test's draw
        with self._machine.changed:
            return _restarted(self._directory.found(rng, tail))

    def after_process_kill(self) -> FaultyDisk:
        """The disk as the next process finds it, without faults.

        Everything written and named is there, because the kernel has it (a later power cut
        may still take it). Locks are free.
        """
        with self._machine.changed:
            return _restarted(self._directory.copied())

    def _make(self, path: Path, *, writable: bool) -> FaultyFile:
        inode = Inode()
        with self._machine.operation():
            self._make_folders(path)
            self._directory.change({path: inode})
        return FaultyFile(self._machine, inode, writable=writable)

    def _make_folders(self, path: Path) -> None:
        for folder in path.parents:
            if folder in self._directory.names:
                raise _os_error(errno.ENOTDIR, folder)
        self._directory.folders.update(path.parents)

    def _rename(self, change: Change, leaving: Inode | None = None) -> None:
        """Change names; the space of `leaving` is free again if no name is left to it."""
        with self._machine.operation():
            self._directory.change(change)
            free = self.faults.free_bytes
            if leaving and free is not None and not self._directory.is_named(leaving):
                self.faults.free_bytes = free + len(leaving.data)

    def _inode(self, path: Path) -> Inode:
        try:
            return self._directory.names[path]
        except KeyError:
            raise _os_error(errno.ENOENT, path) from None

    def _need_folder(self, path: Path) -> None:
        if path not in self._directory.folders:
            raise _os_error(errno.ENOTDIR if path in self._directory.names else errno.ENOENT, path)


def _restarted(directory: Directory) -> FaultyDisk:
    disk = FaultyDisk()
    disk._directory = directory  # noqa: SLF001 - of the class above; nobody else may do this
    return disk
