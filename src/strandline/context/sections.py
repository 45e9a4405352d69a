"""The fixed sections of a summary, whoever writes it, and reading them back.

A summary is a list of ``## Title`` sections of lines. What is asked for right now comes
first, so that nothing further down is taken for a task (spec 3, Budget and compaction).
"""

from __future__ import annotations

from collections.abc import Iterable

from strandline.context.blocks import well_formed

OPEN_REQUEST = "Open request"
RULES = "Rules and constraints"
OPEN_QUESTIONS = "Open questions"
DONE = "Done"
FACTS = "Facts"
COURSE = "Course of the conversation"
FILES = "Files"

SECTIONS = (OPEN_REQUEST, RULES, OPEN_QUESTIONS, DONE, FACTS, COURSE)
"""What a summariser writes, in this order; `FILES` is added by the compaction itself."""

Sections = dict[str, list[str]]

_BY_NAME = {title.casefold(): title for title in (*SECTIONS, FILES)}


def parse_sections(text: str) -> Sections:
    """Title -> lines, in the order of the text.

    Only the titles above begin a section; all other lines belong to the one that they
    stand in, or to ``""`` before the first. Lone surrogates are replaced: an old summary
    may hold some, and what is made of it is sent to a model.
    """
    sections: Sections = {}
    title = ""
    for line in well_formed(text).split("\n"):
        known = _BY_NAME.get(line.strip("#: ").casefold()) if line.startswith("#") else None
        if known is not None:
            title = known
        elif line.strip() or sections.get(title):
            sections.setdefault(title, []).append(line.rstrip())
    for lines in sections.values():
        while not lines[-1]:
            lines.pop()
    return sections


def render_sections(sections: Sections) -> str:
    """The text of the sections that have lines."""
    return "\n\n".join(
        "\n".join([f"## {title}", *lines] if title else lines)
        for title, lines in sections.items()
        if lines
    )


def quoted(text: str) -> list[str]:
    """The lines of `text`, each marked as a quotation: none can pass for a title."""
    return [f"> {line}" for line in text.splitlines() if line.strip()]


def unquoted(lines: Iterable[str]) -> str:
    """The text that was quoted."""
    return "\n".join(line.removeprefix("> ") for line in lines)
