"""Appending: durably by one and by many, without durability, and the context after it."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from threading import Thread

from bench.histories import user_message, write_history
from bench.measure import best_s, once_s
from bench.peers import MISSING, pi
from bench.table import Row, duration, rate
from strandline import SessionManager

TITLE = "Appending"
ONE_WRITER_SHARE = 0.8
MANY_WRITERS_TIMES = 15
PLAIN_PER_S = 80_000
REBUILD_MS = 0.5
WRITERS = 64
ROUNDS = 5


def rows(folder: Path, *, quick: bool) -> Iterator[Row]:
    """Every row; `quick` is a tenth of the counts."""
    scale = 1 if quick else 10
    yield _one_writer(folder, rounds=scale, batch=40)
    yield _many_writers(folder, rounds=scale, each=6)
    yield _plain(folder, count=1_000 * scale)
    yield from _rebuild(folder, entries=10_000 * scale)


def _line() -> bytes:
    """A line as long as those that are appended."""
    entry = {"type": "message", "id": "00000000", "parentId": "00000000", "timestamp": "0" * 24}
    return json.dumps({**entry, "message": user_message(1)}, ensure_ascii=False).encode() + b"\n"


def _raw_syncs_s(path: Path, count: int) -> float:
    """The control: seconds for `count` writes, each followed by its sync."""
    line, file = _line(), os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)

    def work() -> None:
        for _ in range(count):
            os.write(file, line)
            os.fsync(file)

    try:
        return once_s(work)
    finally:
        os.close(file)


def _one_writer(folder: Path, rounds: int, batch: int) -> Row:
    """Turns about, so that a disk that changes its mind changes it for both."""
    ours, raw = [], []
    with SessionManager.create(session_dir=folder) as session:
        for _ in range(rounds):
            raw.append(_raw_syncs_s(folder / "raw", batch))
            ours.append(once_s(lambda: _append(session, batch)))
    a, b = statistics.median(ours) / batch, statistics.median(raw) / batch
    return Row(
        "durable append, one writer",
        rate(1 / a),
        f"write + fsync: {rate(1 / b)}",
        b / a,
        f"≥ {ONE_WRITER_SHARE}x raw",
        b / a >= ONE_WRITER_SHARE,
    )


def _append(session: SessionManager, count: int) -> None:
    for number in range(count):
        session.append_message(user_message(number))


def _many_writers(folder: Path, rounds: int, each: int) -> Row:
    """All of them on one session, turns about with the control."""
    ours, raw = [], []
    with SessionManager.create(session_dir=folder) as session:
        for _ in range(rounds):
            raw.append(_raw_syncs_s(folder / "raw", 40) / 40)
            writers = [Thread(target=_append, args=(session, each)) for _ in range(WRITERS)]
            ours.append(once_s(partial(_run, writers)) / (each * WRITERS))
    a, b = statistics.median(ours), statistics.median(raw)
    return Row(
        f"durable append, {WRITERS} writers at once",
        rate(1 / a),
        f"write + fsync: {rate(1 / b)}",
        b / a,
        f"≥ {MANY_WRITERS_TIMES}x raw",
        b / a >= MANY_WRITERS_TIMES,
    )


def _run(threads: list[Thread]) -> None:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _plain(folder: Path, count: int) -> Row:
    short = {"role": "user", "content": [{"type": "text", "text": "harbour " * 28}], "timestamp": 1}
    with SessionManager.create(session_dir=folder, durability="none") as session:
        (best,) = best_s([lambda: [session.append_message(short) for _ in range(count)]], ROUNDS)
    ours = count / best
    theirs = pi("append", folder / "pi.jsonl", str(count), str(ROUNDS))
    return Row(
        "append without durability",
        rate(ours),
        f"pi: {rate(theirs)}" if theirs else MISSING,
        ours / theirs if theirs else None,
        f"≥ {rate(PLAIN_PER_S)}",
        ours >= PLAIN_PER_S,
    )


def _rebuild(folder: Path, entries: int) -> Iterator[Row]:
    history = write_history(folder / "long.jsonl", entries, compacted=False)
    theirs_ms = pi("rebuild", history.path)
    against = f"pi: {duration(theirs_ms / 1000)}" if theirs_ms else MISSING
    built, listed = [], []
    with SessionManager.open(history.path, durability="none") as session:
        session.build_context()
        for number in range(20):
            session.append_message(user_message(number))
            built.append(once_s(session.build_context))
            listed.append(once_s(lambda: session.build_context().messages))
    what = f"the context again after one append, {history.entries:,} entries"
    for name, times, limit_ms in ((what, built, REBUILD_MS), (f"{what}, as a list", listed, None)):
        ours = statistics.median(times)
        ratio = theirs_ms / 1000 / ours if theirs_ms else None
        target = f"≤ {limit_ms} ms" if limit_ms else ""
        met = ours * 1000 <= limit_ms if limit_ms else None
        yield Row(name, duration(ours), against, ratio, target, met)
