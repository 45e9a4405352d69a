"""Requests to the Responses API pass its own types, and never ask for what is not there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.responses import (
    EasyInputMessageParam,
    FunctionToolParam,
    ResponseFunctionToolCallParam,
    ResponseInputParam,
    ResponseOutputMessageParam,
    ResponseOutputTextParam,
    ResponseReasoningItemParam,
)
from openai.types.responses.response_input_item_param import FunctionCallOutput, Message
from openai.types.responses.response_reasoning_item_param import Summary
from openai.types.shared_params import Reasoning
from pydantic import TypeAdapter

from strandline.context.pairing import pair
from strandline.context.sanitize import sanitize
from strandline.context.tokens import HeuristicCounter, MessageTokens
from strandline.models.content import IMAGE_LEFT_OUT, NO_TOOL_OUTPUT, NO_USER_TEXT
from strandline.models.openai_responses_wire import request_body
from strandline.runtime.model import ModelInfo, ModelRequest
from strandline.transcript.context import PathMessage

MODEL = ModelInfo("openai", "deep", "openai-responses", 8192, 512, reasoning=True)
PLAIN = ModelInfo("openai", "plain", "openai-responses", 8192, 512)

Ask = Callable[..., ModelRequest]
Block = dict[str, Any]

ITEMS: TypeAdapter[Any] = TypeAdapter(ResponseInputParam)
OUTPUT_TEXTS: TypeAdapter[Any] = TypeAdapter(list[ResponseOutputTextParam])
SUMMARIES: TypeAdapter[Any] = TypeAdapter(list[Summary])
TOOLS: TypeAdapter[Any] = TypeAdapter(list[FunctionToolParam])
TYPES: dict[str, Any] = {
    "function_call": ResponseFunctionToolCallParam,
    "function_call_output": FunctionCallOutput,
    "reasoning": ResponseReasoningItemParam,
    "user": Message,
    "assistant": EasyInputMessageParam,
    "output": ResponseOutputMessageParam,
}
ADAPTERS: dict[str, TypeAdapter[Any]] = {name: TypeAdapter(kind) for name, kind in TYPES.items()}


def user(content: Any) -> Block:
    return {"role": "user", "content": content, "timestamp": 1}


def said(*blocks: Block, model: ModelInfo = MODEL, **more: Any) -> Block:
    written = {"api": model.api, "provider": model.provider, "model": model.id}
    usual = {"role": "assistant", "content": list(blocks), "stopReason": "stop", "timestamp": 2}
    return {**usual, **written, **more}


def text(words: str, signature: Any = None) -> Block:
    block = {"type": "text", "text": words}
    return block if signature is None else {**block, "textSignature": signature}


def named(words: str, identity: str, **more: Any) -> Block:
    return text(words, json.dumps({"v": 1, "id": identity, **more}))


def thought(identity: str, **changes: Any) -> Block:
    return {
        "type": "thinking",
        "thinking": "hm",
        "thinkingSignature": json.dumps(reasoning(identity, **changes)),
    }


def reasoning(identity: str, **changes: Any) -> Block:
    return {
        "id": identity,
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "hm"}],
        "encrypted_content": f"gAAA{identity}==",
        **changes,
    }


def call(identity: str, name: str = "read", **arguments: Any) -> Block:
    return {"type": "toolCall", "id": identity, "name": name, "arguments": arguments}


def result(identity: str, *blocks: Block) -> Block:
    return {
        "role": "toolResult",
        "toolCallId": identity,
        "toolName": "read",
        "content": list(blocks),
    }


IMAGE = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
PICTURE = {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,AAAA"}


def body_of(request: ModelRequest) -> Block:
    body: Block = json.loads(request_body(request))
    return body


def items_of(*messages: Block, model: ModelInfo = MODEL) -> list[Block]:
    items: list[Block] = body_of(ModelRequest(model, "", messages, 100))["input"]
    return items


def ids_of(*messages: Block, model: ModelInfo = MODEL) -> list[str | None]:
    return [item.get("id") for item in items_of(*messages, model=model)]


def require_valid(items: list[Block]) -> None:
    """Whether the items are exactly of the SDK's types, without a key that these do not know."""
    ITEMS.validate_python(items)
    for item in items:
        kind = item["role"] if item["type"] == "message" else item["type"]
        kind = "output" if kind == "assistant" and "id" in item else kind
        assert set(item) <= set(TYPES[kind].__annotations__)
        ADAPTERS[kind].validate_python(item)
        if kind == "output":
            OUTPUT_TEXTS.validate_python(item["content"])
        if kind == "reasoning":
            SUMMARIES.validate_python(item["summary"])


