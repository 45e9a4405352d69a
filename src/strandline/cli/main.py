"""``strandline``: the command line. Commands live in modules of their own, loaded when run."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

import click

from strandline import __version__
from strandline.cli.failures import INTERRUPTED, NobodyReads, guarded
from strandline.cli.lazy import LazyCommand, LazyGroup
from strandline.settings.places import STATE_DIR_VARIABLE, resolve_state_dir

COMMANDS = {
    "chat": LazyCommand("strandline.cli.chat", "chat", "Talk to an agent in the terminal."),
    "agent": LazyCommand("strandline.cli.agent", "agent", "Give an agent one message."),
    "sessions": LazyCommand(
        "strandline.cli.sessions", "sessions", "The conversations of the state directory."
    ),
    "session": LazyCommand(
        "strandline.cli.session", "session", "Read, check, repair and branch transcript files."
    ),
    "plugins": LazyCommand(
        "strandline.cli.plugins", "plugins", "Install, list and switch plugins."
    ),
    "context": LazyCommand(
        "strandline.cli.context", "context", "What the model sees, and what it costs."
    ),
    "status": LazyCommand(
        "strandline.cli.status", "status", "What is set up here, and what is going on."
    ),
    "doctor": LazyCommand(
        "strandline.cli.doctor", "doctor", "Find what is wrong here, with the remedy."
    ),
}


class Strandline(LazyGroup):
    """The root of all commands, around which failures are told (`failures`)."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise NobodyReads from error

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,  # noqa: FBT001, FBT002 - click's own signature
        **extra: Any,
    ) -> Any:
        """Run the command of `args` and exit."""
        del prog_name, standalone_mode  # the name is ours, and so is what failing means
        _open_what_is_closed()
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")  # a locale that lacks characters
        run = super().main
        code = guarded(
            lambda: run(args, "strandline", complete_var, standalone_mode=False, **extra)
        )
        if code == INTERRUPTED:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # it ends; pressed again, without a word
        sys.exit(code)


def _open_what_is_closed() -> None:
    """A stream that the caller closed (``>&-``) takes what is printed, and nobody reads it."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            setattr(sys, name, os.fdopen(nowhere, "w", encoding="utf-8"))


@click.group(
    cls=Strandline,
    lazy=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog='Completion: put eval "$(_STRANDLINE_COMPLETE=bash_source strandline)" into ~/.bashrc '
    "(zsh_source and fish_source work likewise).",
)
@click.version_option(__version__, message="strandline %(version)s")
@click.option(
    "--state-dir",
    metavar="DIR",
    help=f"Where sessions and settings are  [env: {STATE_DIR_VARIABLE}; default: ~/.strandline]",
)
@click.pass_context
def main(ctx: click.Context, state_dir: str | None) -> None:
    """Durable conversations and well-chosen context for AI agents."""
    if os.environ.get("NO_COLOR"):
        ctx.color = False
    ctx.obj = folder = resolve_state_dir(state_dir, os.environ)
    if os.path.exists(folder) and not os.path.isdir(folder):  # noqa: PTH110, PTH112 - never raise
        raise click.UsageError(f"the state directory {folder} is no folder")
