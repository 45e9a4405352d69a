"""Announcing what came of a sub-agent, in its parent's transcript.

A spawn leaves a note in the parent that no model sees. What comes of the sub-agent is a custom
message of the type `SUBAGENT`, never a person's: its details say where it comes from. Both
carry the id of the run, so that a result is announced once, whoever comes to announce it, and
what a killed process left is announced later. Source: cases/faults, M5, D9, J1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from strandline.transcript.entries import AnyEntry, CustomEntry, CustomMessageEntry
from strandline.transcript.messages import JsonObject, Message, Usage
from strandline.transcript.session import Session

SUBAGENT = "strandline.subagent"
"""The custom type of an announcement."""

SPAWN = "strandline.spawn"
"""The custom type of the notes that a spawn leaves: it began; it ended with nothing to say."""

LOOKED_BACK = 1000
"""As many entries of the path are looked at, the newest, for what was announced."""

MOST_CHARS = 20_000
"""Of an answer; the whole one stays in the sub-agent's transcript."""

MOST_PROBLEM_CHARS = 500

RunStatus = Literal["running", "completed", "failed", "stopped", "timeout", "interrupted"]


@dataclass(frozen=True, slots=True)
class Spawned:
    """A sub-agent that was begun: its session, and the run that its result will name."""

    key: str
    session_id: str
    run_id: str


@dataclass(frozen=True, slots=True)
class SpawnNote:
    """What the parent's transcript knows of a spawn.

    `forked_at` is the entry that the child's own ones follow (None: it began with nothing).
    """

    spawned: Spawned
    label: str | None = None
    forked_at: str | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a run: an answer (empty: nothing is to be said), or a problem in words."""

    status: RunStatus
    reply: str = ""
    problem: str = ""
    duration_ms: int | None = None
    usage: Usage | None = None


def note_spawn(
    session: Session, spawned: Spawned, label: str | None, forked_at: str | None
) -> SpawnNote:
    """Append the note that a sub-agent was begun."""
    data: JsonObject = {
        "runId": spawned.run_id,
        "sessionKey": spawned.key,
        "sessionId": spawned.session_id,
        "label": label,
        "forkedAt": forked_at,
    }
    session.append_custom(SPAWN, data)
    return SpawnNote(spawned, label, forked_at)


def announce(session: Session, note: SpawnNote, outcome: Outcome, *, moved: bool = False) -> bool:
    """Append what came of a run, once; the caller holds the lane. Whether an answer is wanted.

    None is wanted of what is announced already, of silence, and of a run that was begun on a
    branch that the conversation has left since: that is told with it. `moved` says that the
    conversation goes on in another transcript than the one with the note.
    """
    run_id, entries = note.spawned.run_id, session.newest_entries(LOOKED_BACK)
    known = _told(entries).get(run_id)
    if known is not None and (known != "interrupted" or outcome.status == "interrupted"):
        return False
    if outcome.status == "completed" and not outcome.reply.strip():
        session.append_custom(SPAWN, {"runId": run_id, "status": outcome.status})
        return False
    here = moved or run_id in {begun.spawned.run_id for begun in _begun(entries)}
    text = _text(note, outcome, here=here)
    session.append_custom_message(SUBAGENT, text, details={"origin": _origin(note, outcome)})
    return here


def open_spawns(session: Session) -> list[SpawnNote]:
    """Spawns on the active branch of which nothing was announced, the oldest first."""
    entries = session.newest_entries(LOOKED_BACK)
    told = _told(entries)
    return [note for note in _begun(entries) if note.spawned.run_id not in told][::-1]


def waits_for_answer(message: Message) -> bool:
    """Whether a custom message is an announcement: the agent is to answer it."""
    return message.get("role") == "custom" and message.get("customType") == SUBAGENT


def _begun(entries: Sequence[AnyEntry]) -> list[SpawnNote]:
    return [note for note in map(_spawn_note, entries) if note is not None]


def _told(entries: Sequence[AnyEntry]) -> dict[str, str]:
    """What was announced in entries, the newest first: run id to status, the newest word."""
    told: dict[str, str] = {}
    for entry in entries:
        data = _announced(entry)
        run_id, status = data.get("runId"), data.get("status")
        if isinstance(run_id, str) and isinstance(status, str):
            told.setdefault(run_id, status)
    return told


def _announced(entry: AnyEntry) -> Mapping[str, Any]:
    if isinstance(entry, CustomMessageEntry) and entry.custom_type == SUBAGENT:
        return _object(_object(entry.data.get("details")).get("origin"))
    if isinstance(entry, CustomEntry) and entry.custom_type == SPAWN:
        return _object(entry.data.get("data"))
    return {}


def _spawn_note(entry: AnyEntry) -> SpawnNote | None:
    """The note in an entry; a file of others may hold anything."""
    if not isinstance(entry, CustomEntry) or entry.custom_type != SPAWN:
        return None
    data = _object(entry.data.get("data"))
    found = [data.get(name) for name in ("sessionKey", "sessionId", "runId")]
    texts = [value for value in found if isinstance(value, str) and value]
    if len(texts) < len(found):
        return None
    label, forked_at = data.get("label"), data.get("forkedAt")
    return SpawnNote(
        Spawned(*texts),
        label if isinstance(label, str) else None,
        forked_at if isinstance(forked_at, str) else None,
    )


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _origin(note: SpawnNote, outcome: Outcome) -> JsonObject:
    return {
        "kind": "subagent",
        "sessionKey": note.spawned.key,
        "sessionId": note.spawned.session_id,
        "runId": note.spawned.run_id,
        "label": note.label,
        "status": outcome.status,
        "durationMs": outcome.duration_ms,
        "usage": outcome.usage,
    }


def _text(note: SpawnNote, outcome: Outcome, *, here: bool) -> str:
    who = f"The sub-agent {note.label}" if note.label else "The sub-agent"
    who += f" ({note.spawned.key})"
    if not here:
        who += ", which was begun on another branch of this conversation,"
    match outcome.status:
        case "completed":
            return f"{who} answered:\n\n{_bounded(outcome.reply, note.spawned.key)}"
        case "timeout":
            return f"{who} was stopped: its time was over before it had answered."
        case "stopped":
            return f"{who} was stopped before it had answered."
        case "interrupted":
            return f"{who} was interrupted before it had answered."
    problem = " ".join(outcome.problem.split())[:MOST_PROBLEM_CHARS]
    return f"{who} failed: {problem}"


def _bounded(text: str, key: str) -> str:
    if len(text) <= MOST_CHARS:
        return text
    return f"{text[:MOST_CHARS]}\n[cut: all {len(text):,} characters are in the session {key}]"
