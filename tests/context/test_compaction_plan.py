"""Planning a compaction: what is summarised, what is kept, and that it always helps."""

from __future__ import annotations

from typing import Any

import pytest

from strandline.context.budget import Budget, CompactionSettings, resolve_budget
from strandline.context.compaction import (
    CompactionPlan,
    NoCompaction,
    plan_compaction,
)
from strandline.context.dialogue import conversation_text
from strandline.context.portions import first_part
from strandline.context.summarize import SummaryRequest
from strandline.context.tokens import HeuristicCounter, MessageTokens
from strandline.errors import CompactionRefused
from strandline.transcript.context import PathMessage
from strandline.transcript.messages import Message

COUNTER = HeuristicCounter()


def window(size: int, **settings: Any) -> Budget:
    return resolve_budget(size, CompactionSettings(**settings))


def user(text: str) -> Message:
    return {"role": "user", "content": text, "timestamp": 10}


def answer(text: str, **more: Any) -> Message:
    content = [{"type": "text", "text": text}]
    return {"role": "assistant", "content": content, "stopReason": "stop", "timestamp": 10, **more}


def call(*ids: str, name: str = "read", path: str = "/a", **more: Any) -> Message:
    blocks = [{"type": "toolCall", "id": i, "name": name, "arguments": {"path": path}} for i in ids]
    return {"role": "assistant", "content": blocks, "stopReason": "toolUse", **more}


def result(call_id: str, output: str = "out") -> Message:
    content = [{"type": "text", "text": output}]
    return {"role": "toolResult", "toolCallId": call_id, "toolName": "read", "content": content}


def summary(text: str) -> Message:
    return {"role": "compactionSummary", "summary": text, "tokensBefore": 9, "timestamp": 5}


def path(*messages: Message) -> list[PathMessage]:
    return [PathMessage(f"e{n}", message) for n, message in enumerate(messages)]


def plan_of(budget: Budget, *messages: Message, **more: Any) -> CompactionPlan:
    plan = plan_compaction(path(*messages), MessageTokens(COUNTER), budget, **more)
    assert isinstance(plan, CompactionPlan), plan
    return plan


def refusal_of(budget: Budget, *messages: Message, **more: Any) -> str:
    plan = plan_compaction(path(*messages), MessageTokens(COUNTER), budget, **more)
    assert isinstance(plan, NoCompaction)
    return plan.reason


def told(plan: CompactionPlan) -> str:
    return conversation_text(plan.request.messages)


def turns(count: int, size: int = 2_000) -> list[Message]:
    return [m for n in range(count) for m in (user(f"q{n} " + "x" * size), answer(f"a{n}"))]


def test_what_is_recent_is_kept_and_what_is_older_summarised() -> None:
    plan = plan_of(window(100_000, keep_recent_tokens=5_000), *turns(40, 8_000))
    kept_tokens = plan.tokens_kept
    assert 0 < kept_tokens <= 5_000
    assert plan.first_kept_entry_id == plan.kept[0]
    assert plan.summarised + plan.kept == tuple(f"e{n}" for n in range(80))
    assert not plan.request.split_turn
    assert "q0" in told(plan)


def test_a1_the_kept_part_never_begins_with_a_tool_result() -> None:
    budget = window(40_000, keep_recent_tokens=600)
    messages = [*turns(6, 12_000), user("q"), call("a"), result("a", "r" * 2_600), answer("ok")]
    assert plan_of(budget, *messages).kept == ("e12", "e13", "e14", "e15"), (
        "the newest turn is kept"
    )
    steps = [m for n in range(60) for m in (call(f"c{n}"), result(f"c{n}", "r" * 2_000))]
    plan = plan_of(budget, user("q"), *steps)
    first = int(plan.first_kept_entry_id[1:])
    assert [user("q"), *steps][first]["role"] == "assistant"


def test_a2_a_synthetic_result_of_an_aborted_call_is_not_a_cut() -> None:
    budget = window(8_192, keep_recent_tokens=500)
    messages = [user("q"), call("a", stopReason="aborted"), result("a", "no"), *turns(12, 1_500)]
    plan = plan_of(budget, *messages)
    assert plan.first_kept_entry_id not in {"e1", "e2"}
    assert {"e1", "e2"} <= set(plan.summarised)


