"""Seeing the lock files of OpenClaw: who, if anybody, holds one now.

OpenClaw guards a file by creating ``<file>.lock`` with ``{"pid", "createdAt",
"starttime"}`` and deleting it afterwards, so a lock outlives a process that was killed.
We neither make nor remove such files; we only wait for a holder that lives. Source: spec 1,
Durability, writers, speed.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from strandline.clock import ms_from_iso

NAMELESS_GRACE_MS = 30_000
"""How long a lock without a name counts: its owner may pause between making and writing it."""

UNPROVEN_MAX_MS = 30 * 60_000
"""How long a lock counts whose process lives but may be another of the same number."""


def foreign_holder(lock: Path, now_ms: int) -> str | None:
    """Who holds a lock file, in words, or None when it is free or left behind.

    The process must live, and its start time must be the lock's. Where the start time is
    not known, the age decides: a process number can come round, or be another container's.
    """
    try:
        made_ms = lock.stat().st_mtime_ns // 1_000_000
        content = lock.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"somebody whose lock cannot be read ({error.strerror})"
    payload = _payload(content)
    pid = payload.get("pid")
    if type(pid) is not int or pid <= 0:
        return "somebody unnamed" if now_ms - made_ms <= NAMELESS_GRACE_MS else None
    if pid == os.getpid() or not _lives(pid):
        return None
    started, recorded = _start_time(pid), payload.get("starttime")
    if started is not None and type(recorded) is int:
        return f"process {pid}" if started == recorded else None
    made_ms = ms_from_iso(payload.get("createdAt")) or made_ms
    return f"process {pid}" if now_ms - made_ms <= UNPROVEN_MAX_MS else None


def _payload(content: bytes) -> dict[str, Any]:
    try:
        payload = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return payload if isinstance(payload, dict) else {}


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    fields = _stat_fields(pid)
    return not fields or fields[0] != "Z"  # a zombie holds nothing


def _start_time(pid: int) -> int | None:
    """Clock ticks between boot and the start of a process; None where there is no /proc."""
    fields = _stat_fields(pid)
    return int(fields[19]) if len(fields) > 19 else None


def _stat_fields(pid: int) -> list[str]:
    """The fields of /proc/<pid>/stat behind the name, which may hold spaces and brackets."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()
