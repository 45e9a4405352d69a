"""The one place where a failure becomes a line on standard error and an exit code.

0 it was done, 1 it failed, 2 it could not be tried (wrong use, nothing to read), 130
interrupted, 141 nobody reads the output any more. Source: spec 4, Faces.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from strandline.cli.notices import warn
from strandline.errors import StrandlineError

INTERRUPTED = 130
NOBODY_READS = 141
DEBUG_VARIABLE = "STRANDLINE_DEBUG"


class NobodyReads(Exception):
    """The other end of the pipe is closed. No `OSError`: click would make that 1."""


def guarded(run: Callable[[], Any]) -> int:
    """Run a command and return its exit code; a failure is told on standard error.

    A command may return its exit code; anything else that it returns counts as 0.
    """
    try:
        code = run()
        sys.stdout.flush()
    except SystemExit:
        raise
    except BaseException as error:  # noqa: BLE001 - the last place that can say what happened
        return _told(error)
    return code if isinstance(code, int) else 0


def _told(error: BaseException) -> int:
    if os.environ.get(DEBUG_VARIABLE) == "1":
        traceback.print_exception(error)
    if isinstance(error, click.Abort | KeyboardInterrupt):
        stopped = error.__cause__ if isinstance(error, click.Abort) else error
        if isinstance(stopped, KeyboardInterrupt) and str(stopped):
            warn(str(stopped))  # what was going on
        return INTERRUPTED
    if isinstance(error, NobodyReads | BrokenPipeError):
        _leave_the_pipe()
        return NOBODY_READS
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        click.echo(error.format_message(), err=True)
        return error.exit_code
    message, code = _described(error)
    if isinstance(error, OSError):
        _leave_the_pipe()  # what is still buffered would fail again at exit
    warn(message)
    return code


def _described(error: BaseException) -> tuple[str, int]:
    """The message for an error, and the exit code."""
    if isinstance(error, StrandlineError):
        return str(error), error.exit_code
    if isinstance(error, click.ClickException):
        return _usage(error), error.exit_code
    if isinstance(error, OSError) and error.strerror:
        where = f" {error.filename}" if error.filename else " the output"
        return f"cannot use{where} ({error.strerror}): check the path, its rights, the disk", 1
    return _unexpected(error), 1


def _usage(error: click.ClickException) -> str:
    message = error.format_message().rstrip(".").replace("\n", " ")
    context = error.ctx if isinstance(error, click.UsageError) else None
    remedy = f": `{context.command_path} --help` shows how" if context else ""
    return message + remedy


def _unexpected(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    where = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return (
        f"a fault of Strandline, {type(error).__name__} ({error}){where}: report it, with what "
        f"the same command prints under {DEBUG_VARIABLE}=1"
    )


def _leave_the_pipe() -> None:
    """Send what is still buffered nowhere, so that the interpreter can end quietly."""
    with suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
