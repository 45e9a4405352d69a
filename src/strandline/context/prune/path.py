"""What is pruned: the beginning of a clean path, and what of it no layer touches.

Layers 1 to 3 never touch the *running turn* (the newest request and everything after it: a
model whose last calls were cut away would make them again for ever), the summaries of
compactions and branches, and pins. A pin keeps its whole unit: a message with the tool results
that answer it. Source: spec 3, Pruning in four layers.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate

from strandline.context.clean_path import Clean
from strandline.context.prune.results import Results, Trims
from strandline.context.turns import is_reference
from strandline.context.view import ViewMessage


class Requests:
    """Where the newest request is, message by message.

    That is the newest message that a person wrote; else the newest in the user's role.
    """

    def __init__(self, person: int | None = None, any_user: int | None = None) -> None:
        self.person = person
        self.any_user = any_user

    def take(self, messages: Sequence[ViewMessage], start: int, stop: int) -> Requests:
        """The same once the messages from `start` to `stop` are there too."""
        any_user = None
        for place in range(stop - 1, start - 1, -1):
            if messages[place].message["role"] == "user":
                if not is_reference(messages[place]):
                    return Requests(place, place)
                any_user = place if any_user is None else any_user
        return Requests(self.person, self.any_user if any_user is None else any_user)

    @property
    def newest(self) -> int | None:
        """The place of the newest request."""
        return self.any_user if self.person is None else self.person


class Spared:
    """The places that no layer touches, summaries and pins, and what they add up to."""

    def __init__(self, clean: Clean, pins: Iterable[str]) -> None:
        pinned = {place for pin in pins for place in _unit_of(clean, clean.place_of.get(pin))}
        self.pinned = pinned.difference(clean.summaries)
        self.places = sorted({*pinned, *clean.summaries})
        self.all = frozenset(self.places)
        sizes = [clean.messages[place].tokens for place in self.places]
        self._tokens = [0, *accumulate(sizes)]
        self._pins = [0, *accumulate(place in self.pinned for place in self.places)]

    def count(self, start: int, stop: int) -> int:
        """How many there are from `start` to `stop`."""
        return bisect_left(self.places, stop) - bisect_left(self.places, start)

    def pins(self, start: int, stop: int) -> int:
        """How many of them are pins. Summaries do not count as messages of layer 1."""
        return self._between(self._pins, start, stop)

    def tokens(self, start: int, stop: int) -> int:
        """What they take."""
        return self._between(self._tokens, start, stop)

    def _between(self, sums: Sequence[int], start: int, stop: int) -> int:
        return sums[bisect_left(self.places, stop)] - sums[bisect_left(self.places, start)]


def _unit_of(clean: Clean, place: int | None) -> Sequence[int]:
    """All places of the unit that a message belongs to."""
    if place is None:
        return ()
    start, stop = place, place + 1
    while start > 0 and is_result(clean.messages[start]):
        start -= 1
    while stop < len(clean.messages) and is_result(clean.messages[stop]):
        stop += 1
    return range(start, stop)


def is_result(said: ViewMessage) -> bool:
    """Whether the message is a tool's result, which stays with the message before it."""
    return bool(said.message["role"] == "toolResult")


class Path:
    """The first `end` messages of a clean path, their tool results trimmed.

    A place is an index into them; the running turn begins at `request`, which is `end` where
    nobody has asked for anything.
    """

    def __init__(
        self,
        clean: Clean,
        end: int,
        request: int | None,
        spared: Spared,
        trimmed: tuple[Results, Trims] | None = None,
    ) -> None:
        self.clean = clean
        self.end = end
        self.request = end if request is None else request
        self.spared = spared
        self.messages = clean.messages
        self._trimmed = trimmed

    def said(self, start: int, stop: int) -> Sequence[ViewMessage]:
        """The messages from `start` to `stop`: those that no rule changed are the same objects."""
        if self._trimmed is None:
            return self.messages[start:stop]
        results, trims = self._trimmed
        return results.trimmed(self.messages, start, stop, trims)

    def tokens(self, start: int, stop: int) -> int:
        """What the messages from `start` to `stop` take."""
        tokens_to = self.clean.tokens_to
        taken = tokens_to[stop] - tokens_to[start]
        if self._trimmed is None:
            return taken
        results, trims = self._trimmed
        return taken - results.saved(start, stop, trims)

    def next_unit(self, place: int) -> int:
        """The first place from `place` on where a unit begins."""
        while place < self.request and is_result(self.messages[place]):
            place += 1
        return place

    def unit_start(self, place: int) -> int:
        """Where the unit begins that a message belongs to."""
        while place > 0 and is_result(self.messages[place]):
            place -= 1
        return place

    def count_from(self, cut: int) -> int:
        """How many messages layer 1 counts when it keeps those from `cut` on, and the pins."""
        summaries = self.spared.count(cut, self.end) - self.spared.pins(cut, self.end)
        return self.end - cut - summaries + self.spared.pins(0, cut)

    def tokens_from(self, cut: int) -> int:
        """What layer 2 counts when it keeps the messages from `cut` on, and what is spared."""
        return self.tokens(cut, self.end) + self.spared.tokens(0, cut)
