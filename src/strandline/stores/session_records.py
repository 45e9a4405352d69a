"""Small records of sessions in a folder: one file a session, named by a digest of its id.

``{"version": 1, "writtenMs": …, "records": [{…}]}``, all under one lock beside the folder.
What is kept here can be made again: a file that cannot be understood reads as empty and is
replaced, and one that nobody wrote to for a month goes. What the records mean is decided by
their users: `strandline.runtime.layer_summaries`, `strandline.runtime.kept_prompts`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Unpack

from strandline.clock import Clock
from strandline.stores.records_file import VERSION, Access, LockedFiles
from strandline.stores.whole_file import replace_whole
from strandline.transcript.messages import JsonObject

MAX_BYTES = 8 << 20
"""A larger file is none of ours; the last records make room."""

DAY_MS = 24 * 3_600_000
LONGEST_MS = 30 * DAY_MS
SWEPT_AT_MOST = 1000
"""So many files are looked at, once a day, for whether they are old."""

_SUFFIX = ".json"
_BEGINNING = re.compile(rb'\{"version":1,"writtenMs":(\d{1,16}),')

Records = Sequence[JsonObject]


class SessionRecords(LockedFiles):
    """Satisfies `SummaryMemo` of `layer_summaries` and `PromptRecords` of `kept_prompts`."""

    def __init__(self, folder: Path, clock: Clock, **access: Unpack[Access]) -> None:
        super().__init__(folder, **access)
        self._clock = clock
        self._swept_ms: int | None = None

    def read(self, session_id: str) -> Records:
        """The records of a session; none where its file is missing or makes no sense."""
        path = self._path(session_id)
        records = self._found(path)
        if records is None:
            self._tell(f"{path} was not understood: what it held is made again")
        return records or []

    def update(self, session_id: str, change: Callable[[Records], Records]) -> None:
        """Put `change` of a session's records in their place."""
        path = self._path(session_id)
        with self._writing(path):
            changed = list(change(self._found(path) or []))
            replace_whole(self._disk, path, self._written(changed))
            self._sweep()

    def _path(self, session_id: str) -> Path:
        digest = hashlib.sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()
        return self.place / f"{digest[:32]}{_SUFFIX}"

    def _found(self, path: Path) -> list[JsonObject] | None:
        found: list[Any] | None = self._records(path, "records", list, MAX_BYTES)
        return found and [record for record in found if isinstance(record, dict)]

    def _written(self, kept: list[JsonObject]) -> bytes:
        """The file of as many of the newest records as have room."""
        while True:
            document = {
                "version": VERSION,
                "writtenMs": self._clock.now_ms(),
                "records": kept,
            }
            content = json.dumps(document, separators=(",", ":")).encode()
            if len(content) <= MAX_BYTES:
                return content
            kept = kept[1:]

    def _sweep(self) -> None:
        """Remove files that nobody wrote to for long. The lock must be held."""
        now_ms = self._clock.now_ms()
        if self._swept_ms is not None and abs(now_ms - self._swept_ms) < DAY_MS:
            return
        self._swept_ms = now_ms
        for name in self._disk.names(self.place, _SUFFIX)[:SWEPT_AT_MOST]:
            with suppress(OSError):  # a file that cannot be read or removed may stay
                if self._is_old(self.place / name, now_ms):
                    self._disk.remove(self.place / name)

    def _is_old(self, path: Path, now_ms: int) -> bool:
        with closing(self._disk.open(path)) as file:
            beginning = _BEGINNING.match(file.read_at(0, 64))
        return beginning is not None and abs(now_ms - int(beginning[1])) > LONGEST_MS
