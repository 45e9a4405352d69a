"""What a benchmark found, and how it is shown: one table, ratios first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

HEADINGS = ("what", "ratio", "target", "met", "ours", "against")

INTRODUCTION = """\
# Benchmarks

`make bench` measures this and writes this page. A ratio says how many times as fast, or as
many, Strandline is as what stands in the last column, which ran on the same machine in the
same minute; below 1 it is slower. Ratios travel between machines, the other figures do not:
they say what one machine with two cores and a warm page cache did. `pi` is the coding agent
whose transcripts Strandline reads; where it is not installed its rows say so. Targets are
those of the design; a row without one is there to be watched.
"""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table.

    `ratio` is how many times the control's speed ours is; None where there was no control.
    `met` says whether the target was reached; None where there is none.
    """

    what: str
    ours: str
    against: str
    ratio: float | None
    target: str = ""
    met: bool | None = None

    def cells(self) -> tuple[str, ...]:
        """The texts under `HEADINGS`."""
        ratio = "" if self.ratio is None else rate(self.ratio, "x")
        met = {True: "yes", False: "**no**", None: ""}[self.met]
        return self.what, ratio, self.target, met, self.ours, self.against


def duration(seconds: float) -> str:
    """A time for a person: three digits and the unit that fits."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}" if seconds < 1000 else f"{seconds:,.0f} s"
    return f"{seconds * 1e9:.0f} ns"


def rate(per_second: float, unit: str = "/s") -> str:
    """So many a second."""
    return f"{per_second:,.0f}{unit}" if per_second >= 100 else f"{per_second:.3g}{unit}"


def markdown(sections: Iterable[tuple[str, Sequence[Row]]]) -> str:
    """The page: a table for each topic."""
    parts = [INTRODUCTION]
    for title, rows in sections:
        lines = [HEADINGS, tuple("---" for _ in HEADINGS), *(row.cells() for row in rows)]
        table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        parts.append(f"## {title}\n\n{table}\n")
    return "\n".join(parts)


def plain(sections: Iterable[tuple[str, Sequence[Row]]]) -> str:
    """The same in columns, for a terminal."""
    sections = list(sections)
    lines = [HEADINGS] + [row.cells() for _, rows in sections for row in rows]
    widths = [max(len(line[n]) for line in lines) for n in range(len(HEADINGS))]
    shown = [_columns(HEADINGS, widths)]
    for title, rows in sections:
        shown += ["", title.upper(), *(_columns(row.cells(), widths) for row in rows)]
    return "\n".join(shown)


def _columns(cells: Sequence[str], widths: Sequence[int]) -> str:
    pairs = zip(cells, widths, strict=True)
    return "  ".join(cell.ljust(width) for cell, width in pairs).rstrip()
