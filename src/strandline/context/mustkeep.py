"""What must survive a summary of a conversation, the weightiest first.

Found by rules (`strandline.context.salience`) in bounded time, newest messages first.
Source: spec 3, Budget and compaction (Summaries).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from strandline.context.dialogue import (
    LINE_CHARS,
    is_answer,
    requests_and_answers,
    short_arguments,
    told_text,
)
from strandline.context.extractive import GOES_ON, NAMES_FROM_CHARS, NAMES_LINE, SHARES
from strandline.context.salience import is_rule, names, proper_names, sentences
from strandline.context.sections import FACTS, OPEN_REQUEST, RULES, Sections, parse_sections
from strandline.context.shorten import shorten_text
from strandline.context.summarize import SummaryRequest
from strandline.context.tokens import TokenCounter
from strandline.transcript.messages import Message

MOST_RULES = 100
MOST_NAMES = 200
"""As many are looked for; of names, those that people said and those that repeat."""

REQUEST_SHARE = 0.8 * SHARES[OPEN_REQUEST]

BY_A_PERSON = 3
"""A name said by a person weighs as much as one that the assistant said so often."""

MORE_THAN_A_NUMBER = 2

_MARKS = re.compile(r"^(?:\s*(?:[-*>]|#+)\s+)+")
_SPEAKER = re.compile(r"^\[[a-z ]+\] ")
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Must:
    """One thing that must survive: `text` in `section`.

    `line` is what is put back when it is missing; empty for names, which are listed
    together. `names` are what it is known by, empty where its words are.
    """

    section: str
    text: str
    line: str = ""
    names: tuple[str, ...] = ()


def musts(request: SummaryRequest, counter: TokenCounter) -> list[Must]:
    """All of them: the open request, rules, facts told before, names."""
    previous = parse_sections(request.previous_summary or "")
    found = [
        *_open_request(request, previous, counter),
        *_rules(request.messages, previous),
        *_facts(previous),
        *(Must(FACTS, name, names=(name,)) for name in _names(request.messages, previous)),
    ]
    return [must for must in found if must.names or words(must.text)]


def _open_request(
    request: SummaryRequest, previous: Sections, counter: TokenCounter
) -> Iterator[Must]:
    """The newest request unless it was answered; the one from before, if nothing came since."""
    if not request.tells_request:
        return
    turns = requests_and_answers(request.messages)
    if turns and turns[-1][1] is None:
        room = int(request.max_tokens * REQUEST_SHARE)
        text = shorten_text(told_text(request.messages[turns[-1][0]]), room, counter)
        text = " ".join(text.split())
        yield Must(OPEN_REQUEST, text, f"- [user] {text}{GOES_ON if request.split_turn else ''}")
    elif not turns and not any(map(is_answer, request.messages)):
        lines = [_unmarked(line) for line in previous.get(OPEN_REQUEST, [])]
        text = shorten_text("\n".join(lines), int(request.max_tokens * REQUEST_SHARE), counter)
        if text.strip():
            yield Must(OPEN_REQUEST, text, f"- {' '.join(text.split())}")


def _rules(messages: Iterable[Message], previous: Sections) -> list[Must]:
    """What people demanded, newest first, and what the summary before told of it."""
    lines: dict[str, Must] = {}
    for text, line in (*_said_rules(messages), *_told_lines(previous.get(RULES, []))):
        lines.setdefault(plain(text), Must(RULES, text, line))
        if len(lines) >= MOST_RULES:
            break
    return list(lines.values())


def _said_rules(messages: Iterable[Message]) -> Iterator[tuple[str, str]]:
    for message in reversed(list(messages)):
        if message.get("role") == "user":
            for sentence in reversed([*filter(is_rule, sentences(told_text(message)))]):
                yield _cut(sentence).removesuffix("…"), f"- [user] {_cut(sentence)}"


def _told_lines(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Lines of the summary before: what they say, and as they are put back."""
    for line in lines:
        text = _unmarked(line)
        if text:
            yield _SPEAKER.sub("", _cut(text)).removesuffix("…"), f"- {_cut(text)}"


def _facts(previous: Sections) -> Iterator[Must]:
    lines = [line for line in previous.get(FACTS, []) if not line.startswith(NAMES_LINE)]
    for text, line in _told_lines(lines):
        yield Must(FACTS, text, line, tuple(dict.fromkeys(names(text))))


def _names(messages: Iterable[Message], previous: Sections) -> list[str]:
    """The names that weigh most, the newest first among equals."""
    counted, said = Counter[str](), []
    for is_person, text in _texts_with_names(messages):
        for name in names(text):
            counted[name] += BY_A_PERSON if is_person else 1
        if is_person:
            said.append(text)
    for name in proper_names("\n".join(said)):
        counted[name] += 1
    for line in previous.get(FACTS, []):
        if line.startswith(NAMES_LINE):
            counted.update(dict.fromkeys(line.partition(":")[2].split(", "), 1))
    weights = {name: count + _more(name) for name, count in counted.items() if name.strip()}
    return [name.strip() for name in sorted(weights, key=lambda name: -weights[name])][:MOST_NAMES]


def _texts_with_names(messages: Iterable[Message]) -> Iterator[tuple[bool, str]]:
    left = NAMES_FROM_CHARS
    for message in reversed(list(messages)):
        if left <= 0:
            return
        role = message.get("role")
        if role in {"user", "assistant"}:
            text = "\n".join([told_text(message), *short_arguments(message)])
            left -= len(text)
            yield role == "user", text


def _more(name: str) -> int:
    return 0 if name.strip().replace(",", "").replace(".", "").isdigit() else MORE_THAN_A_NUMBER


def plain(text: str) -> str:
    """The words of a text and nothing else, to find a sentence however it is set."""
    return " ".join(_WORD.findall(text.casefold()))


def words(text: str) -> frozenset[str]:
    """The words of a text; of scripts without spaces, all pairs of neighbours."""
    found: set[str] = set()
    for word in _WORD.findall(text.casefold()):
        if word.isascii() or len(word) <= 2:
            found.add(word)
        else:
            found.update(word[at : at + 2] for at in range(len(word) - 1))
    return frozenset(found)


def _unmarked(line: str) -> str:
    return _MARKS.sub("", line).strip()


def _cut(text: str) -> str:
    return text if len(text) <= LINE_CHARS else f"{text[: LINE_CHARS - 1]}…"
