"""The offline summariser: it says nothing of its own, it chooses what was said.

What must survive is found by rules (`strandline.context.salience`) and comes first; the
course of the conversation fills what room is left, each message condensed by `lede`. The
result depends on the request alone. Who said a line stands on it, and only people make
rules: an order quoted in a tool's output stays a quotation. Source: spec 3, Budget and
compaction (Summaries).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import islice

import lede  # type: ignore[import-untyped]  # it ships no types

from strandline.context.dialogue import (
    LINE_CHARS,
    is_answer,
    message_lines,
    requests_and_answers,
    short_arguments,
    told_text,
)
from strandline.context.salience import is_question, is_rule, names, sentences, weight
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
    parse_sections,
    render_sections,
)
from strandline.context.shorten import shorten_text
from strandline.context.summarize import SummaryRequest
from strandline.context.tokens import TokenCounter
from strandline.transcript.messages import Message

SHARES = {
    OPEN_REQUEST: 0.35,
    RULES: 0.3,
    OPEN_QUESTIONS: 0.1,
    DONE: 0.2,
    FACTS: 0.2,
    COURSE: 1.0,
}
"""What each section may take of the room at first; what is left goes to all of them."""

GOES_ON = " (begun here, it goes on after this summary)"
"""Said of a request whose turn is cut: what came of it is in the messages that are kept."""

SHORTEST_LINE_CHARS = 90

SENTENCES_FROM_CHARS = 160
"""In less room than this the weightiest sentence says more than a choice of several."""

COURSE_LINE_TOKENS = 30
"""What a line of the course takes, about."""

NAMED = 40
"""As many names and numbers are listed."""

NAMES_A_LINE = 8

NAMES_LINE = "- names and numbers:"

NAMES_FROM_CHARS = 1_000_000
"""As much of the newest text is searched for names."""

_CJK_STOP = re.compile(r"(?<=[。！？])")  # noqa: RUF001 - full-width marks end sentences
_DANGLING = re.compile(r" \d+\.$")
_MARKS = re.compile(r"^(?:\s*(?:[-*>]|#+)\s+)+")


def extract_summary(request: SummaryRequest, counter: TokenCounter) -> str:
    """The summary of a request, in the fixed sections."""
    told = _Told(request, counter)
    sections = _fill(told.lines(), request.max_tokens, counter)
    text = render_sections(sections)
    if not any(sections.values()):
        text = next(told.course(), "(nothing was said in words)")
    return shorten_text(text, request.max_tokens, counter)


def _fill(lines: dict[str, Iterator[str]], max_tokens: int, counter: TokenCounter) -> Sections:
    """As many lines of each section as there is room for: the newest, in their order."""
    chosen: Sections = {title: [] for title in SECTIONS}
    used = dict.fromkeys(SECTIONS, 0)
    waiting: dict[str, str] = {}
    seen: set[str] = set()
    room = max_tokens
    for round_shares in (SHARES, dict.fromkeys(SECTIONS, 1.0)):
        for title in SECTIONS:
            allowed = int(max_tokens * round_shares[title])
            while (line := waiting.pop(title, None) or next(lines[title], None)) is not None:
                if line in seen:
                    continue
                # A title costs too, when its first line comes.
                cost = counter.count(line) + 1 + (0 if chosen[title] else counter.count(title) + 4)
                if cost > min(room, allowed - used[title]):
                    waiting[title] = line
                    break
                seen.add(line)
                chosen[title].append(line)
                used[title] += cost
                room -= cost
    return {title: kept[::-1] for title, kept in chosen.items()}


class _Told:
    """What a request tells, section by section, the newest line first."""

    def __init__(self, request: SummaryRequest, counter: TokenCounter) -> None:
        self._counter = counter
        self._max_tokens = request.max_tokens
        self._split_turn = request.split_turn
        self._tells_request = request.tells_request
        self._messages = request.messages
        self._previous = parse_sections(request.previous_summary or "")
        self._previous.pop(FILES, None)
        self._hints = [word for word in (request.instructions or "").split() if len(word) > 3]

    def lines(self) -> dict[str, Iterator[str]]:
        """The lines of each section, made one by one as they are asked for."""
        makers: dict[str, Callable[[], Iterator[str]]] = {
            OPEN_REQUEST: self.open_request,
            RULES: self.rules,
            OPEN_QUESTIONS: self.open_questions,
            DONE: self.done,
            FACTS: self.facts,
            COURSE: self.course,
        }
        return {title: make() for title, make in makers.items()}

    @cached_property
    def _turns(self) -> list[tuple[int, int | None]]:
        """Each request and the answer that finished it, as places."""
        return requests_and_answers(self._messages)

    @property
    def _is_answered(self) -> bool:
        """Whether anything was finished in these messages."""
        return any(is_answer(message) for message in self._messages)

    def open_request(self) -> Iterator[str]:
        """The newest request, unless it was answered; else the one from before."""
        if not self._tells_request:
            return
        if self._turns and self._turns[-1][1] is None:
            text = _text(self._messages[self._turns[-1][0]])
            room = int(self._max_tokens * SHARES[OPEN_REQUEST] * 0.8)
            if text:
                request = " ".join(shorten_text(text, room, self._counter).split())
                yield f"- [user] {request}{GOES_ON if self._split_turn else ''}"
        elif not self._turns and not self._is_answered:
            yield from self._kept(OPEN_REQUEST)

    def rules(self) -> Iterator[str]:
        """What people demanded, forbade or asked to remember."""
        for message in reversed(self._messages):
            if message.get("role") == "user":
                found = [s for s in sentences(told_text(message)) if is_rule(s)]
                yield from (f"- [user] {_cut(s)}" for s in reversed(found))
        yield from self._kept(RULES)

    def open_questions(self) -> Iterator[str]:
        """What the newest answer asks, while nobody has replied."""
        for message in reversed(self._messages):
            if message.get("role") == "user":
                return
            if message.get("role") == "assistant":
                asked = [s for s in sentences(told_text(message)) if is_question(s)]
                yield from (f"- [assistant] {_cut(s)}" for s in reversed(asked))
        yield from self._kept(OPEN_QUESTIONS)

    def done(self) -> Iterator[str]:
        """Each finished request with the end of its answer."""
        for asked, answered in reversed(self._turns):
            if answered is None:
                continue
            request = self._condensed(_text(self._messages[asked]), LINE_CHARS // 2)
            answer = self._condensed(_text(self._messages[answered]), LINE_CHARS // 2)
            if request:
                yield f"- [user] {request} [assistant] {answer}"
        if self._turns or self._is_answered:
            yield from (line.removesuffix(GOES_ON) for line in self._kept(OPEN_REQUEST))
        yield from self._kept(DONE)

    def facts(self) -> Iterator[str]:
        """Names and numbers, then the sentences that hold them."""
        listed = self._names()
        for start in range(0, len(listed), NAMES_A_LINE):
            yield f"{NAMES_LINE} {', '.join(listed[start : start + NAMES_A_LINE])}"
        for message in reversed(self._messages):
            role = message.get("role")
            if role in {"user", "assistant"}:
                told = [s for s in sentences(told_text(message)) if names(s) and not is_rule(s)]
                yield from (f"- [{role}] {_cut(s)}" for s in reversed(told))
        yield from (line for line in self._kept(FACTS) if not line.startswith(NAMES_LINE))

    def _names(self) -> list[str]:
        """The names most often told, the newest first among equals."""
        counted: Counter[str] = Counter()
        for text in self._texts_with_names():
            counted.update(names(text))
        for line in self._previous.get(FACTS, []):
            if line.startswith(NAMES_LINE):
                counted.update(line.partition(":")[2].split(", "))
        ranked = sorted(counted, key=lambda name: (-_is_word(name), -counted[name]))
        return [name.strip() for name in islice(ranked, NAMED) if name.strip()]

    def _texts_with_names(self) -> Iterator[str]:
        left = NAMES_FROM_CHARS
        for message in reversed(self._messages):
            if left <= 0:
                return
            if message.get("role") in {"user", "assistant"}:
                text = told_text(message)
                left -= len(text)
                yield "\n".join([text, *short_arguments(message)])

    def course(self) -> Iterator[str]:
        """What was said, evenly from beginning to end, and what was told of it before.

        Where not every message can have a line, the weightiest of each stretch has one:
        the newest messages need no preference, they are kept beside the summary.
        """
        told = [message for message in self._messages if _is_told(message)]
        share = self._max_tokens * (3 if self._previous.get(COURSE) else 5) // 10
        count = max(1, min(len(told), share // COURSE_LINE_TOKENS))
        chars = max(SHORTEST_LINE_CHARS, min(LINE_CHARS, share * 3 // count))
        for end in range(count, 0, -1):
            stretch = told[(end - 1) * len(told) // count : end * len(told) // count]
            if stretch:
                yield self._course_line(max(stretch, key=_weight_of), chars)
        yield from self._kept(COURSE)
        yield from self._kept("")

    def _course_line(self, message: Message, chars: int) -> str:
        role, text = message.get("role"), _text(message)
        if role in {"user", "assistant"} and text:
            if chars < SENTENCES_FROM_CHARS < len(text):
                return f"- [{role}] {_cut(max(sentences(told_text(message)), key=weight), chars)}"
            return f"- [{role}] {self._condensed(text, chars)}"
        return f"- {_cut(next(message_lines(message), ''), chars)}"

    def _condensed(self, text: str, max_chars: int) -> str:
        """The sentences of a text that say most, on one line."""
        if len(text) <= max_chars:
            return text
        spaced = _CJK_STOP.sub("\n", text)
        found = lede.summarize(spaced, max_chars, hints=self._hints or None)
        # A list cut between its items leaves the number of the next one behind.
        return _cut(_DANGLING.sub("", " ".join(str(found).split())) or text, max_chars)

    def _kept(self, title: str) -> Iterator[str]:
        """The lines of the summary before, the newest first."""
        for line in reversed(self._previous.get(title, [])):
            text = _MARKS.sub("", line).strip()
            if text:
                yield f"- {_cut(text)}"


def _is_told(message: Message) -> bool:
    """Whether a message has a place in the course: not what a tool gave back as hoped."""
    if message.get("role") == "toolResult" and not message.get("isError"):
        return False
    return next(message_lines(message), None) is not None


def _weight_of(message: Message) -> int:
    return weight(told_text(message))


def _text(message: Message) -> str:
    return " ".join(told_text(message).split())


def _cut(text: str, max_chars: int = LINE_CHARS) -> str:
    return text if len(text) <= max_chars else f"{text[: max_chars - 1]}…"


def _is_word(name: str) -> bool:
    """Whether a name is more than a bare number."""
    return not name.replace(",", "").replace(".", "").isdigit()
