"""Rows of the session store, as a person reads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from strandline.cli.words import one_line, padded, width
from strandline.sessions.rows import SessionRow


def ago(then_ms: int | None, now_ms: int) -> str:
    """How long ago, in the largest unit that fits.

    >>> ago(0, 90_000), ago(None, 0)
    ('1 min ago', 'never')
    """
    if then_ms is None:
        return "never"
    seconds = max(0, now_ms - then_ms) // 1000
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit} ago"
    return "just now"


def context_text(row: SessionRow) -> str:
    """How full the context is, as the row remembers it: a statistic, not a limit."""
    used, window = row.total_tokens, row.context_tokens
    if used is None or not window or row.total_tokens_fresh is False:
        return "-"
    return f"{used:,}/{window:,} ({used / window:.0%})"


def model_text(row: SessionRow) -> str:
    """The model that answers, or answered last."""
    provider = row.provider_override or row.raw.get("modelProvider")
    model = row.model_override or row.raw.get("model")
    return f"{provider}/{model}" if provider and model else "-"


def row_line(key: str, row: SessionRow, now_ms: int) -> str:
    """One row on one line."""
    return f"{key}  {ago(row.updated_at, now_ms)}  {model_text(row)}  {context_text(row)}"


def columns_of(lines: Sequence[Sequence[str]]) -> Iterator[str]:
    """Lines of cells in columns as wide as their widest cell, safe to print."""
    cells = [[one_line(cell) for cell in line] for line in lines]
    widths = [max(width(cell) for cell in column) for column in zip(*cells, strict=True)]
    for line in cells:
        filled = (padded(cell, size) for cell, size in zip(line, widths, strict=True))
        yield "  ".join(filled).rstrip()
