"""What commands print: JSON for programs, lines for people.

JSON is one object on one line, in UTF-8 whatever the locale says; a lone surrogate comes
out as its escape, as Node writes it. Keys are in the words of the transcript files.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click

from strandline.cli.words import one_line, padded, safe, width

__all__ = [
    "bold",
    "columns",
    "dim",
    "json_option",
    "json_text",
    "print_bytes",
    "print_json",
    "print_lines",
    "print_table",
    "red",
    "safe",
    "warn",
]

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


def print_json(value: Any) -> None:
    """One JSON object on standard output."""
    print_bytes([json_text(value).encode() + b"\n"])


def print_bytes(parts: Iterable[bytes]) -> None:
    """Bytes on standard output, as they are."""
    sys.stdout.flush()
    for part in parts:
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
        if length > CHUNK_CHARACTERS:
            click.echo("\n".join(waiting))
            waiting.clear()
            length = 0
    if waiting:
        click.echo("\n".join(waiting))


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Rows below their headings, each column as wide as its widest cell."""
    cells = [[one_line(cell) for cell in row] for row in (head, *rows)]
    widths = [max(map(width, column)) for column in zip(*cells, strict=True)]
    lines = [
        "  ".join(padded(cell, wide) for cell, wide in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]
    print_lines([bold(lines[0]), *lines[1:]])


def warn(text: str) -> None:
    """One line on standard error."""
    click.echo(f"strandline: {one_line(text)}", err=True)


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
