"""Cache marks stand where Anthropic takes them, and change nothing else of a request."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import pytest
from anthropic.types.message_create_params import MessageCreateParamsStreaming
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from strandline.models.anthropic_marks import MAX_MARKS
from strandline.models.anthropic_wire import request_body
from strandline.runtime.model import CacheMarks, ModelInfo, ModelRequest
from strandline.testing import RecordedRequest, ScriptedModelServer

MODEL = ModelInfo("anthropic", "one", "anthropic-messages", 200_000, 64_000, reasoning=True)
ADAPTIVE = replace(MODEL, id="claude-opus-5-5")
TOOLS = ({"name": "write"}, {"name": "read", "description": "Reads."})
HEADERS = {"anthropic-version": "2023-06-01"}
SDK_TYPES: TypeAdapter[Any] = TypeAdapter(MessageCreateParamsStreaming)

Json = dict[str, Any]


def user(*texts: str) -> Json:
    content = [{"type": "text", "text": words} for words in texts]
    return {"role": "user", "content": content, "timestamp": 1}


def said(*blocks: Json, model: ModelInfo = MODEL) -> Json:
    by = {"api": model.api, "provider": model.provider, "model": model.id}
    return {"role": "assistant", "content": list(blocks), **by, "stopReason": "stop"}


def text(words: str) -> Json:
    return {"type": "text", "text": words}


def thought(words: str) -> Json:
    return {"type": "thinking", "thinking": words, "thinkingSignature": "sig"}


def call(identity: str) -> Json:
    return {"type": "toolCall", "id": identity, "name": "read", "arguments": {}}


def result(identity: str, words: str = "x") -> Json:
    named = {"toolCallId": identity, "toolName": "read", "isError": False}
    return {"role": "toolResult", **named, "content": [text(words)]}


def body_of(*messages: Json, cache: CacheMarks | None = None, **changes: Any) -> Json:
    wanted: Json = {"model": MODEL, "system_prompt": "Be kind.", "tools": TOOLS}
    wanted |= {"max_output_tokens": 64, **changes}
    body: Json = json.loads(request_body(ModelRequest(messages=messages, cache=cache, **wanted)))
    return body


def blocks_of(body: Json) -> list[Json]:
    """In the order in which Anthropic reads them."""
    spoken = [block for message in body["messages"] for block in message["content"]]
    return [*body.get("tools", []), *body.get("system", []), *spoken]


def marked(body: Json) -> list[Json]:
    return [block for block in blocks_of(body) if "cache_control" in block]


def without_marks(body: Json) -> str:
    plain = copy.deepcopy(body)
    for block in blocks_of(plain):
        block.pop("cache_control", None)
    return json.dumps(plain)


def marked_texts(body: Json) -> list[str]:
    """Of the messages only."""
    only = {"messages": body["messages"]}
    return [block.get("text") or block["type"] for block in marked(only)]


def test_tools_system_prompt_and_messages_are_marked_at_their_ends() -> None:
    messages = [user("a", "b"), said(text("c")), user("d")]
    body = body_of(*messages, cache=CacheMarks(messages=(0, 2)))
    assert [tool["name"] for tool in body["tools"]] == ["read", "write"]
    assert "cache_control" not in body["tools"][0]
    short = {"type": "ephemeral"}
    assert body["tools"][-1]["cache_control"] == body["system"][0]["cache_control"] == short
    assert marked_texts(body) == ["b", "d"]
    assert {json.dumps(block["cache_control"]) for block in marked(body)} == {json.dumps(short)}


def test_what_is_not_asked_for_is_not_marked() -> None:
    assert not marked(body_of(user("a")))
    assert not marked(body_of(user("a"), cache=CacheMarks("none", messages=(0,))))
    body = body_of(user("a"), cache=CacheMarks(tools=False, system=False, messages=(0,)))
    assert marked(body) == [{**text("a"), "cache_control": {"type": "ephemeral"}}]
    bare = body_of(user("a"), cache=CacheMarks(), tools=(), system_prompt=" ")
    assert not marked(bare)


def test_long_is_an_hour_for_all_of_them() -> None:
    body = body_of(user("a"), cache=CacheMarks("long", messages=(0,)))
    hour = {"type": "ephemeral", "ttl": "1h"}
    assert [block["cache_control"] for block in marked(body)] == [hour] * 3


def test_the_oldest_messages_go_without_where_there_are_too_many() -> None:
    messages = [user(word) for word in "abcdef"]
    body = body_of(*messages, cache=CacheMarks(messages=(0, 2, 3, 5)))
    assert marked_texts(body) == ["d", "f"]
    body = body_of(*messages, cache=CacheMarks(messages=(0, 2, 3, 5)), tools=())
    assert marked_texts(body) == ["c", "d", "f"]


def test_messages_that_become_one_are_still_marked_at_their_own_ends() -> None:
    body = body_of(
        said(call("1"), call("2")),
        result("1"),
        result("2"),
        user("go on"),
        cache=CacheMarks(messages=(1, 3)),
    )
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user"]
    first, second, words = body["messages"][2]["content"]
    assert ("cache_control" in first, "cache_control" in second) == (True, False)
    assert "cache_control" in words


@pytest.mark.parametrize("model", [MODEL, ADAPTIVE], ids=["budget", "adaptive"])
def test_a_place_without_a_block_to_mark_is_marked_before_it(model: ModelInfo) -> None:
    """Thinking, an answer of nothing, a result that answers nothing: the block before counts."""
    messages = [user("a"), said(thought("hm"), model=model), result("9"), said(model=model)]
    for place in (1, 2, 3):
        cache = CacheMarks(messages=(place,))
        body = body_of(*messages, user("b"), cache=cache, model=model, thinking="low")
        assert marked_texts(body) == ["a"]
    nothing = body_of(said(model=model), user("b"), cache=CacheMarks(messages=(0,)), model=model)
    assert marked_texts(nothing) == []


def test_two_places_on_one_block_are_one_mark_and_places_beyond_the_end_none() -> None:
    cache = CacheMarks(messages=(0, 1, 2, 7))
    body = body_of(user("a"), said(), user("b"), cache=cache)
    assert marked_texts(body) == ["a", "b"]


def test_words_that_only_close_a_conversation_are_not_marked() -> None:
    """They are not there in the next request."""
    cache = CacheMarks(messages=(1,))
    closed = body_of(user("a"), said(text("b"), model=ADAPTIVE), cache=cache, model=ADAPTIVE)
    assert marked_texts(closed) == ["b"]
    pending = body_of(user("a"), said(call("1")), cache=cache)
    assert marked_texts(pending) == ["tool_use"]


words = st.sampled_from(["", " ", "a", "b\n"])
spoken = st.one_of(st.builds(text, words), st.builds(thought, words), st.builds(call, words))
anything = st.one_of(
    st.lists(words, max_size=3).map(lambda texts: user(*texts)),
    st.lists(spoken, max_size=4).map(lambda blocks: said(*blocks)),
    st.lists(spoken, max_size=4).map(lambda blocks: said(*blocks, model=ADAPTIVE)),
    st.builds(result, words, words),
)
conversations = st.lists(anything, max_size=7)
places = st.lists(st.integers(0, 8), max_size=6, unique=True).map(lambda p: tuple(sorted(p)))
caches = st.builds(
    CacheMarks,
    st.sampled_from(["short", "long"]),
    tools=st.booleans(),
    system=st.booleans(),
    messages=places,
)
asking = st.fixed_dictionaries(
    {
        "model": st.sampled_from([MODEL, ADAPTIVE]),
        "tools": st.sampled_from([(), TOOLS]),
        "system_prompt": st.sampled_from(["", "Be kind."]),
        "thinking": st.sampled_from(["off", "low"]),
        "max_output_tokens": st.sampled_from([64, 4096]),
    }
)


@settings(deadline=None, max_examples=200)
@given(conversations, caches, asking)
def test_marks_are_all_that_caching_changes_and_anthropic_takes_them(
    messages: list[Json], cache: CacheMarks, asked: Json
) -> None:
    body = body_of(*messages, cache=cache, **asked)
    assert without_marks(body) == json.dumps(body_of(*messages, **asked))
    assert len(marked(body)) <= MAX_MARKS
    for block in marked(body):
        assert not str(block.get("type")).endswith("thinking")
        assert block.get("text") is None or block["text"].strip()
    SDK_TYPES.validate_python(body)
    with ScriptedModelServer(signatures=["sig"]) as server:
        server.answer(RecordedRequest("/v1/messages", HEADERS, body))
        assert not [words for words in server.refused if "cache_control" in words]


@settings(deadline=None, max_examples=200)
@given(conversations, anything, asking)
def test_one_message_more_leaves_all_bytes_before_it_as_they_were(
    messages: list[Json], more: Json, asked: Json
) -> None:
    """A user ends both, since results may still come where one does not."""
    shorter = [*messages, user("next")]
    longer = [*shorter, more, user("end")]
    asked = {**asked, "tools": TOOLS, "system_prompt": "Be kind."}
    before = body_of(*shorter, cache=CacheMarks(messages=(len(shorter) - 1,)), **asked)
    after = body_of(*longer, cache=CacheMarks(messages=(len(longer) - 1,)), **asked)
    assert before["tools"] == after["tools"]
    assert before["system"] == after["system"]
    earlier = without_marks({"messages": before["messages"]}).removesuffix("]}]}")
    assert without_marks({"messages": after["messages"]}).startswith(earlier)
