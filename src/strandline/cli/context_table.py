"""The table of an explained context: a line for each message, or for neighbours of one fate."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

import click

from strandline.cli.gist import KINDS, message_words
from strandline.cli.output import bold, dim
from strandline.cli.signs import Page
from strandline.cli.words import amount, cut, one_line, padded
from strandline.context.explain import Explanation, Row
from strandline.context.view import Outcome

MOST_REASONS = 20
"""So many different reasons are told; `--json` has them all."""

MOST_NEIGHBOURS = 3
"""More neighbours than this that are of one fate stand on one line."""

ID_CHARS = 8
GAP = "  "
MOST_BY, LEAST_BY, LEAST_TEXT = 28, 8, 24
"""Columns of what decided, and what the text gets before that is cut shorter."""

GIST_CHARS = 300

_COLOURS: dict[Outcome, str] = {"shortened": "yellow", "summarised": "cyan", "added": "green"}
_WORDS: dict[Outcome, str] = {"left_out": "left out"}


def table_lines(explanation: Explanation, page: Page, *, everything: bool) -> Iterator[str]:
    """The messages, in order; with `everything` each on a line of its own."""
    lines = [*_lines(explanation.rows, everything=everything)]
    titles = ("entry", "role", "tokens", "outcome", "by", "text")
    sizes = [max(len(line[n]) for line in [titles, *(c for c, _ in lines)]) for n in range(5)]
    room = page.width - sum(sizes[:4]) - len(sizes) * len(GAP) - LEAST_TEXT
    sizes[4] = min(sizes[4], MOST_BY, max(LEAST_BY, room))
    yield bold(_line(titles, sizes, page))
    for cells, row in lines:
        yield _styled(_line(cells, sizes, page), row)


Cells = tuple[str, str, str, str, str, str]


def _lines(rows: Sequence[Row], *, everything: bool) -> Iterator[tuple[Cells, Row]]:
    for _, group in groupby(rows, key=_fate):
        run = list(group)
        if everything or len(run) <= MOST_NEIGHBOURS:
            yield from ((_cells(row), row) for row in run)
        else:
            yield _run_cells(run), run[0]


def _fate(row: Row) -> tuple[object, ...]:
    return row.outcome, row.layer, row.rule, row.reason


def _cells(row: Row) -> Cells:
    text = one_line(message_words(row.message)[:GIST_CHARS])
    return (_id(row), _role(row), f"{row.tokens:,}", _word(row), _by(row), text)


def _run_cells(run: Sequence[Row]) -> Cells:
    """One line for all of them: the first, how many there are, and why."""
    roles = Counter(map(_role, run))
    told = ", ".join(f"{count:,} {role}" for role, count in roles.most_common())
    tokens = f"{sum(row.tokens for row in run):,}"
    text = f"{_id(run[0])} … {_id(run[-1])}: {told}"
    return ("…", f"{len(run):,} msgs", tokens, _word(run[0]), _by(run[0]), one_line(text))


def _id(row: Row) -> str:
    return one_line(row.entry_id or "")[:ID_CHARS] or "-"


def _role(row: Row) -> str:
    return one_line(KINDS.get(row.role, row.role))[:10]


def _word(row: Row) -> str:
    return _WORDS.get(row.outcome, row.outcome)


def _by(row: Row) -> str:
    return one_line(f"{row.layer}/{row.rule}") if row.layer else ""


def _line(cells: Sequence[str], sizes: Sequence[int], page: Page) -> str:
    entry, role, tokens, outcome, by, text = cells
    cells = (
        padded(entry, sizes[0]),
        padded(role, sizes[1]),
        tokens.rjust(sizes[2]),
        padded(outcome, sizes[3]),
        padded(cut(by, sizes[4]), sizes[4]),
        text,
    )
    return page.drawn(cut(GAP.join(cells).rstrip(), page.width))


def _styled(line: str, row: Row) -> str:
    if row.outcome == "left_out":
        return dim(line)
    return click.style(line, fg=_COLOURS.get(row.outcome))


def reason_lines(explanation: Explanation, page: Page) -> Iterator[str]:
    """Every different reason with what it is about, the most frequent first."""
    counts: Counter[tuple[str, str]] = Counter()
    for row in explanation.rows:
        if row.layer:
            counts[_by(row), one_line(row.reason)] += 1
    for (by, reason), count in counts.most_common(MOST_REASONS):
        told = f"{by}: {reason} ({amount(count, 'message')})"
        yield from textwrap.wrap(page.drawn(told), page.width, subsequent_indent="    ")
    if len(counts) > MOST_REASONS:
        yield dim(f"and {amount(len(counts) - MOST_REASONS, 'other reason')}: --json has them all")


def total_lines(explanation: Explanation) -> Iterator[str]:
    """How many messages there are of each outcome, and their tokens."""
    totals = explanation.totals
    yield bold(f"{'':<12}{'messages':>10}{'tokens':>12}")
    for outcome in ("kept", "shortened", "added", "summarised", "left_out"):
        sum_ = totals.by_outcome.get(outcome)
        if sum_ is not None:
            name = _WORDS.get(outcome, outcome)
            yield f"{name:<12}{sum_.messages:>10,}{sum_.tokens:>12,}"
