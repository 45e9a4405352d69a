"""``session export``: the active branch for readers elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from strandline.cli.conversation import items
from strandline.cli.export_html import page
from strandline.cli.export_markdown import markdown
from strandline.cli.new_file import write_new
from strandline.cli.output import json_option, json_text, print_bytes, print_json, print_lines
from strandline.cli.session_look import branch_entries, conversation_json
from strandline.cli.transcript_file import file_argument, opened
from strandline.cli.words import amount, one_line, when
from strandline.clock import ms_from_iso
from strandline.manager import SessionManager

FORMATS = {".md": "md", ".markdown": "md", ".html": "html", ".htm": "html", ".json": "json"}


@click.command()
@file_argument
@click.option(
    "--format",
    "form",
    type=click.Choice(["md", "html", "json"]),
    help="Told by the name of OUT, else md.",
)
@click.option(
    "-o",
    "--output",
    "out",
    metavar="OUT",
    type=click.Path(path_type=Path, readable=False),
    help="A new file  [default: standard output]",
)
@click.option("--branch", metavar="ENTRY", help="The branch that ends at this entry.")
@json_option
@click.pass_obj
def export(
    state_dir: Path,
    *,
    file: Path,
    form: str | None,
    out: Path | None,
    branch: str | None,
    as_json: bool,
) -> None:
    """Write the active branch of FILE as Markdown, as one HTML page, or as JSON.

    `--json` alone means `--format json`; with OUT it prints what was written.
    """
    form = form or _form(out, as_json=as_json)
    with opened(file, state_dir) as session:
        document = _document(session, file, form, branch)
        if out is None:
            print_bytes(document)
            return
        write_new(out, document)
        entries = len(session.path(session.find(branch) if branch else None))
    if as_json:
        print_json({"file": str(file), "out": str(out), "format": form, "entries": entries})
    else:
        print_lines([f"{one_line(str(out))}: {amount(entries, 'entry', 'entries')} as {form}"])


def _form(out: Path | None, *, as_json: bool) -> str:
    if out is None:
        return "json" if as_json else "md"
    return FORMATS.get(out.suffix.lower(), "md")


def _document(
    session: SessionManager, file: Path, form: str, branch: str | None
) -> Iterator[bytes]:
    entries = branch_entries(session, branch)
    if form == "json":
        return iter([json_text(conversation_json(session, file, entries)).encode() + b"\n"])
    render = page if form == "html" else markdown
    title = session.name or session.session_id or file.name
    lines = render(title, _facts(session), items(session, entries))
    return (line.encode("utf-8", "replace") + b"\n" for line in lines)


def _facts(session: SessionManager) -> dict[str, str]:
    model = session.build_context().model
    facts = {
        "session": session.session_id,
        "directory": session.cwd,
        "since": when(ms_from_iso(session.header.get("timestamp"))),
        "model": f"{model['provider']}/{model['modelId']}" if model else "",
    }
    return {name: value for name, value in facts.items() if value}
