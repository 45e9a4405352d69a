"""The page that pictures are drawn on: how wide it is, and whether it can hold their signs."""

from __future__ import annotations

import sys
from typing import NamedTuple

from strandline.cli.output import columns

SIGNS = "█▓■▧▤·╌░…→✓✗"
"""What pictures are made of where it can be shown."""


class Page(NamedTuple):
    """Standard output: its width in columns, and whether it has `SIGNS`, or ASCII alone."""

    width: int
    has_signs: bool

    def drawn(self, line: str) -> str:
        """A line with what we draw in it; words of others stay as they are."""
        return line if self.has_signs else line.replace("…", "~").replace("→", ">")


def page() -> Page:
    """Standard output as it is."""
    try:
        SIGNS.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return Page(columns(), has_signs=False)
    return Page(columns(), has_signs=True)
