"""``strandline status``: what is set up in a state directory, and what is there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from strandline import __version__
from strandline.cli.notices import warn
from strandline.cli.output import json_option, print_json, print_lines
from strandline.cli.row_text import ago, columns_of
from strandline.cli.words import cut, one_line
from strandline.clock import SystemClock
from strandline.context.engine import LEGACY
from strandline.errors import StrandlineError

if TYPE_CHECKING:
    from strandline.wiring import State

FAILURE_COLUMNS = 100


@click.command()
@json_option
@click.pass_obj
def status(state_dir: Path, *, as_json: bool) -> None:
    """What is set up in the state directory, and what is there."""
    from strandline.wiring import open_state  # noqa: PLC0415 - settings are heavy

    state = open_state(state_dir, os.environ, warn=warn)
    report = {
        "version": __version__,
        "stateDir": str(state_dir),
        "settings": str(state.settings_path) if state.settings_path else None,
        "contextEngine": state.settings.plugins.slots.context_engine,
        "contextEngineError": _engine_error(state),
        "engineFailure": _last_failure(state_dir),
        "agents": [_agent_report(state, agent_id) for agent_id in state.agent_ids()],
    }
    if as_json:
        print_json(report)
    else:
        print_lines(columns_of(list(_lines(report))))


def _engine_error(state: State) -> str | None:
    """Why the selected engine cannot be used; plugins are only loaded where one is selected."""
    if state.settings.plugins.slots.context_engine == LEGACY:
        return None
    return state.plugins.engine_error()


def _last_failure(state_dir: Path) -> dict[str, Any] | None:
    """What a context engine failed at last, if any did in the last days."""
    from strandline.wiring.health import engine_health  # noqa: PLC0415 - only here

    try:
        failure = next(iter(engine_health(state_dir, SystemClock(), warn).recent()), None)
    except StrandlineError as error:  # the rest is told all the same
        warn(str(error))
        return None
    if failure is None:
        return None
    return {
        "engine": failure.engine,
        "phase": failure.phase,
        "what": failure.what,
        "sessionKey": failure.session_key,
        "atMs": failure.at_ms,
        "times": failure.times,
    }


def _agent_report(state: State, agent_id: str) -> dict[str, Any]:
    rows = state.rows(agent_id, read_only=True)
    found = rows.list()
    newest = max((row.updated_at or 0 for row in found.values()), default=None)
    return {
        "agent": agent_id,
        "store": str(rows.path),
        "model": state.model_ref(agent_id),
        "sessions": len(found),
        "compactions": sum(row.compaction_count or 0 for row in found.values()),
        "interrupted": sum(row.aborted_last_run is True for row in found.values()),
        "updatedAt": newest,
    }


def _lines(report: dict[str, Any]) -> list[tuple[str, str]]:
    lines = [
        ("Strandline", report["version"]),
        ("state", report["stateDir"]),
        ("settings", report["settings"] or "none: the defaults hold"),
        ("engine", report["contextEngine"]),
    ]
    if report["contextEngineError"]:
        lines.append(("", one_line(report["contextEngineError"])))
    now_ms = SystemClock().now_ms()
    if failure := report["engineFailure"]:
        failed = f"{failure['engine']} in {failure['phase']}: {failure['what']}"
        when = ago(failure["atMs"], now_ms)
        lines.append(("", cut(one_line(f"last failure {when}: {failed}"), FAILURE_COLUMNS)))
    for agent in report["agents"]:
        words = (
            f"{agent['sessions']} sessions, last {ago(agent['updatedAt'], now_ms)}; "
            f"🧹 Compactions: {agent['compactions']}; answers with {agent['model']}"
        )
        lines += [(f"agent {agent['agent']}", words), ("", agent["store"])]
    return lines
