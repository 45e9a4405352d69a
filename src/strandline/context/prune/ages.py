"""Layer 3: what is kept of each age window (`ttl`).

Rules hold by rising `maxAge`, however they are written; of two with the same, the one written
first. The window of a rule reaches from the `maxAge` before it (not included) to its own
(included), so a message on a boundary belongs to the younger window. Older than the last rule
is as `keep: "none"`. No rules at all, and the layer is off. What was said in the future has the
age 0, and so has what nobody knows the time of. A unit is as old as its newest message.

`keep: N` keeps the newest N messages of its window, in whole units: the first unit that does
not fit is left out with all that come before it in the window. What no layer touches takes no
place of the N. Since windows are looked at one by one, a message that its window had no room
for comes back when it is among the newest of the next. Source: spec 3, Pruning in four layers.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from operator import add
from typing import NamedTuple

from strandline.context.policy import AgeRule
from strandline.context.prune.path import Path
from strandline.context.prune.wording import age, rule_name
from strandline.context.view import Decision


class Run(NamedTuple):
    """Messages from `start` to `stop` that one window leaves out or, if `selected`, summarises.

    `window` is the number of a rule, or one more for what is older than all rules reach.
    Places that are spared may lie in it and are not meant.
    """

    start: int
    stop: int
    window: int
    selected: bool


@dataclass(frozen=True, slots=True)
class Ages:
    """What layer 3 says: its runs from the oldest, and until when that holds for the path."""

    runs: tuple[Run, ...] = ()
    due_ms: float = math.inf

    def since(self, place: int) -> Ages:
        """The same of the messages from a place on."""
        if not self.runs or place <= self.runs[0].start:
            return self
        runs = [run._replace(start=max(run.start, place)) for run in self.runs if run.stop > place]
        return Ages(tuple(runs), self.due_ms)


@dataclass(frozen=True, slots=True)
class Windows:
    """The rules in the order in which they hold.

    `ages` are their upper ends (ms). `changes` says for each window, and for what is older than
    all, at which age a message may be treated differently. `last` is the number of the last
    window that keeps anything, -1 where none does.
    """

    rules: tuple[AgeRule, ...]
    ages: tuple[float, ...]
    changes: tuple[float, ...]
    last: int


@lru_cache(maxsize=64)
def windows_of(rules: tuple[AgeRule, ...]) -> Windows:
    """The windows that the rules make."""
    by_age: dict[float, AgeRule] = {}
    for rule in rules:
        by_age.setdefault(math.inf if rule.max_age_ms is None else rule.max_age_ms, rule)
    ages = tuple(sorted(by_age))
    ordered = tuple(by_age[each] for each in ages)
    keeping = [number for number, rule in enumerate(ordered) if rule.keep not in {"none", 0}]
    last = max(keeping, default=-1)
    changes = [math.inf] * (len(ages) + 1)
    for number in range(last, -1, -1):
        same = ordered[number].keep == "all" and number < last and ordered[number + 1].keep == "all"
        changes[number] = changes[number + 1] if same else ages[number]
    return Windows(ordered, ages, tuple(changes), last)


def by_age(path: Path, rules: tuple[AgeRule, ...], since: int, now_ms: float) -> Ages:
    """What is left out of the messages from `since` to the running turn, and what is summarised."""
    if not rules or since >= path.request:
        return Ages()
    walk = _Walk(path, windows_of(rules), now_ms)
    walk.back_to(since)
    return walk.answer()


class _Walk:
    """From the newest message back, as far as anything may be kept."""

    def __init__(self, path: Path, windows: Windows, now_ms: float) -> None:
        self._path, self._windows, self._now_ms = path, windows, now_ms
        self._left = [_most(rule) for rule in windows.rules] + [0]
        self._oldest_ms = [math.inf] * len(self._left)
        # Where all messages up to a place were said before this, none of them can be kept, now
        # or later, and nobody has to look at them one by one.
        self._settled_ms = now_ms - windows.ages[windows.last] if windows.last >= 0 else math.inf
        self._enter(math.inf)
        self._runs = [[path.request, path.request, -1]]  # start, stop, window; the oldest last

    def answer(self) -> Ages:
        """What the walk found."""
        rules = self._windows.rules
        runs = [
            Run(start, stop, window, window < len(rules) and rules[window].keep == "summary")
            for start, stop, window in reversed(self._runs[1:])
        ]
        due_ms = map(add, self._oldest_ms, self._windows.changes)
        return Ages(tuple(runs), min(due_ms))

    def back_to(self, since: int) -> None:
        """Look at the units from the running turn back to `since`."""
        messages, newest_ms = self._path.messages, self._path.clean.newest_ms
        spared = self._path.spared.all
        stop = self._path.request
        while stop > since:
            start = stop - 1
            if newest_ms[start] < self._settled_ms:
                self._settle(since, stop)
                return
            said = messages[start]
            said_ms = math.inf if said.said_ms is None else said.said_ms
            if said.message["role"] == "toolResult":
                start, said_ms = self._unit(since, stop)
            if start not in spared:
                self._look(start, stop, said_ms)
            stop = start

    def _unit(self, since: int, stop: int) -> tuple[int, float]:
        """Where the unit that ends at `stop` begins, and when its newest message was said."""
        start = max(since, self._path.unit_start(stop - 1))
        said = [message.said_ms for message in self._path.messages[start:stop]]
        return start, max(math.inf if each is None else each for each in said)

    def _look(self, start: int, stop: int, said_ms: float) -> None:
        """Decide about one unit."""
        if not self._from_ms <= said_ms < self._until_ms:
            self._enter(said_ms)
        window = self._window
        if said_ms < self._oldest_ms[window]:  # noqa: PLR1730 - the innermost loop: no call here
            self._oldest_ms[window] = said_ms
        size = stop - start
        if size <= self._left[window]:
            self._left[window] -= size
            return
        self._leave_out(start, stop, window)
        if self._left[window] >= 0:
            self._fill(window)

    def _enter(self, said_ms: float) -> None:
        """Take the window of a message, and remember from when until when it reaches."""
        ages = self._windows.ages
        self._window = window = bisect_left(ages, max(0.0, self._now_ms - said_ms))
        self._from_ms = self._now_ms - ages[window] if window < len(ages) else -math.inf
        self._until_ms = self._now_ms - ages[window - 1] if window else math.inf

    def _fill(self, window: int) -> None:
        """A window has no room for what is older in it."""
        self._left[window] = 0
        if window == self._windows.last:
            ages = self._windows.ages
            self._settled_ms = self._now_ms - ages[window - 1] if window else math.inf

    def _settle(self, since: int, stop: int) -> None:
        """Leave out the messages from `since` to `stop`, each range by the rule of its window."""
        newest_ms = self._path.clean.newest_ms
        self._enter(newest_ms[stop - 1])
        for window in range(self._window, len(self._left)):
            oldest_ms = -math.inf
            if window < len(self._windows.ages):
                oldest_ms = self._now_ms - self._windows.ages[window]
            start = bisect_left(newest_ms, oldest_ms, since, stop)
            start = max(since, self._path.unit_start(start)) if start < stop else stop
            if start < stop:
                self._leave_out(start, stop, window)
            stop = start

    def _leave_out(self, start: int, stop: int, window: int) -> None:
        """Add what is older than all runs before; it is one with the last where they touch."""
        newest = self._runs[-1]
        if newest[2] == window and (newest[0] == stop or self._all_spared(stop, newest[0])):
            newest[0] = start
        else:
            self._runs.append([start, stop, window])

    def _all_spared(self, start: int, stop: int) -> bool:
        return self._path.spared.count(start, stop) == stop - start


def _most(rule: AgeRule) -> float:
    """How many messages of its window a rule keeps as they are; -1 where it summarises them."""
    if isinstance(rule.keep, int):
        return rule.keep
    return {"all": math.inf, "summary": -1, "none": 0}[rule.keep]


def why(rules: tuple[AgeRule, ...], window: int) -> Decision:
    """Why a window leaves a message out."""
    windows = windows_of(rules)
    if window == len(windows.rules):
        oldest = age(windows.ages[-1])
        reason = f"it is older than {oldest}, as far as the last rule reaches"
        return Decision("left_out", "ttl", f"older than maxAge {oldest}", reason)
    rule = windows.rules[window]
    reason = f"of messages {_span(windows, window)} old, {_kept(rule)}"
    return Decision("left_out", "ttl", rule_name(rule), reason)


def _span(windows: Windows, window: int) -> str:
    upper = windows.ages[window]
    if window == 0:
        return "of any age" if math.isinf(upper) else f"up to {age(upper)}"
    younger = age(windows.ages[window - 1])
    return f"over {younger}" if math.isinf(upper) else f"{younger} to {age(upper)}"


def _kept(rule: AgeRule) -> str:
    return "none is kept" if rule.keep in {"none", 0} else f"the newest {rule.keep} are kept"


def told(
    rules: tuple[AgeRule, ...], ages: Ages, selected: Decision | None
) -> Iterator[tuple[int, int, Decision]]:
    """What layer 3 leaves out, from where to where, and why.

    `selected` is why what it selected for a summary is left out, None where it is not.
    """
    for run in ages.runs:
        if not run.selected:
            yield run.start, run.stop, why(rules, run.window)
        elif selected is not None:
            yield run.start, run.stop, selected
