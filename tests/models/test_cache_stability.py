"""The same conversation is the same bytes in every format, so that each provider caches it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.models import anthropic_wire, gemini_wire, openai_chat_wire, openai_responses_wire
from strandline.runtime.model import CacheMarks, CacheRetention, ModelInfo, ModelRequest
from strandline.transcript.messages import JsonObject

Json = dict[str, Any]
Body = Callable[[ModelRequest], bytes]

OPENAI = openai_chat_wire.ServerTraits(prompt_cache=True)
BODIES: dict[str, Body] = {
    "anthropic": anthropic_wire.request_body,
    "chat": lambda request: openai_chat_wire.request_body(request, OPENAI),
    "responses": lambda request: openai_responses_wire.request_body(request, prompt_cache=True),
    "gemini": gemini_wire.request_body,
}
SPOKEN = {"anthropic": "messages", "chat": "messages", "responses": "input", "gemini": "contents"}
every_format = pytest.mark.parametrize("name", BODIES)


def tool(name: str) -> Json:
    schema = {"type": "object", "properties": {"b": {"type": "string"}, "a": {"type": "string"}}}
    return {"name": name, "description": f"Does {name}.", "parameters": schema}


def request_of(*messages: Json, **changes: Any) -> ModelRequest:
    info = ModelInfo("acme", "gpt-5.1", "one", 200_000, 64_000)
    wanted: Json = {"system_prompt": "Be kind.", "max_output_tokens": 64, **changes}
    return ModelRequest(info, messages=messages, **wanted)


def user(words: str) -> Json:
    return {"role": "user", "content": words, "timestamp": 1}


def said(words: str) -> Json:
    return {"role": "assistant", "content": [{"type": "text", "text": words}], "timestamp": 2}


@every_format
def test_tools_in_any_order_are_the_same_bytes(name: str) -> None:
    """Faults K4; upper case before lower, as code points are, whatever the locale says."""
    tools = [tool("zeta"), tool("alpha"), tool("mu"), tool("Mu")]
    orders = [list(order) for order in itertools.permutations(tools)]
    shuffled = [dict(reversed(tool.items())) for tool in tools]
    cache = CacheMarks(messages=(0,))
    written = {
        BODIES[name](request_of(user("hi"), tools=order, cache=cache))
        for order in [*orders, shuffled]
    }
    assert len(written) == 1
    (body,) = written
    places = [body.index(b'"%s"' % word) for word in (b"Mu", b"alpha", b"mu", b"zeta")]
    assert places == sorted(places)


@every_format
def test_what_means_nothing_in_a_tool_changes_no_byte(name: str) -> None:
    """K4: the order of an enum and of required keys, line ends, white space nobody sees."""

    def lamp(enum: list[str], required: list[str], text: str) -> JsonObject:
        colour = {"type": "string", "enum": enum, "description": text}
        schema = {"type": "object", "properties": {"description": colour}, "required": required}
        return {"name": "lamp", "description": text, "parameters": schema}

    one = lamp(["red", "blue", "red"], ["b", "a"], "  Lights up.  \r\nSlowly. ")
    other = lamp(["blue", "red"], ["a", "b"], "Lights up.\nSlowly.")
    bodies = {BODIES[name](request_of(user("hi"), tools=[each])) for each in (one, other)}
    assert len(bodies) == 1
    assert one["parameters"]["required"] == ["b", "a"], "the tool itself stays as it was"


@every_format
@settings(deadline=None, max_examples=60)
@given(st.lists(st.sampled_from("ab "), max_size=5), st.sampled_from("ab "), st.booleans())
def test_a_conversation_that_grows_begins_with_the_same_bytes(
    name: str,
    words: list[str],
    more: str,
    answered: bool,  # noqa: FBT001 - drawn
) -> None:
    messages = [message for word in words for message in (user(word), said(word or "x"))]
    messages.append(user("next"))
    longer = [*messages, said(more) if answered else user(more), user("end")]
    key = SPOKEN[name]
    tools = [tool("read")]
    before, after = (
        json.loads(BODIES[name](request_of(*spoken, tools=tools))) for spoken in (messages, longer)
    )
    assert {**before, key: 0} == {**after, key: 0}
    earlier = json.dumps(before[key]).rstrip("]}")
    assert json.dumps(after[key]).startswith(earlier)


@pytest.mark.parametrize("name", ["chat", "responses"])
@pytest.mark.parametrize(
    ("model", "retention", "expected"),
    [
        ("gpt-5.1", "none", {}),
        ("gpt-5.1", "short", {"prompt_cache_key": "s1"}),
        ("gpt-5.1", "long", {"prompt_cache_key": "s1", "prompt_cache_retention": "24h"}),
        ("gpt-5.5-2026-04-23", "long", {"prompt_cache_key": "s1", "prompt_cache_retention": "24h"}),
        ("gpt-4.1", "long", {"prompt_cache_key": "s1", "prompt_cache_retention": "24h"}),
        ("gpt-4.1-mini", "long", {"prompt_cache_key": "s1"}),
        ("gpt-5-mini", "long", {"prompt_cache_key": "s1"}),
        ("gpt-4o", "long", {"prompt_cache_key": "s1"}),
        ("gpt-5.6-sol", "long", {"prompt_cache_key": "s1"}),
        ("gpt-6.2-astra", "long", {"prompt_cache_key": "s1"}),
    ],
)
def test_openai_is_told_the_session_and_how_long_where_the_model_has_the_choice(
    name: str, model: str, retention: CacheRetention, expected: Json
) -> None:
    info = ModelInfo("openai", model, "one", 200_000, 64_000)
    cache = CacheMarks(retention, "s1", messages=(0,))
    body = json.loads(BODIES[name](ModelRequest(info, "", [user("hi")], 64, cache=cache)))
    plain = json.loads(BODIES[name](ModelRequest(info, "", [user("hi")], 64)))
    assert body == {**plain, **expected}


@pytest.mark.parametrize("name", ["chat", "responses"])
def test_a_key_is_sent_as_openai_takes_it_or_not_at_all(name: str) -> None:
    def key(written: str) -> Any:
        request = request_of(user("hi"), cache=CacheMarks(key=written))
        return json.loads(BODIES[name](request)).get("prompt_cache_key")

    assert key("") is None
    assert key("x" * 64) == "x" * 64
    assert len(key("x" * 65)) == 64
    assert key("x" * 65) != key("x" * 66)


def test_servers_that_may_refuse_the_keys_do_not_get_them() -> None:
    request = request_of(user("hi"), cache=CacheMarks("long", "s1"))
    plain = request_of(user("hi"))
    chat = openai_chat_wire.request_body
    for host in ("127.0.0.1", "api.mistral.ai", "openrouter.ai", "notapi.openai.com.example"):
        traits = openai_chat_wire.ServerTraits.of_host(host)
        assert chat(request, traits) == chat(plain, traits)
    for host in ("api.openai.com", "eu.api.openai.com", "mine.openai.azure.com"):
        assert openai_chat_wire.ServerTraits.of_host(host).prompt_cache
    responses = openai_responses_wire.request_body
    assert responses(request) == responses(plain)