def test_a_whole_turn_looks_as_the_format_wants_it(ask: Ask) -> None:
    request = ask(
        "read a.txt",
        said(
            thought("rs_1"),
            named("Sure.", "msg_1", phase="commentary"),
            call("call_1|fc_1", path="a.txt"),
        ),
        result("call_1|fc_1", text("one"), text("two")),
        said(thought("rs_2"), text("Done.", "msg_2")),
        "thanks",
        model=MODEL,
        system_prompt="Be brief.",
        thinking="xhigh",
    )
    body = body_of(request)
    items = body.pop("input")
    assert body == {
        "model": "deep",
        "instructions": "Be brief.",
        "stream": True,
        "store": False,
        "max_output_tokens": 64,
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"effort": "high", "summary": "auto"},
    }
    TypeAdapter(Reasoning).validate_python(body["reasoning"])
    require_valid(items)
    answered = {"type": "message", "role": "assistant", "status": "completed"}

    def spoken(words: str) -> list[Block]:
        return [{"type": "output_text", "text": words, "annotations": []}]

    assert items == [
        {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "read a.txt"}],
        },
        reasoning("rs_1"),
        {**answered, "id": "msg_1", "content": spoken("Sure."), "phase": "commentary"},
        {
            "type": "function_call",
            "id": "fc_1",
            "call_id": "call_1",
            "name": "read",
            "arguments": '{"path":"a.txt"}',
        },
        {"type": "function_call_output", "call_id": "call_1", "output": "one\ntwo"},
        reasoning("rs_2"),
        {**answered, "id": "msg_2", "content": spoken("Done.")},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "thanks"}]},
    ]


def test_thoughts_and_ids_go_to_the_model_that_wrote_them_and_to_no_other() -> None:
    blocks = (thought("rs_1"), named("Sure.", "msg_1", phase="commentary"), call("call_1|fc_1"))
    assert ids_of(said(*blocks)) == ["rs_1", "msg_1", "fc_1"]
    assert json.dumps(items_of(said(*blocks))[0]) == blocks[0]["thinkingSignature"]
    for other in (
        PLAIN,
        ModelInfo("azure", "deep", "openai-responses", 1, 1, reasoning=True),
        ModelInfo("openai", "deep", "openai-completions", 1, 1, reasoning=True),
    ):
        items = items_of(said(*blocks), model=other)
        assert [item["type"] for item in items] == ["message", "function_call"]
        assert not any("id" in item or "phase" in item for item in items)


def test_the_ids_of_exactly_those_items_go_whose_thought_is_gone() -> None:
    """Faults A19: one item with an id and without its thought is a 400."""
    kept = (thought("rs_2"), named("b", "msg_2"), call("call_2|fc_2"))
    lost = (named("a", "msg_1"), call("call_1|fc_1"))
    for unusable in (
        [],
        [{"type": "thinking", "thinking": "hm"}],
        [{"type": "thinking", "thinking": "hm", "thinkingSignature": "a signature of another"}],
        [{"type": "thinking", "thinking": "hm", "thinkingSignature": "[" * 100_000}],
        [thought("rs_1", encrypted_content=None)],
        [thought("rs_1", encrypted_content="")],
        [thought("rs_1", summary=None)],
        [thought("rs_1", type="message")],
    ):
        expected = [None, None, "rs_2", "msg_2", "fc_2"]
        assert ids_of(said(*unusable, *lost), said(*kept)) == expected
        assert ids_of(said(*unusable, *lost, *kept)) == expected
        assert ids_of(said(*kept, *unusable, *lost)) == (
            ["rs_2", "msg_2", "fc_2", None, None] if unusable else [*expected[2:], "msg_1", "fc_1"]
        )


