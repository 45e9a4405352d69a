"""Replay recorded conversations, and write the table and the picture of docs/replay.md.

``python bench/replaying.py [--fixtures DIR]``. DIR holds sessions of pi (`pi/*.jsonl`) and
conversations between two people (`locomo/*.json`); these become transcripts in a temporary
folder, the first speaker as the person and the second as the model, a minute between what they
say, and are gone afterwards.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)

from strandline import SessionManager  # noqa: E402 - as in bench/run.py

PAGE = ROOT / "docs" / "replay.md"
PICTURE = ROOT / "docs" / "replay.svg"
BEGIN, END = "<!-- measured: bench/replaying.py -->", "<!-- end of what was measured -->"
MINUTE_MS = 60_000

RULES = ("assistant", "support", "group")
CACHES = ("anthropic", "anthropic-1h", "openai")
POLICIES = ("full", "plain", "cache-ttl", "cache-aware")
HEADINGS = ("sessions", "rules", "cache", *POLICIES, "cache-aware against plain")


def locomo_transcript(source: Path, folder: Path) -> Path:
    """A conversation between two people as a transcript."""
    told = json.loads(source.read_text(encoding="utf-8"))
    session = SessionManager.create(session_dir=folder, session_id=source.stem, durability="none")
    with session:
        for part in told["sessions"]:
            start_ms = _start_ms(part["date_time"])
            for number, turn in enumerate(part["turns"]):
                at_ms = start_ms + number * MINUTE_MS
                session.append_message(_message(turn, told["speaker_a"], at_ms))
    return next(folder.glob(f"*{source.stem}.jsonl"))


def _start_ms(said: str) -> int:
    moment = datetime.strptime(said, "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


def _message(turn: dict[str, Any], person: str, at_ms: int) -> dict[str, Any]:
    shown = f" [{turn['blip_caption']}]" if turn.get("blip_caption") else ""
    text = turn["text"] + shown
    if turn["speaker"] == person:
        return {"role": "user", "content": text, "timestamp": at_ms}
    content = [{"type": "text", "text": text}]
    return {"role": "assistant", "content": content, "stopReason": "stop", "timestamp": at_ms}
