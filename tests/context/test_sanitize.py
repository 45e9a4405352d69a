"""Sanitising gives models only what they take, and changes nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from strandline.context.sanitize import NO_OUTPUT, sanitize
from strandline.context.tokens import HeuristicCounter, MessageTokens
from strandline.context.view import View
from strandline.transcript.context import PathMessage


def view_of(*messages: Any) -> View:
    items = [PathMessage(f"e{n}", message) for n, message in enumerate(messages)]
    return sanitize(items, MessageTokens(HeuristicCounter()))


def texts(view: View) -> list[str]:
    return [
        block.get("text", block.get("thinking", ""))
        for said in view.messages
        for block in said.message["content"]
    ]


def text(value: object) -> dict[str, object]:
    return {"type": "text", "text": value}


def rules(view: View) -> set[str]:
    return {d.rule for said in (*view.messages, *view.left_out) for d in said.decisions}


def test_messages_that_are_fine_stay_the_same_objects() -> None:
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "こんにちは", "timestamp": 1, "unknown": {"kept": True}},
        {
            "role": "user",
            "content": [text("hi"), {"type": "image", "data": "aGk=", "mimeType": "a/b"}],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "", "thinkingSignature": "sealed"},
                text("ok"),
                {"type": "toolCall", "id": "a", "name": "read", "arguments": {"path": "é"}},
            ],
            "stopReason": "toolUse",
        },
        {"role": "toolResult", "toolCallId": "a", "toolName": "read", "content": [text("…")]},
    ]
    view = view_of(*messages)
    assert [said.message for said in view.messages] == messages
    assert all(
        said.message is message for said, message in zip(view.messages, messages, strict=True)
    )
    assert not rules(view)


@pytest.mark.parametrize("blank", ["", "  \n", [], [text("")], [text(" \n")], None])
@pytest.mark.parametrize("role", ["user", "assistant", "custom"])
def test_a13_messages_that_say_nothing_are_left_out(role: str, blank: object) -> None:
    view = view_of({"role": role, "content": blank})
    assert view.messages == ()
    assert [said.decisions[-1].rule for said in view.left_out] == ["empty"]


@pytest.mark.parametrize("reason", ["error", "aborted"])
def test_a13_failed_answers_without_content_are_not_replayed(reason: str) -> None:
    view = view_of({"role": "assistant", "content": [], "stopReason": reason, "errorMessage": "x"})
    assert [said.decisions[-1].rule for said in view.left_out] == ["failed_turn"]


@pytest.mark.parametrize("blank", ["", [], [text("")], None])
def test_a13_an_empty_tool_result_gets_a_word_in_its_place(blank: object) -> None:
    assert texts(view_of({"role": "toolResult", "toolCallId": "a", "content": blank})) == [
        NO_OUTPUT
    ]


def test_a13_empty_blocks_go_and_the_others_stay() -> None:
    view = view_of({"role": "user", "content": [text(""), text("hi"), text(" ")]})
    assert texts(view) == ["hi"]
    assert rules(view) == {"empty_text"}


def test_a17_a_result_without_an_id_is_left_out() -> None:
    for call_id in (None, "", 7):
        view = view_of({"role": "toolResult", "toolCallId": call_id, "content": [text("x")]})
        assert [said.decisions[-1].rule for said in view.left_out] == ["no_call_id"]


def test_a19_the_providers_id_of_a_text_goes_with_the_thinking_it_belongs_to() -> None:
    signed = {"type": "text", "text": "a", "textSignature": "m1"}
    lost = {"role": "assistant", "content": [{"type": "thinking", "thinking": "?"}, signed]}
    kept = {
        "role": "assistant",
        "content": [{"type": "thinking", "thinking": "?", "thinkingSignature": "r2"}, signed],
    }
    view = view_of(lost, kept)
    assert view.messages[0].message["content"] == [text("a")]
    assert view.messages[1].message is kept


def conversation_with_summary() -> list[dict[str, Any]]:
    def thought(at: int) -> dict[str, Any]:
        thinking = {"type": "thinking", "thinking": "hm", "thinkingSignature": "s"}
        return {"role": "assistant", "content": [thinking, text(f"at {at}")], "timestamp": at}

    summary = {"role": "compactionSummary", "summary": "so far", "timestamp": 50}
    return [summary, thought(10), thought(20), thought(60), thought(70)]


def test_b1_thinking_from_before_the_summary_is_dropped_and_from_after_it_kept() -> None:
    messages = conversation_with_summary()
    view = view_of(*messages)
    told = [[block["type"] for block in said.message["content"]] for said in view.messages[1:]]
    assert told == [["text"], ["text"], ["thinking", "text"], ["thinking", "text"]]
    assert view.messages[3].message is messages[3]


@pytest.mark.parametrize("signature", [None, "", " ", 5])
def test_b2_b3_thinking_without_a_signature_is_dropped(signature: object) -> None:
    for thinking in ("abc", ""):
        block = {"type": "thinking", "thinking": thinking, "thinkingSignature": signature}
        view = view_of({"role": "assistant", "content": [block, text("answer")]})
        assert texts(view) == ["answer"]


def test_an_answer_that_is_only_thinking_is_left_out() -> None:
    block = {"type": "thinking", "thinking": "abc", "thinkingSignature": "s"}
    view = view_of({"role": "assistant", "content": [block], "stopReason": "length"})
    assert [said.decisions[-1].rule for said in view.left_out] == ["only_thinking"]


def test_c5_half_a_character_is_replaced_everywhere() -> None:
    half = "cut \ud83c"
    call = {"type": "toolCall", "id": half, "name": half, "arguments": {half: [half, 2**70]}}
    view = view_of(
        {"role": "user", "content": half},
        {"role": "user", "content": [text(half)]},
        {"role": "assistant", "content": [text(half), call]},
        {"role": "toolResult", "toolCallId": half, "content": [text(half)]},
        {"role": "bashExecution", "command": half, "output": half},
        {"role": "custom", "customType": half, "content": half},
        {"role": "compactionSummary", "summary": half},
        {"role": half, "content": half},
    )
    assert len(view.messages) == 8
    for said in view.messages:
        written = json.dumps(said.message["content"], ensure_ascii=False)
        assert "cut \ufffd" in written
        written.encode()
    assert view.messages[2].message["content"][1]["id"] == view.messages[3].message["toolCallId"]
    assert view.messages[2].message["content"][1]["arguments"] == {
        "cut \ufffd": ["cut \ufffd", 2**70]
    }


def test_c5_two_halves_that_meet_become_the_character() -> None:
    assert (
        view_of({"role": "user", "content": "\ud83c\udf89"}).messages[0].message["content"] == "🎉"
    )


def test_references_are_framed_as_such_in_the_users_role() -> None:
    view = view_of(
        {"role": "compactionSummary", "summary": "S", "timestamp": 5},
        {"role": "branchSummary", "summary": "B"},
        {"role": "custom", "customType": "cron", "content": [text("C")]},
        {
            "role": "bashExecution",
            "command": "ls",
            "output": "a\nb",
            "exitCode": 2,
            "truncated": True,
        },
        {"role": "hookMessage", "content": "H"},
    )
    assert {said.message["role"] for said in view.messages} == {"user"}
    for said in view.messages:
        assert said.message["content"][0]["text"].startswith("[For reference")
    assert [said.message["content"][1]["text"] for said in view.messages] == [
        "S",
        "B",
        "C",
        "$ ls\na\nb\n(exit code 2, output cut)",
        "H",
    ]
    assert view.messages[0].message["timestamp"] == 5


def test_a_command_that_was_run_outside_the_conversation_is_left_out() -> None:
    message = {"role": "bashExecution", "command": "ls", "output": "x", "excludeFromContext": True}
    view = view_of(message)
    assert [said.decisions[-1].rule for said in view.left_out] == ["excluded"]


def deep(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"x": value}
    return value


ODD: list[Any] = [
    None,
    7,
    True,
    "text",
    [],
    {},
    ["a", None, 3],
    {"a": 1},
    [[text("x")]],
    deep(5000),
]


@pytest.mark.parametrize("role", ["user", "assistant", "toolResult", "custom", "bashExecution", 5])
@pytest.mark.parametrize(
    "odd", ODD, ids=lambda odd: str(odd)[:20] if not isinstance(odd, dict) else "object"
)
def test_odd_content_never_raises_and_never_reaches_a_model(role: object, odd: Any) -> None:
    call = {"type": "toolCall", "id": "a", "name": "n", "arguments": odd}
    blocks = [
        odd,
        {"type": odd},
        {"type": "text", "text": odd},
        {"type": "image", "data": odd},
        call,
    ]
    view = view_of(
        {"role": role, "content": odd, "toolCallId": "a", "command": odd, "timestamp": odd},
        {"role": role, "content": blocks, "toolCallId": "a", "output": odd},
    )
    assert len(view.messages) + len(view.left_out) == 2
    for said in view.messages:
        json.dumps(said.message["content"])
        content = said.message["content"]
        for block in [text(content)] if isinstance(content, str) else content:
            assert block["type"] in {"text", "toolCall"}
            if block["type"] == "toolCall":
                assert isinstance(block["arguments"], dict)
            else:
                assert str(block["text"]).strip()


def test_an_unknown_block_is_told_by_its_own_text_where_it_has_one() -> None:
    view = view_of(
        {"role": "user", "content": [{"type": "input_text", "text": "hi"}, {"type": "audio"}]}
    )
    assert texts(view) == ["hi", '[a block of type "audio" that is not shown]']


def test_a_message_that_is_no_object_is_left_out() -> None:
    view = view_of(None, "text", {"role": "user", "content": "hi"})
    assert len(view.messages) == 1
    assert [said.decisions[-1].rule for said in view.left_out] == ["not_a_message"] * 2


def test_calls_without_id_or_name_are_left_out_and_the_text_stays() -> None:
    for call in ({"id": "", "name": "n"}, {"id": "a"}, {"name": "n"}, {"id": 3, "name": "n"}):
        block = {"type": "toolCall", "arguments": {}, **call}
        view = view_of({"role": "assistant", "content": [text("ok"), block]})
        assert texts(view) == ["ok"]
        assert rules(view) == {"odd_call"}


def test_each_cleaned_form_is_counted_once() -> None:
    class Counting(HeuristicCounter):
        calls = 0

        def count(self, text: str) -> int:
            self.calls += 1
            return super().count(text)

    counter = Counting()
    tokens = MessageTokens(counter)
    messages = [*conversation_with_summary(), {"role": "user", "content": [text(""), text("hi")]}]
    items = [PathMessage(f"e{n}", message) for n, message in enumerate(messages)]
    first = sanitize(items, tokens)
    counted = counter.calls
    assert sanitize(items, tokens) == first
    assert counter.calls == counted
