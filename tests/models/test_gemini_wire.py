"""Requests to Gemini are ones that its own SDK takes, and the same ones are the same bytes."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from google.genai import types
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.context.pairing import NO_RESULT
from strandline.models.content import IMAGE_LEFT_OUT, NO_TOOL_OUTPUT, NO_USER_TEXT
from strandline.models.gemini import API, GeminiDialect
from strandline.models.gemini_wire import (
    BEGINNING_LEFT_OUT,
    IMAGE_FOLLOWS,
    SKIP_SIGNATURE,
    gemini_contents,
    request_body,
)
from strandline.runtime.model import ModelInfo, ModelRequest
from strandline.testing.gemini_rules import problems
from strandline.testing.issued import Issued
from strandline.transcript.messages import ThinkingLevel

MODEL = ModelInfo("google", "gemini-2.5-flash", API, 1_048_576, 65_536, reasoning=True)
THIRD = replace(MODEL, id="gemini-3-pro-preview")
SIGNATURE = base64.b64encode(b"what was thought").decode()

Ask = Callable[..., ModelRequest]
Json = dict[str, Any]


def user(content: Any) -> Json:
    return {"role": "user", "content": content, "timestamp": 1}


def said(*blocks: Json, by: ModelInfo | None = None) -> Json:
    message = {"role": "assistant", "content": list(blocks), "stopReason": "stop", "timestamp": 2}
    return message | ({"api": by.api, "provider": by.provider, "model": by.id} if by else {})


def text(words: str, **more: Any) -> Json:
    return {"type": "text", "text": words, **more}


def thought(words: str, **more: Any) -> Json:
    return {"type": "thinking", "thinking": words, **more}


def call(identity: str, name: str = "read", arguments: Any = None, **more: Any) -> Json:
    return {"type": "toolCall", "id": identity, "name": name, "arguments": arguments or {}, **more}


def result(identity: str, *blocks: Json, error: bool = False) -> Json:
    return {
        "role": "toolResult",
        "toolCallId": identity,
        "toolName": "read",
        "content": list(blocks),
        "isError": error,
    }


IMAGE = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
INLINE = {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}


def body_of(request: ModelRequest) -> Json:
    body: Json = json.loads(request_body(request))
    return body


def test_a_whole_turn_looks_as_the_format_wants_it(ask: Ask) -> None:
    request = ask(
        "read a.txt",
        said(thought("secret"), text("Sure."), call("c1", arguments={"path": "a", "depth": 2})),
        result("c1", text("one"), text("two")),
        said(text("Done.")),
        "thanks",
        model=MODEL,
        system_prompt="Be brief.",
        tools=[{"name": "read", "description": "Reads.", "parameters": {"type": "object"}}],
    )
    called = {"name": "read", "args": {"path": "a", "depth": 2}}
    returned = {"name": "read", "response": {"output": "one\ntwo"}}
    declared = {"name": "read", "description": "Reads.", "parametersJsonSchema": {"type": "object"}}
    assert body_of(request) == {
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "tools": [{"functionDeclarations": [declared]}],
        "generationConfig": {"maxOutputTokens": 64, "thinkingConfig": {"thinkingBudget": 0}},
        "contents": [
            {"role": "user", "parts": [{"text": "read a.txt"}]},
            {"role": "model", "parts": [{"text": "Sure."}, {"functionCall": called}]},
            {"role": "user", "parts": [{"functionResponse": returned}]},
            {"role": "model", "parts": [{"text": "Done."}]},
            {"role": "user", "parts": [{"text": "thanks"}]},
        ],
    }


def test_no_part_is_empty_and_no_role_comes_twice_in_a_row(ask: Ask) -> None:
    """Faults A13: 400 for an empty text, and each failure made another one."""
    failed = {**said(), "stopReason": "error", "errorMessage": "boom"}
    request = ask(
        *(user(""), user([text(" ")]), failed, said(text("\n")), "hello", said(text("a"))),
        *(said(text(" "), text("b")), said(call("c")), result("c", text("  ")), user([])),
        system_prompt=" \n",
    )
    body = body_of(request)
    assert "systemInstruction" not in body
    answered = {"functionResponse": {"name": "read", "response": {"output": NO_TOOL_OUTPUT}}}
    assert [content["parts"] for content in body["contents"]] == [
        [{"text": NO_USER_TEXT}, {"text": NO_USER_TEXT}, {"text": "hello"}],
        [{"text": "a"}, {"text": "b"}, {"functionCall": {"name": "read", "args": {}}}],
        [answered, {"text": NO_USER_TEXT}],
    ]


def test_the_first_content_is_the_users(ask: Ask) -> None:
    first = gemini_contents(ask(said(text("As I said."))))[0]
    assert first == {"role": "user", "parts": [{"text": BEGINNING_LEFT_OUT}]}
    assert gemini_contents(ask()) == [{"role": "user", "parts": [{"text": NO_USER_TEXT}]}]


def test_results_come_in_the_order_of_their_calls_one_for_each(ask: Ask) -> None:
    """Faults A17: results twice, without an id, without a call, or none."""
    request = ask(
        *("go", result("a", text("too early"))),
        said(call("a", "list"), call("b", "read"), call("c", "write")),
        *(result("c", text("boom"), error=True), result("b", text("1")), result("b", text("2"))),
        *(result("", text("whose?")), result("x", text("whose?"))),
    )
    answers = [p["functionResponse"] for p in gemini_contents(request)[-1]["parts"]]
    assert answers == [
        {"name": "list", "response": {"error": NO_RESULT}},
        {"name": "read", "response": {"output": "1"}},
        {"name": "write", "response": {"error": "boom"}},
    ]


def test_images_stand_beside_the_text_or_after_all_results(ask: Ask) -> None:
    request = ask(
        user([text("look"), IMAGE]),
        said(call("a"), call("b")),
        *(result("a", IMAGE), result("b", text("r"), IMAGE), "nice"),
    )
    first, _, last = gemini_contents(request)
    assert first["parts"] == [{"text": "look"}, INLINE]
    outputs = [p["functionResponse"]["response"]["output"] for p in last["parts"][:2]]
    assert outputs == [IMAGE_FOLLOWS, "r"]
    assert last["parts"][2:] == [INLINE, INLINE, {"text": "nice"}]
    blind = replace(MODEL, images=False)
    told = gemini_contents(replace(request, model=blind))[0]["parts"]
    assert told == [{"text": f"look\n{IMAGE_LEFT_OUT}"}]


def test_halves_of_characters_are_replaced(ask: Ask) -> None:
    """Faults C5: half an emoji made a 400 for ever."""
    words = "a" * 9 + "\ud83c"
    asked = ask(words, said(text("\ud83c\udf89"), call("\ud83d", arguments={"p": "\udf89"})))
    body = request_body(asked).decode()
    assert "a�" in body
    assert "🎉" in body
    assert "\\ud83" not in body


def test_thoughts_go_back_to_their_model_only_and_only_signed(ask: Ask) -> None:
    """Faults B1, B2, B3: a signature is valid for its model and its part, or refused."""
    blocks = (
        *(thought("why", thinkingSignature=SIGNATURE), thought("unsigned")),
        *(thought("", thinkingSignature=SIGNATURE), thought("odd", thinkingSignature="msg_!")),
        text("Hm.", textSignature=SIGNATURE),
        *(call("fc-1", thoughtSignature=SIGNATURE), call("call_17_2")),
    )
    own = gemini_contents(ask("go", said(*blocks, by=MODEL), model=MODEL))
    assert own[1]["parts"] == [
        {"text": "why", "thought": True, "thoughtSignature": SIGNATURE},
        {"text": "Hm.", "thoughtSignature": SIGNATURE},
        {
            "functionCall": {"id": "fc-1", "name": "read", "args": {}},
            "thoughtSignature": SIGNATURE,
        },
        {"functionCall": {"name": "read", "args": {}}},
    ]
    answered = [part["functionResponse"].get("id") for part in own[2]["parts"]]
    assert answered == ["fc-1", None]
    for by in (None, replace(MODEL, api="openai-completions"), replace(MODEL, provider="x"), THIRD):
        foreign = gemini_contents(ask("go", said(*blocks, by=by), model=MODEL))
        bare = {"functionCall": {"name": "read", "args": {}}}
        assert foreign[1]["parts"] == [{"text": "Hm."}, bare, bare]


def test_ids_of_others_are_never_sent(ask: Ask) -> None:
    """Faults A15: ids of one provider that the next one rejects; here order and name count."""
    ids = ["call_ok-1", "functions.read:0", "call_" + "x" * 120 + "|" + "y" * 120, "", "a" * 438]
    request = ask("go", said(*(call(i) for i in ids)), *(result(i, text(i or "-")) for i in ids))
    parts = gemini_contents(request)[-1]["parts"]
    assert [p["functionResponse"]["response"]["output"] for p in parts] == [i or "-" for i in ids]
    assert '"id"' not in request_body(request).decode()


def test_gemini_3_gets_a_signature_on_the_first_call_of_each_step(ask: Ask) -> None:
    signed = call("b", thoughtSignature=SIGNATURE)
    request = ask(
        *("go", said(text("x"), call("a"), call("b")), result("a"), result("b")),
        *(said(signed, call("c"), by=THIRD), result("b"), result("c"), said(call("d"), by=THIRD)),
        model=THIRD,
    )
    steps = [
        [part.get("thoughtSignature") for part in content["parts"] if "functionCall" in part]
        for content in gemini_contents(request)
        if content["role"] == "model"
    ]
    assert steps == [[SKIP_SIGNATURE, None], [SIGNATURE, None], [SKIP_SIGNATURE]]
    older = gemini_contents(replace(request, model=MODEL))
    assert "thoughtSignature" not in json.dumps(older)


@pytest.mark.parametrize(
    ("name", "level", "tokens", "config"),
    [
        ("gemini-2.5-flash", "off", 8192, {"thinkingBudget": 0}),
        ("gemini-2.5-pro", "off", 8192, {"thinkingBudget": 128}),
        ("gemini-2.5-pro", "low", 8192, {"includeThoughts": True, "thinkingBudget": 2048}),
        ("gemini-2.5-pro", "xhigh", 8192, {"includeThoughts": True, "thinkingBudget": 4096}),
        ("gemini-2.5-flash-lite", "high", 60, {"includeThoughts": True, "thinkingBudget": 512}),
        ("gemini-3-pro-preview", "off", 8192, {"thinkingLevel": "LOW"}),
        ("gemini-3-pro-preview", "medium", 9, {"includeThoughts": True, "thinkingLevel": "LOW"}),
        ("gemini-3.1-pro", "medium", 9, {"includeThoughts": True, "thinkingLevel": "MEDIUM"}),
        ("gemini-3.1-pro", "minimal", 9, {"includeThoughts": True, "thinkingLevel": "LOW"}),
        ("gemini-3-flash-preview", "off", 9, {"thinkingLevel": "MINIMAL"}),
        (
            "gemini-3.5-flash-lite",
            "minimal",
            9,
            {"includeThoughts": True, "thinkingLevel": "MINIMAL"},
        ),
        ("gemini-3.8-flash", "off", 9, {"thinkingLevel": "LOW"}),
        ("gemini-4-argon", "xhigh", 9, {"includeThoughts": True, "thinkingLevel": "HIGH"}),
        ("gemini-4-hydrogen", "xhigh", 9, {"includeThoughts": True, "thinkingLevel": "XHIGH"}),
        ("gemini-4-neon", "off", 9, {"thinkingLevel": "LOW"}),
        ("gemini-flash-latest", "xhigh", 9, {"includeThoughts": True, "thinkingLevel": "HIGH"}),
    ],
)
def test_thinking_is_asked_for_as_each_generation_takes_it(
    ask: Ask, name: str, level: ThinkingLevel, tokens: int, config: Json
) -> None:
    model = replace(MODEL, id=name)
    request = ask("why?", model=model, thinking=level, max_output_tokens=tokens)
    assert body_of(request)["generationConfig"]["thinkingConfig"] == config
    assert types.ThinkingConfig.model_validate(config).thinking_level in {
        *types.ThinkingLevel,
        None,
    }
    plain = body_of(replace(request, model=replace(model, reasoning=False)))
    assert plain["generationConfig"] == {"maxOutputTokens": tokens}


def test_tools_are_in_order_whatever_their_order_was(ask: Ask) -> None:
    tools = [
        {"name": "b", "description": "B", "parameters": {"type": "object", "properties": {}}},
        {"parameters": {"properties": {}, "type": "object"}, "description": "A", "name": "a"},
    ]
    bodies = {request_body(ask("x", tools=given)) for given in (tools, tools[::-1])}
    assert len(bodies) == 1
    (declared,) = body_of(ask("x", tools=tools))["tools"]
    assert [tool["name"] for tool in declared["functionDeclarations"]] == ["a", "b"]


@pytest.mark.parametrize("name", ["a/../b?c#d", "x:y%2F é", "..", "half \ud83c"])
def test_a_models_name_stays_one_piece_of_the_path(ask: Ask, name: str) -> None:
    path = GeminiDialect().path(ask("x", model=replace(MODEL, id=name)))
    model, _, query = path.removeprefix("/models/").partition("?")
    assert query == "alt=sse"
    assert model.endswith(":streamGenerateContent")
    assert not set(model.removesuffix(":streamGenerateContent")) & set("/?#: ")


WORDS = st.one_of(st.text(max_size=6), st.sampled_from(["", " \n", "ok", "\ud83d"]))
IDS = st.sampled_from(["", "a", "b", "fc-9", "call_12_3", "x|y"])
SIGNATURES = st.sampled_from([None, "", SIGNATURE, "no base 64", 7])
ARGUMENTS: st.SearchStrategy[Any] = st.one_of(
    st.dictionaries(st.text(max_size=3), st.one_of(st.integers(), WORDS, st.none()), max_size=2),
    st.sampled_from([None, [], "text", {"nan": float("nan")}]),
)
ODD: st.SearchStrategy[Any] = st.sampled_from(
    [{}, {"type": "text"}, {"type": "thinking"}, {"type": "toolCall"}, None, 3]
)
SPOKEN: st.SearchStrategy[Any] = st.one_of(st.builds(text, WORDS), st.just(IMAGE), ODD)
BLOCKS: st.SearchStrategy[Any] = st.one_of(
    *(SPOKEN, st.builds(text, WORDS, textSignature=SIGNATURES)),
    st.builds(thought, WORDS, thinkingSignature=SIGNATURES),
    st.builds(
        call, IDS, st.sampled_from(["read", "", "x.y"]), ARGUMENTS, thoughtSignature=SIGNATURES
    ),
)
MESSAGES = st.one_of(
    st.builds(user, st.one_of(WORDS, st.lists(SPOKEN, max_size=2), st.none())),
    st.lists(BLOCKS, max_size=4).flatmap(
        lambda blocks: st.builds(
            lambda by: said(*blocks, by=by), st.sampled_from([None, MODEL, THIRD])
        )
    ),
    st.lists(SPOKEN, max_size=2).flatmap(
        lambda blocks: st.builds(lambda i, e: result(i, *blocks, error=e), IDS, st.booleans())
    ),
)
REQUESTS = st.builds(
    ModelRequest,
    st.sampled_from([MODEL, THIRD, replace(MODEL, reasoning=False, images=False)]),
    WORDS,
    st.lists(MESSAGES, max_size=10),
    st.integers(1, 65_536),
    st.sampled_from([(), ({"name": "t", "description": "T", "parameters": {"type": "object"}},)]),
    st.sampled_from(["off", "minimal", "low", "medium", "high", "xhigh"]),
)
PAYLOADS = {"text", "inlineData", "functionCall", "functionResponse"}


@settings(deadline=None, max_examples=200)
@given(REQUESTS)
def test_any_conversation_is_one_that_the_sdk_takes(request: ModelRequest) -> None:
    body = json.loads(request_body(request))
    contents = [
        types.Content.model_validate(content, extra="forbid") for content in body["contents"]
    ]
    config = dict(body.pop("generationConfig"))
    config |= {key: body[key] for key in ("systemInstruction", "tools") if key in body}
    types.GenerateContentConfig.model_validate(config, extra="forbid")
    for tool in body.get("tools", []):
        types.Tool.model_validate(tool, extra="forbid")
    assert set(body) <= {"contents", "systemInstruction", "tools"}
    assert next(problems(body, Issued([SIGNATURE])), None) is None
    roles = [content.role for content in contents]
    assert roles == ["user", "model"] * (len(roles) // 2) + ["user"] * (len(roles) % 2)


@settings(deadline=None, max_examples=200)
@given(REQUESTS)
def test_any_calls_are_followed_by_their_answers_in_their_order(request: ModelRequest) -> None:
    called: list[tuple[Any, ...]] = []
    for content in gemini_contents(request):
        parts = content["parts"]
        assert all(len(PAYLOADS & set(part)) == 1 for part in parts)
        assert all(
            part["text"].strip() for part in parts if "text" in part and "thought" not in part
        )
        answers = [p["functionResponse"] for p in parts if "functionResponse" in p]
        assert [(a.get("id"), a["name"]) for a in answers] == called
        assert all("functionResponse" in part for part in parts[: len(answers)])
        asked = [part["functionCall"] for part in parts if "functionCall" in part]
        called = [(c.get("id"), c["name"]) for c in asked]
    assert called == []


@settings(deadline=None, max_examples=200)
@given(REQUESTS, st.lists(MESSAGES, max_size=3))
def test_a_conversation_that_grew_begins_with_the_same_bytes(
    request: ModelRequest, more: list[Json]
) -> None:
    """Up to the last message: what follows it may belong to it, as results do."""
    whole = replace(request, messages=[*request.messages, user("new"), *more])
    begun = replace(request, messages=[*request.messages, user("new")])
    assert request_body(whole).startswith(request_body(begun).removesuffix(b"]}]}"))
    assert request_body(begun) == request_body(replace(begun, messages=list(begun.messages)))
