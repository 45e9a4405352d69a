"""The doctor on what lies on the disk: stores, transcripts, locks, left-overs, permissions."""

from __future__ import annotations

import json
import os
import stat
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from strandline.sessions.keys import is_transcript_name
from strandline.sessions.rows import SessionRow, transcript_name
from strandline.stores.disk import RealDisk
from strandline.stores.foreign_lock import foreign_holder
from strandline.transcript.codec import BOM, MalformedLine, decode_object
from strandline.transcript.messages import JsonObject
from strandline.wiring.doctor.finding import Finding
from strandline.wiring.doctor.patient import Patient, StoreLook, entries_of

MOST_NAMED = 3
"""So many of a kind are named; then their number is."""

MOST_HEADERS = 1000
"""So many rows are compared with the headers of their transcripts, the newest first."""

MAX_HEADER_BYTES = 64 * 1024

MOST_FILES = 20_000
"""So many files are looked at for who may read them."""

YOUNG_MS = 10 * 60_000
"""A left-over that is younger may belong to a write that is going on."""

_TEMPORARY = (".strandline.tmp", ".new", ".tmp")


# -- the store -------------------------------------------------------------------------------


def check_store(patient: Patient) -> Iterator[Finding]:
    """Rows that can be read, each with its transcript, each of its own."""
    if patient.only_agent is not None and patient.only_agent not in patient.state.agent_ids():
        yield Finding(
            "store.no_agent",
            "error",
            f"there is no agent {patient.only_agent} in {patient.folder}",
            "`strandline status` lists the agents",
        )
        return
    for agent_id, store in patient.stores.items():
        if store.error is not None:
            yield Finding("store.unreadable", "error", store.error.what, store.error.remedy)
        for warning in store.warnings:
            yield Finding(
                "store.damaged", "error", warning, "the next message writes it anew; a copy is kept"
            )
        yield from _rows_and_transcripts(patient, agent_id, store)
    rows = sum(len(store.rows) for store in patient.stores.values())
    yield Finding("store.read", "ok", f"rows read: {rows:,} (agents: {named([*patient.stores])})")


def _rows_and_transcripts(patient: Patient, agent_id: str, store: StoreLook) -> Iterator[Finding]:
    here = {file.path.name for file in patient.transcripts if file.agent_id == agent_id}
    names = {key: transcript_name(row) for key, row in store.rows.items()}
    missing = [key for key, name in names.items() if name not in here]
    if missing:
        yield Finding(
            "store.missing_transcript",
            "warning",
            f"{store.path}: the transcript of {named(missing)} is not there",
            "restore it from a copy; else the next message begins an empty one",
        )
    rowless = sorted(here - set(names.values()))
    if rowless and store.error is None:
        yield Finding(
            "store.no_row",
            "info",
            f"{store.path.parent}: no row names {named(rowless)}",
            "nothing has to be done: `strandline session show FILE` reads them",
        )
    yield from _shared(store, names)
    yield from _disagreeing(store, names, here)


def _shared(store: StoreLook, names: dict[str, str]) -> Iterator[Finding]:
    keys_of = defaultdict(list)
    for key, name in names.items():
        keys_of[name].append(key)
    for name, keys in keys_of.items():
        if len(keys) > 1:
            yield Finding(
                "store.shared_transcript",
                "warning",
                f"{store.path}: {named(keys)} write to one transcript, {name}",
                "reset all but one of them (`/reset` in a chat on that key)",
            )


def _disagreeing(store: StoreLook, names: dict[str, str], here: set[str]) -> Iterator[Finding]:
    """Rows whose session id or file name is not what the transcript says."""
    rows = sorted(store.rows.items(), key=lambda item: -(item[1].updated_at or 0))
    others = []
    for key, row in rows[:MOST_HEADERS]:
        if names[key] not in here:
            continue
        header_id = _header(store.path.parent / names[key]).get("id")
        if isinstance(header_id, str) and header_id != row.session_id:
            others.append(f"{key} (row {row.session_id}, transcript {header_id})")
    if others:
        yield Finding(
            "store.other_session_id",
            "warning",
            f"{store.path}: the session id of {named(others)} is another than its transcript's",
            "correct sessionId or sessionFile of the row to the transcript that is meant",
        )
    odd = [key for key, row in rows if _names_no_transcript(row)]
    if odd:
        yield Finding(
            "store.odd_file_name",
            "warning",
            f"{store.path}: the sessionFile of {named(odd)} can be no transcript's",
            "take it out of the row; the session id names the file then",
        )


def _header(path: Path) -> JsonObject:
    """The object on the first line; empty where there is none."""
    try:
        with path.open("rb") as file:
            return decode_object(file.read(MAX_HEADER_BYTES).removeprefix(BOM).split(b"\n")[0])
    except (OSError, MalformedLine):
        return {}


def _names_no_transcript(row: SessionRow) -> bool:
    last = (row.session_file or "").replace("\\", "/").rpartition("/")[2]
    return row.session_file is not None and not is_transcript_name(last)


