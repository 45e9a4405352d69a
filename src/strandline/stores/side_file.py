"""The side file of a transcript: a derived look-up from entry ids to lines, in SQLite.

It lives in the cache folder of the state directory, never beside the transcript, and may
be deleted at any time. It is trusted only while the transcript still begins and continues
as it did when the look-up was made. Source: spec 1, Durability, writers, speed.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Protocol

from strandline.stores.disk import make_folder
from strandline.transcript.store import NeedsWholeLog, SideRow, Totals, Whereabouts

FORMAT = "2"
CHECKED_BYTES = 4096
MOST_VARIABLES = 500
STALE_BYTES = 1 << 23
"""A look-up that lacks more than this much of the end is not worth having."""

_SCHEMA = """
CREATE TABLE entry (
  id TEXT, offset INTEGER, size INTEGER,
  model_offset INTEGER, model_size INTEGER, thinking_offset INTEGER, thinking_size INTEGER
);
CREATE TABLE fact (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
"""


class _Log(Protocol):
    @property
    def name(self) -> str: ...
    def end(self) -> int: ...
    def read(self, start: int, stop: int) -> bytes: ...


class SqliteSideFile:
    """An opened look-up. It covers the first `end` bytes of its transcript."""

    def __init__(self, database: sqlite3.Connection, facts: Mapping[str, str]) -> None:
        self._database = database
        self.end = int(facts["end"])
        name, labels = json.loads(facts["name"]), json.loads(facts["labels"])
        self._totals = Totals(int(facts["entries"]), name, labels)

    def find(self, entry_id: str) -> Whereabouts | None:
        for row in self._rows("SELECT * FROM entry WHERE id = ?", [entry_id]):
            return Whereabouts(row[1], row[2], (row[3], row[4]), (row[5], row[6]))
        return None

    def agrees(self, offsets: Mapping[str, int]) -> bool:
        for ids in _batches(list(offsets), MOST_VARIABLES):
            marks = ",".join("?" * len(ids))
            rows = self._rows(
                f"SELECT id, offset FROM entry WHERE id IN ({marks})",  # noqa: S608 (marks only)
                ids,
            )
            if any(offsets[entry_id] != offset for entry_id, offset in rows):
                return False
        return True

    def _rows(self, query: str, ids: list[str]) -> list[tuple[Any, ...]]:
        try:
            return self._database.execute(query, ids).fetchall()
        except (sqlite3.Error, UnicodeEncodeError) as error:
            raise NeedsWholeLog from error

    def totals(self) -> Totals:
        return self._totals

    def close(self) -> None:
        """Give the database back."""
        self._database.close()


def load(cache: Path, log: _Log) -> SqliteSideFile | None:
    """The look-up of a transcript, if there is one and it still fits."""
    path = _path(cache, log)
    if not path.exists():
        return None
    with suppress(sqlite3.Error, KeyError, ValueError):  # a damaged look-up is no look-up
        return _opened(path, log)
    return None


def _opened(path: Path, log: _Log) -> SqliteSideFile | None:
    database = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, check_same_thread=False)
    found: SqliteSideFile | None = None
    try:
        facts = dict(database.execute("SELECT name, value FROM fact"))
        end, size = int(facts["end"]), log.end()
        covers = facts["format"] == FORMAT and end <= size <= end + STALE_BYTES
        if covers and facts["check"] == _check(log, end):
            found = SqliteSideFile(database, facts)
        return found
    finally:
        if found is None:
            database.close()


def save(cache: Path, log: _Log, rows: Iterable[SideRow], totals: Totals, end: int) -> None:
    """Write the look-up of the first `end` bytes. A failure costs speed, nothing else."""
    path = _path(cache, log)
    facts = {
        "format": FORMAT,
        "end": str(end),
        "check": _check(log, end),
        "entries": str(totals.entries),
        "name": json.dumps(totals.name),
        "labels": json.dumps(dict(totals.labels)),
    }
    with suppress(OSError, ValueError, sqlite3.Error):
        make_folder(path.parent)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=path.stem)
        os.close(descriptor)
        fresh = Path(name)
        try:
            _fill(fresh, rows, facts)
            fresh.replace(path)
        finally:
            fresh.unlink(missing_ok=True)


def _fill(path: Path, rows: Iterable[SideRow], facts: Mapping[str, str]) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode = OFF")
        database.execute("PRAGMA synchronous = OFF")
        database.executescript(_SCHEMA)
        database.execute("BEGIN")
        flat = ((i, w.offset, w.size, *w.model, *w.thinking) for i, w in rows)
        database.executemany("INSERT INTO entry VALUES (?, ?, ?, ?, ?, ?, ?)", flat)
        database.execute("CREATE INDEX entry_by_id ON entry (id, offset)")
        database.executemany("INSERT INTO fact VALUES (?, ?)", facts.items())
        database.execute("COMMIT")


def _path(cache: Path, log: _Log) -> Path:
    digest = hashlib.sha256(os.fsencode(Path(log.name).resolve())).hexdigest()[:32]
    return cache.resolve() / "transcripts" / f"{digest}.sqlite"


def _check(log: _Log, end: int) -> str:
    """What the transcript begins with, and what stands before `end`."""
    parts = log.read(0, min(CHECKED_BYTES, end)), log.read(max(0, end - CHECKED_BYTES), end)
    return hashlib.sha256(b"\n".join(parts)).hexdigest()


def _batches(ids: list[str], size: int) -> Iterator[list[str]]:
    for start in range(0, len(ids), size):
        yield ids[start : start + size]
