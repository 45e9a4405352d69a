"""What follows from the calls that a session made before: trimmed results, cuts that stay.

Both are a fold over the recorded calls: a function of the path, the rules and the recorded
times alone, so that a restart, a replay and another process come to the same bytes. A call is
an answer in the path; what it saw is everything before it, its time is the answer's.

`cacheAware`. A call that comes more than the cache's lifetime after the one before, and the
first, is *cold*: the plain rules apply, at its time. At a *warm* call the cuts of layers 1 to 3
stay where they were, and all that is new is kept, except:

- A limit that would be passed is trimmed to `lowWater` of itself, which moves its cut. Since the
  beginning changes then anyway, the age rules are applied anew at that time. (A cut may pass what
  its age has left out already: that changes nothing.)
- The age rules are applied anew once they have said otherwise for longer than the lifetime, so
  a message outlives its window by at most that. They are applied at once where waiting does not
  pay: when what would stay beyond them takes more tokens than what they keep of the call before,
  so that little would be left to write again (to read from a cache costs a tenth to a half of
  that); and when no more than now would go out until then, so that one move would not save another.

So limits hold at every call (but for what no layer touches), the age rules hold as of a moment
at most one lifetime ago, and between two such calls nothing that was in goes out and nothing
that was out comes in. Source: spec 3, Pruning in four layers (cacheAware, Tool results).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from strandline.context.clean_path import Clean
from strandline.context.policy import ContextPolicy
from strandline.context.prune.ages import Ages, by_age, windows_of
from strandline.context.prune.limits import Cut, limit_cut, passes
from strandline.context.prune.moment import just_after
from strandline.context.prune.path import Path, Requests, Spared
from strandline.context.prune.results import Results, Trims
from strandline.context.prune.trimming import steady, trimmed
from strandline.transcript.messages import Message

CONTEXT_LIMIT = "contextLimit"
"""The key of an answer that says what the messages of its call might take, in our tokens.

