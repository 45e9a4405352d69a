"""Requests leave in a form that every server takes, and the same ones as the same bytes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
from pydantic import TypeAdapter

from strandline.models.content import IMAGE_LEFT_OUT, NO_TOOL_OUTPUT, NO_USER_TEXT
from strandline.models.openai_chat_wire import (
    TOOL_IMAGES,
    ServerTraits,
    plain_messages,
    request_body,
)
from strandline.runtime.model import ModelInfo, ModelRequest

MODEL = ModelInfo("acme", "one", "openai-completions", 8192, 512)
PLAIN = ServerTraits()

Ask = Callable[..., ModelRequest]


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, "timestamp": 1}


def said(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks), "stopReason": "stop", "timestamp": 2}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def call(identity: str, name: str = "read", **arguments: Any) -> dict[str, Any]:
    return {"type": "toolCall", "id": identity, "name": name, "arguments": arguments}


def result(identity: str, *blocks: dict[str, Any]) -> dict[str, Any]:
    return {
        "role": "toolResult",
        "toolCallId": identity,
        "toolName": "read",
        "content": list(blocks),
    }


IMAGE = {"type": "image", "data": "AAAA", "mimeType": "image/png"}


def body_of(request: ModelRequest, traits: ServerTraits = PLAIN) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(request_body(request, traits))
    return body


def test_a_model_that_reasons_is_asked_to_in_words_that_it_takes(ask: Ask) -> None:
    thinker = replace(MODEL, reasoning=True)
    asked = [
        (MODEL, "high", None),
        (thinker, "off", None),
        (thinker, "minimal", "low"),
        (thinker, "xhigh", "high"),
        (replace(thinker, id="gpt-5.1"), "off", "none"),
        (replace(thinker, id="gpt-5"), "minimal", "minimal"),
        (replace(thinker, id="o3"), "off", "low"),
    ]
    for model, level, effort in asked:
        body = body_of(ask("x", model=model, thinking=level))
        assert body.get("reasoning_effort") == effort
        TypeAdapter(CompletionCreateParamsStreaming).validate_python(body)


def test_a_whole_turn_looks_as_the_format_wants_it(ask: Ask) -> None:
    thought = {"type": "thinking", "thinking": "secret", "thinkingSignature": "s"}
    request = ask(
        "read a.txt",
        said(thought, text("Sure."), call("c1", path="a.txt", depth=2)),
        result("c1", text("one"), text("two")),
        said(text("Done.")),
        system_prompt="Be brief.",
    )
    function = {"name": "read", "arguments": '{"path":"a.txt","depth":2}'}
    assert body_of(request)["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "read a.txt"},
        {
            "role": "assistant",
            "content": "Sure.",
            "tool_calls": [{"id": "c1", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "one\ntwo"},
        {"role": "assistant", "content": "Done."},
    ]


def test_no_content_is_empty_whatever_the_role(ask: Ask) -> None:
    """Faults A13: 400 for an empty text, and each failure made another one."""
    blank = text("   \n")
    failed = {**said(), "stopReason": "error", "errorMessage": "boom"}
    request = ask(user(""), user([text("")]), failed, said(text("")), said(blank, call("c")))
    request = ask(*request.messages, result("c"), result("c", blank), system_prompt=" \n")
    messages = body_of(request)["messages"]
    assert [m["role"] for m in messages] == ["user", "user", "assistant", "tool", "tool"]
    assert [m["content"] for m in messages] == [
        *(NO_USER_TEXT, NO_USER_TEXT),
        None,
        *(NO_TOOL_OUTPUT, NO_TOOL_OUTPUT),
    ]
    assert all(m["content"] != "" for m in plain_messages(request))


def test_halves_of_characters_are_replaced_and_pairs_joined(ask: Ask) -> None:
    """Faults C5: half an emoji made a 400 for ever."""
    request = ask("a" * 9 + "\ud83c", said(text("\ud83c\udf89"), call("\ud83d", path="\udf89")))
    body = request_body(request, PLAIN).decode()
    assert "a�" in body
    assert "🎉" in body
    assert "\\ud83" not in body
    assert plain_messages(request)[0]["content"] == "a" * 9 + "�"


def test_ids_that_a_server_refuses_are_replaced_alike_on_both_sides(ask: Ask) -> None:
    """Faults A15: ids of one provider that the next one rejects."""
    ids = ["call_ok-1", "functions.read:0", "call_" + "x" * 120 + "|" + "y" * 120, "", "a" * 438]
    request = ask("go", said(*(call(i) for i in ids)), *(result(i, text("r")) for i in ids))
    for traits, allowed in ((PLAIN, 40), (ServerTraits(tool_call_ids="mistral"), 9)):
        messages = body_of(request, traits)["messages"]
        asked = [c["id"] for c in messages[1]["tool_calls"]]
        assert asked == [m["tool_call_id"] for m in messages[2:]]
        assert len(set(asked)) == len(ids)
        assert all(
            0 < len(i) <= allowed and i.replace("-", "").replace("_", "").isalnum() for i in asked
        )
    assert body_of(request)["messages"][1]["tool_calls"][0]["id"] == "call_ok-1"
    assert all(len(i) == 9 and i.isalnum() for i in asked)


@settings(deadline=None)
@given(st.lists(st.text(), unique=True, max_size=20))
def test_different_ids_stay_different(ids: list[str]) -> None:
    request = ModelRequest(MODEL, "", [said(*(call(i) for i in ids))], 1)
    for style in ("openai", "mistral"):
        sent = body_of(request, ServerTraits(tool_call_ids=style))["messages"]
        wire_ids = [c["id"] for m in sent for c in m["tool_calls"]]
        assert len(set(wire_ids)) == len(ids)


def test_images_go_with_the_user_or_after_the_tools(ask: Ask) -> None:
    request = ask(
        user([text("look"), IMAGE]),
        said(call("a"), call("b")),
        result("a", IMAGE),
        result("b", text("r")),
        said(text("ok")),
    )
    messages = body_of(request)["messages"]
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    assert messages[0]["content"] == [text("look"), picture]
    assert [m["role"] for m in messages[2:]] == ["tool", "tool", "user", "assistant"]
    assert messages[4]["content"] == [text(TOOL_IMAGES), picture]


def test_tools_are_sorted_whatever_their_order(ask: Ask) -> None:
    one = {"name": "write", "description": "w", "parameters": {"type": "object", "b": 1, "a": 2}}
    two = {"type": "function", "function": {"name": "read", "parameters": {}}}
    forth, back = ask("x", tools=[one, two]), ask("x", tools=[two, dict(reversed(one.items()))])
    assert request_body(forth, PLAIN) == request_body(back, PLAIN)
    assert [t["function"]["name"] for t in body_of(forth)["tools"]] == ["read", "write"]
    assert "tools" not in body_of(ask("x"))


def test_traits_change_what_a_server_wants_differently(ask: Ask) -> None:
    usual = body_of(ask("x"), ServerTraits.of_host("127.0.0.1"))
    assert usual["max_tokens"] == 64
    assert usual["stream_options"] == {"include_usage": True}
    openai = body_of(ask("x"), ServerTraits.of_host("api.openai.com"))
    assert openai["max_completion_tokens"] == 64
    assert "max_tokens" not in openai
    other = ServerTraits(stream_usage=False, extra_body={"temperature": 0, "top_p": 1})
    assert "stream_options" not in body_of(ask("x"), other)
    assert body_of(ask("x"), other)["temperature"] == 0
    assert ServerTraits.of_host("api.mistral.ai").tool_call_ids == "mistral"


def test_arguments_that_are_no_object_are_sent_as_an_empty_one(ask: Ask) -> None:
    odd = [{**call("c"), "arguments": value} for value in (None, "x", [1], {"n": float("nan")})]
    messages = body_of(ask("x", said(*odd)))["messages"]
    assert [c["function"]["arguments"] for c in messages[1]["tool_calls"]] == ["{}"] * 4


def test_a_model_that_knows_text_only_is_told_of_tools_and_images(ask: Ask) -> None:
    request = ask(
        user([IMAGE]), said(call("a", path="x")), result("a", text("r")), system_prompt="S"
    )
    assert plain_messages(request) == [
        {"role": "system", "content": "S"},
        {"role": "user", "content": IMAGE_LEFT_OUT},
        {"role": "assistant", "content": '[called read {"path":"x"}]'},
        {"role": "user", "content": "[read returned]\nr"},
    ]


texts = st.text(st.characters(), max_size=8)
blocks = st.one_of(
    texts.map(text),
    st.builds(call, st.sampled_from(["a", "b:1", "c" * 50]), path=texts),
    st.just({"type": "thinking", "thinking": "t"}),
    st.just(IMAGE),
    st.just({"type": "unknown"}),
)
conversations = st.lists(
    st.one_of(
        texts.map(user),
        st.lists(blocks, max_size=3).map(user),
        st.lists(blocks, max_size=3).map(lambda b: said(*b)),
        st.lists(blocks, max_size=3).map(lambda b: result("b:1", *b)),
    ),
    max_size=6,
)


@settings(deadline=None)
@given(conversations)
def test_the_same_request_is_the_same_bytes_and_always_acceptable(messages: list[Any]) -> None:
    request = ModelRequest(MODEL, "S", messages, 10)
    copy = ModelRequest(MODEL, "S", json.loads(json.dumps(messages)), 10)
    assert request_body(request, PLAIN) == request_body(copy, PLAIN)
    for message in body_of(request)["messages"]:
        assert message["content"] or message["tool_calls"]
    assert all(m["content"].strip() for m in plain_messages(request))


@settings(deadline=None)
@given(conversations, conversations)
def test_a_longer_conversation_begins_with_the_bytes_of_the_shorter(
    messages: list[Any], more: list[Any]
) -> None:
    """What a provider caches is the beginning; images of tools may still wait for their end."""
    if not messages or messages[-1]["role"] == "toolResult":
        messages = [*messages, user("next")]
    short = request_body(ModelRequest(MODEL, "S", messages, 10), PLAIN)
    long = request_body(ModelRequest(MODEL, "S", [*messages, *more], 10), PLAIN)
    assert long.startswith(short[: short.rindex(b'],"stream"')])
