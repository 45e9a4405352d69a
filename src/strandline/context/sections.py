"""The fixed sections of a summary, whoever writes it, and reading them back.

A summary is a list of ``## Title`` sections of lines. What is asked for right now comes
first, so that nothing further down is taken for a task (spec 3, Budget and compaction).
"""

from __future__ import annotations

import re
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

_HEADING = re.compile(r"\s*(?:\#{1,6}\s*(?P<marked>.*)|\*\*(?P<bold>[^*]+)\*\*:?)\s*")
_NUMBERING = re.compile(r"^\d+[.)]\s*|\s*\([^()]*\)$")
_THINKING = re.compile(r"(?s)<think(?:ing)?>.*?</think(?:ing)?>")
_FENCE = re.compile(r"(?s)\s*```\w*\n(.*?)\n?```\s*")
_NOTHING = frozenset({"", "none", "nothing", "n/a", "none so far", "not applicable", "empty"})


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


def written_sections(text: str) -> Sections:
    """The sections of a text that a model wrote, whatever it made of its orders.

    Titles may be bold or numbered. What stands under no title or under one of its own
    making goes to the course of the conversation; thinking, a fence around all of it,
    and lines that say "none" are left out. No section is empty.
    """
    text = _THINKING.sub("", well_formed(text))
    fenced = _FENCE.fullmatch(text)
    sections: Sections = {}
    title = COURSE
    for line in (fenced[1] if fenced else text).splitlines():
        heading = _heading(line)
        if heading is not None:
            title = _BY_NAME.get(heading.casefold(), COURSE)
            if title == COURSE and heading.casefold() != COURSE.casefold():
                sections.setdefault(COURSE, []).append(f"{heading}:")
        elif line.strip().strip("-*. ()").casefold() not in _NOTHING:
            sections.setdefault(title, []).append(line.rstrip())
    return sections


def _heading(line: str) -> str | None:
    found = _HEADING.fullmatch(line)
    if found is None:
        return None
    name = (found["marked"] if found["bold"] is None else found["bold"]).strip("#*: ")
    title = _NUMBERING.sub("", _NUMBERING.sub("", name)).strip("*: ")
    # A bold line that is no known title is a line like others.
    return title if found["bold"] is None or title.casefold() in _BY_NAME else None


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