def test_a_thought_that_nothing_follows_is_not_sent() -> None:
    assert ids_of(said(text("a"), thought("rs_1"))) == [None]
    assert ids_of(said(thought("rs_1"))) == []
    assert ids_of(said(thought("rs_1"), text(" \n"))) == []
    lost = {"type": "thinking", "thinking": "hm"}
    assert ids_of(said(thought("rs_1"), lost, named("a", "msg_1"))) == [None]


@pytest.mark.parametrize("reason", ["error", "aborted"])
def test_a_failed_answer_is_sent_without_thoughts_and_ids(reason: str) -> None:
    blocks = (thought("rs_1"), named("half", "msg_1"))
    assert ids_of(said(*blocks, stopReason=reason)) == [None]


def test_no_item_goes_twice() -> None:
    """The API refuses an input with the same id twice."""
    blocks = (thought("rs_1"), named("a", "msg_1"))
    assert ids_of(said(*blocks), said(*blocks)) == ["rs_1", "msg_1", None]
    again = (thought("rs_2"), named("b", "msg_1"), call("c1|fc_1"), call("c2|fc_1"))
    assert ids_of(said(*blocks), said(*again)) == ["rs_1", "msg_1", "rs_2", None, "fc_1", None]


@pytest.mark.parametrize(
    "signature", ["x" * 65, "msg 1", "", "{", '{"id":7}', '{"v":1}', 7, ["msg_1"], {"id": "msg_1"}]
)
def test_an_id_that_cannot_be_sent_is_not(signature: Any) -> None:
    assert ids_of(said(thought("rs_1"), text("a", signature))) == ["rs_1", None]


@pytest.mark.parametrize("block", [thought("rs_1"), thought("rs_1", summary=[])])
def test_what_the_context_takes_away_leaves_no_id_behind(block: Block) -> None:
    """Faults B1: after a summary, old thoughts are taken out of what was kept."""
    messages = [
        {"role": "compactionSummary", "summary": "s", "timestamp": 9},
        said(block, named("a", "msg_1"), call("call_1|fc_1")),
        result("call_1|fc_1", text("r")),
    ]
    items = items_of(*prepared(messages))
    kinds = [item["type"] for item in items]
    assert kinds == ["message", "message", "function_call", "function_call_output"]
    assert not any("id" in item for item in items)


def test_ids_of_other_providers_are_replaced_alike_on_both_sides() -> None:
    """Faults A15."""
    ids = [
        *("call_ok-1", "call_a|fc_a", "call_a|fc_b", "call_a", "call_b", "call_b|fc_b"),
        *("functions.read:0", "call_" + "x" * 120 + "|" + "y" * 120, "", "|", "|fc", "||call_a"),
    ]
    items = items_of(said(*map(call, ids), model=PLAIN), *(result(i, text("r")) for i in ids))
    asked = [item["call_id"] for item in items[: len(ids)]]
    assert asked == [item["call_id"] for item in items[len(ids) :]]
    assert len(set(asked)) == len(ids)
    assert asked[:2] == ["call_ok-1", "call_a"]
    assert asked[4] == "call_b"


@settings(deadline=None)
@given(st.lists(st.text() | st.text("ab|", max_size=5), unique=True, max_size=20))
def test_different_ids_stay_different_and_short(ids: list[str]) -> None:
    sent = [item["call_id"] for item in items_of(said(*map(call, ids)))]
    assert len(set(sent)) == len(ids)
    assert all(0 < len(i) <= 64 for i in sent)


def test_no_text_is_empty_whatever_the_role(ask: Ask) -> None:
    """Faults A13."""
    blank = text("   \n")
    failed = said(stopReason="error", errorMessage="boom")
    request = ask(
        *(user(""), user([blank]), failed, said(text("")), said(blank, call("c"))),
        *(result("c"), result("c", blank)),
        system_prompt=" \n",
    )
    body = body_of(request)
    assert "instructions" not in body
    assert [item["type"] for item in body["input"]] == [
        *("message", "message", "function_call"),
        *("function_call_output", "function_call_output"),
    ]
    assert body["input"][0]["content"] == [{"type": "input_text", "text": NO_USER_TEXT}]
    assert body["input"][3]["output"] == NO_TOOL_OUTPUT


