"""Layers 1 to 3: the documented meaning of every edge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from strandline.context.clean_path import Clean, CleanPath
from strandline.context.policy import AgeRule, ContextPolicy, Keep
from strandline.context.prune import Moment, Pruned, prune
from strandline.context.tokens import HeuristicCounter, MessageTokens
from strandline.transcript.context import PathMessage
from strandline.transcript.messages import Message

NOW_MS = 1_700_000_000_000
MINUTE, HOUR = 60_000, 3_600_000
TOKENS = MessageTokens(HeuristicCounter())


def user(name: str, age_ms: float | None = 0, text: str = "") -> PathMessage:
    return _said(name, age_ms, {"role": "user", "content": text or name})


def answer(name: str, age_ms: float | None = 0) -> PathMessage:
    content = [{"type": "text", "text": name}]
    return _said(name, age_ms, {"role": "assistant", "content": content, "stopReason": "stop"})


def tools(name: str, *ages_ms: float) -> list[PathMessage]:
    """A call and its results `name1`, `name2` …: as many messages as there are ages."""
    ids = [f"{name}{number}" for number in range(1, len(ages_ms))]
    calls = [{"type": "toolCall", "id": each, "name": "read", "arguments": {}} for each in ids]
    asking: Message = {"role": "assistant", "content": calls, "stopReason": "toolUse"}
    results = [
        _said(
            each,
            age,
            {
                "role": "toolResult",
                "toolCallId": each,
                "toolName": "read",
                "content": [{"type": "text", "text": "ok"}],
            },
        )
        for each, age in zip(ids, ages_ms[1:], strict=True)
    ]
    return [_said(name, ages_ms[0], asking), *results]


def _said(name: str, age_ms: float | None, message: Message) -> PathMessage:
    timed = message if age_ms is None else {**message, "timestamp": NOW_MS - age_ms}
    return PathMessage(name, timed)


def summary(name: str, role: str, age_ms: float = 0) -> PathMessage:
    return _said(name, age_ms, {"role": role, "summary": "it was told"})


def clean_of(items: Sequence[PathMessage]) -> Clean:
    return CleanPath(MessageTokens(HeuristicCounter())).follow(items, 1 << 16)


def pruned(items: Sequence[PathMessage], policy: ContextPolicy, **more: Any) -> Pruned:
    return prune(clean_of(items), policy, Moment(NOW_MS, 100_000, **more), TOKENS)


def kept(items: Sequence[PathMessage], policy: ContextPolicy, **more: Any) -> str:
    return " ".join(str(said.entry_id) for said in pruned(items, policy, **more).view.messages)


def reasons(
    items: Sequence[PathMessage], policy: ContextPolicy, **more: Any
) -> dict[str | None, str]:
    left_out = pruned(items, policy, **more).view.left_out
    return {said.entry_id: f"{(w := said.decisions[-1]).rule}: {w.reason}" for said in left_out}


def ttl(*rules: tuple[int | None, Keep]) -> ContextPolicy:
    return ContextPolicy(ttl=tuple(AgeRule(*rule) for rule in rules))


TALK = [user("u1"), answer("a1"), user("u2"), answer("a2"), user("u3")]


# -- no layer ------------------------------------------------------------------------------


def test_without_rules_the_view_is_the_path_itself() -> None:
    clean = clean_of(TALK)
    view = prune(clean, ContextPolicy(), Moment(NOW_MS, 1), TOKENS).view
    assert all(a is b for a, b in zip(view.messages, clean.messages, strict=True))
    assert prune(clean, ContextPolicy(), Moment(NOW_MS, 1), TOKENS, end=2).view.messages == (
        *clean.messages[:2],
    )


def test_an_empty_list_of_rules_is_a_layer_that_is_off() -> None:
    assert kept([user("old", 900 * HOUR), answer("a"), user("new")], ttl()) == "old a new"


# -- layer 1 -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("most", "expected"), [(5, "u1 a1 u2 a2 u3"), (4, "a1 u2 a2 u3"), (2, "a2 u3"), (1, "u3")]
)
def test_max_messages_keeps_the_newest(most: int, expected: str) -> None:
    assert kept(TALK, ContextPolicy(max_messages=most)) == expected


def test_max_messages_zero_keeps_the_running_turn() -> None:
    running = [*TALK, *tools("t", 0, 0)]
    assert kept(running, ContextPolicy(max_messages=0)) == "u3 t t1"


def test_the_running_turn_is_kept_however_long_it_is() -> None:
    running = [*TALK, *tools("t", 0, 0, 0), *tools("v", 0, 0)]
    assert kept(running, ContextPolicy(max_messages=3)) == "u3 t t1 t2 v v1"


def test_a_unit_that_does_not_fit_whole_goes_with_all_that_is_older() -> None:
    path = [user("u1"), *tools("t", 0, 0, 0), answer("a"), user("u2")]
    assert kept(path, ContextPolicy(max_messages=4)) == "a u2"
    assert kept(path, ContextPolicy(max_messages=5)) == "t t1 t2 a u2"


def test_pins_count_and_are_kept_with_their_whole_unit() -> None:
    path = [user("u1"), *tools("t", 0, 0), answer("a"), user("u2"), answer("b"), user("u3")]
    pins = frozenset({"t1", "not on the path"})
    assert kept(path, ContextPolicy(max_messages=0), pins=pins) == "t t1 u3"
    assert kept(path, ContextPolicy(max_messages=4), pins=pins) == "t t1 b u3"


def test_summaries_are_kept_and_not_counted_as_messages() -> None:
    path = [summary("s", "compactionSummary"), *TALK[:2], summary("b", "branchSummary"), *TALK[2:]]
    assert kept(path, ContextPolicy(max_messages=0)) == "s b u3"
    assert kept(path, ContextPolicy(max_messages=3)) == "s b u2 a2 u3"


def test_what_is_left_out_says_which_limit_and_how_much_it_kept() -> None:
    why = reasons(TALK, ContextPolicy(max_messages=2))
    assert list(why) == ["u1", "a1", "u2"]
    assert set(why.values()) == {
        "maxMessages: 2: older than the newest 2 messages, which are all that fit within 2"
    }


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        (ContextPolicy(max_messages=2), "the running turn alone, 3 messages, is more than 2"),
        (ContextPolicy(max_tokens=2), "the running turn alone, {} tokens, is more than 2"),
    ],
)
def test_a_running_turn_that_is_over_the_limit_is_the_reason(
    policy: ContextPolicy, why: str
) -> None:
    running = [*TALK, *tools("t", 0, 0)]
    turn = sum(message.tokens for message in clean_of(running).messages[-3:])
    (told,) = set(reasons(running, policy).values())
    assert told.endswith(why.format(turn))


def test_pins_that_leave_no_room_are_the_reason() -> None:
    first, *_, last = (message.tokens for message in clean_of(TALK).messages)
    for policy, together in (
        (ContextPolicy(max_messages=1), "2 messages together, are more than 1"),
        (ContextPolicy(max_tokens=last), f"{first + last} tokens together, are more than {last}"),
    ):
        (told,) = set(reasons(TALK, policy, pins=frozenset({"u1"})).values())
        assert "pins" in told
        assert told.endswith(together)


# -- layer 2 -------------------------------------------------------------------------------

WORDS = [user(f"u{n}", text="x" * 4 * n) for n in (6, 16, 26, 6)]  # 10, 20, 30, 10 tokens


@pytest.mark.parametrize(
    ("most", "expected"),
    [(70, "u6 u16 u26 u6"), (69, "u16 u26 u6"), (59, "u26 u6"), (39, "u6"), (9, "u6"), (0, "u6")],
)
def test_max_tokens_counts_from_the_newest_until_it_would_pass(most: int, expected: str) -> None:
    assert kept(WORDS, ContextPolicy(max_tokens=most)) == expected


def test_layer_2_sees_what_layer_1_left() -> None:
    policy = ContextPolicy(max_messages=3, max_tokens=40)
    why = reasons([user("u1"), *WORDS], policy)
    assert [rule.split(":")[0] for rule in why.values()] == [
        "maxMessages",
        "maxMessages",
        "maxTokens",
    ]
    assert kept([user("u1"), *WORDS], policy) == "u26 u6"


def test_summaries_take_their_part_of_max_tokens() -> None:
    path = [summary("s", "compactionSummary"), *WORDS]
    room = 40 + clean_of(path).messages[0].tokens
    assert kept(path, ContextPolicy(max_tokens=room)) == "s u26 u6"
    assert kept(path, ContextPolicy(max_tokens=room - 1)) == "s u6"


# -- layer 3 -------------------------------------------------------------------------------

AGES = [user("1d", 24 * HOUR), user("2h", 2 * HOUR), user("30m", 30 * MINUTE), user("1m", MINUTE)]
NEW = user("new")


def test_each_window_has_its_own_rule() -> None:
    rules = ttl((5 * MINUTE, "all"), (HOUR, "none"), (6 * HOUR, 1), (None, "none"))
    assert kept([*AGES, NEW], rules) == "2h 1m new"


def test_rules_hold_by_rising_age_however_they_are_written() -> None:
    rules = ttl((None, "none"), (6 * HOUR, 1), (5 * MINUTE, "all"), (HOUR, "none"))
    assert kept([*AGES, NEW], rules) == "2h 1m new"


def test_of_two_rules_for_one_age_the_first_written_holds() -> None:
    assert kept([*AGES, NEW], ttl((HOUR, "all"), (HOUR, "none"))) == "30m 1m new"
    assert kept([*AGES, NEW], ttl((HOUR, "none"), (HOUR, "all"))) == "new"


def test_older_than_the_last_rule_is_left_out_where_there_is_no_inf() -> None:
    assert kept([*AGES, NEW], ttl((HOUR, "all"))) == "30m 1m new"
    assert reasons([*AGES, NEW], ttl((HOUR, "all")))["2h"] == (
        "older than maxAge 1h: it is older than 1h, as far as the last rule reaches"
    )


def test_a_message_on_a_boundary_belongs_to_the_younger_window() -> None:
    rules = ttl((HOUR, "all"), (None, "none"))
    assert kept([user("on", HOUR), NEW], rules) == "on new"
    assert kept([user("over", HOUR + 1), NEW], rules) == "new"


def test_a_unit_on_a_boundary_is_as_old_as_its_newest_message() -> None:
    rules = ttl((HOUR, "all"), (None, "none"))
    assert kept([*tools("t", 3 * HOUR, 2 * HOUR, HOUR), NEW], rules) == "t t1 t2 new"
    assert kept([*tools("t", 3 * HOUR, 2 * HOUR, HOUR + 1), NEW], rules) == "new"


def test_keep_n_counts_messages_of_the_window_in_whole_units() -> None:
    path = [user("u", 40 * MINUTE), *tools("t", 30 * MINUTE, 30 * MINUTE), answer("a", 20 * MINUTE)]
    assert kept([*path, NEW], ttl((HOUR, 2))) == "a new"
    assert kept([*path, NEW], ttl((HOUR, 3))) == "t t1 a new"
    assert kept([*path, NEW], ttl((HOUR, 0))) == "new"


def test_what_its_window_had_no_room_for_comes_back_as_the_newest_of_the_next() -> None:
    rules = ttl((HOUR, 1), (2 * HOUR, 1))
    assert kept([user("a", 50 * MINUTE), user("b", 40 * MINUTE), NEW], rules) == "b new"
    assert kept([user("a", 70 * MINUTE), user("b", 60 * MINUTE), NEW], rules) == "a b new"


def test_a_time_in_the_future_counts_as_now() -> None:
    path = [user("old", 2 * HOUR), user("future", -900 * HOUR), user("old too", 2 * HOUR), NEW]
    assert kept(path, ttl((HOUR, "all"))) == "future new"


def test_times_that_go_back_are_taken_as_they_are() -> None:
    path = [user("a", MINUTE), user("b", 3 * HOUR), user("c", MINUTE), user("d", 3 * HOUR), NEW]
    assert kept(path, ttl((HOUR, "all"), (6 * HOUR, 1))) == "a c d new"


def test_a_message_without_a_time_is_as_old_as_the_one_before() -> None:
    path = [user("a", None), user("b", 3 * HOUR), user("c", None), user("d", MINUTE), NEW]
    assert kept(path, ttl((HOUR, "all"))) == "a d new"


def test_no_times_at_all_leave_everything_in_the_youngest_window() -> None:
    path = [user("a", None), user("b", None), user("c", None), user("d", None)]
    assert kept(path, ttl((HOUR, "all"))) == "a b c d"
    assert kept(path, ttl((HOUR, 1))) == "c d"


def test_the_running_turn_pins_and_summaries_have_no_age() -> None:
    path = [
        summary("s", "compactionSummary", 90 * HOUR),
        user("pinned", 80 * HOUR),
        user("old", 80 * HOUR),
        user("request", 70 * HOUR),
        *tools("t", 60 * HOUR, 60 * HOUR),
    ]
    rules = ttl((HOUR, 1))
    assert kept(path, rules, pins=frozenset({"pinned"})) == "s pinned request t t1"


def test_pins_take_no_place_of_a_window() -> None:
    path = [user("a", 30 * MINUTE), user("b", 20 * MINUTE), user("c", 10 * MINUTE), NEW]
    assert kept(path, ttl((HOUR, 1)), pins=frozenset({"c"})) == "b c new"


def test_reasons_name_the_window_and_the_rule_as_it_is_set() -> None:
    rules = ttl((5 * MINUTE, "all"), (HOUR, 0), (6 * HOUR, "none"), (None, "none"))
    assert reasons([*AGES, NEW], rules) == {
        "1d": "maxAge inf keep none: of messages over 6h old, none is kept",
        "2h": "maxAge 6h keep none: of messages 1h to 6h old, none is kept",
        "30m": "maxAge 1h keep 0: of messages 5m to 1h old, none is kept",
    }


def test_layer_3_sees_what_the_limits_left() -> None:
    path = [*(user(f"u{n}", 30 * MINUTE) for n in range(4)), NEW]
    policy = replace(ttl((HOUR, 2)), max_messages=2)
    assert kept(path, policy) == "u3 new"


def test_the_result_says_until_when_it_holds() -> None:
    path = [user("a", 30 * MINUTE), user("b", MINUTE), NEW]
    until_ms = pruned(path, ttl((HOUR, "all"))).valid_until_ms
    assert NOW_MS + 30 * MINUTE < until_ms < NOW_MS + 30 * MINUTE + 1
    assert pruned(path, ContextPolicy(max_messages=1)).valid_until_ms == float("inf")


def test_what_was_left_out_can_be_read_piece_by_piece() -> None:
    left_out = pruned(TALK, ContextPolicy(max_messages=1)).view.left_out
    (piece,) = left_out.pieces
    assert [said.entry_id for said in piece[1:3]] == ["a1", "u2"]
    assert (len(piece), piece[-1].entry_id, piece[0].outcome) == (4, "a2", "left_out")
