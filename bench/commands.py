"""The command line: how long a person waits, against Python starting up for nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from bench.histories import MB, entries_in, write_history
from bench.measure import command_s
from bench.table import Row, duration
from strandline.clock import SystemClock
from strandline.sessions.rows import new_row
from strandline.stores.rows_file import RowsFile
from strandline.stores.rows_json import encoded_rows

TITLE = "The command line"
LOCAL_S = 0.2
SESSIONS_S = 0.15
ROWS = 50
SHOWN_ENTRIES = 500
"""Of the session that is shown: a long working day."""
STATE_VARIABLE = "STRANDLINE_STATE_DIR"

MANY_ROWS = 1000
"""What the doctor looks at: each with a transcript."""

PI_SESSION = Path(__file__).parents[2] / "shared" / "fixtures" / "pi" / "large-session.jsonl"
"""A long session of pi, about 1 MB; where it is missing, one of ours as large takes its place."""

_SETTINGS = {
    "models": {
        "providers": {
            "b": {
                "baseUrl": "http://127.0.0.1:9/v1",
                "models": [{"id": "m", "contextWindow": 200_000, "maxTokens": 500}],
            }
        }
    },
    "agents": {"defaults": {"model": "b/m"}},
}


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
    yield from _looking(folder, python, 1 if quick else 5)


def _looking(folder: Path, python: float, runs: int) -> Iterator[Row]:
    """What looks at all of something. No target: to be watched."""
    session = PI_SESSION
    if not session.exists():
        session = write_history(folder / "long.jsonl", entries_in(MB), compacted=False).path
    state = _many_rows(folder / "many")
    for words, told in (
        (("context", "explain", str(session)), ""),
        (("context", "replay", str(session)), ", four policies"),
        (("doctor",), f", {MANY_ROWS:,} rows"),
    ):
        yield _command(words, None, python, runs, state, told)


def _many_rows(state: Path) -> Path:
    sessions = state / "agents" / "main" / "sessions"
    sessions.mkdir(parents=True)
    now_ms, rows = SystemClock().now_ms(), {}
    for number in range(MANY_ROWS):
        name = f"session-{number}"
        write_history(sessions / f"{name}.jsonl", 20, compacted=False)
        rows[f"agent:main:explicit:{name}"] = dict(new_row(name, now_ms).raw)
    (sessions / "sessions.json").write_bytes(encoded_rows(rows))
    (state / "strandline.json").write_text(json.dumps(_SETTINGS), encoding="utf-8")
    return state


def _add_row(store: RowsFile, session_id: str, now_ms: int) -> None:
    store.patch(f"agent:main:explicit:{session_id}", lambda _: new_row(session_id, now_ms))


def _command(
    words: tuple[str, ...],
    limit_s: float | None,
    python: float,
    runs: int,
    state: Path,
    told: str = "",
) -> Row:
    shown = "`strandline " + " ".join(Path(word).name for word in words) + f"`{told}"
    target = "" if limit_s is None else f"≤ {limit_s} s"
    control = f"python -c pass: {duration(python)}"
    program = Path(sys.executable).with_name("strandline")
    try:
        ours = command_s([program, *words], runs, **{STATE_VARIABLE: str(state)})
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", None) or str(error).encode()
        reason = said.decode(errors="replace").strip().rpartition("\n")[2]
        return Row(shown, f"failed: {reason[:60]}", control, None, target, met=False)
    met = None if limit_s is None else ours <= limit_s
    return Row(shown, duration(ours), control, python / ours, target, met)
