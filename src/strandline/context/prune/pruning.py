"""Pruning a context: trimmed tool results, then the four layers, coarse to fine.

A function of the path, the rules, the clock, the summaries that there are and the recorded times
of the calls: the same give the same bytes. A message that no rule changed is the same object
in the view as in the path. Units stay whole: a message and the tool results that answer it.
It costs what is kept, whatever was left out. Source: spec 3, Pruning in four layers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from strandline.context.clean_path import Clean
from strandline.context.policy import AgeRule, ContextPolicy
from strandline.context.prune import ages as layer3
from strandline.context.prune import limits
from strandline.context.prune.ages import Ages, by_age
from strandline.context.prune.compose import Range, compose
from strandline.context.prune.compress import Compressed, compress
from strandline.context.prune.extended import extended
from strandline.context.prune.fold import State, warm_until_ms
from strandline.context.prune.limits import Cut, limit_cut
from strandline.context.prune.memo import PruneMemo
from strandline.context.prune.moment import Moment, Pruned, just_after
from strandline.context.prune.path import Path, Requests, Spared
from strandline.context.tokens import MessageTokens
from strandline.context.view import Decision, View


def prune(
    clean: Clean,
    policy: ContextPolicy,
    moment: Moment,
    tokens: MessageTokens,
    *,
    end: int | None = None,
    memo: PruneMemo | None = None,
) -> Pruned:
    """The view that the rules make of a clean path at a moment.

    `end` prunes the path as it was when it had only that many messages. `memo` makes one more
    message cost one, where calls of the past matter; the result is the same without.
    """
    stop = len(clean.messages) if end is None else end
    if not policy.prunes:
        messages = clean.messages if stop == len(clean.messages) else clean.messages[:stop]
        return Pruned(View(tuple(messages), clean.left_out, clean.tokens_to[stop]))
    spared = Spared(clean, moment.pins)
    if not (policy.cache_aware.enabled or policy.tool_results.mode != "off"):
        request = Requests().take(clean.messages, 0, stop).newest
        path = Path(clean, stop, request, spared)
        return _Layers(path, policy, moment, tokens).plain(math.inf)
    before, now, path = (memo or PruneMemo()).call(clean, stop, policy, moment, spared, tokens)
    layers = _Layers(path, policy, moment, tokens)
    until_ms = _warm_until_ms(before, policy, moment)
    return layers.cached(now, until_ms) if policy.cache_aware.enabled else layers.plain(until_ms)


def _warm_until_ms(before: State, policy: ContextPolicy, moment: Moment) -> float:
    lifetimes = [policy.cache_lifetime_ms] * policy.cache_aware.enabled
    lifetimes += [policy.tool_results.ttl_ms] * (policy.tool_results.mode != "off")
    return min(warm_until_ms(before, moment.now_ms, each) for each in lifetimes)


class _Layers:
    """The four layers on a path whose tool results are trimmed."""

    def __init__(
        self, path: Path, policy: ContextPolicy, moment: Moment, tokens: MessageTokens
    ) -> None:
        self._path, self._policy, self._moment = path, policy, moment
        self._tokens = tokens
        self._rules: tuple[AgeRule, ...] = policy.ttl or ()

    def plain(self, until_ms: float) -> Pruned:
        """The plain rules."""
        cut, ages = self._plain_rules()
        compressed = compress(self._path, ages.runs, self._policy, self._moment, self._tokens)
        due_ms = min(until_ms, just_after(ages.due_ms))
        return self._pruned(cut, ages, compressed, {}, due_ms)

    def cached(self, state: State, until_ms: float) -> Pruned:
        """The cuts of a state, with a note on what the plain rules would cut."""
        cut, ages = self._plain_rules()
        compressed = compress(self._path, state.ages.runs, self._policy, self._moment, self._tokens)
        plain = [*self._out(cut, ages, None)]
        kept = self._out(state.cut, state.ages, None)
        notes = extended(self._path, plain, kept) if plain else {}
        late_ms = state.due_ms + self._policy.cache_lifetime_ms
        due_ms = min(until_ms, just_after(ages.due_ms), just_after(late_ms))
        return self._pruned(state.cut, state.ages, compressed, notes, due_ms)

    def _plain_rules(self) -> tuple[Cut, Ages]:
        cut = limit_cut(self._path, self._policy)
        return cut, by_age(self._path, self._rules, cut.place, self._moment.now_ms)

    def _out(self, cut: Cut, ages: Ages, selected: Decision | None) -> Iterator[Range]:
        yield from limits.told(self._path, self._policy, cut)
        yield from layer3.told(self._rules, ages, selected)

    def _pruned(
        self,
        cut: Cut,
        ages: Ages,
        compressed: Compressed,
        notes: dict[int, Decision],
        due_ms: float,
    ) -> Pruned:
        out = self._out(cut, ages, compressed.left_out)
        view = compose(self._path, out, compressed, {**notes, **compressed.notes})
        return Pruned(view, compressed.wanted, min(due_ms, just_after(compressed.due_ms)))
