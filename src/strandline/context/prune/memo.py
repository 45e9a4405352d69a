"""The fold over the recorded calls of a path, remembered for a path that grows.

Nothing depends on the memory: without it, or where it does not fit, the fold begins anew and
comes to the same.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from strandline.context.clean_path import Clean
from strandline.context.policy import ContextPolicy
from strandline.context.prune.fold import Call, Rules, State, is_cold
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
            self._take(clean, clean.calls[self._calls], rules)
        requests = self._requests.take(clean.messages, self._upto, end)
        if rules.results is not None:
            rules.results.take(clean.messages, end)
        after = Call(rules, clean, end, requests, moment.now_ms).after(self._state)
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
        limit = steady(moment.limit) if trims else 0
        key = (policy, limit, moment.pins)
        if self._key != key or not self._fits(clean, end):
            self._key, self._messages = key, clean.messages
            self._forget()
            if trims:
                self._results = Results(policy.tool_results, tokens)
            else:
                self._begin_at_cold_call(clean, end, policy)
        if self._results is not None:
            self._results.pinned = spared.pinned
            self._results.take(clean.messages, self._upto)
        return Rules(policy, limit, spared, self._results)

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

    def _take(self, clean: Clean, place: int, rules: Rules) -> None:
        """The recorded call whose answer is at `place`."""
        self._see(clean.messages, place)
        if rules.results is not None:
            rules.results.take(clean.messages, place)
        said_ms = clean.messages[place].said_ms
        self._state = Call(rules, clean, place, self._requests, said_ms).after(self._state)
        self._calls += 1
