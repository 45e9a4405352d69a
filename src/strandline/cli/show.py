"""A conversation as lines of a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from strandline.cli.conversation import NOT_DELIVERED, Item, Part
from strandline.cli.output import bold, columns, dim, red
from strandline.cli.words import amount, cut, one_line, safe, size, when

INDENT = "  "


def conversation_lines(shown: Iterable[Item], *, full: bool) -> Iterator[str]:
    """What was said, with a headline for each speaker; tools take one line a call.

    `full` prints what tools were given and gave back, and what models thought, at length.
    """
    speaker = before = ""
    for item in shown:
        if item.kind == "said":
            if _has_headline(item, speaker):
                yield from ["", _headline(item)]
                speaker = item.who
            for part in item.parts:
                yield from _part(part, full=full)
        else:
            if item.kind == "boundary" or before != "note":
                yield ""
            yield from _boundary(item) if item.kind == "boundary" else [_note(item)]
            speaker = ""
        before = item.kind


def _has_headline(item: Item, speaker: str) -> bool:
    """Tools speak for the assistant: their lines stand under its last words."""
    if item.label:
        return True
    if item.who == "toolResult":
        return not speaker
    only_calls = all(part.kind in {"call", "thinking"} for part in item.parts)
    return item.who != speaker or not only_calls


def _headline(item: Item) -> str:
    facts = [when(item.at_ms), item.id, one_line(item.title), NOT_DELIVERED * item.silent]
    label = bold(f"  [{one_line(item.label)}]") if item.label else ""
    who = item.who if item.who != "toolResult" else "tool"
    return f"{bold(one_line(who))}  {dim('  '.join(filter(None, facts)))}{label}"


def _note(item: Item) -> str:
    return dim(f"· {one_line(item.title)}  {when(item.at_ms)}  {item.id}")


def _boundary(item: Item) -> list[str]:
    facts = [item.who, one_line(item.title), when(item.at_ms), item.id]
    line = f"── {' · '.join(filter(None, facts))} "
    text = [INDENT + row for part in item.parts for row in safe(part.text).split("\n")]
    end = "─" * columns()
    return [bold(line + "─" * max(2, columns() - len(line))), *text, dim(end)]


def _part(part: Part, *, full: bool) -> Iterator[str]:
    match part.kind:
        case "text":
            yield from _rows(part.text)
        case "thinking":
            yield from _thinking(part, full=full)
        case "call":
            yield from _call(part, full=full)
        case "result":
            yield from _result(part, full=full)
        case "image":
            kind = one_line(part.title) or "unknown type"
            yield dim(f"{INDENT}[image, {kind}, {size(len(part.text) * 3 // 4)}]")
        case "problem":
            yield red(_short(f"{INDENT}! ", part.text))


def _thinking(part: Part, *, full: bool) -> Iterator[str]:
    if full:
        yield from map(dim, _rows(part.text, f"{INDENT}~ "))
    elif part.text.strip():
        yield dim(_short(f"{INDENT}~ ", part.text))


def _call(part: Part, *, full: bool) -> Iterator[str]:
    yield _short(f"{INDENT}→ {one_line(part.title)}  ", part.brief)
    if full and part.text != part.brief:
        yield from map(dim, _rows(part.text, INDENT * 2))


def _result(part: Part, *, full: bool) -> Iterator[str]:
    mark = f"{INDENT}{'✗' if part.failed else '←'} "
    paint = red if part.failed else dim
    text = part.text.strip("\n")
    if full:
        yield paint(mark + one_line(part.title))
        yield from map(dim, _rows(text, INDENT * 2))
        return
    count, taken = text.count("\n") + 1, len(text.encode("utf-8", "replace"))
    more = f"{amount(count, 'line')}, {size(taken)}: " if count > 1 else ""
    yield paint(_short(mark + more, text or "(nothing)"))


def _rows(text: str, indent: str = INDENT) -> Iterator[str]:
    text = safe(text).strip("\n")
    if text.strip():
        for row in text.split("\n"):
            yield indent + row


def _short(start: str, text: str) -> str:
    """The beginning of a text behind `start`, on one line."""
    room = columns()
    return cut(start + one_line(text[: 4 * room]), room)
