"""One transcript, read once: what is damaged in it, and what its conversation is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strandline.clock import RandomIds, SystemClock
from strandline.context.tokens import HeuristicCounter, MessageTokens
from strandline.errors import StrandlineError
from strandline.runtime.silence import TOKEN
from strandline.stores.jsonl import JsonlStore
from strandline.transcript.damage import Finding as Damage
from strandline.transcript.entries import CompactionEntry, MessageEntry
from strandline.transcript.messages import Message
from strandline.transcript.session import Session

NEWEST_ENTRIES = 200
"""As many are looked through for compactions that follow each other closely."""


@dataclass(frozen=True, slots=True)
class TranscriptLook:
    """What is in a transcript; `error` where it cannot be read at all.

    `tokens` are those of its live context by a rule of thumb, `tool_tokens` those of tool
    results. `compactions` and `requests` are those among its newest entries; `tokenish` are
    the texts of answers that mention the token of silent replies.
    """

    session_id: str = ""
    damage: Sequence[Damage] = ()
    tokens: int = 0
    tool_tokens: int = 0
    compactions: int = 0
    requests: int = 0
    tokenish: tuple[str, ...] = ()
    error: StrandlineError | None = None


def look_at(path: Path) -> TranscriptLook:
    """What is in the transcript `path`; nothing is kept beside it."""
    try:
        log = JsonlStore(path.parent).open(path.name)
    except StrandlineError as error:
        return TranscriptLook(error=error)
    try:
        return _looked(Session(log, clock=SystemClock(), ids=RandomIds()))
    except StrandlineError as error:
        return TranscriptLook(error=error)
    finally:
        log.close()


def _looked(session: Session) -> TranscriptLook:
    tokens = MessageTokens(HeuristicCounter())
    messages = [m for m in session.build_context().messages if isinstance(m, dict)]
    sizes = [(m.get("role"), tokens.count(m)) for m in messages]
    newest = session.newest_entries(NEWEST_ENTRIES)
    said = [entry.message.get("role") for entry in newest if isinstance(entry, MessageEntry)]
    return TranscriptLook(
        session_id=session.session_id,
        damage=session.verify(),
        tokens=sum(size for _, size in sizes),
        tool_tokens=sum(size for role, size in sizes if role == "toolResult"),
        compactions=sum(isinstance(entry, CompactionEntry) for entry in newest),
        requests=said.count("user"),
        tokenish=tuple(text for m in messages if TOKEN.lower() in (text := _answer(m)).lower()),
    )


def _answer(message: Message) -> str:
    """The text of an answer; empty for anything else."""
    content: Any = message.get("content") if message.get("role") == "assistant" else None
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    texts = (b for b in blocks if isinstance(b, dict) and b.get("type") == "text")
    return "\n".join(str(block.get("text", "")) for block in texts)
