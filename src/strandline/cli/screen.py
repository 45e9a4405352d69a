"""Where a turn is shown: the answer on standard output, everything else on standard error.

On a terminal the answer is shown as it comes. Elsewhere it is printed when it is complete,
so that a program never reads an answer that was taken back. What takes longer than a second
is told to whoever looks. Source: spec 4, Faces.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager

import click

from strandline.cli.notices import note, warn
from strandline.cli.output import dim
from strandline.cli.words import safe
from strandline.errors import StrandlineError

_UNFINISHED = re.compile(r"(?:\x1b[^a-zA-Z\x07]{0,200}|\r)\Z")
"""The beginning of what only the next piece of a stream can complete."""

PULSE_S = 1.0


class Pulse:
    """A line that says how long one has been waiting, once that is over a second.

    It is there on a terminal only, and goes away when anything else is printed.
    """

    def __init__(self) -> None:
        self._looks = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._timer: asyncio.TimerHandle | None = None
        self._since = 0.0
        self._words = ""
        self._shown = False

    def begin(self, words: str) -> None:
        """Something begins that may take long; `words` say what Ctrl-C does."""
        self.end()
        self._words = words
        if self._looks:
            self._since = asyncio.get_running_loop().time()
            self._wait()

    def end(self) -> None:
        """It is over, or something else is printed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._shown:
            click.echo("\r\x1b[K", err=True, nl=False, color=True)
            self._shown = False

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(PULSE_S, self._beat)

    def _beat(self) -> None:
        seconds = asyncio.get_running_loop().time() - self._since
        start = "\r\x1b[K" if self._shown else ""
        self._shown = True
        click.echo(start, err=True, nl=False, color=True)
        click.echo(dim(f"… {seconds:.0f} s ({self._words})"), err=True, nl=False)
        self._wait()


class TerminalScreen:
    """Prints answers, lines and what goes on; texts from outside are made safe to show."""

    def __init__(self) -> None:
        self._whole = not sys.stdout.isatty()
        self._held = ""
        self._shown = ""
        self._working = ""
        self._pulse = Pulse()

    @contextmanager
    def unechoed(self) -> Iterator[None]:
        """While this lasts, what is typed ahead is not shown among the answers.

        It is kept for whoever reads it next. Nothing where no terminal is read.
        """
        try:
            old = termios.tcgetattr(sys.stdin)
        except (termios.error, OSError, ValueError):
            yield
            return
        new = [*old[:3], old[3] & ~termios.ECHO, *old[4:]]
        termios.tcsetattr(sys.stdin, termios.TCSANOW, new)
        try:
            yield
        finally:
            termios.tcsetattr(sys.stdin, termios.TCSANOW, old)

    @contextmanager
    def working(self, words: str = "Ctrl-C stops") -> Iterator[None]:
        """While this lasts, long waits are told."""
        self._working = words
        self._pulse.begin(words)
        try:
            yield
        finally:
            self._working = ""
            self._pulse.end()

    def reply(self, text: str) -> None:
        """More of the answer."""
        self._held += text
        if not self._whole:
            rest = _UNFINISHED.search(self._held)
            end = rest.start() if rest else len(self._held)
            self._print(self._held[:end])
            self._held = self._held[end:]

    def end_reply(self) -> None:
        """The answer is over; what came of it stays."""
        self._print(self._held)
        self._held = ""
        if self._shown and not self._shown.endswith("\n"):
            click.echo()
        self._over()

    def discard_reply(self) -> None:
        """The answer is void."""
        self._held = ""
        if self._shown:
            self.end_reply()
            self.status("the answer so far is void")

    def line(self, text: str) -> None:
        """A line that was asked for."""
        self._pulse.end()
        click.echo(safe(text))
        self._again()

    def status(self, text: str) -> None:
        """A line about what goes on."""
        self.end_reply()
        self._pulse.end()
        note(text)
        self._again()

    def error(self, error: StrandlineError) -> None:
        """What went wrong, and the remedy."""
        self.end_reply()
        self._pulse.end()
        warn(str(error))
        self._again()

    def _print(self, text: str) -> None:
        shown = safe(text)
        if shown:
            self._pulse.end()
            click.echo(shown, nl=False)
            sys.stdout.flush()
            self._shown = shown

    def _over(self) -> None:
        if self._shown:
            self._shown = ""
            self._again()

    def _again(self) -> None:
        """Wait for more; not while a line of the answer is open, which the pulse would wipe."""
        if self._working and not self._shown:
            self._pulse.begin(self._working)
