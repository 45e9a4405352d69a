"""The view of what the layers decided: what is kept in order, what is out in ranges.

What was left out is never looked at here: a range says which messages and why, and makes them
when somebody reads it. It does so from the clean path, so it holds as long as that does.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import overload

from strandline.context.clean_path import Clean
from strandline.context.prune.compress import Compressed, covered_note
from strandline.context.prune.path import Path
from strandline.context.view import Decision, LeftOut, View, ViewMessage

Range = tuple[int, int, Decision]
"""Messages from one place to another that are left out, and why."""


class Omitted(Sequence[ViewMessage]):
    """Messages at `places` of a path, left out by one `decision`."""

    def __init__(self, clean: Clean, places: Sequence[int], decision: Decision) -> None:
        self._clean, self._places = clean, places
        self.decision = decision

    @property
    def tokens(self) -> int:
        """What they take, without a look at each where there are many."""
        places, tokens_to = self._places, self._clean.tokens_to
        if isinstance(places, range) and places.step == 1:
            return tokens_to[places.stop] - tokens_to[places.start]
        return sum(self._clean.messages[place].tokens for place in places)

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[ViewMessage]:
        return (self._clean.messages[place].noted(self.decision) for place in self._places)

    @overload
    def __getitem__(self, index: int) -> ViewMessage: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[ViewMessage]: ...
    def __getitem__(self, index: int | slice) -> ViewMessage | Sequence[ViewMessage]:
        if isinstance(index, slice):
            return Omitted(self._clean, self._places[index], self.decision)
        return self._clean.messages[self._places[index]].noted(self.decision)


def compose(
    path: Path, out: Iterable[Range], compressed: Compressed, notes: Mapping[int, Decision]
) -> View:
    """The view without the ranges `out` (rising), with the summary, decisions noted."""
    building = _Building(path, compressed, notes)
    place = 0
    for start, stop, why in out:
        building.keep(place, start)
        building.leave_out(start, stop, why)
        place = stop
    building.keep(place, path.end)
    pieces = [*path.clean.left_out.pieces, *building.pieces]
    if compressed.covered:
        told = Omitted(path.clean, compressed.covered, covered_note(compressed.covered))
        pieces.append(told)
    return View(tuple(building.kept), LeftOut(pieces))


class _Building:
    def __init__(self, path: Path, compressed: Compressed, notes: Mapping[int, Decision]) -> None:
        self._path, self._notes = path, notes
        self._covered = frozenset(compressed.covered)
        self._summary, self._summary_at = compressed.message, min(compressed.covered, default=-1)
        # Places inside a range that are not left out by it, in order.
        self._others = sorted({*path.spared.places, *compressed.covered})
        self._is_plain = not notes and not self._covered
        self.kept: list[ViewMessage] = []
        self.pieces: list[Sequence[ViewMessage]] = []

    def keep(self, start: int, stop: int) -> None:
        """Take the messages from `start` to `stop`, and the summary where it belongs."""
        said = self._path.said(start, stop)
        if self._is_plain:
            self.kept += said
            return
        for place, message in zip(range(start, stop), said, strict=True):
            if place in self._covered:
                self._tell_summary(place)
            else:
                why = self._notes.get(place)
                self.kept.append(message if why is None else message.noted(why))

    def leave_out(self, start: int, stop: int, why: Decision) -> None:
        """Leave out a range, but for what is spared in it or told in the summary."""
        first, last = (bisect_left(self._others, place) for place in (start, stop))
        for other in self._others[first:last]:
            self._omit(start, other, why)
            if other in self._covered:
                self._tell_summary(other)
            else:
                self.kept += self._path.said(other, other + 1)
            start = other + 1
        self._omit(start, stop, why)

    def _omit(self, start: int, stop: int, why: Decision) -> None:
        if start < stop:
            self.pieces.append(Omitted(self._path.clean, range(start, stop), why))

    def _tell_summary(self, place: int) -> None:
        if place == self._summary_at and self._summary is not None:
            self.kept.append(self._summary)