def test_halves_of_characters_are_replaced_and_pairs_joined(ask: Ask) -> None:
    """Faults C5."""
    request = ask("a" * 9 + "\ud83c", said(text("\ud83c\udf89"), call("\ud83d", path="\udf89")))
    body = request_body(request).decode()
    assert "a�" in body
    assert "🎉" in body
    assert "\\ud83" not in body


def test_images_go_where_they_belong_and_are_told_to_a_model_without_eyes() -> None:
    messages = [
        user([text("look"), IMAGE]),
        said(call("a")),
        result("a", text("r"), IMAGE),
        user([IMAGE]),
    ]
    items = items_of(*messages)
    require_valid(items)
    assert items[0]["content"] == [{"type": "input_text", "text": "look"}, PICTURE]
    assert items[2]["output"] == [{"type": "input_text", "text": "r"}, PICTURE]
    assert items[3]["content"] == [PICTURE]
    blind = ModelInfo("openai", "blind", "openai-responses", 1, 1, images=False)
    items = items_of(*messages, model=blind)
    assert items[2]["output"] == f"r\n{IMAGE_LEFT_OUT}"
    assert items[3]["content"] == [{"type": "input_text", "text": IMAGE_LEFT_OUT}]


def test_tools_are_sorted_valid_and_never_made_strict(ask: Ask) -> None:
    one = {"name": "write", "description": "w", "parameters": {"type": "object", "b": 1, "a": 2}}
    two = {"type": "function", "function": {"name": "read"}}
    forth, back = ask("x", tools=[one, two]), ask("x", tools=[two, dict(reversed(one.items()))])
    assert request_body(forth) == request_body(back)
    tools = body_of(forth)["tools"]
    TOOLS.validate_python(tools)
    assert [(tool["type"], tool["name"], tool["strict"]) for tool in tools] == [
        ("function", "read", False),
        ("function", "write", False),
    ]
    assert tools[0]["parameters"] == {"type": "object", "properties": {}}
    assert "tools" not in body_of(ask("x"))
    unhandy = ModelInfo("openai", "unhandy", "openai-responses", 1, 1, tools=False)
    assert "tools" not in body_of(ask("x", tools=[one], model=unhandy))


@pytest.mark.parametrize(
    ("name", "sent"), [("functions.read", "functions_read"), ("é" * 99, "_" * 64), ("", "tool")]
)
def test_a_name_that_another_model_called_is_made_one_that_the_api_takes(
    name: str, sent: str
) -> None:
    assert items_of(said(call("c", name)))[0]["name"] == sent


def test_only_a_model_that_reasons_is_asked_to(ask: Ask) -> None:
    assert not {"include", "reasoning"} & set(body_of(ask("x", model=PLAIN, thinking="high")))
    silent = body_of(ask("x", model=MODEL, thinking="off"))
    assert silent["include"] == ["reasoning.encrypted_content"]
    assert "reasoning" not in silent
    sol, old = replace(MODEL, id="gpt-5.6-sol"), replace(MODEL, id="gpt-5")
    assert body_of(ask("x", model=sol, thinking="off"))["reasoning"] == {"effort": "none"}
    assert body_of(ask("x", model=old, thinking="off"))["reasoning"] == {"effort": "minimal"}
    most = body_of(ask("x", model=sol, thinking="xhigh"))["reasoning"]
    assert most == {"effort": "xhigh", "summary": "auto"}
    for body in (most, {"effort": "none"}, {"effort": "minimal"}):
        TypeAdapter(Reasoning).validate_python(body)


def test_the_output_limit_is_never_below_what_the_api_takes(ask: Ask) -> None:
    assert body_of(ask("x", max_output_tokens=1))["max_output_tokens"] == 16
    assert body_of(ask("x", max_output_tokens=17))["max_output_tokens"] == 17


def test_arguments_that_are_no_object_are_sent_as_an_empty_one() -> None:
    odd = [{**call(f"c{n}"), "arguments": v} for n, v in enumerate((None, "x", [1], {"n": 1e999}))]
    assert [item["arguments"] for item in items_of(said(*odd))] == ["{}"] * 4


def test_content_that_is_a_plain_text_is_said() -> None:
    assert items_of({**said(), "content": "hi"})[0]["content"] == "hi"


