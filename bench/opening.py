"""Opening a transcript and building its context: from the end, whole, and from the middle."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from bench.histories import MB, History, entries_in, user_message, write_history
from bench.measure import median_s, once_s, peak_bytes
from bench.peers import MISSING, is_there, pi
from bench.table import Row, duration
from strandline import SessionManager

TITLE = "Opening and building the context"
OPEN_MS = 5
MEMORY_MB = 50
MIDDLE_MS = 20
TIMES_PI = 5

_OPEN_IN_CHILD = """
from strandline import SessionManager
session = SessionManager.open(sys.argv[1])
assert session.build_context().messages
"""


def rows(folder: Path, *, quick: bool) -> Iterator[Row]:
    """Every row; `quick` is a tenth of the sizes."""
    scale = MB // 10 if quick else MB
    for size in (10, 100, 1000):
        history = write_history(folder / f"{size}.jsonl", entries_in(size * scale), compacted=True)
        yield _compacted(history)
        if size == 1000:
            yield _memory(history)
            yield from _looked_up(history, folder / "cache")
            yield from _said_one_thing(history, folder / "cache")
            yield _moved_back(history, folder / "cache")
        history.path.unlink()
    yield _whole(write_history(folder / "whole.jsonl", entries_in(100 * scale), compacted=False))


def size_of(history: History) -> str:
    return f"{history.path.stat().st_size / MB:,.0f} MB"


def build(path: Path, cache: Path | None = None) -> None:
    """What is measured: from the path to the messages."""
    with SessionManager.open(path, cache_dir=cache) as session:
        assert session.build_context().messages


def parse(path: Path) -> None:
    """The control: every line through the standard `json`."""
    with path.open("rb") as lines:
        for line in lines:
            json.loads(line)


def _compacted(history: History) -> Row:
    ours = median_s(lambda: build(history.path), 15)
    control = once_s(lambda: parse(history.path))
    return Row(
        f"open, compaction near the end, {size_of(history)}",
        duration(ours),
        f"json of every line: {duration(control)}; {_by_pi(pi('open', history.path))}",
        control / ours,
        f"≤ {OPEN_MS} ms at every size",
        ours * 1000 <= OPEN_MS,
    )


def _memory(history: History) -> Row:
    bare = peak_bytes("")
    ours = peak_bytes(_OPEN_IN_CHILD, str(history.path)) - bare
    return Row(
        f"memory for that above the interpreter's, {size_of(history)}",
        f"{ours / MB:.0f} MB",
        f"the bare interpreter: {bare / MB:.0f} MB",
        None,
        f"≤ {MEMORY_MB} MB",
        ours <= MEMORY_MB * MB,
    )


def _looked_up(history: History, cache: Path) -> Iterator[Row]:
    """What the end cannot tell: settings, name, labels and counts, asked for once."""
    whole = once_s(lambda: _look_up(history.path, None))
    made = once_s(lambda: _look_up(history.path, cache))
    found = median_s(lambda: _look_up(history.path, cache), 5)
    size = size_of(history)
    what = "open, then settings and totals"
    yield Row(f"{what}, no side file, {size}", duration(whole), "", None)
    yield Row(f"{what}, and the side file written, {size}", duration(made), "", None)
    told = f"without one: {duration(whole)}"
    yield Row(f"{what}, side file there, {size}", duration(found), told, whole / found)


def _look_up(path: Path, cache: Path | None) -> None:
    with SessionManager.open(path, cache_dir=cache) as session:
        context = session.build_context()
        assert context.model
        assert context.thinking_level == "high"
        assert session.entry_count
        assert session.name
        assert session.labels()


def _said_one_thing(history: History, cache: Path) -> Iterator[Row]:
    """From the path to one more message in the file: what a command waits for."""
    control = once_s(lambda: parse(history.path))
    for name, folder in (("no side file", None), ("side file there", cache)):
        ours = median_s(partial(_say, history.path, folder), 3)
        what = f"open, append one message without durability, {name}, {size_of(history)}"
        yield Row(what, duration(ours), f"json of every line: {duration(control)}", control / ours)


def _say(path: Path, cache: Path | None) -> None:
    with SessionManager.open(path, cache_dir=cache, durability="none") as session:
        session.append_message(user_message(1))


def _moved_back(history: History, cache: Path) -> Row:
    """The leaf in the middle: `cache` holds a side file that ends before the `leaf` line."""
    with SessionManager.open(history.path, cache_dir=cache, durability="none") as session:
        session.branch(history.middle_id)
    found = median_s(lambda: build(history.path, cache), 9)
    without = once_s(lambda: build(history.path))
    return Row(
        f"open, the leaf moved back to the middle, {size_of(history)}",
        duration(found),
        f"without a side file: {duration(without)}",
        without / found,
        f"≤ {MIDDLE_MS} ms",
        found * 1000 <= MIDDLE_MS,
    )


def _whole(history: History) -> Row:
    ours = median_s(lambda: build(history.path), 3)
    theirs_ms = pi("open", history.path)
    ratio = theirs_ms / 1000 / ours if theirs_ms else None
    return Row(
        f"open, no compaction, {size_of(history)}",
        duration(ours),
        _by_pi(theirs_ms),
        ratio,
        f"≥ {TIMES_PI}x pi",
        None if ratio is None else ratio >= TIMES_PI,
    )


def _by_pi(milliseconds: float | None) -> str:
    if milliseconds is not None:
        return f"pi: {duration(milliseconds / 1000)}"
    return "pi: cannot open it" if is_there() else MISSING