The limit moves with the provider's reports; what was trimmed by an earlier one has to stay so.
"""

LARGEST_LIMIT = 1 << 40


@dataclass(frozen=True, slots=True)
class State:
    """How a call saw its path: what was trimmed, and with `cacheAware`, what was cut.

    `seen` is how much of the path it saw, `aged_to` up to where the age rules have been looked
    at, and `due_ms` when they may first say otherwise. `call_ms` is the call's time, None where
    no call before says its own.
    """

    trims: Trims = field(default_factory=Trims)
    cut: Cut = field(default_factory=Cut)
    ages: Ages = field(default_factory=Ages)
    seen: int = 0
    aged_to: int = 0
    due_ms: float = math.inf
    call_ms: float | None = None
    is_first: bool = True


@dataclass(frozen=True, slots=True)
class Rules:
    """What the fold depends on besides the path, the times and the limits of the calls."""

    policy: ContextPolicy
    spared: Spared
    results: Results | None

    def path(self, clean: Clean, end: int, request: int | None, trims: Trims) -> Path:
        """The path of a call, trimmed."""
        trimmed = None if self.results is None else (self.results, trims)
        return Path(clean, end, request, self.spared, trimmed)


class Call:
    """A call, which sees `clean.messages[:end]`; what it makes of the state before it.

    `limit` is what its messages might take (`recorded_limit`).
    """

    def __init__(
        self,
        rules: Rules,
        clean: Clean,
        end: int,
        requests: Requests,
        now_ms: float | None,
        limit: int,
    ) -> None:
        self._rules, self._clean = rules, clean
        self._end, self._request = end, requests.newest
        self._now_ms, self._limit = now_ms, steady(limit)

    def after(self, before: State) -> State:
        """The state once the call was made."""
        policy = self._rules.policy
        now_ms = before.call_ms if self._now_ms is None else self._now_ms
        cold = is_cold(before, now_ms, policy.cache_lifetime_ms)
        aware = policy.cache_aware.enabled
        trims = before.trims
        if self._rules.results is not None:
            start = 0 if cold or not aware else before.cut.place
            lost = is_cold(before, now_ms, policy.tool_results.ttl_ms)
            trims = self._trimmed(trims, start, lost=lost)
        state = replace(before, trims=trims, call_ms=now_ms, is_first=False)
        if not aware:
            return state
        state = self._cold(state) if cold else self._warm(state)
        return replace(state, seen=self._end)

    def _trimmed(self, trims: Trims, start: int, *, lost: bool) -> Trims:
        results, limit = self._rules.results, self._limit
        if results is None:
            return trims
        path = self._path(trims)
        if lost or path.tokens(start, path.end) > limit:
            return trimmed(path, start, self._rules.policy.tool_results, results, trims, limit)
        return trims

    def _path(self, trims: Trims) -> Path:
        return self._rules.path(self._clean, self._end, self._request, trims)

    def _cold(self, state: State) -> State:
        path = self._path(state.trims)
        return self._aged(replace(state, cut=limit_cut(path, self._rules.policy)), path)

    def _warm(self, state: State) -> State:
        path, cut = self._path(state.trims), self._moved(state)
        if not _keeps_any(path, state, cut.place):
            state = replace(state, cut=cut, ages=state.ages.since(cut.place))
            return self._outliving(self._with_new(state, path), path)
        trims = self._trimmed(state.trims, cut.place, lost=True)
        return self._aged(replace(state, cut=cut, trims=trims), self._path(trims))

    def _moved(self, state: State) -> Cut:
        """Where the limits cut now: where they did, unless one would be passed.

        A cut may pass messages that their age has left out already; that changes no view. Where
        it would leave out others, the limit counts its low-water share.
        """
        policy, path = self._rules.policy, self._path(state.trims)
        if not passes(path, policy, state.cut.place):
            return state.cut
        cut = limit_cut(path, policy)
        if _keeps_any(path, state, cut.place):
            cut = limit_cut(path, policy, policy.cache_aware.low_water)
        return Cut(max(cut.counted, state.cut.counted), max(cut.place, state.cut.place))

    def _outliving(self, state: State, path: Path) -> State:
        """The ages stay as they were, as long as that is allowed and pays."""
        now_ms, latest_ms = _now(state), state.due_ms + self._rules.policy.cache_lifetime_ms
        if now_ms <= state.due_ms:
            return state
        anew = self._aged(state, path)
        if anew.ages.runs == state.ages.runs or now_ms > latest_ms:
            return anew
        return state if self._is_worth_waiting(state, anew, path, latest_ms) else anew

    def _is_worth_waiting(self, state: State, anew: State, path: Path, latest_ms: float) -> bool:
        """Whether it may pay to let ages stay as in `state`, until `latest_ms` at most."""
        beyond = _kept(path, state, path.end) - _kept(path, anew, path.end)
        if beyond <= 0:
            return True  # nothing goes out: what comes in by its age can wait
        if beyond > _kept(path, anew, state.seen):
            return False
        return self._by_age(path, state.cut.place, latest_ms).runs != anew.ages.runs

    def _by_age(self, path: Path, since: int, now_ms: float) -> Ages:
        return by_age(path, self._rules.policy.ttl or (), since, now_ms)

    def _aged(self, state: State, path: Path) -> State:
        """The age rules applied at the time of this call."""
        ages = self._by_age(path, state.cut.place, _now(state))
        return replace(state, ages=ages, aged_to=path.request, due_ms=ages.due_ms)

    def _with_new(self, state: State, path: Path) -> State:
        """What the running turn has left behind since, and when rules may first cut it."""
        rules = self._rules.policy.ttl
        if not rules or state.aged_to >= path.request:
            return state
        windows = windows_of(rules)
        whole = windows.changes[0] if windows.rules[0].keep == "all" else 0.0
        said = (each.said_ms for each in path.messages[state.aged_to : path.request])
        due = min((ms for ms in said if ms is not None), default=math.inf) + whole
        return replace(state, aged_to=path.request, due_ms=min(state.due_ms, due))


def recorded_limit(message: Message) -> int | None:
    """What the messages of the call might take to which a message is the answer, if it says."""
    limit = message.get(CONTEXT_LIMIT)
    return limit if isinstance(limit, int) and 0 < limit <= LARGEST_LIMIT else None


def _now(state: State) -> float:
    return 0.0 if state.call_ms is None else state.call_ms


def is_cold(before: State, now_ms: float | None, lifetime_ms: float) -> bool:
    """Whether the cache of the call before is gone. Unknown times say that it is not."""
    if before.is_first:
        return True
    if now_ms is None or before.call_ms is None:
        return False
    return now_ms - before.call_ms > lifetime_ms


def warm_until_ms(before: State, now_ms: float, lifetime_ms: float) -> float:
    """When the cache that a call finds is gone: never, where it is gone already."""
    if before.call_ms is None or is_cold(before, now_ms, lifetime_ms):
        return math.inf
    return just_after(before.call_ms + lifetime_ms)


def _left_out(state: State) -> list[tuple[int, int]]:
    """The ranges that the ages of a state leave out."""
    return [(run.start, run.stop) for run in state.ages.runs if not run.selected]


def _kept(path: Path, state: State, stop: int) -> int:
    """The tokens up to `stop` that a state keeps, or tells in a summary."""
    start = min(state.cut.place, stop)
    cut = path.tokens(start, stop) + path.spared.tokens(0, start)
    ranges = [(max(a, start), min(b, stop)) for a, b in _left_out(state)]
    return cut - sum(path.tokens(a, b) - path.spared.tokens(a, b) for a, b in ranges if a < b)


def _keeps_any(path: Path, state: State, stop: int) -> bool:
    """Whether a state keeps any message up to `stop` that a cut there would leave out."""
    place = state.cut.place
    for start, end in [*_left_out(state), (stop, stop)]:
        until = min(start, stop)
        if place < until and path.spared.count(place, until) < until - place:
            return True
        place = max(place, end)
    return False
