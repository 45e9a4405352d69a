"""Anthropic's answers, streamed or whole, become one kind of message, to the last signature."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from typing import Any

import pytest
from anthropic import types
from anthropic.types import raw_message_delta_event
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.errors import ModelError
from strandline.models.anthropic_answer import REDACTED, Answer, normalised_usage
from strandline.models.anthropic_messages import wire_messages
from strandline.models.failures import Failures
from strandline.models.sse import CompletionBody
from strandline.runtime.model import (
    Failed,
    Finished,
    ModelEvent,
    ModelInfo,
    Prices,
    TextDelta,
    ThinkingDelta,
)

PRICES = Prices(input=3, output=15, cache_read=0.3, cache_write=3.75)
MODEL = ModelInfo("anthropic", "one", "anthropic-messages", 200_000, 64_000, PRICES)
FAILURES = Failures(MODEL)

Document = dict[str, Any]


# -- events, made by Anthropic's own types ------------------------------------------------------


def started(**usage: int) -> Document:
    message = types.Message(
        id="msg_1",
        type="message",
        role="assistant",
        model="one",
        content=[],
        usage=types.Usage.model_validate({"input_tokens": 5, "output_tokens": 1, **usage}),
    )
    return types.RawMessageStartEvent(type="message_start", message=message).to_dict(mode="json")


def begun(index: int, block: types.ContentBlock) -> Document:
    return types.RawContentBlockStartEvent(
        type="content_block_start", index=index, content_block=block
    ).to_dict(mode="json")


def added(index: int, delta: types.RawContentBlockDelta) -> Document:
    return types.RawContentBlockDeltaEvent(
        type="content_block_delta", index=index, delta=delta
    ).to_dict(mode="json")


def stopped(index: int) -> Document:
    return types.RawContentBlockStopEvent(type="content_block_stop", index=index).to_dict()


def ended(reason: Any = "end_turn", output: int = 9, **more: Any) -> list[Document]:
    delta = raw_message_delta_event.Delta(stop_reason=reason, **more)
    usage = types.MessageDeltaUsage(output_tokens=output)
    event = types.RawMessageDeltaEvent(type="message_delta", delta=delta, usage=usage)
    return [
        event.to_dict(mode="json"),
        types.RawMessageStopEvent(type="message_stop").to_dict(),
    ]


def streamed(index: int, block: types.ContentBlock, cuts: int = 3) -> list[Document]:
    """The events in which a block comes, its text in pieces of so many characters."""
    deltas: list[types.RawContentBlockDelta]
    match block:
        case types.TextBlock():
            start: types.ContentBlock = block.model_copy(update={"text": ""})
            deltas = [types.TextDelta(type="text_delta", text=p) for p in cut(block.text, cuts)]
        case types.ThinkingBlock():
            start = block.model_copy(update={"thinking": "", "signature": ""})
            deltas = [
                types.ThinkingDelta(type="thinking_delta", thinking=p)
                for p in cut(block.thinking, cuts)
            ]
            deltas.append(types.SignatureDelta(type="signature_delta", signature=block.signature))
        case types.ToolUseBlock():
            start = block.model_copy(update={"input": {}})
            pieces = ["", *(cut(json.dumps(block.input), cuts) if block.input else [])]
            deltas = [types.InputJSONDelta(type="input_json_delta", partial_json=p) for p in pieces]
        case _:
            start, deltas = block, []
    return [begun(index, start), *(added(index, d) for d in deltas), stopped(index)]


def cut(text: str, size: int) -> list[str]:
    return [text[i : i + size] for i in range(0, len(text), size)]


def told(text: str) -> types.TextBlock:
    return types.TextBlock(type="text", text=text)


def thought(text: str, signature: str = "sig") -> types.ThinkingBlock:
    return types.ThinkingBlock(type="thinking", thinking=text, signature=signature)


def hidden(data: str) -> types.RedactedThinkingBlock:
    return types.RedactedThinkingBlock(type="redacted_thinking", data=data)


def called(identity: str, name: str = "read", **arguments: Any) -> types.ToolUseBlock:
    return types.ToolUseBlock(type="tool_use", id=identity, name=name, input=arguments)


def answer_of(*blocks: types.ContentBlock, reason: Any = "end_turn", **more: Any) -> list[Document]:
    parts = [event for place, block in enumerate(blocks) for event in streamed(place, block)]
    return [started(), *parts, *ended(reason, **more)]


def whole_of(*blocks: types.ContentBlock, reason: Any = "end_turn", **more: Any) -> Document:
    return types.Message(
        id="msg_1",
        type="message",
        role="assistant",
        model="one",
        content=list(blocks),
        stop_reason=reason,
        usage=types.Usage(input_tokens=5, output_tokens=9),
        **more,
    ).to_dict(mode="json")


def read(*documents: Document) -> list[ModelEvent]:
    answer = Answer(MODEL, 1234, FAILURES)
    events = [e for document in documents for e in answer.feed_text(json.dumps(document))]
    return events + answer.finish()


def message_of(*documents: Document) -> dict[str, Any]:
    end = read(*documents)[-1]
    assert isinstance(end, Finished), end
    return end.message


def failure_of(*documents: Document) -> Failed:
    end = read(*documents)[-1]
    assert isinstance(end, Failed), end
    return end


# -- what an answer becomes ---------------------------------------------------------------------


def test_the_message_has_every_field_and_usage_does_not_overlap() -> None:
    usage = {"input_tokens": 200, "cache_read_input_tokens": 800, "output_tokens": 1}
    start = started(**usage, cache_creation_input_tokens=100)
    message = message_of(start, *streamed(0, told("hi")), *ended(output=50))
    cost = message["usage"].pop("cost")
    assert message == {
        "role": "assistant",
        "content": [{"type": "text", "text": "hi"}],
        "api": "anthropic-messages",
        "provider": "anthropic",
        "model": "one",
        "usage": {
            "input": 200,
            "output": 50,
            "cacheRead": 800,
            "cacheWrite": 100,
            "totalTokens": 1150,
        },
        "stopReason": "stop",
        "timestamp": 1234,
    }
    assert cost == pytest.approx(
        {
            "input": 0.0006,
            "output": 0.00075,
            "cacheRead": 0.00024,
            "cacheWrite": 0.000375,
            "total": 0.001965,
        }
    )


@pytest.mark.parametrize(
    ("per_hour", "expected"), [(None, 100 * 3.75), (6.0, 60 * 3.75 + 40 * 6.0)]
)
def test_what_is_written_for_an_hour_has_its_own_price(
    per_hour: float | None, expected: float
) -> None:
    lifetimes = {"ephemeral_5m_input_tokens": 60, "ephemeral_1h_input_tokens": 40}
    usage = {"input_tokens": 5, "cache_creation_input_tokens": 100, "cache_creation": lifetimes}
    start = {"type": "message_start", "message": {"usage": usage}}
    end = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {}}
    answer = Answer(replace(MODEL, prices=Prices(3, 15, 0.3, 3.75, per_hour)), 1, FAILURES)
    for event in (start, end):
        answer.feed(event)
    last = answer.finish()[-1]
    assert isinstance(last, Finished)
    assert last.message["usage"]["cacheWrite"] == 100
    assert last.message["usage"]["cost"]["cacheWrite"] == pytest.approx(expected / 1e6)


@pytest.mark.parametrize("odd", [None, 7, [], {"ephemeral_1h_input_tokens": "x"}, {}])
def test_lifetimes_that_make_no_sense_are_passed_over(odd: Any) -> None:
    raw = {"cache_creation_input_tokens": 10, "cache_creation": odd}
    cost = normalised_usage(raw, Prices(cache_write=1, cache_write_1h=2))["cost"]
    assert cost["cacheWrite"] == pytest.approx(10 / 1e6)
    most = {"cache_creation_input_tokens": 10, "cache_creation": {"ephemeral_1h_input_tokens": 99}}
    cost = normalised_usage(most, Prices(cache_write=1, cache_write_1h=2))["cost"]
    assert cost["cacheWrite"] == pytest.approx(20 / 1e6)


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        ({"input_tokens": 9, "output_tokens": 1}, {"output_tokens": 4}, (9, 4)),
        ({"input_tokens": 9}, {"input_tokens": 30, "output_tokens": 4}, (30, 4)),
        ({"input_tokens": 9, "output_tokens": 2}, {"input_tokens": None}, (9, 2)),
        ({"input_tokens": 0}, {"input_tokens": 7, "output_tokens": 4}, (7, 4)),
        (None, None, (0, 0)),
        ({"input_tokens": "many", "output_tokens": -1}, [], (0, 0)),
    ],
)
def test_usage_is_the_last_that_was_told(first: Any, last: Any, expected: tuple[int, int]) -> None:
    start = {"type": "message_start", "message": {"usage": first}}
    end = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": last}
    got = message_of(start, end)["usage"]
    assert (got["input"], got["output"]) == expected


def test_thinking_keeps_its_signature_and_blocks_their_order() -> None:
    blocks = (
        thought("hm, 海?", "c2ln+/="),
        hidden("ZGF0YQ=="),
        told("Grüße 🎉"),
        thought("", "only-signed"),
        called("toolu_1", path="é", deep={"a": [1]}),
        called("toolu_2"),
    )
    expected = [
        {"type": "thinking", "thinking": "hm, 海?", "thinkingSignature": "c2ln+/="},
        {
            "type": "thinking",
            "thinking": REDACTED,
            "thinkingSignature": "ZGF0YQ==",
            "redacted": True,
        },
        {"type": "text", "text": "Grüße 🎉"},
        {"type": "thinking", "thinking": "", "thinkingSignature": "only-signed"},
        {
            "type": "toolCall",
            "id": "toolu_1",
            "name": "read",
            "arguments": {"path": "é", "deep": {"a": [1]}},
        },
        {"type": "toolCall", "id": "toolu_2", "name": "read", "arguments": {}},
    ]
    for documents in (
        answer_of(*blocks, reason="tool_use"),
        [whole_of(*blocks, reason="tool_use")],
    ):
        message = message_of(*documents)
        assert message["content"] == expected
        assert message["stopReason"] == "toolUse"
        assert message["usage"]["input"] == 5


def test_pings_events_and_blocks_that_are_not_known_are_passed_over() -> None:
    search = types.ServerToolUseBlock(
        type="server_tool_use", id="s", name="web_search", input={"query": "x"}
    )
    odd = [
        {"type": "ping"},
        {"type": "message_tomorrow", "message": "x"},
        begun(0, search),
        added(0, types.InputJSONDelta(type="input_json_delta", partial_json='{"query"')),
        stopped(0),
        {"type": "content_block_delta", "index": 7, "delta": {"type": "text_delta", "text": "!"}},
        *streamed(1, told("hi")),
        {"type": "content_block_delta", "index": 1, "delta": {"type": "citations_delta"}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "thinking_delta"}},
        {"type": "content_block_stop", "index": 1},
    ]
    message = message_of(started(), *odd, *ended())
    assert message["content"] == [{"type": "text", "text": "hi"}]


def test_inputs_may_come_with_the_beginning_of_a_call() -> None:
    events = [started(), begun(0, called("a", path="x")), stopped(0), *ended("tool_use")]
    assert message_of(*events)["content"][0]["arguments"] == {"path": "x"}


@pytest.mark.parametrize(
    ("reason", "stop_reason"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("pause_turn", "stop"),
        ("tool_use", "stop"),
        ("max_tokens", "length"),
        ("something_new", "stop"),
        (None, "stop"),
    ],
)
def test_reasons_become_stop_reasons(reason: str | None, stop_reason: str) -> None:
    end = {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {}}
    events = [started(), *streamed(0, told("x")), end, {"type": "message_stop"}]
    assert message_of(*events)["stopReason"] == stop_reason


@pytest.mark.parametrize("reason", ["end_turn", "pause_turn", "tool_use"])
def test_calls_mean_tool_use_whatever_the_reason(reason: str) -> None:
    assert message_of(*answer_of(called("a"), reason=reason))["stopReason"] == "toolUse"


@pytest.mark.parametrize("pieces", [[], ['{"path": "/et']])
def test_a_call_that_the_output_limit_cut_off_is_left_out(pieces: list[str]) -> None:
    """Without its arguments it would look like a call that has none."""
    cut_off = [
        added(1, types.InputJSONDelta(type="input_json_delta", partial_json=p)) for p in pieces
    ]
    whole = streamed(0, called("a", path="x"))
    start = begun(1, types.ToolUseBlock(type="tool_use", id="b", name="rm", input={}))
    message = message_of(started(), *whole, start, *cut_off, *ended("max_tokens"))
    assert message["stopReason"] == "length"
    assert [block["id"] for block in message["content"]] == ["a"]


def test_a_refusal_and_a_full_window_are_failures_with_what_was_said() -> None:
    details = types.RefusalStopDetails(type="refusal", category="bio", explanation="no\nway")
    blocks = (thought("t"), told("so far"), called("a"))
    for kind, words, documents in (
        (
            "refused",
            "declined to answer (bio)",
            answer_of(*blocks, reason="refusal", stop_details=details),
        ),
        ("refused", "declined to answer", [whole_of(*blocks, reason="refusal")]),
        ("overflow", "context window", answer_of(*blocks, reason="model_context_window_exceeded")),
    ):
        end = failure_of(*documents)
        assert (end.error.kind, words in end.error.what) == (kind, True)
        assert "anthropic/one" in end.error.what
        assert end.partial is not None
        assert [block["type"] for block in end.partial["content"]] == ["thinking", "text"]
        assert end.partial["stopReason"] == "error"
        assert end.partial["usage"]["output"] == 9
    assert end.error.prompt_tokens == 5


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        # The server is busy with others; no limit of ours was reached, so "network", as 529 is.
        ({"type": "overloaded_error", "message": "Overloaded"}, "network"),
        ({"type": "api_error", "message": "Internal server error"}, "network"),
        ({"type": "timeout_error", "message": "Request timed out"}, "network"),
        ({"type": "rate_limit_error", "message": "slow down"}, "rate"),
        ({"type": "authentication_error", "message": "invalid x-api-key"}, "auth"),
        ({"type": "permission_error", "message": "x"}, "auth"),
        ({"type": "not_found_error", "message": "model: one"}, "refused"),
        ({"type": "billing_error", "message": "no credit"}, "refused"),
        ({"type": "invalid_request_error", "message": "messages.1: bad"}, "refused"),
        ({"type": "request_too_large", "message": "Request exceeds the maximum size"}, "overflow"),
    ],
)
def test_an_error_in_the_middle_has_its_kind(error: dict[str, str], kind: str) -> None:
    answer = Answer(MODEL, 0, FAILURES)
    for document in (started(), *streamed(0, told("so far")), begun(1, called("a"))):
        answer.feed(document)
    with pytest.raises(ModelError) as caught:
        answer.feed({"type": "error", "error": error, "request_id": "req_1"})
    assert caught.value.kind == kind
    assert error["message"] in caught.value.what
    partial = answer.failed(caught.value).partial
    assert partial is not None
    assert partial["content"] == [{"type": "text", "text": "so far"}]


@pytest.mark.parametrize(
    ("message", "prompt", "window"),
    [
        ("prompt is too long: 210000 tokens > 200000 maximum", 210_000, 200_000),
        (
            "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
            190_000,
            200_000,
        ),
    ],
)
def test_an_overflow_has_the_providers_counts(message: str, prompt: int, window: int) -> None:
    """Faults H18."""
    body = {"type": "error", "error": {"type": "invalid_request_error", "message": message}}
    error = FAILURES.from_server(body, 400)
    assert error.kind == "overflow"
    assert (error.prompt_tokens, error.window_tokens) == (prompt, window)


def test_a_thought_whose_signature_never_came_is_kept_and_not_replayed() -> None:
    """Faults B2."""
    answer = Answer(MODEL, 0, FAILURES)
    for document in (started(), *streamed(0, told("x")), *streamed(1, thought("abc"))[:-2]):
        answer.feed(document)
    partial = answer.failed(FAILURES.network("broke off")).partial
    assert partial is not None
    assert partial["content"][1] == {"type": "thinking", "thinking": "abc"}
    sent, *_ = wire_messages([partial], MODEL)
    assert [block["type"] for block in sent[-1]["content"]] == ["text"]


@pytest.mark.parametrize("text", ["", "{", "7", "null", "<html>", "[" * 100_000])
def test_what_is_no_object_is_a_network_failure(text: str) -> None:
    with pytest.raises(ModelError, match="not JSON") as caught:
        Answer(MODEL, 0, FAILURES).feed_text(text)
    assert caught.value.kind == "network"


def test_what_is_no_answer_is_a_failure_that_points_to_the_base_url() -> None:
    documents: list[Document] = [{}, {"choices": []}, {"type": []}, {"type": None}]
    for document in documents:
        end = failure_of(document)
        assert end.error.kind == "network"
        assert "base URL" in end.error.remedy
    with pytest.raises(ModelError, match="who are you"):
        read({"message": "who are you?"})


# -- any answer, cut anywhere -------------------------------------------------------------------

names = st.sampled_from(["read", "write"])
signatures = st.text("abc+/=", min_size=1, max_size=9)
values = st.dictionaries(
    st.text(max_size=3), st.text(max_size=3) | st.integers() | st.none(), max_size=3
)
content_blocks = st.one_of(
    st.builds(told, st.text(min_size=1, max_size=9)),
    st.builds(thought, st.text(max_size=9), signatures),
    st.builds(hidden, signatures),
    st.builds(
        lambda n, i: types.ToolUseBlock(type="tool_use", id="", name=n, input=i), names, values
    ),
)


def expected_content(blocks: list[types.ContentBlock]) -> list[dict[str, Any]]:
    content: list[dict[str, Any]] = []
    for block in blocks:
        match block:
            case types.TextBlock():
                content.append({"type": "text", "text": block.text})
            case types.ThinkingBlock():
                signed = {"thinkingSignature": block.signature}
                content.append({"type": "thinking", "thinking": block.thinking, **signed})
            case types.RedactedThinkingBlock():
                signed = {"thinkingSignature": block.data}
                thinking = {"type": "thinking", "thinking": REDACTED, **signed}
                content.append({**thinking, "redacted": True})
            case types.ToolUseBlock():
                call = {"type": "toolCall", "id": block.id, "name": block.name}
                content.append({**call, "arguments": block.input})
    return content


@settings(deadline=None)
@given(st.lists(content_blocks, max_size=6), st.integers(1, 5))
def test_any_message_of_the_sdk_becomes_ours_however_it_comes(
    drawn: list[types.ContentBlock], size: int
) -> None:
    blocks = [
        b.model_copy(update={"id": f"toolu_{n}"}) if isinstance(b, types.ToolUseBlock) else b
        for n, b in enumerate(drawn)
    ]
    parts = [event for place, block in enumerate(blocks) for event in streamed(place, block, size)]
    events = read(started(), *parts, *ended())
    end = events[-1]
    assert isinstance(end, Finished)
    assert end.message["content"] == expected_content(blocks)
    assert end.message == message_of(whole_of(*blocks))
    for kind, key in ((TextDelta, "text"), (ThinkingDelta, "thinking")):
        said = "".join(e.text for e in events if isinstance(e, kind))
        assert said == "".join(b.get(key, "") for b in end.message["content"] if b["type"] == key)


def sse(documents: list[Document], line_end: bytes = b"\n") -> bytes:
    lines = []
    for document in documents:
        data = json.dumps(document, ensure_ascii=False).encode()
        lines += [b"event: " + document["type"].encode(), b"data: " + data, b""]
    return line_end.join([*lines, b""])


def events_in(*pieces: bytes) -> list[ModelEvent]:
    answer, body = Answer(MODEL, 5, FAILURES), CompletionBody(FAILURES)
    texts = [text for piece in pieces for text in body.feed(piece)] + body.end()
    return [event for text in texts for event in answer.feed_text(text)] + answer.finish()


DOCUMENTS = [
    started(),
    {"type": "ping"},
    *streamed(0, thought("hm, 海?")),
    *streamed(1, hidden("ZGF0YQ==")),
    *streamed(2, told("Grüße 🎉!\n")),
    *streamed(3, called("toolu_1", path="é"), 5),
    *ended("tool_use"),
]
ANSWER = sse(DOCUMENTS)
WHOLE = events_in(ANSWER)


def test_one_cut_at_any_byte_gives_the_same_events() -> None:
    assert [b["type"] for b in message_of(*DOCUMENTS)["content"]] == [
        *("thinking", "thinking", "text", "toolCall")
    ]
    for place in range(len(ANSWER) + 1):
        assert events_in(ANSWER[:place], ANSWER[place:]) == WHOLE


@settings(deadline=None)
@given(st.sets(st.integers(0, len(ANSWER))), st.sampled_from([b"\n", b"\r", b"\r\n"]))
def test_any_cuts_give_the_same_events(places: set[int], line_end: bytes) -> None:
    body = sse(DOCUMENTS, line_end)
    cuts = [0, *sorted(places), len(body)]
    assert events_in(*(body[a:b] for a, b in itertools.pairwise(cuts))) == WHOLE


KEYS = """type message content_block delta index text thinking signature data id name input
partial_json stop_reason stop_details category usage input_tokens content error""".split()  # noqa: SIM905 - easier to read
TYPES = """message_start content_block_start content_block_delta content_block_stop message_delta
message_stop message error ping text thinking redacted_thinking tool_use text_delta
thinking_delta signature_delta input_json_delta refusal max_tokens""".split()  # noqa: SIM905 - easier to read
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(TYPES),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=6)
    ),
    max_leaves=20,
)
odd_events = st.fixed_dictionaries(
    {"type": st.sampled_from(TYPES)}, optional=dict.fromkeys(KEYS[1:], json_values)
)


@settings(deadline=None)
@given(st.lists(odd_events | json_values, max_size=6))
def test_no_answer_whatever_breaks_the_reader(values: list[Any]) -> None:
    answer = Answer(MODEL, 0, FAILURES)
    try:
        for value in values:
            answer.feed_text(json.dumps(value))
    except ModelError as error:
        end: ModelEvent = answer.failed(error)
    else:
        end = answer.finish()[-1]
    assert isinstance(end, Finished | Failed)


units = st.lists(st.integers(0, 0xFFFF).map(chr) | st.sampled_from("\ud83c\udf89a"), max_size=12)


@settings(deadline=None)
@given(units, units)
def test_deltas_are_whole_characters_and_together_the_text(
    thoughts: list[str], words: list[str]
) -> None:
    """Faults C5: servers in JavaScript cut between the halves of an emoji."""
    documents: list[Document] = []
    for index, (kind, pieces) in enumerate((("thinking", thoughts), ("text", words))):
        start = {"type": "content_block_start", "index": index, "content_block": {"type": kind}}
        documents.append(start)
        for unit in pieces:
            delta = {"type": f"{kind}_delta", kind: unit}
            documents.append({"type": "content_block_delta", "index": index, "delta": delta})
    documents.append({"type": "message_stop"})
    events = read(*documents)
    for event, pieces in ((TextDelta, words), (ThinkingDelta, thoughts)):
        said = "".join(e.text for e in events if isinstance(e, event))
        joined = "".join(pieces).encode("utf-16-le", "surrogatepass")
        assert said == joined.decode("utf-16-le", "replace")
