"""Whatever a conversation holds, what leaves for Anthropic is what Anthropic accepts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from anthropic.types.message_create_params import MessageCreateParamsStreaming
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from strandline.context.pairing import NO_RESULT
from strandline.models.anthropic_messages import (
    CONVERSATION_BEGINS,
    GO_ON,
    TOOL_FAILED,
    wire_messages,
)
from strandline.models.anthropic_wire import MIN_BUDGET, request_body, thinking_budget
from strandline.models.content import IMAGE_LEFT_OUT, NO_TOOL_OUTPUT, NO_USER_TEXT
from strandline.runtime.model import ModelInfo, ModelRequest

MODEL = ModelInfo("anthropic", "one", "anthropic-messages", 200_000, 64_000, reasoning=True)
ADAPTIVE = replace(MODEL, id="claude-opus-5-5")
PNG = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
WIRE_PNG = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"},
}


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, "timestamp": 1}


def said(*blocks: dict[str, Any], model: ModelInfo = MODEL) -> dict[str, Any]:
    by = {"api": model.api, "provider": model.provider, "model": model.id}
    return {"role": "assistant", "content": list(blocks), **by, "stopReason": "stop"}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def thought(words: str, signature: str | None = "sig", **more: Any) -> dict[str, Any]:
    return {"type": "thinking", "thinking": words, "thinkingSignature": signature, **more}


def call(identity: str, name: str = "read", **arguments: Any) -> dict[str, Any]:
    return {"type": "toolCall", "id": identity, "name": name, "arguments": arguments}


def result(identity: str, *blocks: dict[str, Any], error: bool = False) -> dict[str, Any]:
    content = list(blocks)
    named = {"toolCallId": identity, "toolName": "read"}
    return {"role": "toolResult", **named, "content": content, "isError": error}


def request_of(*messages: Any, **changes: Any) -> ModelRequest:
    wanted: dict[str, Any] = {"model": MODEL, "system_prompt": "", "max_output_tokens": 64}
    return ModelRequest(messages=messages, **{**wanted, **changes})


def body_of(request: ModelRequest) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(request_body(request))
    require_acceptable(body)
    return body


def messages_of(*messages: Any, **changes: Any) -> list[Any]:
    messages_sent: list[Any] = body_of(request_of(*messages, **changes))["messages"]
    return messages_sent


# -- what Anthropic demands, checked on every body of these tests -------------------------------

SDK_TYPES = TypeAdapter(MessageCreateParamsStreaming)


def drained(value: Any) -> Any:
    """The validated value; pydantic checks what is iterable only as it is read."""
    if isinstance(value, dict):
        return {key: drained(inner) for key, inner in value.items()}
    if value is None or isinstance(value, str | int | float):
        return value
    return [drained(inner) for inner in value]


def require_acceptable(body: dict[str, Any]) -> None:
    # Unknown keys would be dropped, and so the two differ.
    assert drained(SDK_TYPES.validate_python(body)) == body
    messages = body["messages"]
    roles = [message["role"] for message in messages]
    assert roles == [("user", "assistant")[place % 2] for place in range(len(roles))]
    require_pairs(messages)
    for text_sent in texts_in([body.get("system", []), messages]):
        assert text_sent.strip()
    for message in messages:
        if message["role"] == "assistant":
            assert not message["content"][-1]["type"].endswith("thinking")
    last = messages[-1]["content"][-1]
    if messages[-1]["role"] == "assistant" and last["type"] == "text":
        assert last["text"] == last["text"].rstrip()
    if body["model"] == MODEL.id:
        require_thinking_where_it_may_stand(body)
    else:
        assert roles[-1] == "user"
        assert body.get("thinking", {}).get("type") != "enabled"


def require_pairs(messages: list[Any]) -> None:
    ids = [b["id"] for m in messages for b in m["content"] if b["type"] == "tool_use"]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch("[A-Za-z0-9_-]{1,64}", identity) for identity in ids)
    asked: list[str] = []
    for message in [*messages, {"content": []}]:
        kinds = [block["type"] for block in message["content"]]
        count = kinds.count("tool_result")
        results = message["content"][:count]
        assert kinds[:count] == ["tool_result"] * count
        assert sorted(b["tool_use_id"] for b in results) == sorted(asked)
        for block in results:
            inner = {part["type"] for part in block["content"]}
            assert inner
            assert inner == {"text"} or "is_error" not in block
        asked = [b["id"] for b in message["content"] if b["type"] == "tool_use"]
        for block in message["content"]:
            if block["type"] == "tool_use":
                assert re.fullmatch("[A-Za-z0-9_-]{1,128}", block["name"])


def require_thinking_where_it_may_stand(body: dict[str, Any]) -> None:
    config = body.get("thinking")
    if config:
        assert MIN_BUDGET <= config["budget_tokens"] < body["max_tokens"]
    open_loop: list[Any] = []
    for message in body["messages"]:
        if message["role"] == "user" and message["content"][0]["type"] != "tool_result":
            open_loop = []
        open_loop += message["content"] if message["role"] == "assistant" else []
    thinks = [block["type"].endswith("thinking") for block in open_loop]
    # Without thinking no answer that goes on may have any, with it each has to begin so.
    assert thinks[0] if config and thinks else not any(thinks)


def texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from texts_in(item)
    elif isinstance(value, dict):
        if value.get("type") == "text":
            yield value["text"]
        yield from texts_in(value.get("content"))


def test_the_check_itself_refuses_what_anthropic_refuses() -> None:
    good = body_of(request_of(user("x"), said(text("y"), call("a")), result("a", text("r"))))
    spoilers: list[Callable[[Any], Any]] = [
        lambda b: b["messages"][0]["content"][0].pop("text"),
        lambda b: b["messages"][0]["content"][0].update(extra=1),
        lambda b: b["messages"][0]["content"][0].update(text=" \n"),
        lambda b: b["messages"].pop(0),
        lambda b: b["messages"].pop(),
        lambda b: b["messages"][2]["content"][0].update(tool_use_id="other"),
    ]
    for spoil in spoilers:
        body = json.loads(json.dumps(good))
        spoil(body)
        with pytest.raises((AssertionError, ValidationError)):
            require_acceptable(body)


# -- the shapes ---------------------------------------------------------------------------------


def test_a_whole_turn_looks_as_the_format_wants_it() -> None:
    request = request_of(
        user("read a.txt"),
        said(thought("hm"), text("Sure.\n"), call("c1", path="a.txt"), call("c2", path="b")),
        result("c1", text("one"), text("two")),
        result("c2", text("no such file"), error=True),
        user("and now?"),
        said(text("Done.")),
        user([text("look"), PNG, text("at this")]),
        system_prompt="Be brief.",
        thinking="low",
        max_output_tokens=8000,
        tools=[{"name": "read", "description": "Reads.", "parameters": {"type": "object"}}],
    )
    assert body_of(request) == {
        "model": "one",
        "stream": True,
        "max_tokens": 8000,
        "thinking": {"type": "enabled", "budget_tokens": 2048},
        "system": [text("Be brief.")],
        "tools": [
            {"description": "Reads.", "input_schema": {"type": "object"}, "name": "read"},
        ],
        "messages": [
            {"role": "user", "content": [text("read a.txt")]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "sig"},
                    text("Sure.\n"),
                    {"type": "tool_use", "id": "c1", "name": "read", "input": {"path": "a.txt"}},
                    {"type": "tool_use", "id": "c2", "name": "read", "input": {"path": "b"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "c1",
                        "content": [text("one"), text("two")],
                    },
                    {
                        "type": "tool_result",
                        "tool_use_id": "c2",
                        "content": [text("no such file")],
                        "is_error": True,
                    },
                    text("and now?"),
                ],
            },
            {"role": "assistant", "content": [text("Done.")]},
            {"role": "user", "content": [text("look"), WIRE_PNG, text("at this")]},
        ],
    }


def test_no_content_is_empty_whatever_the_role() -> None:
    """Faults A13: 400 for an empty text, and each failure made another one."""
    blank = text("   \n")
    failed = {**said(), "stopReason": "error", "errorMessage": "boom"}
    messages = messages_of(
        user(""),
        failed,
        user([text("")]),
        said(text("")),
        said(blank, call("c"), call("d")),
        result("c"),
        result("d", blank),
        system_prompt=" \n",
    )
    assert [m["role"] for m in messages] == ["user", "assistant", "user"]
    assert messages[0]["content"] == [text(NO_USER_TEXT)] * 2
    assert [b["content"] for b in messages[2]["content"]] == [[text(NO_TOOL_OUTPUT)]] * 2
    assert "system" not in body_of(request_of(user("x"), system_prompt=" \n"))


def test_halves_of_characters_are_replaced() -> None:
    """Faults C5: half an emoji made a 400 for ever."""
    request = request_of(user("a" * 9 + "\ud83c"), said(call("\ud83d", path="\udf89")))
    assert "a�" in request_body(request).decode()
    assert body_of(request)["messages"][1]["content"][0]["input"] == {"path": "�"}


def test_ids_that_are_refused_are_replaced_alike_on_both_sides() -> None:
    """Faults A15: ids of one provider that the next one rejects."""
    ids = ["toolu_ok-1", "functions.read:0", "call_" + "x" * 120 + "|" + "y" * 120, "a" * 438]
    messages = messages_of(
        user("go"), said(*(call(i) for i in ids)), *(result(i, text(i)) for i in reversed(ids))
    )
    sent = {b["id"]: ids[place] for place, b in enumerate(messages[1]["content"])}
    assert len(sent) == len(ids)
    assert messages[1]["content"][0]["id"] == "toolu_ok-1"
    for block in messages[2]["content"]:
        assert block["content"] == [text(sent[block["tool_use_id"]])]


def test_an_id_that_comes_again_is_another_one_to_send() -> None:
    """Models that count their calls anew in every answer: Anthropic wants unique ids."""
    turns = [
        m for i in range(3) for m in (said(call("call_0", n=i)), result("call_0", text(f"r{i}")))
    ]
    messages = messages_of(user("go"), *turns)
    pairs = zip(messages[1::2], messages[2::2], strict=True)
    for place, (asked, answered) in enumerate(pairs):
        assert asked["content"][0]["input"] == {"n": place}
        assert answered["content"][0]["content"] == [text(f"r{place}")]
    assert messages[1]["content"][0]["id"] == "call_0"


def test_results_without_a_call_and_second_ones_are_not_sent() -> None:
    """Faults A17."""
    messages = messages_of(
        result("a", text("before the call")),
        user("go"),
        said(call("a"), call("b"), call("a")),
        result("a", text("first")),
        result("a", text("second")),
        {"role": "toolResult", "content": [text("whose?")]},
        user("next"),
        result("b", text("too late")),
    )
    assert len(messages[1]["content"]) == 2
    first, missing, following = messages[2]["content"]
    assert first["content"] == [text("first")]
    assert missing["content"] == [text(NO_RESULT)]
    assert missing["is_error"]
    assert following == text("next")
    assert len(messages) == 3


def test_the_user_begins() -> None:
    for messages in (messages_of(), messages_of(said()), messages_of(said(text("hello")))):
        assert messages[0] == {"role": "user", "content": [text(CONVERSATION_BEGINS)]}


def test_an_answer_that_is_to_be_gone_on_with_does_not_end_in_white_space() -> None:
    messages = messages_of(user("x"), said(thought("t"), text("The answer is: \n")), thinking="low")
    assert messages[1]["content"] == [text("The answer is:")]


def test_images_that_cannot_be_seen_are_told_in_words() -> None:
    bitmap = {"type": "image", "data": "AAAA", "mimeType": "image/bmp"}
    jpeg = {"type": "image", "data": "AAAA", "mimeType": "image/JPG"}
    empty = {"type": "image", "data": "", "mimeType": "image/png"}
    content = messages_of(user([bitmap, jpeg, empty]))[0]["content"]
    assert content[0] == text(IMAGE_LEFT_OUT)
    assert content[1]["source"]["media_type"] == "image/jpeg"
    assert len(content) == 2
    blind = ModelInfo("anthropic", "one", "anthropic-messages", 9, 9, images=False)
    assert messages_of(user([PNG]), model=blind)[0]["content"] == [text(IMAGE_LEFT_OUT)]


def test_a_failed_result_with_an_image_says_so_in_words() -> None:
    """What is marked as an error may hold text only."""
    block = messages_of(user("x"), said(call("a")), result("a", PNG, error=True))[2]["content"][0]
    assert block["content"] == [text(TOOL_FAILED), WIRE_PNG]
    assert "is_error" not in block


def test_names_that_another_provider_allowed_are_mended() -> None:
    blocks = messages_of(user("x"), said(call("a", "fs.read file"), call("b", "n" * 200)))[1]
    assert [b["name"] for b in blocks["content"]] == ["fs_read_file", "n" * 128]


def test_tools_are_sorted_whatever_their_order() -> None:
    one = {"name": "write", "description": "w", "parameters": {"type": "object", "b": 1, "a": 2}}
    two = {"type": "function", "function": {"name": "read", "parameters": {}}}
    forth = request_of(user("x"), tools=[one, two])
    back = request_of(user("x"), tools=[two, dict(reversed(one.items()))])
    assert request_body(forth) == request_body(back)
    assert body_of(forth)["tools"][0] == {"input_schema": {"type": "object"}, "name": "read"}
    assert "tools" not in body_of(request_of(user("x")))


# -- thinking -----------------------------------------------------------------------------------


def test_thinking_is_replayed_to_the_byte_where_the_same_model_signed_it() -> None:
    """Faults B1 to B3."""
    redacted = thought("[Reasoning redacted]", "ZGF0YQ==", redacted=True)
    own = [thought(" hm\n ", "s=="), redacted, thought("", "only-signed"), text("yes")]
    unsigned = [thought("abc", None), thought("", ""), {"type": "thinking", "thinking": "x"}]
    odd = [thought("half \ud83c"), {"type": "thinking", "thinkingSignature": "s"}]
    messages = messages_of(user("x"), said(*own, *unsigned, *odd), user("y"), thinking="low")
    assert messages[1]["content"] == [
        {"type": "thinking", "thinking": " hm\n ", "signature": "s=="},
        {"type": "redacted_thinking", "data": "ZGF0YQ=="},
        {"type": "thinking", "thinking": "", "signature": "only-signed"},
        text("yes"),
    ]
    for other in (
        ModelInfo("anthropic", "two", MODEL.api, 9, 9),
        ModelInfo("proxy", "one", MODEL.api, 9, 9),
        ModelInfo("anthropic", "one", "bedrock-converse-stream", 9, 9),
    ):
        messages = messages_of(user("x"), said(*own, model=other), user("y"), thinking="low")
        assert messages[1]["content"] == [text("yes")]


def test_an_answer_never_ends_in_thinking() -> None:
    only = messages_of(user("x"), said(thought("t")), user("y"), thinking="low")
    assert [m["role"] for m in only] == ["user"]
    after = messages_of(user("x"), said(text("a "), thought("t")), user("y"), thinking="low")
    assert after[1]["content"] == [text("a")]


def test_a_request_without_thinking_has_no_thinking_at_all() -> None:
    spoken = (user("x"), said(thought("t"), call("a")), result("a"))
    unable = ModelInfo("anthropic", "one", MODEL.api, 9, 64_000)
    for changes in ({"thinking": "off"}, {"thinking": "low", "model": unable}):
        body = body_of(request_of(*spoken, **changes))
        assert "thinking" not in body
        assert [b["type"] for b in body["messages"][1]["content"]] == ["tool_use"]


def test_a_tool_loop_that_began_without_thinking_goes_on_without() -> None:
    spoken = (
        user("x"),
        said(thought("t"), text("hello")),
        user("y"),
        said(call("a")),
        result("a"),
        said(thought("late"), call("b")),
        result("b"),
    )
    body = body_of(request_of(*spoken, thinking="high"))
    assert "thinking" not in body
    assert body["max_tokens"] == 64
    assert body["messages"][1]["content"][0]["type"] == "thinking"
    assert [b["type"] for b in body["messages"][5]["content"]] == ["tool_use"]
    # Words of the user among the results do not end the loop, a message of their own does.
    assert "thinking" not in body_of(request_of(*spoken, user("stop"), thinking="high"))
    ended = request_of(*spoken, said(text("ok")), user("next"), thinking="high")
    assert body_of(ended)["thinking"] == {"type": "enabled", "budget_tokens": 16_384}


def test_a_tool_loop_that_began_with_thinking_goes_on_with_it() -> None:
    """Models that think before their first call only."""
    spoken = (user("x"), said(thought("t"), call("a")), result("a"), said(call("b")), result("b"))
    assert "thinking" in body_of(request_of(*spoken, thinking="low"))


def test_an_adaptive_model_is_asked_for_an_effort_and_gets_room_to_think() -> None:
    body = body_of(request_of(user("x"), model=ADAPTIVE, thinking="high", max_output_tokens=8000))
    assert body["thinking"] == {"type": "adaptive", "display": "summarized"}
    assert body["output_config"] == {"effort": "high"}
    assert body["max_tokens"] == 20_480
    off = body_of(request_of(user("x"), model=ADAPTIVE, max_output_tokens=8000))
    assert "thinking" not in off
    assert off["output_config"] == {"effort": "low"}
    assert off["max_tokens"] == 8000
    able = replace(ADAPTIVE, id="claude-sonnet-5-5")
    assert body_of(request_of(user("x"), model=able))["thinking"] == {"type": "between_tools"}
    silent = body_of(request_of(user("x"), model=replace(able, reasoning=False), thinking="high"))
    assert not {"thinking", "output_config"} & silent.keys()


@pytest.mark.parametrize("level", ["off", "low"])
@pytest.mark.parametrize("name", ["claude-opus-5-5", "claude-opus-4-6", "claude-sonnet-5-5"])
def test_an_adaptive_model_gets_its_thoughts_back_whatever_the_level(level: Any, name: str) -> None:
    """Some always think, with their text left out; none has to begin an answer with it."""
    model = replace(ADAPTIVE, id=name, reasoning=name != "claude-opus-5-5")
    omitted, update = thought("", "signed"), thought("I look.", "signed too")
    spoken = (
        user("x"),
        said(text("First:"), call("a"), model=model),
        result("a"),
        said(omitted, update, call("b"), model=model),
        result("b"),
    )
    sent = messages_of(*spoken, model=model, thinking=level)
    assert sent[3]["content"][:2] == [
        {"type": "thinking", "thinking": "", "signature": "signed"},
        {"type": "thinking", "thinking": "I look.", "signature": "signed too"},
    ]
    assert [b["type"] for b in sent[1]["content"]] == ["text", "tool_use"]
    another = replace(model, id="claude-opus-5")
    sent = messages_of(*spoken, model=another, thinking=level)
    assert [b["type"] for b in sent[3]["content"]] == ["tool_use"]
    unsigned = said(thought("hm", None), thought("hm", " "), text("yes"), model=model)
    sent = messages_of(user("x"), unsigned, user("y"), model=model, thinking=level)
    assert sent[1]["content"] == [text("yes")]


def test_an_adaptive_model_is_told_to_go_on_because_it_refuses_to_by_itself() -> None:
    spoken = (user("x"), said(thought("t"), text("The answer is: "), model=ADAPTIVE))
    sent = messages_of(*spoken, model=ADAPTIVE)
    assert [b["type"] for b in sent[1]["content"]] == ["thinking", "text"]
    assert sent[2] == {"role": "user", "content": [text(GO_ON)]}


@pytest.mark.parametrize(
    ("level", "asked", "limit", "expected"),
    [
        ("off", 4096, 64_000, (4096, 0)),
        ("minimal", 64, 64_000, (1088, 1024)),
        ("low", 4096, 64_000, (6144, 2048)),
        ("medium", 64_000, 64_000, (64_000, 8192)),
        ("high", 8000, 64_000, (20_480, 16_384)),
        ("xhigh", 64_000, 64_000, (64_000, 32_768)),
        ("xhigh", 32_000, 32_000, (32_000, 27_904)),
        ("xhigh", 8192, 8192, (8192, 4096)),
        ("low", 4096, 4096, (4096, 2048)),
        ("low", 2048, 2048, (2048, 1024)),
        ("low", 2000, 2000, (2000, 0)),
        ("low", 5000, 10, (5000, 2048)),
    ],
)
def test_the_budget_fits_into_the_output(
    level: Any, asked: int, limit: int, expected: tuple[int, int]
) -> None:
    model = ModelInfo("anthropic", "one", "anthropic-messages", 9, limit, reasoning=True)
    request = request_of(user("x"), model=model, thinking=level, max_output_tokens=asked)
    assert thinking_budget(request) == expected
    body = body_of(request)
    assert body["max_tokens"] == expected[0]
    assert body.get("thinking", {}).get("budget_tokens", 0) == expected[1]


@settings(deadline=None)
@given(
    st.sampled_from(["minimal", "low", "medium", "high", "xhigh"]),
    st.integers(1, 70_000),
    st.integers(1, 70_000),
)
def test_a_budget_is_none_or_at_least_the_least_and_never_the_whole_output(
    level: Any, asked: int, limit: int
) -> None:
    model = ModelInfo("anthropic", "one", "anthropic-messages", 9, limit, reasoning=True)
    request = request_of(model=model, thinking=level, max_output_tokens=asked)
    whole, budget = thinking_budget(request)
    assert asked <= whole <= max(asked, limit)
    assert MIN_BUDGET <= budget < whole if budget else whole == asked


# -- any conversation ---------------------------------------------------------------------------

texts = st.text(st.characters(), max_size=6) | st.sampled_from([" \n", "a \n"])
ids = st.sampled_from(["a", "b:1", "c" * 70, "", "1\na", "a\n"])
OTHER = ModelInfo("acme", "two", "openai-completions", 9, 9)
blocks = st.one_of(
    texts.map(text),
    st.builds(call, ids, st.sampled_from(["read", "x.y", ""]), path=texts),
    st.builds(thought, texts, st.sampled_from(["s", "", None])),
    st.just(thought("[Reasoning redacted]", "data", redacted=True)),
    st.sampled_from([PNG, {"type": "unknown"}, {"type": "image", "data": 7}, {"type": "text"}]),
)
contents = st.lists(blocks, max_size=4)
anything = st.one_of(
    texts.map(user),
    contents.map(user),
    contents.map(lambda b: said(*b)),
    contents.map(lambda b: said(*b, model=OTHER)),
    contents.map(lambda b: said(*b, model=ADAPTIVE)),
    st.builds(lambda i, b, e: result(i, *b, error=e), ids, contents, st.booleans()),
)


written_by = st.sampled_from([MODEL, OTHER, ADAPTIVE])


@st.composite
def loops(draw: st.DrawFn) -> list[Any]:
    """An answer with calls, and a result of each."""
    chosen = draw(st.lists(ids, min_size=1, max_size=3, unique=True))
    answer = said(*draw(contents), *map(call, chosen), model=draw(written_by))
    return [answer, *(result(identity, *draw(contents)) for identity in chosen)]


conversations = st.lists(anything.map(lambda m: [m]) | loops(), max_size=6).map(
    lambda parts: [message for part in parts for message in part]
)
asking = st.fixed_dictionaries(
    {
        "thinking": st.sampled_from(["off", "low"]),
        "model": st.sampled_from([MODEL, ADAPTIVE, replace(ADAPTIVE, id="claude-sonnet-5-5")]),
    }
)


@settings(deadline=None, max_examples=200)
@given(conversations, asking)
def test_any_conversation_is_acceptable_and_the_same_one_the_same_bytes(
    messages: list[Any], asked: Any
) -> None:
    request = request_of(*messages, system_prompt="S", **asked)
    copy = request_of(*json.loads(json.dumps(messages)), system_prompt="S", **asked)
    assert request_body(request) == request_body(copy)
    body_of(request)


@settings(deadline=None, max_examples=200)
@given(conversations, conversations, asking)
def test_a_longer_conversation_begins_with_the_bytes_of_the_shorter(
    messages: list[Any], more: list[Any], asked: Any
) -> None:
    """What Anthropic caches is the beginning. Results that are missing may still come, and
    thinking does not stand in an answer that is to be gone on with: so a user ends it.
    """
    messages = [*messages, user("next")]
    short = request_body(request_of(*messages, **asked))
    long = request_body(request_of(*messages, *more, user("end"), **asked))
    beginning = short[short.index(b'"messages":') :].removesuffix(b"]}]}")
    assert long[long.index(b'"messages":') :].startswith(beginning)


@settings(deadline=None)
@given(conversations)
def test_what_a_user_or_a_tool_said_arrives(messages: list[Any]) -> None:
    sent, *_ = wire_messages(messages, MODEL)
    arrived = list(texts_in(sent))
    for message in messages:
        if message["role"] == "user":
            content = message["content"]
            spoken = [text(content)] if isinstance(content, str) else content
            assert all(t in arrived for t in texts_in(spoken_texts(spoken)) if t.strip())


def spoken_texts(content: list[Any]) -> list[Any]:
    return [block for block in content if block.get("type") == "text" and "text" in block]
