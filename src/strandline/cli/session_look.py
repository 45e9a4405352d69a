"""``session show``, ``tree``, ``context`` and ``list``: commands that only look."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click

from strandline.cli.conversation import Item, items
from strandline.cli.gist import KINDS, kind_of, message_words, words_of
from strandline.cli.outline import in_order, outline
from strandline.cli.output import (
    bold,
    columns,
    dim,
    json_option,
    json_text,
    print_json,
    print_lines,
)
from strandline.cli.show import conversation_lines
from strandline.cli.transcript_file import file_argument, opened
from strandline.cli.words import amount, cut, one_line, padded, size, when
from strandline.clock import ms_from_iso
from strandline.errors import TranscriptError
from strandline.manager import SessionManager, transcripts_in
from strandline.transcript.context import PathMessage, SessionContext
from strandline.transcript.entries import MARKER_TYPES, AnyEntry
from strandline.transcript.messages import JsonObject
from strandline.transcript.shape import TreeNode

KIND_COLUMNS = 10


@click.command()
@file_argument
@click.option("--branch", metavar="ENTRY", help="The branch that ends at this entry.")
@click.option("--all", "everything", is_flag=True, help="All branches, in the order of the file.")
@click.option("--full", is_flag=True, help="Tools and thoughts at full length.")
@json_option
@click.pass_obj
def show(
    state_dir: Path, *, file: Path, branch: str | None, everything: bool, full: bool, as_json: bool
) -> None:
    """Print the conversation of FILE: the active branch, from its beginning.

    Compactions are boundaries in the text; what they summarised stands above them.
    """
    if branch and everything:
        raise click.UsageError("--branch and --all exclude each other")
    with opened(file, state_dir) as session:
        entries = session.entries() if everything else branch_entries(session, branch)
        if as_json:
            print_json(conversation_json(session, file, entries))
            return
        shown = _with_jumps(session, entries) if everything else items(session, entries)
        print_lines(_title(session, file))
        print_lines(conversation_lines(shown, full=full))


def branch_entries(session: SessionManager, branch: str | None) -> Iterator[AnyEntry]:
    """The entries of one branch, from the root on; `branch` as people name an entry."""
    leaf = session.find(branch) if branch else None
    return (session.entry(entry_id) for entry_id in session.path(leaf))


def conversation_json(
    session: SessionManager, file: Path, entries: Iterable[AnyEntry]
) -> JsonObject:
    """Entries with all their keys, as the file has them."""
    return {
        "file": str(file),
        "sessionId": session.session_id,
        "name": session.name,
        "cwd": session.cwd,
        "leafId": session.leaf_id,
        "entries": [{**entry.data, "id": entry.id} for entry in entries],
    }


def _title(session: SessionManager, file: Path) -> Iterator[str]:
    """What session this is, and where it stands."""
    yield bold(one_line(session.name or session.session_id or file.name))
    count = sum(1 for _ in session.tips())
    context = session.build_context()
    model = context.model
    facts = [
        session.session_id if session.name else "",
        session.cwd,
        f"since {since}" if (since := when(ms_from_iso(session.header.get("timestamp")))) else "",
        amount(session.entry_count, "entry", "entries"),
        amount(count, "branch", "branches") if count > 1 else "",
        f"{model['provider']}/{model['modelId']}" if model else "",
    ]
    yield dim(one_line(" · ".join(filter(None, facts))))


def _with_jumps(session: SessionManager, entries: Iterable[AnyEntry]) -> Iterator[Item]:
    """Items in the order of the file, with a note wherever one does not follow the last."""
    here: set[str | None] = {None}
    for entry in entries:
        if entry.type in MARKER_TYPES:
            here.add(entry.id)
            continue
        if entry.parent_id not in here:
            title = f"from here on behind {entry.parent_id or 'the beginning'}"
            yield Item("note", entry.id, "jump", ms_from_iso(entry.timestamp), [], title)
        here = {entry.id}
        yield from items(session, [entry])


@click.command()
@file_argument
@json_option
@click.pass_obj
def tree(state_dir: Path, *, file: Path, as_json: bool) -> None:
    """Print all entries of FILE as a tree.

    A filled mark is on the active branch. Where a branch leaves, it is drawn aside, and the
    active one goes on in its column.
    """
    with opened(file, state_dir) as session:
        if as_json:
            print_json(_tree_json(session, file))
        else:
            print_lines([*_title(session, file), ""])
            print_lines(_tree_lines(session))


def _tree_json(session: SessionManager, file: Path) -> JsonObject:
    tips = set(session.tips())
    return {
        "file": str(file),
        "sessionId": session.session_id,
        "name": session.name,
        "leafId": session.leaf_id,
        "entries": [
            {
                "id": node.id,
                "parentId": parent,
                "type": node.head.type,
                "role": node.head.message.role if node.head.message else None,
                "timestamp": node.head.timestamp,
                "text": words_of(session.entry(node.id)),
                "label": node.label,
                "onPath": node.on_path,
                "tip": node.id in tips,
                "bridged": node.bridged,
            }
            for node, parent in in_order(session.tree())
        ],
    }


def _tree_lines(session: SessionManager) -> Iterator[str]:
    room, tips = columns(), set(session.tips())
    if session.leaf_id is None:
        yield dim("the conversation stands before the first entry")
    for before, node in outline(session.tree()):
        entry = session.entry(node.id)
        mark = "◉" if node.is_leaf else "●" if node.on_path else "○"
        flags = _flags(node, is_tip=node.id in tips)
        start = f"{before}{mark} {one_line(node.id)}  {padded(kind_of(entry), KIND_COLUMNS)} "
        words = cut(start + words_of(entry), room - sum(len(flag) + 2 for flag in flags))
        line = words if node.on_path else dim(words)
        yield "  ".join([line, *(bold(flag) for flag in flags)])


def _flags(node: TreeNode, *, is_tip: bool) -> list[str]:
    flags = [f"[{one_line(node.label)}]"] if node.label else []
    if node.bridged:
        flags.append("(bridged: its parent is missing)")
    if node.is_leaf:
        flags.append("← here")
    elif is_tip:
        flags.append("tip")
    return flags


@click.command()
@file_argument
@click.option("--leaf", metavar="ENTRY", help="The context of the branch that ends here.")
@json_option
@click.pass_obj
def context(state_dir: Path, *, file: Path, leaf: str | None, as_json: bool) -> None:
    """Print what a model would see of FILE, before any engine chooses from it.

    Sizes are those of the messages as JSON, in UTF-8.
    """
    with opened(file, state_dir) as session:
        leaf_id = session.find(leaf) if leaf else None
        built = session.build_context(leaf_id)
        if as_json:
            print_json(_context_json(session, built))
        else:
            print_lines(_context_lines(session, built))


def _context_json(session: SessionManager, built: SessionContext) -> JsonObject:
    return {
        "entryCount": session.entry_count,
        "leafId": built.leaf_id,
        "path": session.path(built.leaf_id) if built.leaf_id is not None else [],
        "sessionName": session.name,
        "model": built.model,
        "thinkingLevel": built.thinking_level,
        "messages": built.messages,
    }


def _context_lines(session: SessionManager, built: SessionContext) -> Iterator[str]:
    ids = max((len(item.entry_id) for item in built.items), default=0)
    total = 0
    yield bold(f"{'#':>4}  {padded('entry', ids)}  {padded('role', KIND_COLUMNS)} {'size':>9}")
    for number, item in enumerate(built.items, 1):
        line, count = _message_line(number, item, ids)
        total += count
        yield line
    model = built.model
    facts = [
        f"{amount(len(built.items), 'message')}, {size(total)}",
        f"model {model['provider']}/{model['modelId']}" if model else "no model yet",
        f"thinking {built.thinking_level}",
        f"name {session.name}" if session.name else "",
    ]
    yield dim(one_line(" · ".join(filter(None, facts))))


def _message_line(number: int, item: PathMessage, ids: int) -> tuple[str, int]:
    role = one_line(str(item.message.get("role")))
    count = len(json_text(item.message).encode())
    start = f"{number:>4}  {padded(one_line(item.entry_id), ids)}  "
    start += f"{padded(KINDS.get(role, role), KIND_COLUMNS)} {size(count):>9}  "
    return cut(start + one_line(message_words(item.message)), columns()), count


@click.command("list")
@click.argument(
    "folder", metavar="DIR", type=click.Path(path_type=Path, exists=True, file_okay=False)
)
@json_option
@click.pass_obj
def list_folder(state_dir: Path, *, folder: Path, as_json: bool) -> None:
    """List the transcripts in DIR and in its folders, as pi lays them out.

    The newest come last.
    """
    rows = sorted((_row(path, state_dir) for path in _transcripts(folder)), key=_age)
    if as_json:
        print_json({"folder": str(folder), "sessions": rows})
        return
    if not rows:
        print_lines([f"no transcripts in {one_line(str(folder))}"])
    print_lines(_row_line(row, folder) for row in rows)


def _transcripts(folder: Path) -> Iterator[Path]:
    below = sorted(path for path in folder.iterdir() if path.is_dir())
    for place in (folder, *below):
        for name in transcripts_in(place):
            if not name.endswith(".trajectory.jsonl"):
                yield place / name


def _row(path: Path, state_dir: Path) -> JsonObject:
    row: JsonObject = dict.fromkeys(("sessionId", "name", "cwd", "entries", "lastAt", "error"))
    row = {"file": str(path), **row}
    try:
        with opened(path, state_dir) as session:
            tips = session.tips()
            return row | {
                "sessionId": session.session_id,
                "name": session.name,
                "cwd": session.cwd,
                "entries": session.entry_count,
                "lastAt": session.entry(tips[-1]).timestamp if tips else None,
            }
    except TranscriptError as error:
        return row | {"error": str(error)}


def _age(row: JsonObject) -> tuple[str, str]:
    return row["lastAt"] or "", row["file"]


def _row_line(row: JsonObject, folder: Path) -> str:
    name = one_line(str(Path(row["file"]).relative_to(folder)))
    if row["error"]:
        return f"{padded('', 16)}  {'':>14}  {name}  {dim(one_line(row['error']))}"
    facts: Any = amount(row["entries"], "entry", "entries")
    text = f"{padded(when(ms_from_iso(row['lastAt'])), 16)}  {facts:>14}  {name}"
    session_id = one_line(row["sessionId"])
    called = bold(one_line(row["name"])) if row["name"] else ""
    return "  ".join(filter(None, [text, "" if session_id in name else dim(session_id), called]))
