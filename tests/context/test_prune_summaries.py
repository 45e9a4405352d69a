"""Layer 4: one summary in the place of what the rule "summary" selected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from strandline.context.clean_path import Clean, CleanPath
from strandline.context.policy import AgeRule, ContextPolicy, LayerSummaries
from strandline.context.prune import (
    LayerSummary,
    Moment,
    Pruned,
    SummaryWanted,
    prune,
    rules_digest,
)
from strandline.context.tokens import HeuristicCounter, MessageTokens
from strandline.context.turns import is_reference, newest_request
from strandline.transcript.context import PathMessage
from strandline.transcript.messages import Message

NOW_MS = 1_700_000_000_000
MINUTE, HOUR = 60_000, 3_600_000
TOKENS = MessageTokens(HeuristicCounter())
POLICY = ContextPolicy(
    ttl=(AgeRule(HOUR, "all"), AgeRule(24 * HOUR, "summary"), AgeRule(None, "none"))
)
RULES = rules_digest(POLICY)


def user(name: str, age_ms: float, words: int = 60) -> PathMessage:
    message = {"role": "user", "content": "word " * words, "timestamp": NOW_MS - age_ms}
    return PathMessage(name, message)


def unit(name: str, age_ms: float, *, answered: bool = True) -> list[PathMessage]:
    call = {"type": "toolCall", "id": name, "name": "read", "arguments": {}}
    asking: Message = {"role": "assistant", "content": [call], "timestamp": NOW_MS - age_ms}
    result = {"role": "toolResult", "toolCallId": name, "toolName": "read", "content": "word " * 60}
    items = [PathMessage(name, asking), PathMessage(f"{name}r", result)]
    return items if answered else items[:1]


PATH = [
    user("gone", 30 * HOUR),
    user("a", 5 * HOUR),
    user("b", 4 * HOUR),
    user("c", 3 * HOUR),
    user("near", MINUTE),
    user("new", 0),
]


def clean_of(items: Sequence[PathMessage]) -> Clean:
    return CleanPath(MessageTokens(HeuristicCounter())).follow(items, 1 << 16)


def pruned(
    items: Sequence[PathMessage],
    *summaries: LayerSummary,
    policy: ContextPolicy = POLICY,
    now_ms: int = NOW_MS,
    pins: frozenset[str] = frozenset(),
) -> Pruned:
    return prune(clean_of(items), policy, Moment(now_ms, 100_000, pins, summaries), TOKENS)


def shown(result: Pruned) -> str:
    return " ".join(said.entry_id or "SUMMARY" for said in result.view.messages)


def outcomes(result: Pruned) -> dict[str | None, str]:
    return {said.entry_id: said.outcome for said in result.view.left_out}


def made(
    *covers: str, age_ms: int = MINUTE, text: str = "told", rules: str = RULES
) -> LayerSummary:
    return LayerSummary(covers, text, "extractive", NOW_MS - age_ms, rules)


def wanted(result: Pruned) -> SummaryWanted:
    assert result.wanted is not None
    return result.wanted


def test_what_is_selected_stays_verbatim_until_somebody_has_summarised_it() -> None:
    result = pruned(PATH)
    assert shown(result) == "a b c near new"
    assert outcomes(result) == {"gone": "left_out"}
    assert wanted(result).covers == ("a", "b", "c")
    assert wanted(result).tokens == sum(said.tokens for said in result.view.messages[:3])
    assert [*wanted(result).messages] == [said.message for said in result.view.messages[:3]]
    waiting = result.view.messages[0].decisions[-1]
    assert (waiting.outcome, waiting.step, waiting.rule) == ("kept", "summary", "summary")


def test_a_summary_that_covers_it_stands_in_the_place_of_its_first_unit() -> None:
    result = pruned(PATH, made("a", "b", "c", age_ms=500 * HOUR))
    assert result.wanted is None
    assert shown(result) == "SUMMARY near new"
    assert outcomes(result) == {"gone": "left_out", **dict.fromkeys("abc", "summarised")}
    told = result.view.messages[0]
    assert [block["text"] for block in told.message["content"]][1:] == ["told"]
    assert told.tokens == TOKENS.count(told.message)
    assert (told.outcome, told.decisions[-1].step) == ("added", "summary")


def test_a_summary_is_never_taken_for_a_request() -> None:
    result = pruned([user("a", 5 * HOUR), user("new", 0)], made("a"))
    assert is_reference(result.view.messages[0])
    assert newest_request(result.view.messages) == 1


def test_a_cached_summary_stands_for_what_it_covers_and_the_rest_waits() -> None:
    result = pruned(PATH, made("a", "b"))
    assert result.wanted is None
    assert shown(result) == "SUMMARY c near new"
    assert "verbatim until the next summary" in result.view.messages[1].decisions[-1].reason
    assert NOW_MS + 59 * MINUTE < result.valid_until_ms < NOW_MS + 59 * MINUTE + 1


def test_what_grew_too_old_meanwhile_stays_summarised() -> None:
    result = pruned(PATH, made("gone", "a", "b"))
    assert shown(result) == "SUMMARY c near new"
    assert outcomes(result)["gone"] == "summarised"


def test_a_cached_summary_is_used_until_its_ttl_and_not_longer() -> None:
    assert pruned(PATH, made("a", "b", age_ms=HOUR)).wanted is None
    assert wanted(pruned(PATH, made("a", "b", age_ms=HOUR + 1))).covers == ("a", "b", "c")


def test_without_the_cache_only_a_summary_of_exactly_that_is_used() -> None:
    policy = replace(POLICY, summaries=LayerSummaries(cached=False))
    assert wanted(pruned(PATH, made("a", "b"), policy=policy)).covers == ("a", "b", "c")
    assert pruned(PATH, made("a", "b", "c"), policy=policy).wanted is None


def test_of_two_cached_summaries_the_newest_stands() -> None:
    old, new = made("a", text="old", age_ms=9 * MINUTE), made("a", "b", text="new")
    for summaries in ((old, new), (new, old)):
        result = pruned(PATH, *summaries)
        assert result.view.messages[0].message["content"][1]["text"] == "new"


def test_a_summary_by_other_rules_or_of_another_branch_is_not_used() -> None:
    other = replace(POLICY, summaries=LayerSummaries(max_tokens=9))
    assert rules_digest(other) != RULES
    for stranger in (made("a", "b", rules=rules_digest(other)), made("a", "elsewhere")):
        assert wanted(pruned(PATH, stranger)).previous is None


def test_a_summary_that_tells_of_the_running_turn_does_not_stand() -> None:
    assert wanted(pruned(PATH, made("a", "new"))).covers == ("a", "b", "c")


def test_a_summary_of_part_of_it_may_be_updated() -> None:
    old = made("a", "b", age_ms=2 * HOUR)
    request = wanted(pruned(PATH, old))
    assert request.previous == old
    assert request.new_messages() == request.messages[2:]


def test_a_summary_that_tells_of_what_is_too_old_is_not_carried_on() -> None:
    assert wanted(pruned(PATH, made("gone", "a", age_ms=2 * HOUR))).previous is None


def test_new_messages_are_all_where_nothing_was_told_before() -> None:
    request = wanted(pruned(PATH))
    assert request.new_messages() == request.messages


def test_what_no_entry_holds_goes_with_the_message_before_it() -> None:
    path = [*unit("a", 5 * HOUR), *unit("b", 4 * HOUR, answered=False), user("new", 0)]
    request = wanted(pruned(path))
    assert (request.covers, len(request.messages)) == (("a", "ar", "b"), 4)
    request = replace(request, previous=made("a", "ar"))
    assert request.new_messages() == request.messages[2:]
    assert shown(pruned(path, made("a", "ar", "b"))) == "SUMMARY new"


def test_a_unit_that_is_covered_in_part_stays_verbatim() -> None:
    path = [user("u", 5 * HOUR), *unit("t", 4 * HOUR), user("new", 0)]
    result = pruned(path, made("u", "t"))
    assert shown(result) == "SUMMARY t tr new"
    assert shown(pruned(path, made("t"))) == "u t tr new"


def test_several_windows_make_one_summary() -> None:
    two = replace(POLICY, ttl=(*(POLICY.ttl or ())[:2], AgeRule(None, "summary")))
    assert wanted(pruned(PATH, policy=two)).covers == ("gone", "a", "b", "c")


def test_pins_are_not_summarised() -> None:
    result = pruned(PATH, made("a", "c"), pins=frozenset({"b"}))
    assert shown(result) == "SUMMARY b near new"
    assert shown(pruned(PATH, made("a", "b", "c"), pins=frozenset({"b"}))) == "SUMMARY b near new"


def test_little_is_not_worth_a_summary() -> None:
    path = [user("a", 5 * HOUR, words=40), user("new", 0)]
    result = pruned(path)
    assert (shown(result), result.wanted) == ("a new", None)
    assert result.view.messages[0].decisions[-1].reason == (
        "verbatim: 54 tokens are too few for a summary"
    )


def test_nothing_selected_is_nothing_summarised() -> None:
    path = [user("gone", 30 * HOUR), user("new", 0)]
    assert shown(pruned(path, made("gone"))) == "new"


def test_an_empty_summary_is_none() -> None:
    assert wanted(pruned(PATH, made("a", "b", "c", text=" "))).previous is None


def test_switched_off_is_as_none_and_says_so() -> None:
    off = replace(POLICY, summaries=LayerSummaries(enabled=False))
    result = pruned(PATH, made("a", "b", "c"), policy=off)
    assert (shown(result), result.wanted) == ("near new", None)
    assert {
        said.decisions[-1].reason for said in result.view.left_out if said.entry_id != "gone"
    } == {'keep "summary" is treated as "none": summaries are switched off'}


def test_messages_that_no_entry_holds_cannot_be_known_again_and_stay() -> None:
    own = PathMessage("", {"role": "user", "content": "word " * 90, "timestamp": NOW_MS - 5 * HOUR})
    result = pruned([own, user("a", 4 * HOUR), user("new", 0)])
    assert wanted(result).covers == ("a",)
    assert len(result.view.messages) == 3


def test_for_the_ttl_of_a_summary_the_beginning_keeps_its_bytes() -> None:
    summary = made("a", "b", "c", age_ms=0)
    path = [*PATH[:4], *(user(f"n{n}", (70 - n) * MINUTE) for n in range(40)), user("new", 0)]
    first = pruned(path, summary).view.messages[0]
    for minutes in (20, 40, 60):
        result = pruned(path, summary, now_ms=NOW_MS + minutes * MINUTE)
        assert (result.view.messages[0], result.wanted) == (first, None)
    assert pruned(path, summary, now_ms=NOW_MS + 61 * MINUTE).wanted is not None
