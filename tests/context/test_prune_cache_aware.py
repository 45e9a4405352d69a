"""`cacheAware`: while the provider's cache lives, cuts stay where they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.context.clean_path import Clean, CleanPath
from strandline.context.policy import AgeRule, CacheAware, ContextPolicy
from strandline.context.prune import LayerSummary, Moment, Pruned, PruneMemo, prune
from strandline.context.tokens import HeuristicCounter, MessageTokens
from strandline.transcript.context import PathMessage
from strandline.transcript.messages import Message

START_MS = 1_700_000_000_000
SECOND, MINUTE, HOUR = 1000, 60_000, 3_600_000
TOKENS = MessageTokens(HeuristicCounter())
AWARE = CacheAware(enabled=True)
LIFETIME = ContextPolicy().cache_lifetime_ms


def turn(number: int, at_ms: int) -> list[PathMessage]:
    """A question at `at_ms`, answered at once: 2 messages of 14 tokens."""
    text = [{"type": "text", "text": "0123456789" * 4}]
    asked: Message = {"role": "user", "content": text, "timestamp": START_MS + at_ms}
    answered = {**asked, "role": "assistant", "stopReason": "stop"}
    return [PathMessage(f"u{number}", asked), PathMessage(f"a{number}", answered)]


def clean_of(items: Sequence[PathMessage]) -> Clean:
    return CleanPath(MessageTokens(HeuristicCounter())).follow(items, 1 << 16)


class Replayed:
    """A conversation whose turns came at the times given, seen call by call."""

    def __init__(self, times_ms: Sequence[int], policy: ContextPolicy) -> None:
        self.times_ms, self.policy, self.memo = times_ms, policy, PruneMemo()
        self.clean = clean_of([said for each in enumerate(times_ms) for said in turn(*each)])

    def call(self, number: int) -> Pruned:
        moment = Moment(START_MS + self.times_ms[number], 10_000)
        end = self.clean.calls[number]
        return prune(self.clean, self.policy, moment, TOKENS, end=end, memo=self.memo)

    def oldest(self) -> list[str | None]:
        """The oldest message that each call saw."""
        return [self.call(n).view.messages[0].entry_id for n in range(len(self.times_ms))]


def test_a_count_that_would_be_passed_goes_to_its_low_water_and_moves_seldom() -> None:
    chat = Replayed([n * MINUTE for n in range(12)], ContextPolicy(10, cache_aware=AWARE))
    sizes = [len(chat.call(n).view.messages) for n in range(12)]
    assert sizes == [1, 3, 5, 7, 9, 8, 10, 8, 10, 8, 10, 8]


def test_plain_rules_move_the_cut_at_every_call() -> None:
    chat = Replayed([n * MINUTE for n in range(12)], ContextPolicy(10))
    assert len(set(chat.oldest()[4:])) == 8


def test_a_limit_of_tokens_holds_at_every_call() -> None:
    policy = ContextPolicy(max_tokens=100, cache_aware=AWARE)
    chat = Replayed([n * MINUTE for n in range(30)], policy)
    taken = [chat.call(n).view.tokens for n in range(30)]
    assert max(taken) <= 100
    assert len(set(chat.oldest())) < 16


def test_when_the_cache_has_expired_the_plain_rules_apply_at_once() -> None:
    times = [0, MINUTE, 2 * MINUTE, 3 * MINUTE, 4 * MINUTE, 5 * MINUTE, 12 * MINUTE]
    aware = Replayed(times, ContextPolicy(6, cache_aware=AWARE))
    plain = Replayed(times, ContextPolicy(6))
    assert aware.call(5).view.messages != plain.call(5).view.messages
    assert aware.call(6).view.messages == plain.call(6).view.messages


OUTLIVING = ContextPolicy(
    ttl=(AgeRule(10 * MINUTE, "all"), AgeRule(None, "none")), cache_aware=AWARE
)


def test_a_message_outlives_its_window_while_the_cache_lives_and_says_why() -> None:
    chat = Replayed([n * 2 * MINUTE for n in range(8)], OUTLIVING)
    seen = chat.call(6).view.messages  # u0 is 12 minutes old
    assert seen[0].entry_id == "u0"
    why = seen[0].decisions[-1]
    assert (why.outcome, why.step) == ("kept", "cacheAware")
    assert why.reason.endswith("the plain rules would leave it out (maxAge inf keep none)")
    assert seen[0].message is chat.clean.messages[0].message
    assert not seen[2].decisions


def test_it_outlives_it_by_the_lifetime_of_the_cache_at_most() -> None:
    chat = Replayed([n * 2 * MINUTE for n in range(12)], OUTLIVING)
    # The first is due at 10 minutes and stays until 15; then all that is too old goes at once.
    assert chat.oldest()[6:9] == ["u0", "u0", "u3"]


def test_it_goes_at_once_where_little_would_be_left_to_write_again() -> None:
    burst = [n * SECOND for n in range(10)]
    chat = Replayed([*burst, 4 * MINUTE, 8 * MINUTE, 11 * MINUTE], OUTLIVING)
    assert chat.oldest()[-2:] == ["u0", "u10"]


def test_it_goes_at_once_where_waiting_would_save_no_other_move() -> None:
    minutes = [[0, 4, 8, 12], [0, 5, 9, 12]]
    waiting, alone = (Replayed([n * MINUTE for n in each], OUTLIVING) for each in minutes)
    assert waiting.oldest()[-1] == "u0"  # until it must go, at 15 minutes, u1 goes too
    assert alone.oldest()[-1] == "u1"


def test_a_cut_that_passes_what_its_age_has_left_out_already_is_no_move() -> None:
    policy = replace(OUTLIVING, max_messages=6)
    today = [24 * HOUR + n * MINUTE for n in range(4)]
    chat = Replayed([*(n * SECOND for n in range(10)), *today], policy)
    assert chat.oldest()[10:] == ["u10", "u10", "u10", "a11"]


def test_a_limit_that_moves_its_cut_lets_ages_be_looked_at_anew() -> None:
    low = CacheAware(enabled=True, low_water=0.9)
    policy = replace(OUTLIVING, max_messages=10, cache_aware=low)
    chat = Replayed([n * 3 * MINUTE for n in range(6)], policy)
    assert chat.oldest()[4:] == ["u0", "u2"]  # the limit alone would keep u1


def test_what_a_rule_brings_nothing_new_for_stays_as_it_is() -> None:
    policy = ContextPolicy(ttl=(AgeRule(10 * MINUTE, "all"), AgeRule(HOUR, 500)), cache_aware=AWARE)
    chat = Replayed([n * 2 * MINUTE for n in range(25)], policy)
    assert set(chat.oldest()) == {"u0"}


def test_what_was_selected_for_a_summary_stays_selected_while_the_cache_lives() -> None:
    policy = ContextPolicy(
        ttl=(AgeRule(10 * MINUTE, "all"), AgeRule(None, "summary")), cache_aware=AWARE
    )
    chat = Replayed([n * 4 * MINUTE for n in range(10)], policy)
    moment = Moment(START_MS + 40 * MINUTE, 10_000)
    wanted = prune(chat.clean, policy, moment, TOKENS).wanted
    assert wanted is not None
    made = LayerSummary(wanted.covers, "told", "extractive", moment.now_ms, wanted.rules)
    views = [
        prune(
            chat.clean, policy, Moment(moment.now_ms + ms, 10_000, summaries=(made,)), TOKENS
        ).view.messages
        for ms in (0, SECOND)
    ]
    assert views[0] == views[1]


def test_unknown_times_are_taken_for_a_cache_that_lives() -> None:
    items = [said for n in range(8) for said in turn(n, 0)]
    untimed = [
        PathMessage(each.entry_id, {k: v for k, v in each.message.items() if k != "timestamp"})
        for each in items
    ]
    clean = clean_of(untimed)
    policy = ContextPolicy(6, cache_aware=AWARE)
    view = prune(clean, policy, Moment(START_MS, 10_000), TOKENS).view
    assert len(view.messages) <= 6


@given(
    st.lists(st.sampled_from([SECOND, MINUTE, 4 * MINUTE, LIFETIME, 6 * MINUTE]), max_size=25),
    st.sampled_from([MINUTE, 7 * MINUTE, HOUR]),
    st.one_of(st.none(), st.integers(2, 9)),
)
@settings(max_examples=150)
def test_no_message_outlives_its_window_by_more_and_no_limit_is_passed(
    gaps: list[int], window_ms: int, most: int | None
) -> None:
    policy = ContextPolicy(most, ttl=(AgeRule(window_ms, "all"),), cache_aware=AWARE)
    times = [sum(gaps[:n]) for n in range(len(gaps) + 1)]
    chat = Replayed(times, policy)
    for number, at_ms in enumerate(times):
        view = chat.call(number).view
        assert most is None or len(view.messages) <= most
        for said in view.messages[:-1]:
            assert said.said_ms is not None
            assert START_MS + at_ms - said.said_ms <= window_ms + LIFETIME


@given(
    st.lists(st.sampled_from([SECOND, MINUTE, 4 * MINUTE, 6 * MINUTE, HOUR]), max_size=40),
    st.integers(1, 12),
    st.one_of(st.none(), st.sampled_from([60, 200])),
)
@settings(max_examples=100)
def test_with_limits_alone_it_never_costs_more_than_the_plain_rules(
    gaps: list[int], most: int, tokens: int | None
) -> None:
    policy = ContextPolicy(most, tokens)
    times = [sum(gaps[:n]) for n in range(len(gaps) + 1)]
    aware = _cost(Replayed(times, replace(policy, cache_aware=AWARE)))
    assert aware <= _cost(Replayed(times, policy)) + 1e-6


def _cost(chat: Replayed) -> float:
    """What the calls cost where a token that the cache has costs a tenth, and another 1.25."""
    cost, before = 0.0, list[str | None]()
    for number, at_ms in enumerate(chat.times_ms):
        view = chat.call(number).view
        now = [said.entry_id for said in view.messages]
        is_warm = number > 0 and at_ms - chat.times_ms[number - 1] <= LIFETIME
        pairs = zip(before, now, strict=False)
        same = next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(before), len(now)))
        cached = sum(said.tokens for said in view.messages[: same if is_warm else 0])
        cost += 0.1 * cached + 1.25 * (view.tokens - cached)
        before = now
    return cost
