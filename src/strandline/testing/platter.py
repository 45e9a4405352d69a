"""What of a disk would last: the bytes and names that a power cut takes or leaves.

`strandline.testing.disk` is built on this. Nothing here fails, locks or counts; the draws
take a random source. The rules are those that POSIX promises and no more: synced bytes last;
names last once their folder is synced; a rename is seen whole or not at all.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Literal

Tail = Literal["whole", "torn", "missing", "nul"]
"""What a power cut left of bytes that were written and not synced: all of them, the first
few, none, or the first few and then NUL bytes up to some length."""

_TAILS: tuple[Tail, ...] = ("whole", "torn", "missing", "nul")


@dataclass(slots=True, eq=False)
class Inode:
    """A file without its names.

    The first `synced` bytes last, except those in `dropped` (pairs of start and end): their
    sync failed, and a power cut may show NUL in their place.
    """

    data: bytearray = field(default_factory=bytearray)
    synced: int = 0
    dropped: list[tuple[int, int]] = field(default_factory=list)

    def found(self, rng: Random, tail: Tail | None) -> Inode:
        """What a power cut leaves; by then, all of that lasts."""
        data = self.data[: self.synced]
        for start, end in self.dropped:
            if end <= self.synced and rng.random() < 0.5:
                data[start:end] = bytes(end - start)
        chosen = rng.choice(_TAILS) if tail is None else tail
        data += _torn(self.data[self.synced :], rng, chosen)
        return Inode(data, len(data))


def _torn(unsynced: bytearray, rng: Random, tail: Tail) -> bytes:
    if tail == "whole":
        return bytes(unsynced)
    if tail == "missing":
        return b""
    written = rng.randint(0, len(unsynced))
    if tail == "torn":
        return bytes(unsynced[:written])
    return bytes(unsynced[:written]) + bytes(rng.randint(written, len(unsynced)) - written)


Change = dict[Path, Inode | None]
"""Names set, or removed (None), in one step: after a crash all of it is there, or none."""


@dataclass(slots=True)
class Directory:
    """Names of files: as programs see them (`names`) and as they would last (`lasting`).

    `unsynced` are the changes between the two, oldest first. Folders last as soon as they
    are made, because the seam promises that a synced name in a new folder does.
    """

    names: dict[Path, Inode] = field(default_factory=dict)
    lasting: dict[Path, Inode] = field(default_factory=dict)
    unsynced: list[Change] = field(default_factory=list)
    folders: set[Path] = field(default_factory=set)

    def change(self, change: Change) -> None:
        """Do it where programs see it."""
        _apply(change, self.names)
        self.unsynced.append(change)

    def settle(self, folder: Path) -> None:
        """Make every change of names in `folder` last.

        A rename from one folder to another lasts whole. Older changes of the same names that
        belong to other folders are overtaken: nothing may bring those names back later.
        """
        lasting: list[Change] = []
        waiting: list[Change] = []
        settled: set[Path] = set()
        for change in reversed(self.unsynced):
            if any(path.parent == folder for path in change):
                lasting.append(change)
                settled.update(change)
            elif left := {path: change[path] for path in change.keys() - settled}:
                waiting.append(left)
        for change in reversed(lasting):
            _apply(change, self.lasting)
        self.unsynced = waiting[::-1]

    def found(self, rng: Random, tail: Tail | None) -> Directory:
        """What a power cut leaves: each unsynced change is there or not, as drawn.

        None is there without those before it that touched the same names.
        """
        names = dict(self.lasting)
        for change in self._drawn_changes(rng):
            _apply(change, names)
        left = {inode: inode.found(rng, tail) for inode in names.values()}
        names = {path: left[inode] for path, inode in names.items()}
        return Directory(names, dict(names), [], set(self.folders))

    def _drawn_changes(self, rng: Random) -> Iterator[Change]:
        lost: set[Path] = set()
        for change in self.unsynced:
            if lost.isdisjoint(change) and rng.random() < 0.5:
                yield change
            else:
                lost.update(change)

    def copied(self) -> Directory:
        """The same again, sharing nothing."""
        return copy.deepcopy(self)

    def is_named(self, inode: Inode) -> bool:
        """Whether any name leads to the file."""
        return inode in self.names.values()


def _apply(change: Change, names: dict[Path, Inode]) -> None:
    for path, inode in change.items():
        if inode is None:
            names.pop(path, None)
        else:
            names[path] = inode
