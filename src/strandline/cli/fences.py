"""Markdown text told apart into prose and fenced code, as far as exports need it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_OPENING = re.compile(r"(`{3,})([^`]*)$|(~{3,})(.*)$")
"""Only in the first column: an indented fence may end with the list that it stands in."""


class Block(NamedTuple):
    """Some lines; `info` is what stood behind the opening fence, None for prose."""

    lines: list[str]
    info: str | None


def blocks(text: str) -> Iterator[Block]:
    """Prose and fenced code in turn; a fence that nothing closes ends with the text."""
    lines: list[str] = []
    info: str | None = None
    closing = _OPENING
    for line in text.split("\n"):
        match = closing.match(line)
        if match is None:
            lines.append(line)
            continue
        if lines or info is not None:
            yield Block(lines, info)
        lines = []
        if info is None:
            mark, info = match[1] or match[3], (match[2] or match[4] or "").strip()
            closing = re.compile(rf" {{0,3}}{mark[0]}{{{len(mark)},}}[ \t]*$")
        else:
            info, closing = None, _OPENING
    if lines or info is not None:
        yield Block(lines, info)
