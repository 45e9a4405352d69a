"""Assembling a view within its budget: what gives way, in which order, and what never does."""

from __future__ import annotations

from typing import Any

import pytest

from strandline.context.assemble import Limit, assemble, prepare
from strandline.context.budget import Budget, CompactionSettings, resolve_budget
from strandline.context.tokens import HeuristicCounter, MessageTokens
from strandline.context.view import View
from strandline.errors import ContextOverflow
from strandline.transcript.context import PathMessage
from strandline.transcript.messages import Message

TOKENS = MessageTokens(HeuristicCounter())


def window(size: int, system: int = 0) -> Budget:
    return resolve_budget(size, CompactionSettings(), system_tokens=system)


def user(text: str) -> Message:
    return {"role": "user", "content": text, "timestamp": 1}


def answer(text: str) -> Message:
    return {"role": "assistant", "content": [{"type": "text", "text": text}], "stopReason": "stop"}


def step(call_id: str, output: str) -> list[Message]:
    """A tool call and its result."""
    call = {"type": "toolCall", "id": call_id, "name": "bash", "arguments": {"n": call_id}}
    return [
        {"role": "assistant", "content": [call], "stopReason": "toolUse"},
        {
            "role": "toolResult",
            "toolCallId": call_id,
            "toolName": "bash",
            "content": [{"type": "text", "text": output}],
        },
    ]


def path(*messages: Message) -> list[PathMessage]:
    return [PathMessage(f"{id(messages)}-{n}", message) for n, message in enumerate(messages)]


def view_of(budget: Budget, *messages: Message, limit: Limit = "oldest_turns", **more: Any) -> View:
    tokens = MessageTokens(HeuristicCounter())
    return assemble(path(*messages), budget=budget, tokens=tokens, limit=limit, **more)


def said(view: View) -> str:
    """All texts of a view, one a line."""
    parts = []
    for message in (m.message for m in view.messages):
        content = message["content"]
        blocks = [{"text": content}] if isinstance(content, str) else content
        parts += [str(block.get("text", block.get("name"))) for block in blocks]
    return "\n".join(parts)


def left_out_rules(view: View) -> set[str]:
    return {m.decisions[-1].rule for m in view.left_out}


def test_a_view_that_fits_is_left_alone() -> None:
    messages = [user("hi"), answer("hello"), *step("a", "out"), user("bye")]
    for limit in ("none", "oldest_turns"):
        view = view_of(window(8_192), *messages, limit=limit)
        assert [m.message for m in view.messages] == messages
        assert view.left_out == ()


def test_without_a_limit_a_view_that_does_not_fit_is_an_overflow_that_names_the_largest_parts() -> (
    None
):
    turns = [m for n in range(20) for m in (user(f"q{n} " + "x" * 900), answer("y" * 900))]
    with pytest.raises(ContextOverflow) as caught:
        view_of(window(8_192, system=1_000), *turns, *step("a", "z" * 6_000), limit="none")
    assert "toolResult of bash in entry" in caught.value.what
    assert "the system prompt and tools: 1,000" in caught.value.what


def test_the_oldest_whole_turns_are_left_out_beyond_the_budget() -> None:
    turns = [
        m for n in range(20) for m in (user(f"q{n}"), *step(f"t{n}", "r" * 700), answer(f"a{n}"))
    ]
    view = view_of(window(4_096), *turns, user("and now?"))
    assert left_out_rules(view) == {"oldest_turns"}
    assert view.messages[0].message["role"] == "user"
    assert "q19" in said(view)
    assert "q0\n" not in said(view)
    assert view.tokens > window(4_096).limit // 2, "no more than needed is left out"


def test_large_tool_results_are_shortened_before_any_turn_is_left_out() -> None:
    messages = [user("q"), *step("a", "r " * 5_000), *step("b", "s " * 5_000), answer("ok")]
    view = view_of(window(8_192), *messages, user("next"))
    assert view.left_out == ()
    assert said(view).count("characters left out") == 2


def test_the_summary_of_a_compaction_outlives_the_turns_after_it() -> None:
    summary = {"role": "compactionSummary", "summary": "what was agreed", "timestamp": 0}
    turns = [m for n in range(40) for m in (user(f"q{n} " + "x" * 600), answer("y" * 600))]
    view = view_of(window(4_096), summary, *turns, user("now"))
    assert "what was agreed" in said(view)
    assert said(view).endswith("now")


def test_within_one_huge_turn_the_oldest_steps_go_and_the_request_stays() -> None:
    steps = [m for n in range(60) for m in step(f"t{n}", f"out{n} " + "r" * 900)]
    view = view_of(window(4_096), user("the request"), *steps)
    assert said(view).startswith("the request")
    assert "out59" in said(view)
    assert left_out_rules(view) == {"oldest_steps"}


def test_a14_many_requests_in_a_row_leave_the_newest() -> None:
    view = view_of(window(4_096), *[user(f"try {n} " + "x" * 500) for n in range(200)])
    assert "try 199" in said(view)
    assert view.tokens <= window(4_096).limit


@pytest.mark.parametrize("size", [4_096, 8_192, 16_384])
def test_a_request_larger_than_the_window_is_shortened_and_never_left_out(size: int) -> None:
    huge = "START " + "word " * 40_000 + "END"
    for limit in ("none", "oldest_turns"):
        view = view_of(window(size), user("before"), answer("ok"), user(huge), limit=limit)
        assert "START" in said(view)
        assert said(view).endswith("END")


def test_a_step_of_a_thousand_parallel_calls_gives_way_to_the_request() -> None:
    calls = [
        {"type": "toolCall", "id": f"c{n}", "name": "bash", "arguments": {}} for n in range(1000)
    ]
    asking = {"role": "assistant", "content": calls, "stopReason": "toolUse"}
    view = view_of(window(8_192), user("the request"), asking)
    assert said(view) == "the request"
    assert left_out_rules(view) == {"all_but_request"}


def test_h22_a_second_try_shortens_every_tool_result_harder() -> None:
    budget = window(200_000)
    messages = [user("q"), *step("a", "r " * 150_000), *step("b", "small")]
    first = view_of(budget, *messages, limit="none")
    second = view_of(budget, *messages, limit="none", tool_result_cap=budget.tool_result_cap)
    assert first.messages[2].decisions == ()
    assert second.messages[2].tokens <= budget.tool_result_cap
    assert second.messages[4].message is messages[4]


def test_a_shortened_message_keeps_its_bytes_when_the_system_prompt_grows_a_little() -> None:
    messages = [user("w " * 20_000)]
    views = [view_of(window(8_192, system=system), *messages) for system in (1_000, 1_100)]
    assert views[0].messages[0].message == views[1].messages[0].message


def test_the_prefix_of_a_view_stays_when_messages_are_added() -> None:
    old = [user("q"), *step("a", "r" * 30_000), answer("ok")]
    items = path(*old, user("next"), answer("fine"))
    tokens, budget = MessageTokens(HeuristicCounter()), window(16_384)
    before = prepare(items[: len(old)], budget=budget, tokens=tokens)
    after = prepare(items, budget=budget, tokens=tokens)
    assert after.messages[: len(old)] == before.messages
