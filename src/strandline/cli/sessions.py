"""``strandline sessions``: the conversations of an agent, the newest first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from strandline.cli.notices import warn
from strandline.cli.output import json_option, print_json, print_lines
from strandline.cli.row_text import ago, columns_of, context_text, model_text
from strandline.clock import SystemClock
from strandline.sessions.rows import SessionRow
from strandline.wiring import rows_in

DEFAULT_LIMIT = 100


@click.command()
@json_option
@click.option("--active", type=click.IntRange(min=1), help="Only those of the last MINUTES.")
@click.option("--limit", default=str(DEFAULT_LIMIT), help="At most so many, or all.")
@click.option("--agent", "agent_id", default="main", help="The agent whose sessions to list.")
@click.option("--all-agents", is_flag=True, help="The sessions of every agent.")
@click.option("--store", type=click.Path(path_type=Path), help="Another sessions.json to read.")
@click.pass_obj
def sessions(
    state_dir: Path,
    active: int | None,
    limit: str,
    agent_id: str,
    store: Path | None,
    *,
    as_json: bool,
    all_agents: bool,
) -> None:
    """List conversations, the newest first."""
    found = rows_in(state_dir, agent_id, all_agents=all_agents, store=store, warn=warn)
    now_ms = SystemClock().now_ms()
    rows = [(key, row) for _, each in found for key, row in each.items()]
    rows.sort(key=lambda item: -(item[1].updated_at or 0))
    if active is not None:
        rows = [item for item in rows if now_ms - (item[1].updated_at or 0) <= active * 60_000]
    shown = rows[: _limit(limit)]
    if as_json:
        paths = [str(path) for path, _ in found]
        print_json(_report(paths, rows, shown, limit, active))
    else:
        _print(shown, len(rows), now_ms)


def _limit(text: str) -> int | None:
    if text == "all":
        return None
    if text.isdecimal() and int(text) > 0:
        return int(text)
    raise click.UsageError(f"--limit {text!r}: give a number above 0, or all")


def _report(
    paths: list[str],
    rows: list[tuple[str, SessionRow]],
    shown: list[tuple[str, SessionRow]],
    limit: str,
    active: int | None,
) -> dict[str, Any]:
    return {
        "path": paths[0] if len(paths) == 1 else paths,
        "count": len(shown),
        "totalCount": len(rows),
        "limitApplied": _limit(limit),
        "hasMore": len(shown) < len(rows),
        "activeMinutes": active,
        "sessions": [{"key": key, **row.raw} for key, row in shown],
    }


def _print(shown: list[tuple[str, SessionRow]], total: int, now_ms: int) -> None:
    if not shown:
        click.echo("no sessions here yet: `strandline chat` begins one")
        return
    titles = ("key", "session id", "last", "model", "context", "compactions")
    lines = [titles, *(_cells(key, row, now_ms) for key, row in shown)]
    print_lines(columns_of(lines))
    if len(shown) < total:
        click.echo(f"{total - len(shown)} more: --limit all")


def _cells(key: str, row: SessionRow, now_ms: int) -> tuple[str, ...]:
    return (
        key,
        row.session_id,
        ago(row.updated_at, now_ms),
        model_text(row),
        context_text(row),
        str(row.compaction_count or 0),
    )