texts = st.text(st.characters(), max_size=8)
names = st.sampled_from(["1", "2", "3"])
signatures = st.one_of(
    names.map("msg_{}".format),
    names.map(lambda n: json.dumps({"v": 1, "id": f"msg_{n}", "phase": "final_answer"})),
    st.sampled_from(["{", "m" * 100]),
)
blocks = st.one_of(
    texts.map(text),
    st.builds(text, texts, signatures),
    names.map(lambda n: thought(f"rs_{n}")),
    names.map(lambda n: thought(f"rs_{n}", summary=[], status="completed")),
    names.map(lambda n: thought(f"rs_{n}", encrypted_content=None)),
    st.just({"type": "thinking", "thinking": "t"}),
    st.builds(
        call,
        st.sampled_from(["a", "a|fc_1", "a|fc_2", "b:1", "c" * 80 + "|" + "d" * 80]),
        st.sampled_from(["read", "functions.read"]),
        path=texts,
    ),
    st.just(IMAGE),
    st.just({"type": "unknown"}),
)
reasons = st.sampled_from(["stop", "toolUse", "error", "aborted"])
conversations = st.lists(
    st.one_of(
        texts.map(user),
        st.lists(blocks, max_size=3).map(user),
        st.builds(
            lambda content, model, reason: said(*content, model=model, stopReason=reason),
            st.lists(blocks, max_size=5),
            st.sampled_from([MODEL, MODEL, PLAIN]),
            reasons,
        ),
        st.builds(
            lambda identity, content: result(identity, *content),
            st.sampled_from(["a", "a|fc_1", "b:1"]),
            st.lists(blocks, max_size=3),
        ),
        st.just({"role": "compactionSummary", "summary": "s", "timestamp": 1}),
    ),
    max_size=8,
)


def prepared(messages: Iterable[Block]) -> list[Block]:
    """The messages as they come to a model."""
    tokens = MessageTokens(HeuristicCounter())
    path = [PathMessage(f"e{n}", message) for n, message in enumerate(messages)]
    return [said.message for said in pair(sanitize(path, tokens), tokens).messages]


@settings(deadline=None)
@given(conversations)
def test_every_conversation_passes_the_apis_own_types(messages: list[Any]) -> None:
    items = items_of(*prepared(messages))
    require_valid(items)
    open_calls: list[str] = []
    for item in items:
        for part in [item, *parts_of(item)]:
            assert part.get("text", "x").strip()
        match item["type"]:
            case "function_call":
                open_calls.append(item["call_id"])
                assert len(item["call_id"]) <= 64
            case "function_call_output":
                open_calls.remove(item["call_id"])
                assert item["output"]
            case "message":
                assert item["content"]
                assert item["role"] == "assistant" or not open_calls
    assert not open_calls


def parts_of(item: Block) -> list[Block]:
    found = item.get("content") or item.get("output")
    return found if isinstance(found, list) else []


@settings(deadline=None)
@given(conversations)
def test_ids_are_sent_once_and_only_after_their_thought(messages: list[Any]) -> None:
    items = items_of(*messages)
    ids = [item["id"] for item in items if "id" in item]
    assert len(ids) == len(set(ids))
    there = False
    for item, after in zip(items, [*items, {}][1:], strict=True):
        if item["type"] == "reasoning":
            there = True
            assert after.get("type") in {"reasoning", "function_call"} or (
                after.get("role") == "assistant"
            )
        elif item["type"] == "function_call_output" or item.get("role") == "user":
            there = False
        else:
            assert there or "id" not in item


@settings(deadline=None)
@given(conversations)
def test_the_same_request_is_the_same_bytes(messages: list[Any]) -> None:
    request = ModelRequest(MODEL, "S", messages, 10)
    copy = ModelRequest(MODEL, "S", json.loads(json.dumps(messages)), 10)
    assert request_body(request) == request_body(copy)


@settings(deadline=None)
@given(conversations, conversations)
def test_a_longer_conversation_begins_with_the_bytes_of_the_shorter(
    messages: list[Any], more: list[Any]
) -> None:
    """What a provider caches is the beginning."""
    messages = messages or [user("next")]  # no input is empty
    short = request_body(ModelRequest(MODEL, "S", messages, 10))
    long = request_body(ModelRequest(MODEL, "S", [*messages, *more], 10))
    assert long.startswith(short[: short.rindex(b'],"stream"')])