def test_a3_pending_calls_are_told_as_unanswered_and_the_plan_is_the_same_again() -> None:
    messages = [user("q"), call("a", "b", "c"), *turns(12, 1_500)]
    plan = plan_of(window(8_192), *messages)
    assert told(plan).count("its outcome is unknown") == 3
    assert plan == plan_of(window(8_192), *messages)


def test_a10_a_call_that_was_never_answered_does_not_stop_compaction() -> None:
    dead = [summary("earlier"), call("dead"), *turns(100, 1_500)]
    plan = plan_of(window(16_384), *dead)
    assert len(plan.summarised) > 150


def test_a20_one_request_with_many_steps_is_cut_at_a_step() -> None:
    steps = [m for n in range(60) for m in (call(f"c{n}"), result(f"c{n}", "r" * 1_500))]
    plan = plan_of(window(8_192), user("Build the thing in /srv/app.\nThen test it."), *steps)
    assert plan.request.split_turn
    assert "e0" in plan.summarised
    written = plan.summary("## Done\n- half of it", COUNTER)
    assert written.startswith(
        "## Open request\n> Build the thing in /srv/app.\n> Then test it.\n\n## Done"
    ), "the request stays in the person's own words"


def test_the_open_request_is_carried_through_a_second_compaction_of_the_same_turn() -> None:
    steps = [m for n in range(60) for m in (call(f"c{n}"), result(f"c{n}", "r" * 1_500))]
    first = plan_of(window(8_192), user("Build it."), *steps).summary("## Done\n- half", COUNTER)
    second = plan_of(window(8_192), summary(first), *steps).summary("## Done\n- more", COUNTER)
    assert second.startswith("## Open request\n> Build it.\n\n## Done\n- more")


def test_h24_a_request_that_was_answered_is_not_told_as_open() -> None:
    steps = [m for n in range(60) for m in (call(f"c{n}"), result(f"c{n}", "r" * 1_500))]
    plan = plan_of(window(8_192), user("Build it."), *steps, answer("Built."), force=True)
    assert "e0" in plan.summarised
    assert plan.opening == ()
    assert "[user] Build it." in told(plan)


def test_results_that_came_late_are_summarised_with_their_call() -> None:
    budget = window(8_192, keep_recent_tokens=400)
    messages = [user("q"), call("a"), *turns(12, 1_500), result("a", "late news"), user("and?")]
    plan = plan_of(budget, *messages)
    assert "late news" in told(plan)
    assert "e26" in plan.summarised
    assert "e26" not in plan.kept


def test_what_the_first_compaction_kept_is_told_to_the_second() -> None:
    kept_before = [user("kept by the first"), answer("yes")]
    plan = plan_of(window(8_192), summary("the beginning"), *kept_before, *turns(20, 1_500))
    assert plan.request.previous_summary == "the beginning"
    assert "kept by the first" in told(plan)
    assert "the beginning" not in told(plan), "the summary is updated, not summarised"


def test_h3_a_compaction_that_would_gain_nothing_is_refused() -> None:
    small = [user("hi"), answer("hello"), user("how"), answer("well"), user("bye")]
    assert "not be smaller" in refusal_of(window(200_000), *small, force=True)
    assert "recent" in refusal_of(window(200_000), *small)
    assert "recent" in refusal_of(window(200_000))


def test_h3_a_summary_that_did_not_shrink_is_refused_before_it_is_written() -> None:
    plan = plan_of(window(8_192), *turns(12, 1_500))
    tokens = MessageTokens(COUNTER)
    assert plan.tokens_after("short", tokens) < plan.tokens_before
    for useless in ("x" * plan.tokens_before * 4, " "):
        with pytest.raises(CompactionRefused):
            plan.tokens_after(useless, tokens)


def test_manual_compaction_works_below_the_threshold() -> None:
    messages = turns(6, 4_000)
    assert "recent" in refusal_of(window(200_000), *messages)
    plan = plan_of(window(200_000), *messages, force=True, instructions="names first")
    assert plan.kept == ("e10", "e11")
    assert plan.request.instructions == "names first"


