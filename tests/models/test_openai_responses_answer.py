"""Answers of the Responses API become messages that hold all that it wants to see again."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from strandline.errors import ModelError
from strandline.models.failures import Failures
from strandline.models.openai_responses_answer import Answer
from strandline.models.openai_responses_wire import request_body
from strandline.models.sse import CompletionBody
from strandline.models.surrogates import whole_text
from strandline.runtime.model import (
    Failed,
    Finished,
    ModelEvent,
    ModelInfo,
    ModelRequest,
    Prices,
    TextDelta,
    ThinkingDelta,
)
from strandline.runtime.tools import UNPARSED_ARGUMENTS

PRICES = Prices(input=2, output=10, cache_read=0.5, cache_write=2.5)
MODEL = ModelInfo("acme", "one", "openai-responses", 8192, 512, PRICES, reasoning=True)
OTHER = ModelInfo("acme", "two", "openai-responses", 8192, 512, reasoning=True)
FAILURES = Failures(MODEL)

Json = dict[str, Any]

EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
USAGE = {
    "input_tokens": 1000,
    "input_tokens_details": {"cached_tokens": 800, "cache_write_tokens": 100},
    "output_tokens": 100,
    "output_tokens_details": {"reasoning_tokens": 30},
    "total_tokens": 1100,
}


def response(*output: Json, status: str = "completed", **more: Any) -> Json:
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "one",
        "error": None,
        "incomplete_details": None,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "status": status,
        "output": list(output),
        "usage": USAGE,
        **more,
    }


def ended(*output: Json, status: str = "completed", **more: Any) -> Json:
    return {"type": f"response.{status}", "response": response(*output, status=status, **more)}


def reasoning(identity: str, *summary: str, **more: Any) -> Json:
    parts = [{"type": "summary_text", "text": text} for text in summary]
    sealed = {"encrypted_content": f"gAAA{identity}=="}
    return {"id": identity, "type": "reasoning", "summary": parts, **sealed, **more}


def message(identity: str, *texts: str, refusal: str = "", **more: Any) -> Json:
    parts: list[Json] = [{"type": "output_text", "text": t, "annotations": []} for t in texts]
    parts += [{"type": "refusal", "refusal": refusal}] if refusal else []
    kind = {"id": identity, "type": "message", "role": "assistant", "status": "completed"}
    return {**kind, "content": parts, **more}


def call(number: int, arguments: str = "{}", name: str = "read") -> Json:
    ids = {"id": f"fc_{number}", "call_id": f"call_{number}"}
    kind = {"type": "function_call", "status": "completed", "name": name}
    return {**ids, **kind, "arguments": arguments}


def delta(kind: str, piece: str, **place: Any) -> Json:
    return {"type": f"response.{kind}.delta", "delta": piece, **place}


def pieces_of(text: str) -> Iterator[str]:
    """The text in pieces of a few characters."""
    for start in range(0, len(text), 3):
        yield text[start : start + 3]


def events_of(output: list[Json], **end: Any) -> list[Json]:
    """The whole stream of an answer, as OpenAI sends it."""
    begun = {"response": response(status="in_progress", usage=None)}
    events: list[Json] = [{"type": "response.created", **begun}]
    events.append({"type": "response.in_progress", **begun})
    for index, item in enumerate(output):
        place = {"output_index": index, "item_id": item["id"]}
        empty: Json = {"summary": []} if item["type"] == "reasoning" else {"content": []}
        empty = {"arguments": ""} if item["type"] == "function_call" else empty
        opened = {k: v for k, v in {**item, **empty}.items() if k != "encrypted_content"}
        events.append({"type": "response.output_item.added", "output_index": index, "item": opened})
        events += [{**event, **place} for event in inner_events(item)]
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    events.append(ended(*output, **end))
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


def inner_events(item: Json) -> Iterator[Json]:
    if item["type"] == "function_call":
        prefix = "function_call_arguments"
        yield from (delta(prefix, piece) for piece in pieces_of(item["arguments"]))
        yield {
            "type": f"response.{prefix}.done",
            "arguments": item["arguments"],
            "name": item["name"],
        }
        return
    for index, part in enumerate(item.get("summary", [])):
        where = {"summary_index": index}
        prefix = "response.reasoning_summary"
        yield {"type": f"{prefix}_part.added", "part": {**part, "text": ""}, **where}
        for piece in pieces_of(part["text"]):
            yield delta("reasoning_summary_text", piece, **where)
        yield {"type": f"{prefix}_text.done", "text": part["text"], **where}
        yield {"type": f"{prefix}_part.done", "part": part, **where}
    for index, part in enumerate(item.get("content", [])):
        where = {"content_index": index}
        key = "refusal" if part["type"] == "refusal" else "text"
        logprobs: Json = {"logprobs": []} if part["type"] == "output_text" else {}
        yield {"type": "response.content_part.added", "part": {**part, key: ""}, **where}
        for piece in pieces_of(part[key]):
            yield delta(part["type"], piece, **where, **logprobs)
        yield {"type": f"response.{part['type']}.done", key: part[key], **where, **logprobs}
        yield {"type": "response.content_part.done", "part": part, **where}


def read(*documents: Json, model: ModelInfo = MODEL) -> list[ModelEvent]:
    answer = Answer(model, 1234, Failures(model))
    events = [event for document in documents for event in answer.feed_text(json.dumps(document))]
    return [*events, *answer.finish()]


def message_of(*documents: Json) -> Json:
    end = read(*documents)[-1]
    assert isinstance(end, Finished), end
    return end.message


def content_of(*documents: Json) -> list[Json]:
    content: list[Json] = message_of(*documents)["content"]
    return content


def failure_of(*documents: Json) -> Failed:
    end = read(*documents)[-1]
    assert isinstance(end, Failed)
    return end


OUTPUT = [
    reasoning("rs_1", "hm, 海?", "Then more."),
    message("msg_1", "Grüße aus 東京 🎉", "!\n", phase="commentary"),
    reasoning("rs_2"),
    call(1, '{"path":"é"}'),
    call(2, '{"path":"b"}'),
]
CONTENT: list[Json] = [
    {
        "type": "thinking",
        "thinking": "hm, 海?\n\nThen more.",
        "thinkingSignature": json.dumps(OUTPUT[0], separators=(",", ":"), ensure_ascii=False),
    },
    {
        "type": "text",
        "text": "Grüße aus 東京 🎉!\n",
        "textSignature": '{"v":1,"id":"msg_1","phase":"commentary"}',
    },
    {
        "type": "thinking",
        "thinking": "",
        "thinkingSignature": json.dumps(OUTPUT[2], separators=(",", ":")),
    },
    {"type": "toolCall", "id": "call_1|fc_1", "name": "read", "arguments": {"path": "é"}},
    {"type": "toolCall", "id": "call_2|fc_2", "name": "read", "arguments": {"path": "b"}},
]
STREAM = events_of(OUTPUT)


def test_a_whole_stream_is_a_message_with_every_field() -> None:
    got = message_of(*STREAM)
    cost = got["usage"].pop("cost")
    assert got == {
        "role": "assistant",
        "content": CONTENT,
        "api": "openai-responses",
        "provider": "acme",
        "model": "one",
        "usage": {
            "input": 100,
            "output": 100,
            "cacheRead": 800,
            "cacheWrite": 100,
            "totalTokens": 1100,
        },
        "stopReason": "toolUse",
        "timestamp": 1234,
    }
    assert cost["total"] == pytest.approx(0.00185)


def test_the_example_is_what_the_api_says_of_itself() -> None:
    for event in STREAM:
        assert EVENT.validate_python(event).type == event["type"]
    Response.model_validate(response(*OUTPUT))


def test_the_deltas_together_are_what_was_said() -> None:
    events = read(*STREAM)
    said = {
        kind: "".join(event.text for event in events if isinstance(event, kind))
        for kind in (TextDelta, ThinkingDelta)
    }
    assert said == {TextDelta: CONTENT[1]["text"], ThinkingDelta: CONTENT[0]["thinking"]}


def texts_in(*pieces: bytes) -> list[ModelEvent]:
    body, answer = CompletionBody(FAILURES), Answer(MODEL, 1234, FAILURES)
    texts = [text for piece in pieces for text in body.feed(piece)] + body.end()
    return [event for text in texts for event in answer.feed_text(text)] + answer.finish()


SHORT: list[Json] = [
    delta("reasoning_summary_text", "hm, 海?", output_index=0),
    {"type": "response.output_item.done", "output_index": 0, "item": OUTPUT[0]},
    delta("output_text", "東京 🎉", output_index=1),
    {"type": "response.completed", "response": {"output": OUTPUT[:1], "usage": USAGE}},
]
BODY = b"".join(
    b"event: %s\r\ndata: %s\r\n\r\n"
    % (event["type"].encode(), json.dumps(event, ensure_ascii=False).encode())
    for event in SHORT
)


def test_one_cut_at_any_byte_gives_the_same_events() -> None:
    whole = texts_in(BODY)
    assert whole == read(*SHORT)
    for place in range(len(BODY) + 1):
        assert texts_in(BODY[:place], BODY[place:]) == whole


@settings(deadline=None, max_examples=30)
@given(st.sets(st.integers(0, len(BODY))))
def test_any_cuts_give_the_same_events(places: set[int]) -> None:
    cuts = [0, *sorted(places), len(BODY)]
    assert texts_in(*(BODY[a:b] for a, b in itertools.pairwise(cuts))) == texts_in(BODY)


def test_an_answer_that_was_not_streamed_is_read_too() -> None:
    assert message_of(response(*OUTPUT)) == message_of(*STREAM)
    bare = {"output": OUTPUT, "usage": USAGE}
    assert message_of(bare) == message_of(*STREAM)
    assert read(response(message("m", "hello")))[0] == TextDelta("hello")


def without(*kinds: str) -> Callable[[Json], Json | None]:
    return lambda event: None if event["type"].endswith(kinds) else event


def without_keys(*keys: str) -> Callable[[Json], Json | None]:
    return lambda event: {key: value for key, value in event.items() if key not in keys}


def all_at_zero(event: Json) -> Json:
    return {**event, "output_index": 0} if "output_index" in event else event


def with_other_ids(event: Json) -> Json:
    """As a server that seals its ids anew for every event."""
    sealed = f"sealed_{event['sequence_number']}"
    if "item_id" in event:
        return {**event, "item_id": sealed}
    if event["type"].endswith("item.added"):
        return {**event, "item": {**event["item"], "id": sealed}}
    return event


def without_output(event: Json) -> Json:
    if "response" not in event:
        return event
    return {**event, "response": {**event["response"], "output": []}}


VARIANTS: dict[str, Callable[[Json], Json | None]] = {
    "as OpenAI": without(),
    "no beginnings of items": without("item.added"),
    "no ends of items": without("item.done"),
    "no ends of items and deltas": without("item.done", "delta"),
    "no beginnings and ends": without("item.added", "item.done", "arguments.done"),
    "no deltas": without("delta"),
    "only the end": without("added", "done", "delta", "created", "progress"),
    "no parts": without("part.added", "part.done", "text.done"),
    "no numbers": without_keys("output_index"),
    "no ids": without_keys("item_id"),
    "no places": without_keys("output_index", "item_id"),
    "all at zero": all_at_zero,
    "other ids": with_other_ids,
    "no output at the end": without_output,
}


def varied(events: list[Json], variant: str) -> list[Json]:
    return [event for event in map(VARIANTS[variant], events) if event is not None]


@pytest.mark.parametrize("variant", VARIANTS)
def test_servers_that_leave_things_out_are_understood(variant: str) -> None:
    assert message_of(*varied(STREAM, variant)) == message_of(*STREAM)


def test_calls_may_be_streamed_side_by_side() -> None:
    events = events_of([call(1, '{"a":1}'), call(2, '{"b":2}')])
    inside = [event for event in events if "output_index" in event]
    first, second = inside[: len(inside) // 2], inside[len(inside) // 2 :]
    woven = [event for pair in zip(first, second, strict=True) for event in pair]
    for end in ([ended()], [ended(call(1, '{"a":1}'), call(2, '{"b":2}'))]):
        assert [c["arguments"] for c in content_of(*woven, *end)] == [{"a": 1}, {"b": 2}]


def test_unknown_events_and_items_are_passed_over() -> None:
    odd: list[Json] = [
        {"type": "response.output_item.added", "output_index": 0, "item": {"type": "web_search"}},
        {"type": "response.output_item.done", "output_index": 0, "item": None},
        {"type": "response.web_search_call.completed", "message": "done", "output_index": 0},
        {"type": "keepalive"},
        {"type": "response.output_text.delta"},
        {"unknown": True},
    ]
    end = ended({"type": "web_search_call", "id": "ws_1"}, message("m", "hi"))
    assert content_of(*odd, end)[0]["text"] == "hi"


def test_a_refusal_is_said() -> None:
    got = content_of(*events_of([message("msg_1", refusal="I cannot do that.")]))
    assert [block["text"] for block in got] == ["I cannot do that."]


def test_open_thoughts_are_thinking_and_parts_stand_apart() -> None:
    parts = [{"type": "reasoning_text", "text": text} for text in ("one", "two")]
    item = reasoning("rs_1", content=parts)
    for events in (events_of([item]), [ended(item)]):
        assert content_of(*events)[0]["thinking"] == "one\n\ntwo"


def test_the_thought_that_can_be_sent_again_is_kept() -> None:
    """Some servers seal it at the end of the item, some at the end of the answer."""
    sealed, bare = reasoning("rs_1", "hm"), reasoning("rs_1", "hm", encrypted_content=None)
    for done, last in ((sealed, bare), (bare, sealed), (sealed, reasoning("rs_1", "other"))):
        events = [{"type": "response.output_item.done", "output_index": 0, "item": done}]
        kept = json.loads(content_of(*events, ended(last))[0]["thinkingSignature"])
        assert kept == sealed


def test_an_empty_item_leaves_no_empty_text() -> None:
    """Faults A13, B3."""
    nothing = {"type": "reasoning", "summary": [], "id": 7}
    assert content_of(*events_of([message("msg_1", ""), message("msg_2")])) == []
    assert content_of(ended(nothing))[0]["thinkingSignature"]


def test_a_thought_without_an_end_takes_the_ids_after_it_along() -> None:
    """Faults A19 and B2: it is never replayed, and their ids would ask for it."""
    place = {"output_index": 0, "item_id": "rs_1"}
    thought = delta("reasoning_summary_text", "hm", summary_index=0, **place)
    ends = [
        {"type": "response.output_item.done", "output_index": index, "item": item}
        for index, item in enumerate(OUTPUT[1:], 1)
    ]
    got = content_of(thought, *ends, ended())
    assert got[0] == {"type": "thinking", "thinking": "hm"}
    assert "textSignature" not in got[1]
    assert got[3]["id"] == "call_1|fc_1"
    assert [c["id"] for c in content_of(thought, *ends[2:], ended())[1:]] == ["call_1", "call_2"]


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ({"call_id": "c", "id": "f"}, "c|f"),
        ({"call_id": "c", "id": None}, "c"),
        ({"call_id": None, "id": "f"}, "f"),
    ],
)
def test_a_call_has_the_ids_that_it_came_with(ids: Json, expected: str) -> None:
    assert content_of(ended({**call(1), **ids}))[0]["id"] == expected


def test_calls_without_an_id_get_one_each() -> None:
    ids = [c["id"] for c in content_of(ended(*[{**call(1), "call_id": None, "id": None}] * 2))]
    assert len(set(ids)) == 2
    assert all(ids)


@pytest.mark.parametrize("raw", ["{", "[1]", '"x"', "NaN", "no"])
def test_arguments_that_are_no_object_reach_the_tool_loop_as_text(raw: str) -> None:
    assert content_of(*events_of([call(1, raw)]))[0]["arguments"] == {UNPARSED_ARGUMENTS: raw}


def test_arguments_may_come_as_an_object_and_the_last_word_counts() -> None:
    assert content_of(ended({**call(1), "arguments": {"x": 1}}))[0]["arguments"] == {"x": 1}
    wrong = delta("function_call_arguments", '{"x":', output_index=0)
    assert content_of(wrong, ended(call(1, '{"y":2}')))[0]["arguments"] == {"y": 2}


def test_what_was_shown_stays_where_the_end_says_otherwise() -> None:
    shown = delta("output_text", "hello", output_index=0)
    assert content_of(shown, ended(message("m", "goodbye")))[0]["text"] == "hello"
    assert content_of(shown, ended(message("m", "hello there")))[0]["text"] == "hello there"


@pytest.mark.parametrize(
    "usage",
    [
        None,
        {},
        {"input_tokens": "many", "output_tokens": -1},
        {"input_tokens": 9, "input_tokens_details": None},
        {"input_tokens": 9, "input_tokens_details": {"cached_tokens": 50}},
    ],
)
def test_usage_of_any_shape_or_none_is_borne(usage: Any) -> None:
    got = message_of(ended(message("m", "x"), usage=usage))["usage"]
    assert got["totalTokens"] == (9 if usage and usage.get("input_tokens") == 9 else 0)


@pytest.mark.parametrize("reason", ["max_output_tokens", "max_messages", None])
def test_an_incomplete_answer_ended_by_length_without_the_call_that_was_cut(reason: Any) -> None:
    cut = {"status": "incomplete", "incomplete_details": {"reason": reason}}
    events = events_of([message("m", "so"), call(1, '{"path": "/et')], **cut)
    got = message_of(*events)
    assert got["stopReason"] == "length"
    assert [block["type"] for block in got["content"]] == ["text"]


def test_a_filtered_answer_is_refused_with_what_was_said() -> None:
    cut = {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}
    end = failure_of(*events_of([message("m", "so far"), call(1)], **cut))
    assert end.error.kind == "refused"
    assert end.partial is not None
    assert [block["text"] for block in end.partial["content"]] == ["so far"]
    assert end.partial["usage"]["output"] == 100
    assert end.partial["errorMessage"] == str(end.error)


def test_a_prompt_that_left_no_room_for_a_word_is_an_overflow() -> None:
    cut: Json = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    full = {"input_tokens": 8192, "output_tokens": 0}
    error = failure_of(ended(**cut, usage=full)).error
    assert (error.kind, error.prompt_tokens) == ("overflow", 8192)
    assert message_of(ended(**cut))["content"] == []  # it spent its output on hidden thoughts


@pytest.mark.parametrize("status", ["failed", "cancelled", "queued", "in_progress"])
def test_an_answer_that_was_not_finished_is_a_network_failure(status: str) -> None:
    assert failure_of(response(message("m", "x"), status=status)).error.kind == "network"


def test_no_answer_at_all_points_to_the_base_url() -> None:
    for documents in ([], [{"hello": "world"}]):
        assert "base URL" in failure_of(*documents).error.remedy


ERRORS = [
    ("rate_limit_exceeded", "rate"),
    ("server_error", "network"),
    ("vector_store_timeout", "network"),
    ("invalid_prompt", "refused"),
    ("invalid_base64_image", "refused"),
    ("image_too_large", "refused"),
    ("unsupported_image_media_type", "refused"),
    ("image_content_policy_violation", "refused"),
    ("bio_policy", "refused"),
    ("data_residency_mismatch", "refused"),
    ("insufficient_quota", "refused"),
    ("context_length_exceeded", "overflow"),
]


@pytest.mark.parametrize(("code", "kind"), ERRORS)
def test_an_error_has_its_kind_in_every_form(code: str, kind: str) -> None:
    error = {"code": code, "message": "some words"}
    for document in (
        ended(status="failed", error=error),
        response(status="failed", error=error),
        {"type": "error", "sequence_number": 3, "param": None, **error},
        {"type": "error", "error": {"type": "some_error", **error}},
        {"error": error},
    ):
        with pytest.raises(ModelError) as caught:
            read(delta("output_text", "x"), document)
        assert caught.value.kind == kind


@pytest.mark.parametrize(
    "words",
    [
        "Your input exceeds the context window of this model. Please adjust your input.",
        "Input tokens exceed the configured limit of 272000 tokens. Please reduce the length.",
        "Codex ran out of room in the model's context window. Start a new thread.",
    ],
)
def test_an_overflow_is_recognised_by_its_words_but_never_in_what_was_said(words: str) -> None:
    """Faults H18."""
    error = {"code": "invalid_request_error", "message": words}
    for document in (ended(status="failed", error=error), {"type": "error", **error}):
        with pytest.raises(ModelError) as caught:
            read(document)
        assert caught.value.kind == "overflow"
    assert content_of(*events_of([message("m", words)]))[0]["text"] == words
    request = {"instructions": words, "metadata": {"raw": words}}
    failed = ended(status="failed", error={"code": "server_error", "message": "oops"}, **request)
    with pytest.raises(ModelError) as caught:
        read(failed)
    assert caught.value.kind == "network"


@pytest.mark.parametrize("text", ["", "{", "7", "null", "<html>", "[" * 100_000])
def test_what_is_no_object_is_a_network_failure(text: str) -> None:
    with pytest.raises(ModelError, match="not JSON") as caught:
        Answer(MODEL, 0, FAILURES).feed_text(text)
    assert caught.value.kind == "network"


words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=10).filter(
    str.strip  # a blank text is no text, and is not sent again
)
outputs = st.lists(
    st.one_of(
        st.lists(words, max_size=3).map(lambda parts: lambda n: reasoning(f"rs_{n}", *parts)),
        st.builds(
            lambda parts, more: lambda n: message(f"msg_{n}", *parts, **more),
            st.lists(words, min_size=1, max_size=2),
            st.sampled_from([{}, {"phase": "final_answer"}, {"refusal": "No."}]),
        ),
        words.map(lambda path: lambda n: call(n, json.dumps({"path": path}, ensure_ascii=False))),
    ),
    max_size=5,
).map(lambda makers: [make(n) for n, make in enumerate(makers)])


def expected(item: Json) -> Json:
    if item["type"] == "reasoning":
        thinking = "\n\n".join(part["text"] for part in item["summary"])
        signature = json.dumps(item, ensure_ascii=False, separators=(",", ":"))
        return {"type": "thinking", "thinking": thinking, "thinkingSignature": signature}
    if item["type"] == "function_call":
        identity, arguments = f"{item['call_id']}|{item['id']}", json.loads(item["arguments"])
        return {"type": "toolCall", "id": identity, "name": item["name"], "arguments": arguments}
    text = "".join(part.get("text") or part["refusal"] for part in item["content"])
    phase = {"phase": item["phase"]} if "phase" in item else {}
    signature = json.dumps({"v": 1, "id": item["id"], **phase}, separators=(",", ":"))
    return {"type": "text", "text": text, "textSignature": signature}


@settings(deadline=None, max_examples=60)
@given(outputs, st.sampled_from([*VARIANTS]))
def test_any_answer_is_read_and_sent_again_to_its_model_and_to_no_other(
    output: list[Json], variant: str
) -> None:
    events = events_of(output)
    for event in events:
        EVENT.validate_python(event)
    got = message_of(*varied(events, variant))
    in_order = sorted(got["content"], key=[expected(item) for item in output].index)
    assert got["content"] == in_order
    assert in_order == [expected(item) for item in output]
    again = request_body(ModelRequest(MODEL, "", [got], 100))
    items = json.loads(again)["input"]
    led = [n for n, item in enumerate(output) if item["type"] != "reasoning"]
    sent = output[: led[-1] + 1] if led else []
    assert [item["type"] for item in items] == [item["type"] for item in sent]
    for item, before in zip(items, sent, strict=True):
        if item["type"] == "reasoning":
            assert json.dumps(before, ensure_ascii=False, separators=(",", ":")).encode() in again
    elsewhere = json.loads(request_body(ModelRequest(OTHER, "", [got], 100)))["input"]
    assert not any(item["type"] == "reasoning" or "id" in item for item in elsewhere)
    assert len(elsewhere) == len(led)


KEYS = """type response output output_index item item_id id call_id name arguments content text
summary summary_index content_index delta usage input_tokens error message code status refusal
incomplete_details reason encrypted_content input_tokens_details""".split()  # noqa: SIM905 - easier to read
NAMES = [
    *("response.output_item.added", "response.output_item.done", "response.output_text.delta"),
    *("response.reasoning_summary_text.delta", "response.function_call_arguments.delta"),
    *("response.function_call_arguments.done", "response.completed", "response.incomplete"),
    *("message", "reasoning", "function_call", "error"),
]
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(NAMES),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5)
    ),
    max_leaves=20,
)
odd_events = st.builds(
    lambda name, value: {**value, "type": name},
    st.sampled_from(NAMES),
    st.dictionaries(st.sampled_from(KEYS), json_values, max_size=5),
)
odd_items = st.builds(
    lambda event, kind, value: {**event, "item": {**value, "type": kind}},
    odd_events,
    st.sampled_from(NAMES),
    st.dictionaries(st.sampled_from(KEYS), json_values, max_size=5),
)


@settings(deadline=None, max_examples=200)
@given(st.lists(json_values | odd_events | odd_items, max_size=5))
def test_no_answer_whatever_breaks_the_reader(values: list[Any]) -> None:
    answer = Answer(MODEL, 0, FAILURES)
    try:
        for value in values:
            answer.feed_text(json.dumps(value))
    except ModelError as error:
        ends: list[ModelEvent] = [answer.failed(error)]
    else:
        ends = answer.finish()
    assert isinstance(ends[-1], Finished | Failed)


units = st.lists(st.integers(0, 0xFFFF).map(chr) | st.sampled_from("\ud83c\udf89a"), max_size=12)


@settings(deadline=None)
@given(units, units)
def test_deltas_are_whole_characters_and_together_the_text(
    thought: list[str], text: list[str]
) -> None:
    """Faults C5: servers in JavaScript cut between the halves of an emoji."""
    documents = [delta("reasoning_summary_text", unit) for unit in thought]
    documents += [delta("output_text", unit) for unit in text]
    whole = [reasoning("r", "".join(thought)), message("m", "".join(text))]
    for end in (ended(), ended(*whole)):
        events = read(*documents, end)
        for kind, units in ((TextDelta, text), (ThinkingDelta, thought)):
            said = "".join(e.text for e in events if isinstance(e, kind))
            assert said == whole_text("".join(units))
        last = events[-1]
        assert isinstance(last, Finished)
        json.dumps(last.message, ensure_ascii=False).encode()
