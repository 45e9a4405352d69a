"""Old tool results are trimmed when the provider's cache is lost anyway, and stay trimmed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from strandline.context.clean_path import Clean, CleanPath
from strandline.context.policy import CLEARED, CacheAware, ContextPolicy, ToolResultPruning
from strandline.context.prune import Moment, PruneMemo, prune
from strandline.context.prune.trimming import steady
from strandline.context.tokens import HeuristicCounter, MessageTokens
from strandline.context.view import View
from strandline.transcript.context import PathMessage
from strandline.transcript.messages import Message

START_MS = 1_700_000_000_000
SECOND, MINUTE = 1000, 60_000
TOKENS = MessageTokens(HeuristicCounter())
RULES = ToolResultPruning(
    mode="cache-ttl",
    keep_last_assistants=1,
    min_prunable_chars=1000,
    soft_max_chars=400,
    soft_head_chars=30,
    soft_tail_chars=20,
)
SOFT = replace(RULES, hard_clear=False)


def user(name: str, at_ms: int) -> PathMessage:
    message = {"role": "user", "content": name, "timestamp": START_MS + at_ms}
    return PathMessage(name, message)


def step(name: str, at_ms: int, chars: int = 2000, tool: str = "Read") -> list[PathMessage]:
    """A call made at `at_ms`, and its result."""
    call = {"type": "toolCall", "id": name, "name": tool, "arguments": {}}
    asking: Message = {"role": "assistant", "content": [call], "timestamp": START_MS + at_ms}
    text = f"<{name}" + "." * (chars - 2 * len(name) - 2) + f"{name}>"
    content = [{"type": "text", "text": text}]
    result: Message = {"role": "toolResult", "toolCallId": name, "toolName": tool}
    return [PathMessage(f"{name}?", asking), PathMessage(name, {**result, "content": content})]


def clean_of(items: Sequence[PathMessage]) -> Clean:
    return CleanPath(MessageTokens(HeuristicCounter())).follow(items, 1 << 16)


def view_at(
    items: Sequence[PathMessage],
    at_ms: int,
    rules: ToolResultPruning = RULES,
    limit: int = 2000,
    **more: Any,
) -> View:
    moment = Moment(START_MS + at_ms, limit, more.pop("pins", frozenset()))
    return prune(clean_of(items), ContextPolicy(tool_results=rules), moment, TOKENS, **more).view


def trimmed(view: View) -> dict[str | None, str]:
    """Which results are trimmed, and by which rule."""
    return {
        said.entry_id: decision.rule.split()[0]
        for said in view.messages
        for decision in said.decisions
        if decision.step == "toolResults"
    }


PATH = [user("u", 0), *step("r1", 0), *step("r2", SECOND), *step("r3", 2 * SECOND)]
"""Three results of 504 tokens: of a limit of 2,000 they take more than three quarters."""

LATER = 2 * SECOND + RULES.ttl_ms + 1


def test_while_the_cache_lives_nothing_is_trimmed() -> None:
    assert trimmed(view_at(PATH, 3 * SECOND)) == {}
    assert trimmed(view_at(PATH, LATER - 1)) == {}


def test_once_it_is_lost_old_long_results_keep_their_head_and_tail() -> None:
    view = view_at(PATH, LATER, SOFT)
    assert trimmed(view) == {"r1": "softTrim", "r2": "softTrim"}
    text = view.messages[2].message["content"][0]["text"]
    assert text.startswith("<r1" + "." * 27 + "\n[an old result: 1,950 of its 2,000 characters")
    assert text.endswith("." * 17 + "r1>")
    assert view.messages[2].tokens == TOKENS.count(view.messages[2].message)


def test_where_that_is_not_enough_the_oldest_are_replaced_until_it_is() -> None:
    rules = replace(RULES, soft_max_chars=100_000)
    view = view_at(PATH, LATER, rules)
    assert trimmed(view) == {"r1": "hardClear", "r2": "hardClear"}
    assert view.messages[2].message["content"] == [{"type": "text", "text": CLEARED}]
    assert trimmed(view_at(PATH, LATER, replace(rules, hard_clear_ratio=0.7))) == {
        "r1": "hardClear"
    }


def test_results_of_too_little_text_are_not_worth_replacing() -> None:
    rules = replace(RULES, soft_max_chars=100_000, min_prunable_chars=4001)
    assert trimmed(view_at(PATH, LATER, rules)) == {}
    assert trimmed(view_at(PATH, LATER, replace(rules, min_prunable_chars=4000))) != {}


def test_below_the_ratio_nothing_is_trimmed() -> None:
    assert trimmed(view_at(PATH, LATER, limit=6000)) == {}
    assert trimmed(view_at(PATH, LATER, SOFT, limit=5000)) == {"r1": "softTrim", "r2": "softTrim"}


def test_the_last_assistants_results_are_left_alone() -> None:
    assert list(trimmed(view_at(PATH, LATER, replace(SOFT, keep_last_assistants=0)))) == [
        "r1",
        "r2",
        "r3",
    ]
    assert list(trimmed(view_at(PATH, LATER, replace(SOFT, keep_last_assistants=2)))) == ["r1"]
    assert list(trimmed(view_at(PATH, LATER, replace(SOFT, keep_last_assistants=9)))) == []


@pytest.mark.parametrize(
    ("allow", "deny", "expected"),
    [
        ((), (), True),
        (("read",), (), True),
        (("r*d",), (), True),
        (("write",), (), False),
        ((), ("READ",), False),
        (("*",), ("re*",), False),
        (("rea",), (), False),
        (("[r]ead",), (), False),
    ],
)
def test_tools_are_allowed_and_denied_by_name(
    allow: tuple[str, ...], deny: tuple[str, ...], *, expected: bool
) -> None:
    rules = replace(SOFT, allow=allow, deny=deny)
    assert bool(trimmed(view_at(PATH, LATER, rules))) is expected


def test_images_pins_and_what_comes_before_the_first_request_are_left_alone() -> None:
    image = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
    seen = {**PATH[2].message, "content": [*PATH[2].message["content"], image]}
    with_image = [*PATH[:2], PathMessage("r1", seen), *PATH[3:]]
    assert list(trimmed(view_at(with_image, LATER, SOFT))) == ["r2"]
    assert list(trimmed(view_at(PATH, LATER, SOFT, pins=frozenset({"r1?"})))) == ["r2"]
    asked_late = [*PATH[1:3], PATH[0], *PATH[3:]]
    assert list(trimmed(view_at(asked_late, LATER, SOFT))) == ["r2"]


def test_what_would_not_become_smaller_stays() -> None:
    short = [user("u", 0), *step("r1", 0, 20), *step("r2", SECOND), *step("r3", SECOND)]
    rules = replace(RULES, soft_max_chars=10, soft_head_chars=10, soft_tail_chars=5)
    assert list(trimmed(view_at(short, LATER, rules, limit=900))) == ["r2"]
    wide = replace(SOFT, soft_head_chars=1500, soft_tail_chars=500)
    assert trimmed(view_at(PATH, LATER, wide)) == {}


def test_a_placeholder_of_nothing_is_the_usual_one() -> None:
    rules = replace(RULES, soft_max_chars=100_000, placeholder=" ")
    assert view_at(PATH, LATER, rules).messages[2].message["content"][0]["text"] == CLEARED


def test_once_trimmed_they_stay_trimmed_with_the_same_bytes() -> None:
    first = view_at(PATH, LATER, SOFT)
    grown = [*PATH, *step("r4", LATER), *step("r5", LATER + SECOND)]
    then = view_at(grown, LATER + 2 * SECOND, SOFT)
    assert then.messages[: len(first.messages)] == first.messages
    assert list(trimmed(then)) == ["r1", "r2"]


def test_a_limit_that_moves_a_little_changes_nothing() -> None:
    assert steady(2000) == steady(1950)
    first, then = (view_at(PATH, LATER, SOFT, limit) for limit in (2000, 1950))
    assert first == then
    assert steady(0) == 0


def test_a_busy_session_is_trimmed_when_its_context_is_over_the_limit() -> None:
    """A message every 30 seconds for two hours: the cache never expires."""
    items, memo = [user("u", 0)], PruneMemo()
    forms: dict[str | None, list[str]] = {}
    limit, largest, changes = 8000, 0, 0
    before: View | None = None
    path = CleanPath(MessageTokens(HeuristicCounter()))
    for number in range(240):
        items += step(f"r{number}", number * 30 * SECOND)
        moment = Moment(START_MS + (number + 1) * 30 * SECOND, limit)
        clean = path.follow(items, 1 << 16)
        view = prune(clean, ContextPolicy(tool_results=RULES), moment, TOKENS, memo=memo).view
        largest = max(largest, view.tokens)
        if before and view.messages[: len(before.messages)] != before.messages:
            changes += 1
        for said in view.messages:
            forms.setdefault(said.entry_id, []).append(str(said.message["content"]))
        before = view
    assert largest <= limit * 9 // 8
    assert changes < 40
    assert all(len(set(texts)) <= 3 for texts in forms.values())


def test_cache_aware_trims_when_its_cut_moves_or_the_kept_part_is_over_the_limit() -> None:
    policy = ContextPolicy(max_messages=8, tool_results=SOFT, cache_aware=CacheAware(enabled=True))
    items = [user("u0", 0), *step("r1", 0), user("u1", SECOND), *step("r2", SECOND)]
    items += [user("u2", 2 * SECOND), *step("r3", 2 * SECOND)]
    clean = clean_of(items)

    def at_last_call(limit: int, rules: ContextPolicy) -> list[str | None]:
        moment = Moment(START_MS + 3 * SECOND, limit)
        return list(trimmed(prune(clean, rules, moment, TOKENS).view))

    assert at_last_call(3000, policy) == ["r2"]  # the cut moved to u1
    wide = replace(policy, max_messages=None)
    assert at_last_call(3000, wide) == []
    assert at_last_call(1400, wide) == ["r1", "r2"]
