"""A conversation as Markdown that nothing in it can break out of.

What was said stays Markdown, in a block quote that contains it: it can neither fake a
headline of the export nor swallow what follows with an open fence, and its tags are text.
What tools got and gave is fenced with more back-ticks than it holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain

from strandline.cli.conversation import NOT_DELIVERED, Item, Part
from strandline.cli.fences import blocks
from strandline.cli.words import amount, one_line, safe, size, when

RESULT_LINES = 40
"""A longer result of a tool is cut; the HTML and JSON exports have it whole."""

_TICKS = re.compile("`+")
_SPANS = re.compile(r"\\.|(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)")


def markdown(title: str, facts: dict[str, str], shown: Iterable[Item]) -> Iterator[str]:
    """The lines of the document, facts about the session first."""
    yield f"# {_escaped(one_line(title))}"
    yield ""
    for name, value in facts.items():
        yield f"- {name}: {code(one_line(value))}"
    for item in shown:
        if item.who == "toolResult" and not item.label:
            yield from chain.from_iterable(map(_part, item.parts))  # stands below its call
        else:
            yield ""
            yield from _item(item)


def _item(item: Item) -> Iterator[str]:
    facts = [when(item.at_ms), code(one_line(item.id))]
    if item.kind == "note":
        yield f"*{_escaped(one_line(item.title))}* · {' · '.join(filter(None, facts))}"
        return
    who = f"{item.who}: {item.title}" if item.kind == "boundary" else item.who
    facts = [_escaped(one_line(who)), *facts]
    if item.kind == "said" and item.title:
        facts.append(code(one_line(item.title)))
    if item.silent:
        facts.append(NOT_DELIVERED)
    if item.label:
        facts.append(f"label {code(one_line(item.label))}")
    if item.kind == "boundary":
        yield "---"
        yield ""
    yield f"## {' · '.join(filter(None, facts))}"
    for part in item.parts:
        yield from _part(part)


def _part(part: Part) -> Iterator[str]:
    match part.kind:
        case "text" | "thinking" if part.text.strip():
            yield from ["", *(["*thinking*", ""] if part.kind == "thinking" else [])]
            yield from quoted(part.text)
        case "call":
            yield from ["", f"→ {code(one_line(part.title))}", "", *fenced(safe(part.text))]
        case "result":
            yield from _result(part)
        case "image":
            kind, count = one_line(part.title), size(len(part.text) * 3 // 4)
            yield from ["", f"*image {code(kind)}, {count}*"]
        case "problem":
            yield from ["", f"**{_escaped(one_line(part.text))}**"]


def _result(part: Part) -> Iterator[str]:
    lines = safe(part.text).strip("\n").split("\n")
    failed = " (failed)" if part.failed else ""
    yield from ["", f"← {code(one_line(part.title))}{failed}", ""]
    yield from fenced("\n".join(lines[:RESULT_LINES]))
    if len(lines) > RESULT_LINES:
        yield from ["", f"*{amount(len(lines) - RESULT_LINES, 'more line')}*"]


def code(text: str) -> str:
    """Text as a code span, whatever back-ticks it holds."""
    ticks = _more_ticks_than(text, 1)
    pad = " " if text.startswith("`") or text.endswith("`") or not text.strip() else ""
    return f"{ticks}{pad}{text}{pad}{ticks}"


def fenced(text: str) -> list[str]:
    """Text as a fenced block, whatever fences it holds."""
    ticks = _more_ticks_than(text, 3)
    return [ticks, *text.split("\n"), ticks]


def _more_ticks_than(text: str, least: int) -> str:
    longest = max((len(run) for run in _TICKS.findall(text)), default=0)
    return "`" * max(least, longest + 1)


def quoted(text: str) -> Iterator[str]:
    """Markdown of others as a block quote, its tags as text, its fences closed."""
    for block in blocks(safe(text).strip("\n")):
        if block.info is not None:
            body = fenced("\n".join(block.lines))
            lines = [body[0] + re.sub(r"[^\w+#.-]", "", block.info), *body[1:]]
        else:
            lines = _without_tags(block.lines)
        for line in lines:
            yield f"> {line}".rstrip()


def _without_tags(lines: list[str]) -> list[str]:
    """Prose with every `<` as text, but in code spans where nobody can see them otherwise.

    That is certain only where all spans of a paragraph end on the line they begin on.
    """
    paragraph: list[str] = []
    done: list[str] = []
    for line in [*lines, ""]:
        paragraph.append(line)
        if line.strip():
            continue
        closed = all("`" not in _SPANS.sub("", each) for each in paragraph)
        done += [_escaped_outside_code(p) if closed else _escaped(p) for p in paragraph]
        paragraph = []
    return done[:-1]


def _escaped_outside_code(line: str) -> str:
    parts, start = [], 0
    for span in _SPANS.finditer(line):
        parts += [_escaped(line[start : span.start()]), span[0]]
        start = span.end()
    return "".join([*parts, _escaped(line[start:])])


def _escaped(text: str) -> str:
    return text.replace("<", "&lt;")