# -- transcripts -----------------------------------------------------------------------------


def check_transcripts(patient: Patient) -> Iterator[Finding]:
    """The newest transcripts, as ``session verify`` reads them."""
    for file, look in patient.read:
        if look.error is not None:
            yield Finding("transcripts.unreadable", "error", look.error.what, look.error.remedy)
        elif look.damage:
            kinds = Counter(damage.kind for damage in look.damage)
            told = ", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common())
            yield Finding(
                "transcripts.damaged",
                "warning",
                f"{file.path}: {told}",
                "`strandline session verify FILE` tells more, `session repair FILE` writes a "
                "new file without the damage",
            )
    looked, left = len(patient.read), len(patient.transcripts) - len(patient.read)
    more = f"; not looked at, as older or larger: {left:,}" if left else ""
    yield Finding("transcripts.read", "ok", f"transcripts read: {looked:,}{more}")


# -- locks and left-overs --------------------------------------------------------------------


def check_locks(patient: Patient) -> Iterator[Finding]:
    """Locks that are held or were left behind, and files of writes that never ended."""
    now_ms = patient.clock.now_ms()
    left_over: list[str] = []
    for entry in _entries(patient):
        path = Path(entry.path)
        if not entry.is_file(follow_symlinks=False):
            continue
        if entry.name.endswith(".lock"):
            yield _foreign(path, now_ms)
        elif entry.name.endswith(".run"):
            yield _run(path)
        elif entry.name.endswith(_TEMPORARY) and _is_old(entry, now_ms):
            left_over.append(str(path))
    if left_over:
        yield Finding(
            "locks.left_over",
            "warning",
            f"a write never ended and left {named(left_over)}",
            "what it was to replace is whole: remove the left-overs",
        )


def _foreign(path: Path, now_ms: int) -> Finding:
    holder = foreign_holder(path, now_ms)
    if holder is None:
        return Finding(
            "locks.stale",
            "info",
            f"{path} was left behind by another program",
            "it keeps nobody out; remove it when that program does not run",
        )
    return Finding(
        "locks.foreign",
        "warning",
        f"{path} is held by another program ({holder})",
        "no turn runs here until it is done; stop it if it hangs",
    )


def _run(path: Path) -> Finding:
    try:
        file = RealDisk().open(path)
    except OSError:
        return Finding("locks.over", "ok", f"{path}: a turn has just ended")
    try:
        if file.lock(wait=False):
            remedy = "nothing has to be done: the next turn takes it away"
            return Finding("locks.stale", "info", f"{path}: a turn ended with its process", remedy)
        who = _holder(file.read_at(0, 4096))
        remedy = "wait until it is answered, or stop it"
        return Finding("locks.held", "info", f"{path}: a turn of {who} is running", remedy)
    finally:
        file.close()


def _holder(note: bytes) -> str:
    try:
        told = json.loads(note)
        return f"{told['holder']} (process {told['pid']} on {told['host']})"
    except (ValueError, KeyError, TypeError, RecursionError):
        return "another process"


def _is_old(entry: os.DirEntry[str], now_ms: int) -> bool:
    try:
        return now_ms - entry.stat(follow_symlinks=False).st_mtime * 1000 > YOUNG_MS
    except OSError:
        return False


# -- permissions -----------------------------------------------------------------------------


def check_permissions(patient: Patient) -> Iterator[Finding]:
    """Files that others may read, and files that we may not."""
    shared: list[str] = []
    closed: list[str] = []
    paths = [patient.folder, *(Path(entry.path) for entry in _entries(patient))]
    for path in paths[:MOST_FILES]:
        try:
            mode = path.stat(follow_symlinks=False).st_mode
        except OSError:
            continue
        if stat.S_ISLNK(mode):
            continue
        if mode & 0o077:
            shared.append(str(path))
        if not os.access(path, os.R_OK | (os.X_OK if stat.S_ISDIR(mode) else 0)):
            closed.append(str(path))
    if shared:
        yield Finding(
            "permissions.shared",
            "warning",
            f"others on this machine may use {named(shared)}",
            f"chmod -R go-rwx {patient.folder}",
        )
    if closed:
        yield Finding(
            "permissions.closed",
            "error",
            f"you may not read {named(closed)}",
            "give them to the user who runs Strandline, with chown",
        )


def _entries(patient: Patient) -> Iterator[os.DirEntry[str]]:
    """The files and folders of the state itself; workspaces are the agents' own."""
    for entry in entries_of(patient.folder):
        if not entry.name.startswith("workspace"):
            yield entry
    for folder in _folders(patient):
        yield from entries_of(folder)


def _folders(patient: Patient) -> Iterable[Path]:
    yield patient.folder / "agents"
    for agent_id in patient.agent_ids:
        sessions = patient.state.sessions_folder(agent_id)
        yield from (sessions.parent, sessions)


def named(names: list[str]) -> str:
    """The first of them, and how many more there are."""
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more:,} more" if more > 0 else "")
