"""Silent replies: what of a reply's text is delivered, as a whole and as a stream.

An agent that has nothing to say answers `NO_REPLY`. Source: spec 3, Silent replies. The rules:

1. A text that is only the token is silent. Around the token, in any case and repeated or not,
   may stand white space, invisible characters, punctuation and symbols (so Markdown's bold and
   code), the names of JSON objects (`{"action": "NO_REPLY"}`), reply directives
   (`[[reply_to_current]]`, `[[reply_to: id]]`) and, at the beginning, a fence with its language.
2. A text that starts with the token in upper case is silent, all of it; white space and
   directives may come first. A word that merely begins alike is no token: a letter that has
   case, a digit, a mark or `_` continues the word. A letter of a script without case (kana,
   ideographs) starts another one, as no space would stand there.
3. A last line that is only the token by rule 1 (blank lines after it do not count) makes the
   reply silent on a background turn and in groups and rooms. In a direct chat the text is
   delivered without it, without the line breaks before it and such lines directly above it.
4. On a background turn, a last line that ends in an arrow and the upper-case token (`nothing
   urgent → NO_REPLY`) counts as such a line: the arrow says what came out. Anywhere else it is
   a mention.
5. Everything else is delivered byte for byte: mentions, code blocks with text around them,
   directives, blank texts.

By rule 3 nothing can be shown in a group or room before the reply has ended: its last line may
still silence what came before, and what was shown cannot be taken back. So there, as on a
background turn, a reply is delivered only whole; only a direct chat streams. It is only text
that is judged here; media is always delivered, by the caller.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from typing import Literal

TOKEN = "NO_REPLY"  # noqa: S105 - the word an agent answers with, no secret

_BREAKS = "\n\r\v\f\x85\u2028\u2029"
_BREAK = re.compile(f"[{_BREAKS}]")
_ARROWS = ("→", "⇒", "->", "=>")


@dataclass(frozen=True)
class Occasion:
    """What a reply answers: a background turn (heartbeat, cron, flush) or someone in a chat.

    `heartbeat`: the turn's message is a heartbeat's, which no person wrote.
    """

    background: bool = False
    chat_type: Literal["direct", "group", "room"] = "direct"
    heartbeat: bool = False

    @property
    def only_whole(self) -> bool:
        """Nothing is shown before the reply has ended."""
        return self.background or self.chat_type != "direct"


def deliverable(text: str, occasion: Occasion) -> str:
    """What of a whole reply is delivered: nothing, all of it, or all but its last lines."""
    if TOKEN.lower() not in text.lower():
        return text  # most are like this, and a face asks for each that it shows
    silence = SilenceFilter(occasion)
    return silence.add(text) + silence.end()


def is_silent(text: str, occasion: Occasion) -> bool:
    """Nothing of this text is delivered (an empty text is silent, too)."""
    return not deliverable(text, occasion)


class SilenceFilter:
    """The same for a reply that comes in pieces: what may be shown so far, and in the end.

    All that `add` and `end` return, joined, is `deliverable` of the whole text, however it was
    cut. Each character is looked at once. What is held back in a direct chat: the beginning
    while it may become the token, the last line while it may, and the line breaks before that.
    """

    def __init__(self, occasion: Occasion) -> None:
        self._occasion = occasion
        self._scan = _Scan()
        self._whole: list[str] = []

    def add(self, piece: str) -> str:
        """Take the next piece; what can be shown now."""
        free = self._scan.add(piece)
        if not self._occasion.only_whole:
            return free
        self._whole.append(free)
        return ""

    def end(self) -> str:
        """The reply has ended: the rest that is to be delivered. To be called once."""
        if not self._occasion.only_whole:
            return self._scan.end()
        if self._scan.ends_with_token_line:
            return ""
        text = "".join(self._whole) + self._scan.end()
        return "" if self._occasion.background and _concludes_in_token(text) else text


class _Scan:
    """One reading of a reply by the rules of a direct chat, character by character."""

    def __init__(self) -> None:
        self._reply = frozenset({_HEAD})  # what the reply may still become; empty: nothing
        self._line = frozenset({_GAP})  # the same for the line that is being read
        self._line_is_blank = True
        self._token_line_above = False  # with nothing but blank lines between
        self._held: list[str] = []  # characters
        self._safe = 0  # so many of the held ones are no part of a last token line

    def add(self, piece: str) -> str:
        out: list[str] = []
        at = 0
        while at < len(piece) and _DROP not in self._reply:
            if not self._reply and not self._line:  # plain until the next line
                found = _BREAK.search(piece, at)
                stop = found.start() if found else len(piece)
                out.append(piece[at:stop])
                at = stop
            if at < len(piece):
                self._take(piece[at])
                out.extend(self._release())
                at += 1
        return "".join(out)

    def end(self) -> str:
        if self._reply & {_SEEN, _DROP}:
            return ""
        return "".join(self._held[: self._safe] if self.ends_with_token_line else self._held)

    @property
    def ends_with_token_line(self) -> bool:
        """The last line that is not blank is only the token."""
        return _SEEN in self._line or (self._line_is_blank and self._token_line_above)

    def _take(self, char: str) -> None:
        self._reply = _step(self._reply, char)
        if char in _BREAKS:
            self._end_line()
        else:
            self._line = _step(self._line, char)
            self._line_is_blank &= _is_blank(char)
        self._held.append(char)
        if not self._line:
            self._keep_line(len(self._held))

    def _end_line(self) -> None:
        if _SEEN in self._line:
            self._token_line_above = True
        elif not self._line_is_blank:
            self._keep_line(len(self._held))
        self._line = frozenset({_GAP})
        self._line_is_blank = True

    def _keep_line(self, safe: int) -> None:
        """The line is none that a later one could take along: all up to it stays."""
        self._safe = safe
        self._token_line_above = False

    def _release(self) -> list[str]:
        if self._reply or not self._safe:
            return []
        free = self._held[: self._safe]
        del self._held[: self._safe]
        self._safe = 0
        return free


def _concludes_in_token(text: str) -> bool:
    """Rule 4: the last line that is not blank ends in an arrow and the token."""
    before, _, after = text.rpartition(TOKEN)
    rest_of_line, *below = _BREAK.split(after)
    if not all(map(_is_filler, rest_of_line)) or not all(map(_is_blank, "".join(below))):
        return False
    start = len(before)
    while start and _is_filler(before[start - 1]) and before[start - 1] not in _BREAKS:
        start -= 1
    return any(arrow in before[start:] for arrow in _ARROWS)


def _is_blank(char: str) -> bool:
    """White space or invisible."""
    return char.isspace() or unicodedata.category(char) in {"Zs", "Zl", "Zp", "Cc", "Cf"}


def _is_filler(char: str) -> bool:
    """May stand around the token: blank, punctuation, a symbol, a variation selector."""
    return unicodedata.category(char)[0] in "PS" or _is_blank(char) or "\ufe00" <= char <= "\ufe0f"


def _ends_word(char: str) -> bool:
    """Does not continue the word that the token is (rule 2)."""
    if char == "_":
        return False
    category = unicodedata.category(char)
    return _is_filler(char) or not (category in {"Lu", "Ll", "Lt"} or category[0] in "MN")


# The grammar of rules 1 and 2 as a graph: a node is a place in the text, an edge the characters
# that lead on. A text that leads to no node can no longer become silent; one that leads to
# `seen` is only the token. A line is read from `gap`, as what may come first in a reply is no
# part of a last line.
_Test = Callable[[str], bool]
_HEAD = "head"  # blanks and directives so far
_GAP = "gap"  # between two items, no token yet
_SEEN = "seen"  # the same after a token
_EXACT = "exact"  # starts with the upper-case token, which may still be part of a word
_DROP = "drop"  # starts with the upper-case token


def _word(word: str) -> list[_Test]:
    """The characters of `word` in any case (ASCII only: nothing else folds to them)."""
    return [_one_of(char.lower() + char.upper()) for char in word]


def _one_of(chars: str) -> _Test:
    return lambda char: char in chars


def _none_of(chars: str) -> _Test:
    return lambda char: char not in chars


def _is_language(char: str) -> bool:
    return char.isalnum() or char in "_-+#."


class _Graph:
    def __init__(self) -> None:
        self.edges: defaultdict[str, list[tuple[_Test, str]]] = defaultdict(list)
        self._numbers = count()

    def path(self, source: str, tests: Iterable[_Test], target: str) -> None:
        """A way from one node to another, one test for each character on it."""
        *first, last = tests
        for test in first:
            node = f"{source}.{next(self._numbers)}"
            self.edges[source].append((test, node))
            source = node
        self.edges[source].append((last, target))

    def item(self, home: str, after: str) -> None:
        """What may come at `home`; fillers and names lead to `after`, directives back."""
        self.path(home, [_is_filler], after)
        self.path(home, _word(TOKEN), _SEEN)
        self._name(home, after)
        self._directive(home)

    def _name(self, home: str, after: str) -> None:
        """`{"name":` or `, "name":`."""
        opening, inside, closed = (f"{home} {place}" for place in ("{", '"', '""'))
        self.path(home, [_one_of("{,")], opening)
        self.path(opening, [_is_blank], opening)
        self.path(opening, _word('"'), inside)
        self.path(inside, [_none_of('"\\' + _BREAKS)], inside)
        self.path(inside, [_one_of("\\"), _none_of(_BREAKS)], inside)
        self.path(inside, _word('"'), closed)
        self.path(closed, [_is_blank], closed)
        self.path(closed, _word(":"), after)

    def _directive(self, home: str) -> None:
        """`[[reply_to_current]]` or `[[reply_to: id]]`."""
        opening, named, id_, closing = (f"{home} {place}" for place in ("[[", "to", ":", "]]"))
        self.path(home, _word("[["), opening)
        self.path(opening, _word("reply_to_current"), closing)
        self.path(opening, _word("reply_to"), named)
        self.path(named, _word(":"), id_)
        self.path(id_, [_none_of("]" + _BREAKS)], id_)
        self.path(id_, _word("]]"), home)
        self.path(closing, _word("]]"), home)
        for node in (opening, named, closing):
            self.path(node, [_is_blank], node)

    def beginning(self) -> None:
        """What only the beginning of a reply may hold: blanks, a fence, the exact token."""
        language = "language"
        self.path(_HEAD, [_is_blank], _HEAD)
        self.path(_HEAD, _word("```"), language)
        self.path(language, [_is_language], language)
        self.path(language, [_is_blank], _GAP)
        for home in (_HEAD, _EXACT):
            self.path(home, [_one_of(char) for char in TOKEN], _EXACT)
        self.path(_EXACT, [_ends_word], _DROP)


def _grammar() -> dict[str, list[tuple[_Test, str]]]:
    graph = _Graph()
    graph.beginning()
    for home, after in ((_HEAD, _GAP), (_GAP, _GAP), (_SEEN, _SEEN)):
        graph.item(home, after)
    return dict(graph.edges)


_EDGES = _grammar()


@lru_cache(maxsize=4096)
def _step(nodes: frozenset[str], char: str) -> frozenset[str]:
    """Where `char` leads from these nodes."""
    return frozenset(
        target for node in nodes for fits, target in _EDGES.get(node, ()) if fits(char)
    )
