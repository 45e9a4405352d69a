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
    return Ages(tuple(reversed(walk.runs)), walk.due_ms)


class _Walk:
    """From the newest message back, as far as anything may be kept."""

    def __init__(self, path: Path, windows: Windows, now_ms: float) -> None:
        self._path, self._windows, self._now_ms = path, windows, now_ms
        self._left = [_most(rule) for rule in windows.rules] + [0]
        self._selects = [rule.keep == "summary" for rule in windows.rules] + [False]
        # Where all messages up to a place were said before this, none of them can be kept, now
        # or later, and nobody has to look at them one by one.
        self._settled_ms = now_ms - windows.ages[windows.last] if windows.last >= 0 else math.inf
        self.runs: list[Run] = []
        self.due_ms = math.inf

    def back_to(self, since: int) -> None:
        """Look at the units from the running turn back to `since`."""
        messages, newest_ms = self._path.messages, self._path.clean.newest_ms
        spared = self._path.spared.all
        stop = self._path.request
        while stop > since:
            start = stop - 1
            if newest_ms[start] < self._settled_ms:
                self._add(Run(since, stop, self._window(newest_ms[start]), selected=False))
                return
            said = messages[start]
            said_ms = math.inf if said.said_ms is None else said.said_ms
            while start > since and said.message["role"] == "toolResult":
                start -= 1
                said = messages[start]
                said_ms = max(said_ms, math.inf if said.said_ms is None else said.said_ms)
            if start not in spared:
                self._look(start, stop, said_ms)
            stop = start

    def _look(self, start: int, stop: int, said_ms: float) -> None:
        """Decide about one unit."""
        window = self._window(said_ms)
        due_ms = said_ms + self._windows.changes[window]
        self.due_ms = min(self.due_ms, due_ms)
        if self._selects[window]:
            self._add(Run(start, stop, window, selected=True))
        elif stop - start <= self._left[window]:
            self._left[window] -= stop - start
        else:
            self._left[window] = 0
            self._add(Run(start, stop, window, selected=False))
        if window == self._windows.last and self._left[window] == 0:
            ages = self._windows.ages
            self._settled_ms = self._now_ms - ages[window - 1] if window else math.inf

    def _window(self, said_ms: float) -> int:
        age = self._now_ms - said_ms
        return bisect_left(self._windows.ages, age) if age > self._windows.ages[0] else 0

    def _add(self, run: Run) -> None:
        """Add what is older than all runs before; it is one with the last where they touch."""
        newest = self.runs[-1] if self.runs else None
        if newest and newest[2:] == run[2:] and self._all_spared(run.stop, newest.start):
            self.runs[-1] = newest._replace(start=run.start)
        else:
            self.runs.append(run)

    def _all_spared(self, start: int, stop: int) -> bool:
        return start == stop or self._path.spared.count(start, stop) == stop - start


def _most(rule: AgeRule) -> float:
    """How many messages of its window a rule keeps, be it in a summary."""
    if isinstance(rule.keep, int):
        return rule.keep
    return 0 if rule.keep == "none" else math.inf


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
