"""``session branch``, ``fork`` and ``label``: commands that append, or begin a session."""

from __future__ import annotations

from pathlib import Path

import click

from strandline.cli.gist import kind_of, words_of
from strandline.cli.output import columns, json_option, print_json, print_lines
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
@json_option
@click.pass_obj
def branch(state_dir: Path, *, file: Path, entry: str, summary: str | None, as_json: bool) -> None:
    """Go back to ENTRY in FILE: what is said next grows a branch from there.

    One line is appended; everything that was said stays, and its tip can be branched to.
    """
    with opened(file, state_dir) as session:
        target = session.find(entry)
        with session.run_lock(timeout_ms=BUSY_TIMEOUT_MS, holder="strandline session branch"):
            if summary:
                session.branch_with_summary(target, summary)
            else:
                session.branch(target)
        leaf_id = session.leaf_id
        if as_json:
            print_json({"file": str(file), "entryId": target, "leafId": leaf_id})
        else:
            print_lines([f"the conversation stands at {_described(session, target)}"])


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
