"""Answers of many servers become one kind of message, with usage that adds up."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.errors import ModelError
from strandline.models.failures import Failures
from strandline.models.openai_chat_answer import Answer
from strandline.runtime.model import (
    Failed,
    Finished,
    ModelEvent,
    ModelInfo,
    Prices,
    TextDelta,
    ThinkingDelta,
)
from strandline.runtime.tools import UNPARSED_ARGUMENTS

PRICES = Prices(input=2, output=10, cache_read=0.5)
MODEL = ModelInfo("acme", "one", "openai-completions", 8192, 512, PRICES)


def delta(finish: str | None = None, **said: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": said, "finish_reason": finish}]}


def answer_of(*documents: dict[str, Any]) -> Answer:
    answer = Answer(MODEL, 1234, Failures(MODEL))
    for document in documents:
        answer.feed_text(json.dumps(document))
    return answer


def end_of(*documents: dict[str, Any]) -> ModelEvent:
    return answer_of(*documents).finish()[-1]


def message_of(*documents: dict[str, Any]) -> dict[str, Any]:
    end = end_of(*documents)
    assert isinstance(end, Finished)
    return end.message


def error_of(*documents: dict[str, Any]) -> ModelError:
    end = end_of(*documents)
    assert isinstance(end, Failed)
    return end.error


def piece(arguments: str = "", **more: Any) -> dict[str, Any]:
    name = {"name": more.pop("name")} if "name" in more else {}
    return {**more, "function": {"arguments": arguments, **name}}


def calls_in(*pieces: dict[str, Any], finish: str = "tool_calls") -> list[Any]:
    fed = [delta(tool_calls=[p]) for p in pieces]
    return [
        (c["id"], c["name"], c["arguments"])
        for c in message_of(*fed, delta(finish))["content"]
        if c["type"] == "toolCall"
    ]


def test_the_message_has_every_field_and_usage_does_not_overlap() -> None:
    usage = {
        "prompt_tokens": 1000,
        "completion_tokens": 100,
        "total_tokens": 1100,
        "prompt_tokens_details": {"cached_tokens": 800},
    }
    message = message_of(delta(content="hi"), delta("stop"), {"choices": [], "usage": usage})
    cost = message["usage"].pop("cost")
    assert message == {
        "role": "assistant",
        "content": [{"type": "text", "text": "hi"}],
        "api": "openai-completions",
        "provider": "acme",
        "model": "one",
        "usage": {
            "input": 200,
            "output": 100,
            "cacheRead": 800,
            "cacheWrite": 0,
            "totalTokens": 1100,
        },
        "stopReason": "stop",
        "timestamp": 1234,
    }
    assert cost == pytest.approx(
        {
            "input": 0.0004,
            "output": 0.001,
            "cacheRead": 0.0004,
            "cacheWrite": 0,
            "total": 0.0018,
        }
    )


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (None, (0, 0, 0)),
        ({}, (0, 0, 0)),
        ({"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": None}, (9, 1, 0)),
        ({"prompt_tokens": 9, "prompt_cache_hit_tokens": 4}, (5, 0, 4)),
        ({"prompt_tokens": 9, "cached_tokens": 4}, (5, 0, 4)),
        ({"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 50}}, (0, 0, 9)),
        ({"prompt_tokens": "many", "completion_tokens": -1}, (0, 0, 0)),
    ],
)
def test_usage_of_any_shape_or_none_is_borne(usage: Any, expected: tuple[int, int, int]) -> None:
    got = message_of(delta("stop", content="x"), {"choices": [], "usage": usage})["usage"]
    assert (got["input"], got["output"], got["cacheRead"]) == expected
    assert got["totalTokens"] == sum(expected)


def test_usage_may_stand_in_the_choice() -> None:
    last = delta("stop", content="x")
    last["choices"][0]["usage"] = {"prompt_tokens": 3}
    assert message_of(last)["usage"]["input"] == 3


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning", "reasoning_text"])
def test_thoughts_are_thinking_whatever_they_are_called(key: str) -> None:
    answer = Answer(MODEL, 0, Failures(MODEL))
    assert answer.feed(delta(**{key: "hm"})) == [ThinkingDelta("hm")]
    assert answer.feed(delta("stop", content="yes")) == [TextDelta("yes")]
    end = answer.finish()[-1]
    assert isinstance(end, Finished)
    assert [b["type"] for b in end.message["content"]] == ["thinking", "text"]


def test_a_thought_sent_under_two_names_is_one_thought() -> None:
    message = message_of(delta("stop", reasoning="hm", reasoning_content="hm"))
    assert message["content"] == [{"type": "thinking", "thinking": "hm"}]


def test_content_may_come_in_parts() -> None:
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "text", "text": "yes"},
    ]
    message = message_of(delta("stop", content=parts))
    assert [b.get("text") or b["thinking"] for b in message["content"]] == ["hm", "yes"]


def test_an_answer_that_was_not_streamed_is_read_too() -> None:
    tool_calls = [
        {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}},
        {"id": "b", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}},
    ]
    said = {"role": "assistant", "content": "hello", "tool_calls": tool_calls}
    choice = {"index": 0, "message": said, "finish_reason": "tool_calls"}
    message = message_of({"choices": [choice], "usage": {"prompt_tokens": 2}})
    assert message["stopReason"] == "toolUse"
    assert [c["arguments"] for c in message["content"][1:]] == [{}, {"x": 1}]


def test_calls_are_told_apart_however_servers_number_them() -> None:
    numbered = [
        piece("", index=0, id="a", name="f"),
        piece("", index=1, id="b", name="g"),
        piece('{"x":', index=0),
        piece('{"y":2}', index=1),
        piece("1}", index=0),
    ]
    expected = [("a", "f", {"x": 1}), ("b", "g", {"y": 2})]
    assert calls_in(*numbered) == expected
    all_zero = [
        piece('{"x":1}', index=0, id="a", name="f"),
        piece('{"y":2}', index=0, id="b", name="g"),
    ]
    assert calls_in(*all_zero) == expected
    unnumbered = [
        piece('{"x":', id="a", name="f"),
        piece("1}"),
        piece('{"y":', id="b", name="g"),
        piece("2}", id="b"),
    ]
    assert calls_in(*unnumbered) == expected


def test_ids_that_are_missing_or_double_are_made_unique() -> None:
    pieces = [
        piece("{}", name="f"),
        piece("{}", index=5, id="a", name="g"),
        piece("{}", index=6, id="a", name="h"),
    ]
    ids = [identity for identity, _, _ in calls_in(*pieces)]
    assert len(set(ids)) == 3
    assert ids[1] == "a"


@pytest.mark.parametrize("raw", ["{", "[1]", '"x"', "NaN", '{"n": NaN}', "[" * 100_000, "no"])
def test_arguments_that_are_no_object_reach_the_tool_loop_as_text(raw: str) -> None:
    assert calls_in(piece(raw, index=0, id="a", name="f")) == [
        ("a", "f", {UNPARSED_ARGUMENTS: raw})
    ]


def test_no_arguments_are_an_empty_object() -> None:
    assert calls_in(piece("", index=0, id="a", name="f")) == [("a", "f", {})]


def test_a_call_that_the_output_limit_cut_off_is_left_out() -> None:
    cut = piece('{"path": "/et', index=0, id="a", name="rm")
    assert calls_in(cut, finish="length") == []
    message = message_of(delta(content="so", tool_calls=[cut]), delta("length"))
    assert message["stopReason"] == "length"


@pytest.mark.parametrize(
    ("finish", "stop_reason"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("max_tokens", "length"),
        ("end_turn", "stop"),
        ("tool_calls", "stop"),
    ],
)
def test_finish_reasons_become_stop_reasons(finish: str, stop_reason: str) -> None:
    assert message_of(delta(finish, content="x"))["stopReason"] == stop_reason


@pytest.mark.parametrize("finish", ["stop", "tool_calls", "function_call"])
def test_calls_mean_tool_use_whatever_the_finish_reason(finish: str) -> None:
    call = piece("{}", index=0, id="a", name="f")
    assert message_of(delta(finish, tool_calls=[call]))["stopReason"] == "toolUse"


@pytest.mark.parametrize(
    ("finish", "kind"),
    [
        ("content_filter", "refused"),
        ("sensitive", "refused"),
        ("network_error", "network"),
        ("error", "network"),
        ("model_context_window_exceeded", "overflow"),
    ],
)
def test_some_finish_reasons_are_failures_with_what_was_said(finish: str, kind: str) -> None:
    call = piece("{}", index=0, id="a", name="f")
    end = end_of(delta(content="so far"), delta(finish, tool_calls=[call]))
    assert isinstance(end, Failed)
    assert end.error.kind == kind
    assert "acme/one" in str(end.error)
    assert end.partial is not None
    assert end.partial["content"] == [{"type": "text", "text": "so far"}]
    assert end.partial["stopReason"] == "error"
    assert end.partial["errorMessage"] == str(end.error)


def test_a_prompt_that_left_no_room_for_a_word_is_an_overflow() -> None:
    usage = {"prompt_tokens": 8192, "completion_tokens": 0}
    error = error_of(delta("length"), {"choices": [], "usage": usage})
    assert error.kind == "overflow"
    assert error.prompt_tokens == 8192
    # A model that spent its output on hidden thoughts is something else.
    hidden = {"prompt_tokens": 10, "completion_tokens": 64}
    assert message_of(delta("length"), {"choices": [], "usage": hidden})["content"] == []


@pytest.mark.parametrize(
    ("document", "kind"),
    [
        ({"error": {"message": "slow down", "code": "rate_limit_exceeded"}}, "rate"),
        ({"error": {"message": "x", "code": 429}}, "rate"),
        ({"error": {"message": "x", "type": "authentication_error"}}, "auth"),
        ({"error": {"message": "x", "code": 502}}, "network"),
        ({"error": "the server fell over"}, "network"),
        ({"error": {"message": "x", "type": "invalid_request_error"}}, "refused"),
        ({"error": {"message": "Context size has been exceeded."}}, "overflow"),
        ({"object": "error", "message": "prompt is too long", "code": 400}, "overflow"),
    ],
)
def test_an_error_inside_a_stream_has_its_kind(document: dict[str, Any], kind: str) -> None:
    with pytest.raises(ModelError) as caught:
        answer_of(delta(content="x"), document)
    assert caught.value.kind == kind


@pytest.mark.parametrize("text", ["", "{", "7", "null", "<html>", "[" * 100_000])
def test_what_is_no_object_is_a_network_failure(text: str) -> None:
    with pytest.raises(ModelError, match="not JSON") as caught:
        Answer(MODEL, 0, Failures(MODEL)).feed_text(text)
    assert caught.value.kind == "network"


KEYS = """choices delta message content tool_calls function arguments name id index usage error
finish_reason reasoning type text prompt_tokens code""".split()  # noqa: SIM905 - easier to read
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(KEYS),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


@settings(deadline=None)
@given(st.lists(json_values, max_size=4))
def test_no_answer_whatever_breaks_the_reader(values: list[Any]) -> None:
    answer = Answer(MODEL, 0, Failures(MODEL))
    try:
        for value in values:
            answer.feed_text(json.dumps(value))
    except ModelError:
        return
    assert isinstance(answer.finish()[-1], Finished | Failed)


units = st.lists(st.integers(0, 0xFFFF).map(chr) | st.sampled_from("\ud83c\udf89a"), max_size=12)


@settings(deadline=None)
@given(units, units)
def test_deltas_are_whole_characters_and_together_the_text(
    thought: list[str], text: list[str]
) -> None:
    """Faults C5: servers in JavaScript cut between the halves of an emoji."""
    answer = Answer(MODEL, 0, Failures(MODEL))
    events = [e for unit in thought for e in answer.feed(delta(reasoning=unit))]
    events += [e for unit in text for e in answer.feed(delta(content=unit))]
    events += answer.finish()
    for kind, units in ((TextDelta, text), (ThinkingDelta, thought)):
        said = "".join(e.text for e in events if isinstance(e, kind))
        joined = "".join(units).encode("utf-16-le", "surrogatepass")
        assert said == joined.decode("utf-16-le", "replace")


def test_an_escaped_half_in_arguments_is_replaced() -> None:
    call = piece('{"path": "a\\ud83c", "ok": "\\ud83c\\udf89"}', index=0, id="a", name="f")
    assert calls_in(call) == [("a", "f", {"path": "a�", "ok": "🎉"})]
