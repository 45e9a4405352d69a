"""Transcripts in memory: real code for sessions that need not last, and the oracle of others."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from strandline.errors import SessionBusy, TranscriptExists, TranscriptMoved, TranscriptNotFound
from strandline.transcript.store import SideFile, SideRow, Totals


class MemoryLog:
    """One transcript as a byte array."""

    def __init__(self, name: str, data: bytes) -> None:
        self._name = name
        self._data = bytearray(data)
        self.backups: dict[str, bytes] = {}
        self._lock = threading.Lock()
        self._run = threading.Condition()
        self._holder: str | None = None

    @property
    def name(self) -> str:
        return self._name

    def end(self) -> int:
        return len(self._data)

    def read(self, start: int, stop: int) -> bytes:
        return bytes(self._data[start:stop])

    def append(self, lines: bytes, expected_end: int) -> int:
        with self._lock:
            end = len(self._data)
            if end != expected_end:
                raise TranscriptMoved(f"{self._name} ends at {end}, not {expected_end}", end=end)
            if self._data and self._data[-1:] != b"\n":
                self._data += b"\n"
            start = len(self._data)
            self._data += lines
            return start

    def sync(self, start: int) -> None:
        """Nothing to do: memory does not outlive the process anyway."""

    def replace(self, image: bytes, expected_end: int, backup_suffix: str) -> None:
        with self._lock:
            end = len(self._data)
            if end != expected_end:
                raise TranscriptMoved(f"{self._name} ends at {end}, not {expected_end}", end=end)
            self.backups[self._name + backup_suffix] = bytes(self._data)
            self._data[:] = image

    @contextmanager
    def run_lock(self, timeout_ms: int, holder: str) -> Iterator[None]:
        deadline = time.monotonic() + timeout_ms / 1000
        with self._run:
            while self._holder is not None:
                left = deadline - time.monotonic()
                if left <= 0 or not self._run.wait(left):
                    raise SessionBusy(
                        f"{self._name} is held by {self._holder}",
                        holder=self._holder or "",
                        remedy="wait for it to end, or stop it",
                    )
            self._holder = holder
        try:
            yield
        finally:
            with self._run:
                self._holder = None
                self._run.notify()

    def side_file(self) -> SideFile | None:
        return None

    def save_side_file(self, rows: Iterable[SideRow], totals: Totals, end: int) -> None:
        """Nothing: reading memory is as fast as looking up."""

    def close(self) -> None:
        """Nothing to give back."""


class MemoryStore:
    """Transcripts by name, as long as the process lives."""

    def __init__(self) -> None:
        self._logs: dict[str, MemoryLog] = {}

    def open(self, name: str) -> MemoryLog:
        try:
            return self._logs[name]
        except KeyError:
            raise TranscriptNotFound(
                f"there is no transcript {name!r}", remedy="create it first"
            ) from None

    def create(self, name: str, first_line: bytes) -> MemoryLog:
        if name in self._logs:
            raise TranscriptExists(f"there is a transcript {name!r} already", remedy="open it")
        log = self._logs[name] = MemoryLog(name, first_line)
        return log

    def archive(self, name: str, suffix: str) -> str | None:
        if name not in self._logs:
            return None
        if name + suffix in self._logs:
            raise TranscriptExists(
                f"there is a transcript {name + suffix!r} already", remedy="choose another suffix"
            )
        self._logs[name + suffix] = self._logs.pop(name)
        return name + suffix

    def names(self) -> Sequence[str]:
        return sorted(name for name in self._logs if name.endswith(".jsonl"))
