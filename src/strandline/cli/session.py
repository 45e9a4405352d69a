"""``strandline session …``: commands on transcript files of Strandline, pi and OpenClaw."""

from __future__ import annotations

import click

from strandline.cli.lazy import LazyCommand, LazyGroup

_LOOK = "strandline.cli.session_look"
_CHECK = "strandline.cli.session_check"
_EXPORT = "strandline.cli.session_export"
_CHANGE = "strandline.cli.session_change"

COMMANDS = {
    "show": LazyCommand(_LOOK, "show", "The conversation, readable."),
    "tree": LazyCommand(_LOOK, "tree", "All entries and branches, with their ids."),
    "context": LazyCommand(_LOOK, "context", "What a model would see of it."),
    "list": LazyCommand(_LOOK, "list_folder", "The transcripts in a folder."),
    "verify": LazyCommand(_CHECK, "verify", "What is damaged, line by line."),
    "repair": LazyCommand(_CHECK, "repair", "A new file without the damage."),
    "branch": LazyCommand(_CHANGE, "branch", "Go on from an earlier entry."),
    "compact": LazyCommand(
        "strandline.cli.session_compact",
        "compact",
        "Summarise what is older, or say what would be.",
    ),
    "fork": LazyCommand(_CHANGE, "fork", "Copy one branch into a new session."),
    "label": LazyCommand(_CHANGE, "label", "Put a bookmark on an entry."),
    "export": LazyCommand(_EXPORT, "export", "The conversation as Markdown, HTML or JSON."),
}


@click.group(cls=LazyGroup, lazy=COMMANDS)
def session() -> None:
    """Read, check, repair and branch transcript files.

    FILE is a transcript of Strandline, pi or OpenClaw, of any version. ENTRY is an entry's
    id, the beginning of one, or a label; `tree` shows them. Commands that read change
    nothing, neither in the file nor beside it.
    """
