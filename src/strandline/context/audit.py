"""Auditing a summary: what had to survive, what of it did, and putting back what did not.

Whoever wrote a summary, its text is compared with the conversation. What must survive are
the open request, what people demanded or forbade (in their own words, for a rule that is
told in other words may say the opposite), the facts that the summary before carried, and
paths, identifiers, numbers and names. What is missing is put back into the fixed sections,
the weightiest first; a share of the room stays with the summary itself, and what is cut of
it is marked. Source: spec 3, Budget and compaction (Summaries).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from strandline.context.extractive import NAMES_A_LINE, NAMES_LINE, SHARES
from strandline.context.mustkeep import Must, musts, plain, words
from strandline.context.sections import (
    COURSE,
    DONE,
    FACTS,
    FILES,
    OPEN_QUESTIONS,
    OPEN_REQUEST,
    RULES,
    SECTIONS,
    Sections,
    render_sections,
    written_sections,
)
from strandline.context.shorten import shorten_text
from strandline.context.summarize import Audit, SummaryRequest
from strandline.context.tokens import TokenCounter

BODY_SHARE = 0.5
"""As much of the room stays with the summary itself, whatever is put back."""

SHARED_WORDS = 0.8
"""A request is there when so many of its words stand in its section."""

SHARED_FACT_WORDS = 0.6

ROUNDS = 3
"""What is cut of the summary to make room may itself have to be put back."""

SMALLEST_CUT_TOKENS = 16
"""A section with less room than this goes as a whole."""

JOINT_TOKENS = 2
"""What a line costs beyond its text, about."""

MISSING_CHARS = 120
"""As much of what is missing is told."""

_GIVING_WAY = (COURSE, DONE, OPEN_QUESTIONS, FACTS, RULES, OPEN_REQUEST)


def audit(request: SummaryRequest, text: str, counter: TokenCounter) -> Audit:
    """What of the things that must survive is in `text`."""
    return _audited(musts(request, counter), text)


def _audited(wanted: Sequence[Must], text: str) -> Audit:
    missing = _missing(wanted, written_sections(text))
    return Audit(
        len(wanted) - len(missing),
        len(wanted),
        tuple(must.text[:MISSING_CHARS] for must in missing),
    )


def repaired(request: SummaryRequest, text: str, counter: TokenCounter) -> tuple[str, Audit]:
    """The summary with what it lost put back, and the audit of the result.

    It is in the fixed sections and at most `request.max_tokens` long. What is still
    missing had no room: the request, rules and facts may each take their share of the
    summary's (`SHARES`), and more only where there is room to spare.
    """
    wanted = musts(request, counter)
    body = _body(text, is_open=any(must.section == OPEN_REQUEST for must in wanted))
    repair = _Repair(request.max_tokens, wanted, counter)
    whole = render_sections(repair.result(body)) or text.strip()
    result = shorten_text(whole, request.max_tokens, counter)
    return result, _audited(wanted, result)


def _body(text: str, *, is_open: bool) -> Sections:
    """The sections as they were written, without what others will add.

    When every request was answered, what was written as an open one is history: told as a
    task, it would be done again.
    """
    sections = written_sections(text)
    sections.pop(FILES, None)
    if not is_open and OPEN_REQUEST in sections:
        sections[COURSE] = [*sections.pop(OPEN_REQUEST), *sections.get(COURSE, [])]
    return sections


@dataclass(frozen=True, slots=True)
class _Repair:
    """One repair: `wanted` with the weightiest first, in at most `max_tokens`."""

    max_tokens: int
    wanted: Sequence[Must]
    counter: TokenCounter

    def result(self, written: Sections) -> Sections:
        """The sections with as much put back as there is room for."""
        room, body, added = self.max_tokens, written, list[Must]()
        for _ in range(ROUNDS):
            body = self._shrunk(written, room)
            added = self._chosen(body, [], share_out=True)
            if self._size(_joined(body, added)) <= self.max_tokens:
                break
            room = self.max_tokens - sum(self._cost(must) for must in added)
        added = self._within(body, added)
        return _joined(body, self._within(body, self._chosen(body, added, share_out=False)))

    def _chosen(self, body: Sections, added: list[Must], *, share_out: bool) -> list[Must]:
        """`added`, and what else is missing and has room; with `share_out` at the body's cost."""
        size = self._size(_joined(body, added))
        free = self.max_tokens - size
        hard = self.max_tokens - min(size, int(self.max_tokens * BODY_SHARE)) if share_out else free
        used = dict.fromkeys(SECTIONS, 0)
        chosen, total = list(added), 0
        # Names come last: many of them stand in the lines that are put back.
        for is_line in (True, False):
            wanted = [must for must in self.wanted if bool(must.line) == is_line]
            for must in _missing(wanted, _joined(body, chosen)):
                cost = self._cost(must)
                allowed = int(self.max_tokens * SHARES[must.section]) - used[must.section]
                if total + cost <= free or (total + cost <= hard and cost <= allowed):
                    chosen.append(must)
                    total += cost
                    used[must.section] += cost
        return chosen

    def _within(self, body: Sections, added: list[Must]) -> list[Must]:
        """Those that fit, the lightest left out first."""
        while added and self._size(_joined(body, added)) > self.max_tokens:
            added = added[: -1 - len(added) // 16]
        return added

    def _cost(self, must: Must) -> int:
        # The first name of a line and the first line of a section cost a little more.
        return self.counter.count(must.line or must.text) + JOINT_TOKENS + (3 if must.line else 1)

    def _size(self, sections: Sections) -> int:
        return self.counter.count(render_sections(sections))

    def _shrunk(self, sections: Sections, room: int) -> Sections:
        """The sections in about `room`, the course of the conversation giving way first."""
        shorter = dict(sections)
        for title in _GIVING_WAY:
            excess = self._size(shorter) - room
            if excess <= 0:
                break
            if title in shorter:
                text = "\n".join(shorter.pop(title))
                left = self.counter.count(text) - excess
                if left >= SMALLEST_CUT_TOKENS:
                    shorter[title] = shorten_text(text, left, self.counter).splitlines()
        return shorter


def _joined(body: Sections, added: Iterable[Must]) -> Sections:
    """The sections in their order, with what is put back: the request first, others last."""
    sections = {title: list(body.get(title, [])) for title in SECTIONS}
    listed: list[str] = []
    for must in added:
        if not must.line:
            listed.append(must.text)
        elif must.section == OPEN_REQUEST:
            sections[OPEN_REQUEST].insert(0, must.line)
        else:
            sections[must.section].append(must.line)
    for start in range(0, len(listed), NAMES_A_LINE):
        line = f"{NAMES_LINE} {', '.join(listed[start : start + NAMES_A_LINE])}"
        sections[FACTS].append(line)
    return sections


def _missing(wanted: Iterable[Must], sections: Sections) -> list[Must]:
    found = _Found(sections)
    return [must for must in wanted if not found.has(must)]


class _Found:
    """What is in a summary."""

    def __init__(self, sections: Sections) -> None:
        self._text = render_sections(sections)
        self._lower = self._text.lower()
        self._plain = plain(self._text)
        self._words = words(self._text)
        self._request = words("\n".join(sections.get(OPEN_REQUEST, [])))

    def has(self, must: Must) -> bool:
        """Whether it is there, in the way that its kind asks for."""
        if must.section == OPEN_REQUEST:
            return _share(words(must.text), self._request) >= SHARED_WORDS
        if must.section == RULES:
            return plain(must.text) in self._plain
        if must.names:
            return all(self._has_name(name) for name in must.names)
        return _share(words(must.text), self._words) >= SHARED_FACT_WORDS

    def _has_name(self, name: str) -> bool:
        """Paths and numbers to the letter, other names in any case; never within longer ones."""
        exact = not _IDENTIFIER.fullmatch(name)
        text, name = (self._text, name) if exact else (self._lower, name.lower())
        return any(_stands_alone(text, at, at + len(name)) for at in _places(text, name))


_IDENTIFIER = re.compile(r"(?a:(?=.*[A-Za-z])[\w@#'-]+)")
_GLUE = frozenset("/~-")
_POINTS = frozenset(".,")


def _places(text: str, name: str) -> Iterator[int]:
    at = text.find(name)
    while at >= 0:
        yield at
        at = text.find(name, at + 1)


def _stands_alone(text: str, start: int, end: int) -> bool:
    """Whether text[start:end] is no part of a longer path, word or number."""
    before, after = text[max(0, start - 1) : start], text[end : end + 2]
    if any(_is_inner(char) or char in _GLUE for char in (before, after[:1])):
        return False
    # "80" is not in "80.5" or "1,80", nor "/srv/app" in "/srv/app.py"; a full stop may follow.
    goes_on = after[:1] in _POINTS and _is_inner(after[1:])
    comes_on = before in _POINTS and text[max(0, start - 2) : start - 1].isdigit()
    return not goes_on and not (comes_on and text[start].isdigit())


def _is_inner(char: str) -> bool:
    """Whether a word goes on with it; other scripts are written without spaces."""
    return char.isascii() and (char.isalnum() or char == "_")


def _share(wanted: frozenset[str], there: frozenset[str]) -> float:
    return len(wanted & there) / len(wanted) if wanted else 1.0
