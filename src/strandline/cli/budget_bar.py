"""A bar of a model's window: what takes it, what is free, what is kept for the answer.

Each part has a sign of its own, so that the bar can be read without colours; where the
output cannot hold blocks, the signs are letters. Source: spec 3, Watching.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import click

from strandline.cli.signs import Page
from strandline.context.explain import Explanation, Room, Sum
from strandline.context.view import Outcome

MOST_COLUMNS = 100


class Part(NamedTuple):
    """A part of the window, in the provider's tokens."""

    name: str
    tokens: int


_SIGNS: Mapping[str, tuple[str, str, str | None]] = {
    "system prompt": ("█", "S", "blue"),
    "tools": ("▓", "T", "magenta"),
    "kept": ("■", "#", "green"),
    "shortened": ("▧", "~", "yellow"),
    "added": ("▤", "+", "cyan"),
    "free": ("·", ".", None),
    "beyond maxTokens": ("╌", "-", None),
    "reserve": ("░", "R", "bright_black"),
}
"""The sign of each part in blocks and in ASCII, and its colour."""


def parts_of(explanation: Explanation) -> list[Part]:
    """The parts of the window, which they fill; those of nothing are left out.

    What is over the budget takes of the reserve.
    """
    room, sent = explanation.room, explanation.totals.by_outcome
    parts = [
        Part("system prompt", _theirs(room, room.system_prompt)),
        Part("tools", _theirs(room, room.tools)),
        *(Part(name, _theirs(room, sent.get(name, Sum()).tokens)) for name in _SENT),
        Part("free", _theirs(room, max(0, room.free))),
    ]
    over = _theirs(room, max(0, -room.free))
    reserve = max(0, room.reserve - over)
    rest = room.window - sum(part.tokens for part in parts) - reserve
    parts += [Part("beyond maxTokens", _beyond(room, rest)), Part("reserve", reserve)]
    return [part for part in parts if part.tokens > 0]


_SENT: tuple[Outcome, ...] = ("kept", "shortened", "added")


def _theirs(room: Room, tokens: int) -> int:
    return round(tokens * room.scale)


def _beyond(room: Room, rest: int) -> int:
    """What a maxTokens keeps the messages from; a remainder of rounding is nothing."""
    return rest if rest > max(len(_SIGNS), room.window // 1000) else 0


def bar_lines(explanation: Explanation, page: Page) -> Iterator[str]:
    """The bar, and a line for each part of it."""
    parts, room = parts_of(explanation), explanation.room
    yield click.style(f"window {room.window:,} tokens", bold=True)
    cells = _cells([part.tokens for part in parts], min(MOST_COLUMNS, page.width))
    yield "".join(_sign(part, page, count) for part, count in zip(parts, cells, strict=True))
    size = max(len(part.name) for part in parts)
    for part in parts:
        share = part.tokens / room.window
        told = f"{part.name:<{size}}  {part.tokens:>11,}  {share:>6.1%}"
        yield f"{_sign(part, page, 1)} {told}"
    if room.free < 0:
        over = f"{-room.free:,} tokens over the {room.limit:,} that messages may take"
        yield click.style(over, fg="red")


def _sign(part: Part, page: Page, count: int) -> str:
    block, letter, colour = _SIGNS[part.name]
    return click.style((block if page.has_signs else letter) * count, fg=colour)


def _cells(sizes: Sequence[int], width: int) -> list[int]:
    """So many cells for each size: at least one each, together the width.

    >>> _cells([1, 50, 49], 10)
    [1, 4, 5]
    """
    total = sum(sizes)
    cells = [max(1, round(size * width / total)) for size in sizes]
    while sum(cells) > width and max(cells) > 1:
        cells[cells.index(max(cells))] -= 1
    while sum(cells) < width:
        cells[cells.index(max(cells))] += 1
    return cells