@pytest.mark.parametrize("size", [4_096, 8_192])
def test_a_24_kb_message_on_a_small_window_is_compacted_away(size: int) -> None:
    big = user("START " + "word " * 4_800 + "END")
    plan = plan_of(window(size), big, answer("ok"), user("and now?"), force=True)
    assert plan.kept == ("e2",)
    assert "START" in told(plan)
    assert "END" in told(plan)
    refusal_of(window(size), big)  # alone it is the newest request: shortened in the view


def test_h8_the_body_of_a_summary_has_its_share_whatever_is_added() -> None:
    files = [
        m
        for n in range(300)
        for m in (call(f"c{n}", path=f"/very/long/path/to/file_{n}.py"), result(f"c{n}", "r" * 300))
    ]
    plan = plan_of(window(16_384), user("go " * 6_000), *files)
    budget = window(16_384)
    assert plan.request.max_tokens >= budget.summary_cap // 2
    written = plan.summary("body " * 20_000, COUNTER)
    assert COUNTER.count(written) <= budget.summary_cap
    assert plan.tokens_after(written, MessageTokens(COUNTER)) < plan.tokens_before


def test_files_that_were_read_and_modified_are_carried_on() -> None:
    budget = window(8_192)
    messages = [
        user("q"),
        call("a", path="/read.py"),
        result("a"),
        call("b", name="edit", path="/new.py"),
        result("b"),
        call("c", path="/new.py"),
        result("c"),
        *turns(12, 1_500),
    ]
    plan = plan_of(
        budget,
        *messages,
        previous_details={"readFiles": ["/old.py"], "modifiedFiles": ["/m.py", 3]},
    )
    assert plan.details == {
        "readFiles": ["/old.py", "/read.py"],
        "modifiedFiles": ["/m.py", "/new.py"],
    }
    written = plan.summary("text", COUNTER)
    assert written.endswith("## Files\n- modified: /m.py, /new.py\n- read: /old.py, /read.py")
    again = plan_of(budget, summary(written), *turns(12, 1_500), previous_details=plan.details)
    assert again.request.previous_summary == "text", "the list is kept in details, not told again"
    assert again.details == plan.details


def test_tool_results_are_shortened_for_the_summariser() -> None:
    messages = [user("q"), call("a"), result("a", "r" * 9_000), *turns(12, 1_500)]
    plan = plan_of(window(8_192), *messages)
    assert max(MessageTokens(COUNTER).count(m) for m in plan.request.messages[2:3]) <= 500


def test_a_command_outside_the_conversation_is_not_told_to_the_summariser() -> None:
    secret = {
        "role": "bashExecution",
        "command": "cat key",
        "output": "SECRET",
        "excludeFromContext": True,
    }
    plan = plan_of(window(8_192), user("q"), secret, *turns(12, 1_500))
    assert "SECRET" not in told(plan)
    assert "e1" in plan.summarised


def test_a_summary_too_large_for_a_smaller_window_is_rewritten() -> None:
    plan = plan_of(window(8_192), summary("fact. " * 6_000), user("q " * 1_500), force=True)
    assert plan.request.messages == ()
    assert plan.kept == ("e1",)
    assert plan.tokens_after("x " * plan.request.max_tokens, MessageTokens(COUNTER))


def split_request(
    request: SummaryRequest, room: int, tokens: MessageTokens
) -> tuple[SummaryRequest, ...]:
    """All parts of a request."""
    parts = []
    rest: SummaryRequest | None = request
    while rest is not None:
        part, rest = first_part(rest, room, tokens)
        parts.append(part)
    return tuple(parts)


def test_h1_a_request_is_split_to_the_summarisers_own_window() -> None:
    plan = plan_of(window(200_000), summary("before"), *turns(200, 4_000))
    tokens = MessageTokens(COUNTER)
    parts = split_request(plan.request, 8_000, tokens)
    assert len(parts) > 5
    assert [m for part in parts for m in part.messages] == list(plan.request.messages)
    assert all(sum(map(tokens.count, part.messages)) <= 8_000 for part in parts)
    assert [part.previous_summary for part in parts[:2]] == ["before", None]


def test_h1_a_message_larger_than_the_summarisers_window_is_shortened() -> None:
    plan = plan_of(window(200_000), user("w " * 60_000), answer("ok"), user("next"), force=True)
    tokens = MessageTokens(COUNTER)
    parts = split_request(plan.request, 2_000, tokens)
    assert all(sum(map(tokens.count, part.messages)) <= 2_000 for part in parts)
