"""A log of an old version, seen as version 3; the first append makes it so.

Reading never writes. The first append puts the migrated transcript in the place of the
old one, which stays beside it as ``<name>.v<N>.bak``: the only time that a transcript is
replaced. Source: spec 1, Old versions.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager

from strandline.errors import TranscriptMoved
from strandline.transcript.messages import JsonObject
from strandline.transcript.migrate import (
    CURRENT_VERSION,
    FIRST_BYTES,
    beginning,
    migrate,
    version_of,
)
from strandline.transcript.store import SideFile, SideRow, Totals, TranscriptLog


def first_objects(log: TranscriptLog) -> tuple[JsonObject | None, JsonObject | None]:
    """The header and the first entry of a log, as far as its first lines hold them."""
    return beginning(log.read(0, FIRST_BYTES))


def current(log: TranscriptLog) -> TranscriptLog:
    """The log itself if its format is current, else a view of it that is."""
    version = version_of(*first_objects(log))
    return log if version >= CURRENT_VERSION else UpgradedLog(log, version)


class UpgradedLog:
    """Reads as version 3; writes to the old log by replacing it first."""

    def __init__(self, log: TranscriptLog, version: int) -> None:
        self._log = log
        self._version = version
        self._old_end = -1
        self._image = b""
        self._replaced = False
        self._look()

    @property
    def name(self) -> str:
        return self._log.name

    def _look(self) -> None:
        """Migrate again if the old log changed, as it may where other programs write it."""
        end = self._log.end()
        if self._replaced or end == self._old_end:
            return
        version = version_of(*first_objects(self._log))
        if version >= CURRENT_VERSION:
            self._replaced, self._image = True, b""
            return
        self._version, self._old_end = version, end
        self._image = migrate(self._log.read(0, end), version)

    def end(self) -> int:
        self._look()
        return self._log.end() if self._replaced else len(self._image)

    def read(self, start: int, stop: int) -> bytes:
        return self._log.read(start, stop) if self._replaced else self._image[start:stop]

    def append(self, lines: bytes, expected_end: int) -> int:
        end = self.end()
        if not self._replaced:
            if expected_end != end:
                raise TranscriptMoved(f"{self.name} ends at {end}", end=end)
            self._log.replace(self._image, self._old_end, f".v{self._version}.bak")
            self._replaced, self._image = True, b""
        return self._log.append(lines, expected_end)

    def sync(self, start: int) -> None:
        self._log.sync(start)

    def replace(self, image: bytes, expected_end: int, backup_suffix: str) -> None:
        self._log.replace(image, expected_end, backup_suffix)

    def run_lock(self, timeout_ms: int, holder: str) -> AbstractContextManager[None]:
        return self._log.run_lock(timeout_ms, holder)

    def side_file(self) -> SideFile | None:
        return None

    def save_side_file(self, rows: Iterable[SideRow], totals: Totals, end: int) -> None:
        """Nothing: a look-up of the image would not fit the file."""

    def close(self) -> None:
        self._log.close()
