"""What the doctor looks at: a state directory, opened for reading as far as it can be.

Everything here is bounded and changes nothing: no look-ups are kept, no lock is held, no model
is asked. Source: spec 3, Watching.
"""
# ruff: noqa: PLC0415 - what is heavy is imported where it is needed

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from strandline.clock import Clock, RandomIds
from strandline.errors import StrandlineError
from strandline.sessions.keys import is_transcript_name
from strandline.sessions.rows import SessionRow, transcript_name
from strandline.wiring.doctor.transcript_look import TranscriptLook, look_at
from strandline.wiring.state import State

MOST_TRANSCRIPTS = 50
"""So many of the newest transcripts are read."""

MOST_BYTES = 64_000_000
"""As much of them is read; a larger file is left to ``session verify``."""

MOST_AGENTS = 50


class TranscriptFile(NamedTuple):
    """A transcript in a sessions folder, and the key whose row names it."""

    agent_id: str
    path: Path
    size: int
    written_ns: int
    key: str | None
    row: SessionRow | None


class StoreLook(NamedTuple):
    """The rows of an agent, what its store complains of, and why they cannot be read."""

    path: Path
    rows: Mapping[str, SessionRow]
    warnings: list[str]
    error: StrandlineError | None


@dataclass(frozen=True)
class Patient:
    """A state directory. `only_agent` narrows what is looked at to one agent."""

    folder: Path
    environ: Mapping[str, str] = field(repr=False)  # it holds keys
    clock: Clock
    only_agent: str | None = None

    @cached_property
    def config_error(self) -> StrandlineError | None:
        """Why the settings cannot be used, if they cannot."""
        return self._opened[1]

    @cached_property
    def config_warnings(self) -> list[str]:
        """What the settings are warned of."""
        return self._opened[2]

    @property
    def state(self) -> State:
        """The state directory; with the defaults where its settings cannot be used."""
        return self._opened[0]

    @cached_property
    def _opened(self) -> tuple[State, StrandlineError | None, list[str]]:
        from strandline.settings import Settings, load

        warnings: list[str] = []
        settings, path, problem = Settings(), None, None
        try:
            loaded = load(self.folder, self.environ)
            settings, path = loaded.settings, loaded.path
            warnings += loaded.warnings
        except StrandlineError as error:
            problem = error
        state = State(
            self.folder,
            settings,
            path,
            self.environ,
            warn=warnings.append,
            clock=self.clock,
            ids=RandomIds(),
        )
        return state, problem, warnings

    @cached_property
    def agent_ids(self) -> list[str]:
        """The agents that are looked at."""
        if self.only_agent is not None:
            return [self.only_agent]
        return self.state.agent_ids()[:MOST_AGENTS]

    @cached_property
    def stores(self) -> dict[str, StoreLook]:
        """The rows of every agent."""
        return {agent_id: self._store(agent_id) for agent_id in self.agent_ids}

    def _store(self, agent_id: str) -> StoreLook:
        from strandline.stores.rows_file import RowsFile

        path = self.state.sessions_folder(agent_id) / "sessions.json"
        warnings: list[str] = []
        try:
            rows = RowsFile(path, read_only=True, warn=warnings.append).list()
        except StrandlineError as error:
            return StoreLook(path, {}, warnings, error)
        return StoreLook(path, rows, warnings, None)

    @cached_property
    def transcripts(self) -> list[TranscriptFile]:
        """The transcripts of all agents, the newest first."""
        found = [file for agent_id in self.agent_ids for file in self._transcripts(agent_id)]
        return sorted(found, key=lambda file: -file.written_ns)

    def _transcripts(self, agent_id: str) -> list[TranscriptFile]:
        named = {transcript_name(r): (key, r) for key, r in self.stores[agent_id].rows.items()}
        found = []
        for entry in entries_of(self.state.sessions_folder(agent_id)):
            status = _of_file(entry) if is_transcript_name(entry.name) else None
            if status is not None:
                key, row = named.get(entry.name, (None, None))
                path, times = Path(entry.path), status.st_mtime_ns
                found.append(TranscriptFile(agent_id, path, status.st_size, times, key, row))
        return found

    @cached_property
    def read(self) -> list[tuple[TranscriptFile, TranscriptLook]]:
        """The newest transcripts, as many as may be read."""
        left, looks = MOST_BYTES, []
        for file in self.transcripts[:MOST_TRANSCRIPTS]:
            if file.size <= left:
                left -= file.size
                looks.append((file, look_at(file.path)))
        return looks


def entries_of(folder: Path) -> list[os.DirEntry[str]]:
    """What is in a folder, by name; nothing where it cannot be read."""
    try:
        with os.scandir(folder) as found:
            return sorted(found, key=lambda entry: entry.name)
    except OSError:
        return []


def _of_file(entry: os.DirEntry[str]) -> os.stat_result | None:
    """What the system says of a file; None for anything else, as a link to nothing."""
    try:
        return entry.stat() if entry.is_file() else None
    except OSError:
        return None
