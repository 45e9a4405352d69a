"""Reading the pages of the documentation: their sections, tables and words in code."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


class Page:
    """A page of the documentation."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.text = (DOCS / name).read_text(encoding="utf-8")

    def section(self, title: str) -> str:
        """The text below a heading, up to the next one of any level."""
        found = re.split(r"^#{2,} ", self.text, flags=re.MULTILINE)
        return next(text for text in found if text.partition("\n")[0] == title)

    def rows(self, title: str, first: str) -> list[list[str]]:
        """The rows of the table in a section whose first column is headed `first`."""
        tables = re.findall(r"(?:^\|.*\n)+", self.section(title) + "\n", flags=re.MULTILINE)
        for lines in map(str.splitlines, tables):
            if _cells(lines[0])[0] == first:
                return [_cells(line) for line in lines[2:]]
        raise AssertionError(f"{self.name}, {title}: no table that begins with {first!r}")

    def words(self, title: str, first: str, column: int = 0) -> list[str]:
        """What stands between backticks in a column of such a table, from top to bottom."""
        return [word for row in self.rows(title, first) for word in quoted(row[column])]


def _cells(line: str) -> list[str]:
    inner = line.strip().removeprefix("|").removesuffix("|")
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", inner)]


def quoted(cell: str) -> Sequence[str]:
    """What stands between backticks."""
    return re.findall(r"`([^`]+)`", cell)


@pytest.fixture
def engines_page() -> Page:
    return Page("engines.md")


@pytest.fixture
def subagents_page() -> Page:
    return Page("subagents.md")


@pytest.fixture
def context_page() -> Page:
    return Page("context.md")


@pytest.fixture
def format_page() -> Page:
    return Page("format.md")


@pytest.fixture
def cli_page() -> Page:
    return Page("cli.md")


@pytest.fixture
def library_page() -> Page:
    return Page("library.md")


@pytest.fixture
def architecture_page() -> Page:
    return Page("architecture.md")
