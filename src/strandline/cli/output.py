"""What commands print: JSON for programs, lines for people.

JSON is one object on one line, in UTF-8 whatever the locale says; a lone surrogate comes
out as its escape, as Node writes it. Keys are in the words of the transcript files.
"""

from __future__ import annotations

import json
import shutil
import sys
import threading
from collections.abc import Iterable
from typing import Any

import click

from strandline.cli.words import one_line

CHUNK_CHARACTERS = 1 << 16
PIPE_COLUMNS = 120
"""How wide lines are where no terminal says."""


json_option = click.option("as_json", "--json", is_flag=True, help="Print one JSON object.")
"""The option ``--json``, as the parameter `as_json`."""


def json_text(value: Any) -> str:
    """The JSON of a value on one line; lone surrogates are escaped."""
    try:
        text = _encoded(value)
    except ValueError:
        from strandline.transcript.salvage import writable  # noqa: PLC0415 - hardly ever needed

        text = _encoded(writable(value))
    return "".join(map(_escaped, text)) if _has_surrogates(text) else text


def _encoded(value: Any) -> str:
    """The text of a value, which may be nested a little deeper than what was read."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + 100)
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    finally:
        sys.setrecursionlimit(limit)


def _has_surrogates(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _escaped(character: str) -> str:
    return f"\\u{ord(character):04x}" if "\ud800" <= character <= "\udfff" else character


class SlowNotice:
    """A line on a terminal's standard error when a first result takes longer than a second."""

    def __init__(self, delay_s: float = 1.0) -> None:
        self._delay_s = delay_s
        self._timer: threading.Timer | None = None

    def expect(self, text: str) -> None:
        """Say `text` unless `done` comes first; nothing where nobody looks."""
        self.done()
        if sys.stderr.isatty():
            context = click.get_current_context(silent=True)  # which the thread does not know
            words = {"message": dim(f"{one_line(text)} …"), "err": True}
            colour = {"color": context.color if context else None}
            self._timer = threading.Timer(self._delay_s, click.echo, kwargs={**words, **colour})
            self._timer.daemon = True
            self._timer.start()

    def done(self) -> None:
        """There is a result, or there will be none."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


slow_notice = SlowNotice()


def print_json(value: Any) -> None:
    """One JSON object on standard output."""
    print_bytes([json_text(value).encode() + b"\n"])


def print_bytes(parts: Iterable[bytes]) -> None:
    """Bytes on standard output, as they are."""
    sys.stdout.flush()
    for part in parts:
        slow_notice.done()
        rest = memoryview(part)
        while rest:  # an unbuffered stream may take less than it is given
            rest = rest[sys.stdout.buffer.write(rest) :]
    sys.stdout.buffer.flush()


def print_lines(lines: Iterable[str]) -> None:
    """Lines on standard output, a stretch at a time; colours only where they are wanted."""
    waiting: list[str] = []
    length = 0
    for line in lines:
        waiting.append(line)
        length += len(line)
        slow_notice.done()
        if length > CHUNK_CHARACTERS:
            click.echo("\n".join(waiting))
            waiting.clear()
            length = 0
    if waiting:
        click.echo("\n".join(waiting))


def columns() -> int:
    """How wide a line may be."""
    if not sys.stdout.isatty():
        return PIPE_COLUMNS
    return max(40, shutil.get_terminal_size().columns)


def dim(text: str) -> str:
    """Text of less weight."""
    return click.style(text, dim=True)


def bold(text: str) -> str:
    """Text of more weight."""
    return click.style(text, bold=True)


def red(text: str) -> str:
    """Something that went wrong."""
    return click.style(text, fg="red")
