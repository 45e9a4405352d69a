"""The messages of a path as models take them, kept up to date: one more costs one.

Cleaning and pairing a message depends on what came before it alone, so a path that grew is
followed from where it was left. Besides the messages there are the sums by which rules find
their cuts without looking at everything that is older. Source: spec 3, The way of a message;
design, performance.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import RLock

from strandline.context.pairing import Pairing
from strandline.context.sanitize import Sanitizer
from strandline.context.shorten import within_cap
from strandline.context.tokens import MessageTokens
from strandline.context.turns import is_summary_of_any_kind
from strandline.context.view import LeftOut, View, ViewMessage
from strandline.transcript.context import PathMessage
from strandline.transcript.garbage import collector_off
from strandline.transcript.live_context import MessagesSoFar


@dataclass(frozen=True, slots=True)
class Clean:
    """A path, sanitised, paired, and with no message over the cap. Not to be changed.

    A place is an index into `messages`. `tokens_to[i]` are the tokens of ``messages[:i]``;
    `newest_ms[i]` is when the newest of ``messages[: i + 1]`` was said, infinite where one
    of them does not say. `place_of` gives the place of an entry's message. `summaries` are
    the places of summaries (of compactions and branches), `calls` those of answers, whose times are
    those of the session's calls; both rise. It holds until the path is followed further.
    """

    messages: Sequence[ViewMessage]
    tokens_to: Sequence[int]
    newest_ms: Sequence[float]
    place_of: Mapping[str, int]
    summaries: Sequence[int]
    calls: Sequence[int]
    left_out: LeftOut

    @property
    def view(self) -> View:
        """All of it as a view."""
        return View(tuple(self.messages), self.left_out, self.tokens_to[-1])


class CleanPath:
    """Follows the path of one session. `lock` is held while a `Clean` is in use.

    A path that is not the one before with more behind it is cleaned from its beginning.
    """

    def __init__(self, tokens: MessageTokens) -> None:
        self.lock = RLock()
        self._tokens = tokens
        self._items: Sequence[PathMessage] = ()
        self._so_far = _SoFar(tokens, 0)

    def follow(self, items: Sequence[PathMessage], cap: int) -> Clean:
        """The path `items` with every message cut to at most `cap` tokens."""
        grew = isinstance(items, MessagesSoFar) and items.grew_from(self._items)
        if cap != self._so_far.cap or not grew:
            self._items, self._so_far = (), _SoFar(self._tokens, cap)
        with collector_off():
            for item in items[len(self._items) :]:
                self._so_far.take(item)
        self._items = items
        return self._so_far.clean()


class _SoFar:
    """What is known of the messages that were taken so far."""

    def __init__(self, tokens: MessageTokens, cap: int) -> None:
        self.cap = cap
        self._tokens = tokens
        self._sanitizer = Sanitizer(tokens)
        self._pairing = Pairing(tokens)
        self._unfit: list[ViewMessage] = []
        self._messages: list[ViewMessage] = []
        self._tokens_to = [0]
        self._newest_ms: list[float] = []
        self._place_of: dict[str, int] = {}
        self._summaries: list[int] = []
        self._calls: list[int] = []

    def clean(self) -> Clean:
        """All of it, as it is now."""
        return Clean(
            self._messages,
            self._tokens_to,
            self._newest_ms,
            self._place_of,
            self._summaries,
            self._calls,
            LeftOut([tuple(self._unfit), tuple(self._pairing.left_out)]),
        )

    def take(self, item: PathMessage) -> None:
        """Take the next message of the path."""
        said = self._sanitizer.take(item)
        if said.outcome == "left_out":
            self._unfit.append(said)
            return
        self._forget_from(self._pairing.take(said))
        for place in range(len(self._messages), len(self._pairing.messages)):
            self._add(within_cap(self._pairing.messages[place], self.cap, self._tokens))

    def _forget_from(self, start: int) -> None:
        """Take back what a late result has moved."""
        for said in self._messages[start:]:
            if said.entry_id is not None:
                self._place_of.pop(said.entry_id, None)
        del self._messages[start:], self._tokens_to[start + 1 :], self._newest_ms[start:]
        for places in (self._summaries, self._calls):
            while places and places[-1] >= start:
                places.pop()

    def _add(self, said: ViewMessage) -> None:
        place = len(self._messages)
        said_ms = math.inf if said.said_ms is None else said.said_ms
        before = self._newest_ms[-1] if self._newest_ms else -math.inf
        self._messages.append(said)
        self._tokens_to.append(self._tokens_to[-1] + said.tokens)
        self._newest_ms.append(max(before, said_ms))
        if said.entry_id is not None:
            self._place_of[said.entry_id] = place
        if is_summary_of_any_kind(said):
            self._summaries.append(place)
        if said.message.get("role") == "assistant":
            self._calls.append(place)
