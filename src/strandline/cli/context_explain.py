"""``context explain``: what the next request of a session is made of, and why."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from strandline.cli.addressing import agent_of
from strandline.cli.notices import warn
from strandline.cli.output import (
    bold,
    dim,
    json_option,
    print_json,
    print_lines,
    slow_notice,
)
from strandline.cli.signs import page
from strandline.cli.transcript_file import opened
from strandline.cli.words import one_line
from strandline.clock import SystemClock, iso_from_ms, ms_from_iso

if TYPE_CHECKING:
    from strandline.context.explain import Row, Sum
    from strandline.context.view import Decision
    from strandline.manager import SessionManager
    from strandline.wiring import State
    from strandline.wiring.explaining import Explained, Question

MOST_DIGITS = 16
LATEST_MS = 250_000_000_000_000
"""Later than this no calendar goes."""


@click.command()
@click.argument(
    "file", required=False, type=click.Path(path_type=Path, readable=False), metavar="[FILE]"
)
@click.option("--session-key", "key", metavar="KEY", help="A session instead of a file.")
@click.option("--agent", "agent_id", metavar="ID", help="The agent whose settings hold.")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="Take the rules from this file: a whole configuration, or a bare context: {…}.",
)
@click.option("--now", metavar="TIME", help="When, as ISO-8601 or Unix ms  [default: now]")
@click.option("--model", "model_ref", help="The model that would be asked.")
@click.option("--window", type=click.IntRange(256, 10**9), help="The window in tokens, if not its.")
@click.option("--all", "everything", is_flag=True, help="Every message on a line of its own.")
@json_option
@click.pass_obj
def explain(  # noqa: PLR0913 - one for each option
    state_dir: Path,
    *,
    file: Path | None,
    key: str | None,
    agent_id: str | None,
    config: Path | None,
    now: str | None,
    model_ref: str | None,
    window: int | None,
    everything: bool,
    as_json: bool,
) -> None:
    """Say what the model would see of FILE, or of the session of a key, and why.

    Looks only: nothing is written, no model is asked. For the model that answered last, with
    the rules of the agent's settings.
    """
    if (file is None) == (not key):
        raise click.UsageError("give a FILE or a --session-key")
    from strandline.wiring import open_state  # noqa: PLC0415 - what it needs is heavy
    from strandline.wiring.explaining import Question, transcript_of  # noqa: PLC0415 - heavy

    question = Question(
        agent_id=agent_of(agent_id, key),
        now_ms=SystemClock().now_ms() if now is None else _moment(now),
        key=key or None,
        config=config,
        model_ref=model_ref,
        window=window,
    )
    state = open_state(state_dir, os.environ, warn=warn)
    path = file or transcript_of(state, question)
    with opened(path, state_dir) as session:
        found = _found(state, session, question)
        if as_json:
            print_json(_report(path, question, found))
        else:
            print_lines(_lines(path, question, found, everything=everything))


def _moment(text: str) -> int:
    """Unix ms of what a person wrote as a time."""
    digits = text.strip().removeprefix("-")
    if digits.isdecimal() and len(digits) < MOST_DIGITS:
        return int(text)
    moment = ms_from_iso(text.strip())
    if moment is None:
        raise click.UsageError(f"--now {text!r}: give ISO-8601 (2026-11-30T10:00Z) or Unix ms")
    return moment


def _found(state: State, session: SessionManager, question: Question) -> Explained:
    from strandline.cli.stopping import run  # noqa: PLC0415 - heavy
    from strandline.wiring.explaining import explained  # noqa: PLC0415 - heavy

    slow_notice.expect("assembling the context")
    with redirect_stdout(sys.stderr):  # what an engine prints is no part of the answer
        found = run(explained(state, session, question))
    slow_notice.expect("looking at every message")
    _ = found.explanation.rows
    return found


# -- as JSON -------------------------------------------------------------------------------


def _report(path: Path, question: Question, found: Explained) -> dict[str, Any]:
    explanation = found.explanation
    room, totals = explanation.room, explanation.totals
    return {
        "file": str(path),
        "sessionKey": question.key,
        "agent": question.agent_id,
        "engine": explanation.engine,
        "model": found.model.ref,
        "nowMs": question.now_ms,
        "budget": {
            "window": room.window,
            "reserve": room.reserve,
            "systemPrompt": room.system_prompt,
            "tools": room.tools,
            "limit": room.limit,
            "used": room.used,
            "free": room.free,
            "scale": room.scale,
        },
        "totals": {
            **_sum(totals.all),
            "byOutcome": {name: _sum(each) for name, each in totals.by_outcome.items()},
            "byLayer": {name: _sum(each) for name, each in totals.by_layer.items()},
        },
        "notes": list(found.notes),
        "messages": [_row(row) for row in explanation.rows],
    }


def _sum(sum_: Sum) -> dict[str, int]:
    return {"messages": sum_.messages, "tokens": sum_.tokens}


def _row(row: Row) -> dict[str, Any]:
    return {
        "entryId": row.entry_id,
        "role": row.role,
        "tokens": row.tokens,
        "outcome": row.outcome,
        "layer": row.layer,
        "rule": row.rule,
        "reason": row.reason,
        "decisions": [_decision(each) for each in row.decisions],
    }


def _decision(decision: Decision) -> dict[str, Any]:
    return {
        "outcome": decision.outcome,
        "layer": decision.step,
        "rule": decision.rule,
        "reason": decision.reason,
    }


# -- for people ----------------------------------------------------------------------------


def _lines(path: Path, question: Question, found: Explained, *, everything: bool) -> Iterator[str]:
    from strandline.cli.budget_bar import bar_lines  # noqa: PLC0415 - heavy
    from strandline.cli.context_table import (  # noqa: PLC0415 - heavy
        reason_lines,
        table_lines,
        total_lines,
    )

    explanation, paper = found.explanation, page()
    where = one_line(question.key or str(path))
    when = iso_from_ms(question.now_ms) if abs(question.now_ms) < LATEST_MS else question.now_ms
    yield bold(where)
    yield dim(f"for {found.model.ref} at {when}, engine {explanation.engine}")
    parts = (
        table_lines(explanation, paper, everything=everything),
        reason_lines(explanation, paper),
        total_lines(explanation),
        bar_lines(explanation, paper),
        (line for note in found.notes for line in textwrap.wrap(one_line(note), paper.width)),
    )
    for part in parts:
        lines = list(part)
        yield from ["", *lines] if lines else []
