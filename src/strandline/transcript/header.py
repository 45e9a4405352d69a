"""The first line of a transcript (spec 1, File)."""

from __future__ import annotations

from strandline.clock import Clock, iso_from_ms
from strandline.transcript.messages import JsonObject
from strandline.transcript.migrate import CURRENT_VERSION


def new_header(session_id: str, clock: Clock, cwd: str, parent: str | None) -> JsonObject:
    """The header of a new transcript; `parent` is the path of the one it was forked from."""
    header: JsonObject = {
        "type": "session",
        "version": CURRENT_VERSION,
        "id": session_id,
        "timestamp": iso_from_ms(clock.now_ms()),
        "cwd": cwd,
    }
    return {**header, "parentSession": parent} if parent else header
