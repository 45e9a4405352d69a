"""The command line: how long a person waits, against Python starting up for nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from bench.histories import write_history
from bench.measure import command_s
from bench.table import Row, duration
from strandline.clock import SystemClock
from strandline.sessions.rows import new_row
from strandline.stores.rows_file import RowsFile

TITLE = "The command line"
LOCAL_S = 0.2
SESSIONS_S = 0.15
ROWS = 50
SHOWN_ENTRIES = 500
"""Of the session that is shown: a long working day."""
STATE_VARIABLE = "STRANDLINE_STATE_DIR"


def rows(folder: Path, *, quick: bool) -> Iterator[Row]:
    """Every row; `quick` takes fewer runs."""
    runs = 3 if quick else 11
    sessions = folder / "state" / "agents" / "main" / "sessions"
    sessions.mkdir(parents=True)
    history = write_history(sessions / "bench.jsonl", SHOWN_ENTRIES, compacted=True)
    store, now_ms = RowsFile(sessions / "sessions.json"), SystemClock().now_ms()
    for number in range(ROWS):
        _add_row(store, f"session-{number}", now_ms)
    python = command_s([sys.executable, "-c", "pass"], runs)
    for words, limit_s in (
        (("--version",), LOCAL_S),
        (("--help",), LOCAL_S),
        (("session", "show", str(history.path)), LOCAL_S),
        (("sessions", "--json"), SESSIONS_S),
    ):
        yield _command(words, limit_s, python, runs, folder / "state")


def _add_row(store: RowsFile, session_id: str, now_ms: int) -> None:
    store.patch(f"agent:main:explicit:{session_id}", lambda _: new_row(session_id, now_ms))


def _command(words: tuple[str, ...], limit_s: float, python: float, runs: int, state: Path) -> Row:
    shown = "strandline " + " ".join(Path(word).name for word in words)
    target, control = f"≤ {limit_s} s", f"python -c pass: {duration(python)}"
    program = Path(sys.executable).with_name("strandline")
    try:
        ours = command_s([program, *words], runs, **{STATE_VARIABLE: str(state)})
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", None) or str(error).encode()
        reason = said.decode(errors="replace").strip().rpartition("\n")[2]
        return Row(f"`{shown}`", f"failed: {reason[:60]}", control, None, target, met=False)
    return Row(f"`{shown}`", duration(ours), control, python / ours, target, ours <= limit_s)
