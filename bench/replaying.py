"""Replay recorded conversations, and write the table and the picture of docs/replay.md.

``python bench/replaying.py [--fixtures DIR]``. DIR holds sessions of pi (`pi/*.jsonl`) and
conversations between two people (`locomo/*.json`); these become transcripts in a temporary
folder, the first speaker as the person and the second as the model, a minute between what they
say, and are gone afterwards.
"""

from __future__ import annotations

import argparse
import json
import os
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
CACHES = ("anthropic", "anthropic-1h", "openai", "gemini")
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


def replayed(files: Sequence[Path], rules: str, cache: str, *options: str) -> dict[str, Any]:
    """What the command says of the files."""
    command = [sys.executable, "-m", "strandline", "context", "replay", *map(str, files)]
    command += ["--rules", rules, "--provider-cache", cache, "--json", *options]
    with tempfile.TemporaryDirectory() as nowhere:
        told = subprocess.run(
            command,
            check=True,
            capture_output=True,
            env={**os.environ, "STRANDLINE_STATE_DIR": nowhere},
        )
    report: dict[str, Any] = json.loads(told.stdout)
    return report


def rows(groups: dict[str, Sequence[Path]]) -> Iterator[tuple[str, ...]]:
    """A row for each group of files, rules and cache."""
    for sessions, files in groups.items():
        for rules in RULES:
            for cache in CACHES:
                print(f"replaying: {sessions}, {rules}, {cache} …", file=sys.stderr, flush=True)
                told = replayed(files, rules, cache)["policies"]
                outcomes = {each["policy"]: each for each in told}
                aware, plain = (_cost(outcomes[name]) for name in ("cache-aware", "plain"))
                cells = (_cell(outcomes[name]) for name in POLICIES)
                yield sessions, rules, cache, *cells, f"{aware / plain - 1:+.0%}"


def _cost(outcome: dict[str, Any]) -> float:
    cost: float = outcome["cost"]["total"]
    return cost


def _cell(outcome: dict[str, Any]) -> str:
    return f"${_cost(outcome):,.2f} ({outcome['cachedShare']:.0%})"


def table(groups: dict[str, Sequence[Path]]) -> str:
    """The table in Markdown."""
    lines = [HEADINGS, tuple("---" for _ in HEADINGS), *rows(groups)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixtures", type=Path, default=ROOT.parent / "shared" / "fixtures")
    parser.add_argument("--print", action="store_true", help="print the table, write nothing")
    options = parser.parse_args()
    sessions = sorted((options.fixtures / "pi").glob("*.jsonl"))
    with tempfile.TemporaryDirectory() as folder:
        sources = sorted((options.fixtures / "locomo").glob("*.json"))
        talks = [locomo_transcript(source, Path(folder)) for source in sources]
        measured = table({"two of pi": sessions, "five talks": talks})
    if options.print:
        print(measured)
        return
    page = PAGE.read_text(encoding="utf-8")
    between = re.compile(f"(?<={re.escape(BEGIN)}\n).*(?={re.escape(END)})", re.DOTALL)
    PAGE.write_text(between.sub(lambda _: f"\n{measured}\n\n", page), encoding="utf-8")
    PICTURE.unlink(missing_ok=True)
    replayed(sessions[-1:], RULES[0], CACHES[0], "--picture", str(PICTURE))
    PICTURE.chmod(0o644)  # a page of the project, not a session of somebody's
    print(f"written to {PAGE.relative_to(ROOT)} and {PICTURE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
