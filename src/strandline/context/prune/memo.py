"""The fold over the recorded calls of a path, remembered for a path that grows.

Nothing depends on the memory: without it, or where it does not fit, the fold begins anew and
comes to the same.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from strandline.context.clean_path import Clean
from strandline.context.policy import ContextPolicy
from strandline.context.prune.fold import Call, Rules, State, is_cold, recorded_limit
from strandline.context.prune.moment import Moment
from strandline.context.prune.path import Path, Requests, Spared
from strandline.context.prune.results import Results
from strandline.context.prune.trimming import steady
from strandline.context.tokens import MessageTokens
from strandline.context.view import ViewMessage


class PruneMemo:
    """What the calls of one session led to. It fits one path and one policy at a time."""

    def __init__(self) -> None:
        self._key: object = None
        self._messages: object = None
        self._forget()

    def _forget(self) -> None:
        self._results: Results | None = None
        self._state, self._requests = State(), Requests()
        self._calls, self._upto = 0, 0
        self._guessed: int | None = None  # the limit of calls that do not say theirs
        # Of a path that grew only these may have changed: a late result takes their place.
        self._stand_ins: list[tuple[int, ViewMessage]] = []

    def call(
        self,
        clean: Clean,
        end: int,
        policy: ContextPolicy,
        moment: Moment,
        spared: Spared,
        tokens: MessageTokens,
    ) -> tuple[State, State, Path]:
        """How the call before saw the path, how the one at `moment` sees it, and its path."""
        rules = self._rules(clean, end, policy, moment, spared, tokens)
        while self._calls < len(clean.calls) and clean.calls[self._calls] < end:
            self._take(clean, clean.calls[self._calls], rules, moment.limit)
        requests = self._requests.take(clean.messages, self._upto, end)
        if rules.results is not None:
            rules.results.take(clean.messages, end)
        now_ms, limit = moment.now_ms, moment.limit
        after = Call(rules, clean, end, requests, now_ms, limit).after(self._state)
        return self._state, after, rules.path(clean, end, requests.newest, after.trims)

    def _rules(
        self,
        clean: Clean,
        end: int,
        policy: ContextPolicy,
        moment: Moment,
        spared: Spared,
        tokens: MessageTokens,
    ) -> Rules:
        trims = policy.tool_results.mode != "off"
        key = (policy, moment.pins)
        fits = self._key == key and self._fits(clean, end)
        if not fits or self._guessed not in {None, steady(moment.limit)}:
            self._key, self._messages = key, clean.messages
            self._forget()
            if trims:
                self._results = Results(policy.tool_results, tokens)
            else:
                self._begin_at_cold_call(clean, end, policy)
        if self._results is not None:
            self._results.pinned = spared.pinned
            self._results.take(clean.messages, self._upto)
        return Rules(policy, spared, self._results)

    def _begin_at_cold_call(self, clean: Clean, end: int, policy: ContextPolicy) -> None:
        """Leave out the calls before the last cold one: no cut outlives that."""
        messages, calls = clean.messages, clean.calls
        for number in range(bisect_left(calls, end) - 1, 0, -1):
            before, said = messages[calls[number - 1]], messages[calls[number]]
            state = State(call_ms=before.said_ms, is_first=False)
            if is_cold(state, said.said_ms, policy.cache_lifetime_ms):
                self._see(messages, calls[number - 1])
                self._state, self._calls = state, number
                return

    def _see(self, messages: Sequence[ViewMessage], place: int) -> None:
        """Take the messages up to a place."""
        self._requests = self._requests.take(messages, self._upto, place)
        for seen in range(self._upto, place):
            if messages[seen].entry_id is None:
                self._stand_ins.append((seen, messages[seen]))
        self._upto = place

    def _fits(self, clean: Clean, end: int) -> bool:
        messages = clean.messages
        return (
            self._messages is messages
            and self._upto <= end
            and (not self._calls or clean.calls[self._calls - 1 : self._calls] == [self._upto])
            and all(messages[place] is said for place, said in self._stand_ins)
        )

    def _take(self, clean: Clean, place: int, rules: Rules, guess: int) -> None:
        """The recorded call whose answer is at `place`; `guess` is its limit where it says none."""
        self._see(clean.messages, place)
        if rules.results is not None:
            rules.results.take(clean.messages, place)
        said = clean.messages[place]
        limit = recorded_limit(said.message)
        if limit is None and rules.results is not None:
            self._guessed = steady(guess)
        call = Call(rules, clean, place, self._requests, said.said_ms, limit or guess)
        self._state = call.after(self._state)
        self._calls += 1
