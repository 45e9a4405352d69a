"""``session compact``: summarise what is older in a transcript file, or say what would be."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from strandline.cli.notices import note, warn
from strandline.cli.output import json_option, print_json, print_lines, slow_notice
from strandline.cli.session_change import BUSY_TIMEOUT_MS
from strandline.cli.stopping import run
from strandline.cli.transcript_file import file_argument, opened

if TYPE_CHECKING:
    from strandline.manager import SessionManager
    from strandline.runtime.agent import Agent
    from strandline.runtime.events import TurnEvent


@click.command()
@file_argument
@click.option("--dry-run", is_flag=True, help="Say what would be done, and change nothing.")
@click.option("--instructions", metavar="TEXT", help="What the summary should mind.")
@click.option("--agent", "agent_id", default="main", help="The agent whose settings hold.")
@click.option("--model", "model_ref", help="The model whose window it must fit, which summarises.")
@click.option("--offline", is_flag=True, help="Summarise without a model.")
@click.option("--window", type=click.IntRange(min=256), help="The window in tokens, if not its.")
@json_option
@click.pass_obj
def compact(  # noqa: PLR0913 - one for each option
    state_dir: Path,
    *,
    file: Path,
    dry_run: bool,
    instructions: str | None,
    agent_id: str,
    model_ref: str | None,
    offline: bool,
    window: int | None,
    as_json: bool,
) -> None:
    """Summarise what is older in FILE: one entry is appended, nothing is removed.

    By default for the model that answered last in FILE; where that cannot be reached from
    here, its window holds and the summary is made without a model.
    """
    from strandline.wiring import open_state  # noqa: PLC0415 - what it needs is heavy

    state = open_state(state_dir, os.environ, warn=warn)
    with opened(file, state_dir) as session:
        agent = state.agent_for(
            agent_id, session.build_context().model, model_ref, offline=offline, window=window
        )
        work = (
            _preview(session, agent, instructions) if dry_run else _do(session, agent, instructions)
        )
        report, lines = run(work)
    if as_json:
        print_json({"file": str(file), "dryRun": dry_run, **report})
    else:
        print_lines(lines)


async def _preview(
    session: SessionManager, agent: Agent, instructions: str | None
) -> tuple[dict[str, Any], list[str]]:
    from strandline.cli.receipts import plan_json, plan_lines  # noqa: PLC0415 - heavy
    from strandline.runtime.compacting import Compactor  # noqa: PLC0415 - heavy

    budget, name = agent.budget(), agent.summarizer.name
    try:
        plan = Compactor(session, agent).plan(budget, "manual", instructions)
    finally:
        await agent.aclose()
    return plan_json(plan, budget, name), list(plan_lines(plan, budget, name))


async def _do(
    session: SessionManager, agent: Agent, instructions: str | None
) -> tuple[dict[str, Any], list[str]]:
    from strandline.cli.receipts import receipt_json, receipt_line  # noqa: PLC0415 - heavy
    from strandline.runtime.compacting import Compactor  # noqa: PLC0415 - heavy
    from strandline.runtime.lanes import lane  # noqa: PLC0415 - heavy

    slow_notice.expect("summarising")
    holder = "strandline session compact"
    try:
        async with lane(session, holder=holder, timeout_ms=BUSY_TIMEOUT_MS):
            compactor = Compactor(session, agent)
            receipt = await compactor.compact(agent.budget(), "manual", _tell, instructions)
    finally:
        slow_notice.done()
        await agent.aclose()
    return receipt_json(receipt), [receipt_line(receipt)]


def _tell(event: TurnEvent) -> None:
    from strandline.runtime.events import Notice  # noqa: PLC0415 - heavy

    if isinstance(event, Notice):
        note(event.text)
