"""``session branch``, ``fork`` and ``label``: commands that append, or begin a session."""

from __future__ import annotations

import os
from pathlib import Path

import click

from strandline.cli.gist import kind_of, words_of
from strandline.cli.notices import note, warn
from strandline.cli.output import columns, json_option, print_json, print_lines, slow_notice
from strandline.cli.transcript_file import file_argument, opened
from strandline.cli.words import cut, one_line
from strandline.errors import EntryNotFound
from strandline.manager import SessionManager

BUSY_TIMEOUT_MS = 2_000
"""How long to wait for a turn that is running; it moves the leaf as well."""


@click.command()
@file_argument
@click.argument("entry")
@click.option("--summary", metavar="TEXT", help="What to take along from the branch left behind.")
@click.option("--summarize", is_flag=True, help="Take a summary along that is made here.")
@click.option("--model", "model_ref", help="The model that summarises; without one, offline.")
@json_option
@click.pass_obj
def branch(
    state_dir: Path,
    *,
    file: Path,
    entry: str,
    summary: str | None,
    summarize: bool,
    model_ref: str | None,
    as_json: bool,
) -> None:
    """Go back to ENTRY in FILE: what is said next grows a branch from there.

    One line is appended; everything that was said stays, and its tip can be branched to.
    """
    if summary and summarize:
        raise click.UsageError("give --summary or --summarize, not both")
    if model_ref and not summarize:
        raise click.UsageError("--model is for --summarize")
    with opened(file, state_dir) as session:
        target = session.find(entry)
        with session.run_lock(timeout_ms=BUSY_TIMEOUT_MS, holder="strandline session branch"):
            if summarize:
                _summarize(session, state_dir, target, model_ref)
            elif summary:
                session.branch_with_summary(target, summary)
            else:
                session.branch(target)
        leaf_id = session.leaf_id
        if as_json:
            print_json({"file": str(file), "entryId": target, "leafId": leaf_id})
        else:
            print_lines([f"the conversation stands at {_described(session, target)}"])


def _summarize(
    session: SessionManager, state_dir: Path, target: str, model_ref: str | None
) -> None:
    from strandline.cli.stopping import run  # noqa: PLC0415 - heavy
    from strandline.runtime.branching import go_to  # noqa: PLC0415 - heavy
    from strandline.runtime.events import Notice, TurnEvent  # noqa: PLC0415 - heavy
    from strandline.wiring import open_state  # noqa: PLC0415 - heavy

    def tell(event: TurnEvent) -> None:
        if isinstance(event, Notice):
            note(event.text)

    state = open_state(state_dir, os.environ, warn=warn)
    answered = session.build_context().model
    agent = state.agent_for("main", answered, model_ref, offline=model_ref is None)

    async def go() -> None:
        try:
            await go_to(session, agent, target, summarize=True, listener=tell)
        finally:
            await agent.aclose()

    slow_notice.expect("summarising")
    try:
        run(go())
    finally:
        slow_notice.done()


def _described(session: SessionManager, entry_id: str) -> str:
    entry = session.entry(entry_id)
    text = f"{one_line(entry_id)} ({kind_of(entry)}: {words_of(entry)}"
    return cut(text, columns() - 30) + ")"


@click.command()
@file_argument
@click.argument("entry", required=False)
@click.option(
    "--to",
    "folder",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where the new session goes  [default: beside FILE]",
)
@json_option
@click.pass_obj
def fork(
    state_dir: Path, *, file: Path, entry: str | None, folder: Path | None, as_json: bool
) -> None:
    """Copy one branch of FILE into a new session, and print its path.

    The branch ends at ENTRY, or where the conversation stands. FILE is only read.
    """
    with opened(file.absolute(), state_dir) as session:
        leaf_id = session.find(entry) if entry else None
        with session.create_branched_session(leaf_id, session_dir=folder) as made:
            if as_json:
                print_json(
                    {
                        "file": made.path_name,
                        "sessionId": made.session_id,
                        "parentSession": made.header.get("parentSession"),
                        "entries": made.entry_count,
                        "leafId": made.leaf_id,
                    }
                )
            else:
                print_lines([one_line(made.path_name or "")])


@click.command()
@file_argument
@click.argument("entry")
@click.argument("label", required=False)
@click.option("--clear", is_flag=True, help="Take the bookmark away.")
@json_option
@click.pass_obj
def label(
    state_dir: Path, *, file: Path, entry: str, label: str | None, clear: bool, as_json: bool
) -> None:
    """Put the bookmark LABEL on ENTRY of FILE, or take it away.

    A label names its entry wherever ENTRY is asked for.
    """
    if clear == bool(label):
        raise click.UsageError("give a LABEL, or --clear")
    with opened(file, state_dir) as session:
        target = session.find(entry)
        if clear and session.label(target) is None:
            raise EntryNotFound(f"entry {target} has no label", remedy="there is nothing to clear")
        session.append_label(target, label)
        if as_json:
            print_json({"file": str(file), "entryId": target, "label": label})
        else:
            what = f"is labelled {one_line(label)!r}" if label else "has no label any more"
            print_lines([f"{one_line(target)} {what}"])
