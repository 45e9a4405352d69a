"""Small files of records, for any number of processes.

``{"version": 1, MEMBER: records}``, written whole and put in place of the old file under a
lock of the operating system; reading takes no lock. Nothing in them is needed: a file that
cannot be understood is as good as none, and a warning says so.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, ClassVar, Generic, TypedDict, TypeVar, Unpack

from strandline.errors import StoreError, StoreWriteFailed
from strandline.stores.disk import Disk, RealDisk
from strandline.stores.whole_file import backing_off, open_lock, replace_whole
from strandline.transcript.messages import JsonObject

VERSION = 1
MAX_BYTES = 1 << 20
"""A larger file is none of ours, where nothing else is said."""

ASIDE_SUFFIX = ".unreadable"
"""Of what was kept aside; the next one takes its place."""

Records = TypeVar("Records", Mapping[str, JsonObject], Sequence[JsonObject])


class Access(TypedDict, total=False):
    """How files are reached, where it is not as usual.

    `warn` hears what a person should know. `pause` waits for so many seconds.
    """

    disk: Disk
    warn: Callable[[str], None]
    pause: Callable[[float], None]
    lock_timeout_ms: int


class LockedFiles:
    """A file, or the files of a folder (`place`), which one process at a time writes.

    The methods raise `StoreError` when the disk does not do what is asked.
    """

    def __init__(self, place: Path, **access: Unpack[Access]) -> None:
        self.place = place
        self._disk = access.get("disk") or RealDisk()
        self._warn = access.get("warn")
        self._pause = access.get("pause", time.sleep)
        self._lock_timeout_ms = access.get("lock_timeout_ms", 5_000)

    @contextmanager
    def _writing(self, path: Path) -> Iterator[None]:
        """Hold the lock of the place, to write `path`."""
        try:
            with closing(open_lock(self._disk, self.place)) as lock:
                for _ in backing_off(self._pause, self._lock_timeout_ms):
                    if lock.lock(wait=False):
                        break
                else:
                    raise StoreError(
                        f"{self.place} is held by another Strandline process",
                        remedy="wait until it is done, or stop it",
                    )
                yield
        except OSError as error:
            raise StoreWriteFailed(
                f"{path} was not written ({error.strerror})",
                remedy="make room or correct the permissions; it is written again next time",
            ) from error

    def _records(
        self, path: Path, member: str, shape: type[Any], max_bytes: int = MAX_BYTES
    ) -> Any:
        """What a file has as its `member`, empty where it is missing.

        None for a file that is none of ours.
        """
        try:
            with closing(self._disk.open(path)) as file:
                content = file.read_at(0, max_bytes + 1)
        except FileNotFoundError:
            return shape()
        except OSError as error:
            raise StoreError(
                f"{path} cannot be read ({error.strerror})",
                remedy="correct its permissions, or remove it",
            ) from error
        try:
            document: Any = json.loads(content.decode()) if len(content) <= max_bytes else None
        except (ValueError, RecursionError):
            return None
        if not isinstance(document, dict) or document.get("version") != VERSION:
            return None
        records = document.get(member)
        return records if isinstance(records, shape) else None

    def _tell(self, message: str) -> None:
        if self._warn is not None:
            self._warn(message)


class RecordsFile(LockedFiles, Generic[Records]):
    """One file; a damaged one is kept aside when it is written next.

    A subclass says its `member`, whether that has the `shape` of a dict or a list, and `what`
    it tells of.
    """

    member: ClassVar[str]
    shape: ClassVar[type[Any]]
    what: ClassVar[str]

    def read(self) -> Records:
        """The records; none where the file is missing or makes no sense."""
        records: Records = self._found() or self.shape()
        return records

    def update(self, change: Callable[[Records], Records]) -> None:
        """Put `change` of the records in their place."""
        with self._writing(self.place):
            found = self._found()
            if found is None:
                self._set_aside()
            changed = self.shape(change(found or self.shape()))
            if changed != found:
                text = json.dumps({"version": VERSION, self.member: changed}, indent=2)
                replace_whole(self._disk, self.place, text.encode())

    def _found(self) -> Any:
        return self._records(self.place, self.member, self.shape)

    def _set_aside(self) -> None:
        aside = self.place.with_name(self.place.name + ASIDE_SUFFIX)
        self._disk.replace(self.place, aside)
        self._tell(
            f"{self.place} was not understood: it is kept as {aside.name}, and {self.what} is "
            "recorded anew"
        )
