"""Old tool results and their shorter forms: what `contextPruning` may trim, and what it saves.

A result is left alone when its tool is not allowed, when it holds an image, when it is pinned,
and before the first message in the user's role. Of the others, in their order, all up to one
are shortened when they are long (soft), and all up to an earlier one are replaced (hard). So
two numbers say which results are trimmed. Source: spec 3, Pruning in four layers (Tool results).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import NamedTuple

from strandline.context.blocks import text_block
from strandline.context.policy import CLEARED, ToolResultPruning
from strandline.context.restate import restated
from strandline.context.tokens import MessageTokens
from strandline.context.view import Decision, ViewMessage
from strandline.transcript.messages import Message

STEP = "toolResults"


class Trims(NamedTuple):
    """Which results are trimmed: long ones among the first `soft`, and all of the first `hard`."""

    soft: int = 0
    hard: int = 0


class Results:
    """The results of a growing path that may be trimmed. A number is an index into them."""

    def __init__(self, rules: ToolResultPruning, tokens: MessageTokens) -> None:
        self.pinned: Collection[int] = ()
        self._rules = rules
        self._tokens = tokens
        self._seen = 0  # messages
        self._asked: int | None = None  # the first message in the user's role
        self._places: list[int] = []
        self._chars = [0]
        self._soft_chars = [0]
        self._soft_forms: list[ViewMessage] = []
        self._soft_saved = [0]
        self._hard_forms: dict[int, ViewMessage] = {}
        self._hard_saved = [0]
        self._cleared = {"role": "toolResult", "content": [text_block(_placeholder(rules))]}
        self._cleared_tokens = tokens.count(self._cleared)

    def take(self, messages: Sequence[ViewMessage], stop: int) -> None:
        """Look at the messages up to `stop`, and forget what was behind it."""
        self._forget(stop)
        for place in range(self._seen, stop):
            said = messages[place]
            if said.message["role"] == "toolResult":
                if self._may_be_trimmed(place, said):
                    self._add(place, said)
            elif self._asked is None and said.message["role"] == "user":
                self._asked = place
        self._seen = stop

    def before(self, place: int) -> int:
        """How many results are before a place."""
        return bisect_left(self._places, place)

    def chars(self, trims: Trims, stop: int) -> int:
        """Characters of the results before number `stop` that are not yet replaced."""
        soft = min(max(trims.soft, trims.hard), stop)
        hard = min(trims.hard, stop)
        return (
            self._soft_chars[soft] - self._soft_chars[hard] + self._chars[stop] - self._chars[soft]
        )

    def saved(self, start: int, stop: int, trims: Trims) -> int:
        """Tokens that trimming saves from one place to another."""
        return self._saved_to(self.before(stop), trims) - self._saved_to(self.before(start), trims)

    def saved_by_next(self, messages: Sequence[ViewMessage], trims: Trims) -> tuple[int, int]:
        """The place of the next result to be replaced, and the tokens that this would save."""
        number = trims.hard
        place = self._places[number]
        raw = messages[place].tokens
        self._know_hard(messages, number + 1)
        now = raw - (self._saved_soft(messages, number) if number < trims.soft else 0)
        return place, now - (raw - (self._hard_saved[number + 1] - self._hard_saved[number]))

    def know(self, messages: Sequence[ViewMessage], trims: Trims) -> None:
        """Work out what these trims save."""
        self._know_soft(messages, trims.soft)
        self._know_hard(messages, trims.hard)

    def trimmed(
        self, messages: Sequence[ViewMessage], start: int, stop: int, trims: Trims
    ) -> Sequence[ViewMessage]:
        """The messages from `start` to `stop`, the results among them trimmed."""
        first, last = self.before(start), min(self.before(stop), max(trims.soft, trims.hard))
        if first >= last:
            return messages[start:stop]
        said = list(messages[start:stop])
        for number in range(first, last):
            place = self._places[number]
            said[place - start] = self._form(messages[place], number, trims)
        return said

    # -- below: numbers ---------------------------------------------------------------------

    def _form(self, said: ViewMessage, number: int, trims: Trims) -> ViewMessage:
        if number >= trims.hard:
            return self._soft_forms[number]
        if self._hard_saved[number + 1] == self._hard_saved[number]:
            return said
        form = self._hard_forms.get(number)
        if form is None:
            form = self._hard_forms[number] = self._replaced(said)
        return form

    def _saved_to(self, number: int, trims: Trims) -> int:
        hard = min(number, trims.hard)
        soft = max(hard, min(number, trims.soft))
        return self._hard_saved[hard] + self._soft_saved[soft] - self._soft_saved[hard]

    def _saved_soft(self, messages: Sequence[ViewMessage], number: int) -> int:
        self._know_soft(messages, number + 1)
        return self._soft_saved[number + 1] - self._soft_saved[number]

    def _know_soft(self, messages: Sequence[ViewMessage], count: int) -> None:
        for number in range(len(self._soft_forms), count):
            said = messages[self._places[number]]
            form = self._shortened(said)
            self._soft_forms.append(form)
            self._soft_saved.append(self._soft_saved[-1] + said.tokens - form.tokens)

    def _know_hard(self, messages: Sequence[ViewMessage], count: int) -> None:
        self._know_soft(messages, count)
        for number in range(len(self._hard_saved) - 1, count):
            saved = messages[self._places[number]].tokens - self._cleared_tokens
            self._hard_saved.append(self._hard_saved[-1] + max(0, saved))

    def _forget(self, stop: int) -> None:
        if stop >= self._seen:
            return
        count = self.before(stop)
        del self._places[count:], self._soft_forms[count:]
        for sums in (self._chars, self._soft_chars, self._soft_saved, self._hard_saved):
            del sums[count + 1 :]
        for number in [number for number in self._hard_forms if number >= count]:
            del self._hard_forms[number]
        self._asked = None if self._asked is not None and self._asked >= stop else self._asked
        self._seen = stop

    def _may_be_trimmed(self, place: int, said: ViewMessage) -> bool:
        if self._asked is None or place in self.pinned:
            return False
        content = said.message.get("content")
        if not isinstance(content, list) or any(b.get("type") != "text" for b in content):
            return False
        name = said.message.get("toolName")
        return _allowed(name if isinstance(name, str) else "", self._rules.allow, self._rules.deny)

    def _add(self, place: int, said: ViewMessage) -> None:
        rules, chars = self._rules, len(_text(said.message))
        shorter = rules.soft_head_chars + rules.soft_tail_chars
        self._places.append(place)
        self._chars.append(self._chars[-1] + chars)
        soft = shorter if chars > rules.soft_max_chars else chars
        self._soft_chars.append(self._soft_chars[-1] + min(soft, chars))

    def _shortened(self, said: ViewMessage) -> ViewMessage:
        """A result longer than `soft_max_chars`: its beginning, a note, its end.

        One that would not become smaller stays as it is.
        """
        rules, text = self._rules, _text(said.message)
        head, tail = max(0, rules.soft_head_chars), max(0, rules.soft_tail_chars)
        missing = len(text) - head - tail
        if len(text) <= rules.soft_max_chars or missing <= 0:
            return said
        note = f"[an old result: {missing:,} of its {len(text):,} characters are left out here]"
        shorter = f"{text[:head]}\n{note}\n{text[len(text) - tail :]}"
        why = Decision(
            "shortened",
            STEP,
            f"softTrim maxChars {rules.soft_max_chars}",
            f"an old result of {len(text):,} characters: the first {head:,} and the last "
            f"{tail:,} are kept",
        )
        form = restated(said, {**said.message, "content": [text_block(shorter)]}, why, self._tokens)
        return form if form.tokens < said.tokens else said

    def _replaced(self, said: ViewMessage) -> ViewMessage:
        """The placeholder in the place of a result; where it would be longer, the result stays."""
        why = Decision(
            "shortened",
            STEP,
            "hardClear",
            f"an old result of {len(_text(said.message)):,} characters is cleared",
        )
        message = {**said.message, "content": self._cleared["content"]}
        return said.changed(message, self._cleared_tokens, why)


def _placeholder(rules: ToolResultPruning) -> str:
    """What stands for a cleared result; providers refuse a text of nothing."""
    return rules.placeholder if rules.placeholder.strip() else CLEARED


def _text(message: Message) -> str:
    return "\n".join(block["text"] for block in message["content"])


def _allowed(name: str, allow: tuple[str, ...], deny: tuple[str, ...]) -> bool:
    """Whether results of a tool may be trimmed: `deny` wins, an empty `allow` is every tool."""
    lower = name.lower()
    if any(_pattern(each).fullmatch(lower) for each in deny):
        return False
    return not allow or any(_pattern(each).fullmatch(lower) for each in allow)


@lru_cache(maxsize=256)
def _pattern(name: str) -> re.Pattern[str]:
    """A tool's name in any case, `*` standing for anything."""
    return re.compile(".*".join(map(re.escape, name.lower().split("*"))), re.DOTALL)
