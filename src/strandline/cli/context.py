"""``strandline context …``: what a model sees of a conversation, and what that costs."""

from __future__ import annotations

import click

from strandline.cli.lazy import LazyCommand, LazyGroup

COMMANDS = {
    "explain": LazyCommand(
        "strandline.cli.context_explain", "explain", "What became of each message, and why."
    ),
    "replay": LazyCommand(
        "strandline.cli.context_replay", "replay", "What conversations would have cost."
    ),
}


@click.group(cls=LazyGroup, lazy=COMMANDS)
def context() -> None:
    """What the model sees, and what it costs.

    FILE is a transcript of Strandline, pi or OpenClaw, of any version. Nothing is changed and
    no model is asked.
    """
