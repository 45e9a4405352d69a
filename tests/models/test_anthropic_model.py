"""Anthropic's adapter against real servers: what they send well, badly, half or never."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from strandline.errors import ConfigError, ModelError
from strandline.models.anthropic import API, VERSION, AnthropicModel
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
from strandline.testing.clock import SimulatedClock
from strandline.testing.model_server import ScriptedModelServer
from strandline.testing.reply import Reply, ToolCall

KEY = "sk-ant-api03-0123456789abcdef"
INFO = ModelInfo("anthropic", "one", API, 200_000, 64_000, Prices(3, 15, 0.3, 3.75), reasoning=True)

Ask = Callable[..., ModelRequest]
Collect = Callable[[Any, ModelRequest], Any]


def event(kind: str, **data: Any) -> bytes:
    text = json.dumps({"type": kind, **data}, ensure_ascii=False).encode()
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), text)


def word(text: str) -> bytes:
    return event("content_block_delta", index=0, delta={"type": "text_delta", "text": text})


HELLO = (
    event("message_start", message={"usage": {"input_tokens": 10, "output_tokens": 1}}),
    event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
    event("ping"),
    word("Grüß "),
    word("🎉"),
)
END = event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 2})
GOOD = (*HELLO, event("content_block_stop", index=0), END, event("message_stop"))


@pytest.fixture
async def model_at() -> AsyncIterator[Callable[..., AnthropicModel]]:
    async with contextlib.AsyncExitStack() as stack:

        def make(base_url: str, key: str = KEY, **options: Any) -> AnthropicModel:
            model = AnthropicModel(base_url, key, clock=SimulatedClock(77_000), **options)
            stack.push_async_callback(model.aclose)
            return model

        yield make


Model = Callable[..., AnthropicModel]


def finished(events: list[ModelEvent]) -> dict[str, Any]:
    assert isinstance(events[-1], Finished), events[-1]
    assert not any(isinstance(e, Finished | Failed) for e in events[:-1])
    return events[-1].message


def failed(events: list[ModelEvent]) -> ModelError:
    assert isinstance(events[-1], Failed), events[-1]
    error = events[-1].error
    assert "anthropic/one" in error.what
    assert error.remedy
    assert KEY not in f"{error} {error!r} {error.__cause__!r} {error.__context__!r}"
    return error


# -- against the scripted server, which refuses what Anthropic refuses ----------------------------


async def test_a_tool_loop_with_thinking_goes_to_its_end(
    model_at: Model, ask: Ask, events_of: Collect
) -> None:
    """The server refuses thinking that it did not sign, or that is missing or changed."""
    script = [
        Reply(
            "Let me look.\n",
            thinking="which file?",
            redacted_thinking="c2VjcmV0",
            tool_calls=[ToolCall("read", {"path": "a"}), ToolCall("read", {}, id="call:2")],
        ),
        Reply("", tool_calls=[ToolCall("read", {"path": "b"})]),  # an id that comes again
        Reply("Good morning."),
    ]
    tools = [{"name": "read", "description": "Reads.", "parameters": {"type": "object"}}]
    spoken: list[Any] = ["hello"]
    with ScriptedModelServer(script) as server:
        model = model_at(server.base_url)
        for _ in script:
            changes = {"system_prompt": "S", "tools": tools, "thinking": "low", "model": INFO}
            events = await events_of(model, ask(*spoken, **changes))
            message = finished(events)
            spoken.append(message)
            calls = [block for block in message["content"] if block["type"] == "toolCall"]
            spoken += map(result_of, calls)
    assert [m["stopReason"] for m in spoken if isinstance(m, dict) and "stopReason" in m] == [
        *("toolUse", "toolUse", "stop")
    ]
    assert message["content"] == [{"type": "text", "text": "Good morning."}]
    assert message["timestamp"] == 77_000
    assert message["usage"]["output"] > 0
    assert [b["type"] for b in spoken[1]["content"]] == [
        *("thinking", "thinking", "text", "toolCall", "toolCall")
    ]
    sent = server.requests[-1]
    assert sent.headers["x-api-key"] == KEY
    assert sent.headers["anthropic-version"] == VERSION
    assert sent.body["thinking"] == {"type": "enabled", "budget_tokens": 2048}


def result_of(call: dict[str, Any]) -> dict[str, Any]:
    content = [{"type": "text", "text": "contents"}]
    named = {"toolCallId": call["id"], "toolName": call["name"]}
    return {"role": "toolResult", **named, "content": content, "isError": False}


async def test_deltas_come_as_they_are_thought_and_said(
    model_at: Model, ask: Ask, events_of: Collect
) -> None:
    reply = Reply("Good morning to you.", thinking="greet them kindly", chunk_chars=5)
    with ScriptedModelServer([reply]) as server:
        events = await events_of(model_at(server.base_url), ask("hello", model=INFO))
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == "Good morning to you."
    assert "".join(e.text for e in events if isinstance(e, ThinkingDelta)) == "greet them kindly"
    assert len(events) > 6


async def test_an_overflow_is_recognised_with_its_counts(
    model_at: Model, ask: Ask, events_of: Collect
) -> None:
    """Faults H18."""
    with ScriptedModelServer(context_window=100) as server:
        error = failed(await events_of(model_at(server.base_url), ask("x" * 1000, model=INFO)))
    assert (error.kind, error.window_tokens) == ("overflow", 100)
    assert (error.prompt_tokens or 0) > 250


@pytest.mark.parametrize(
    ("reply", "kind", "wait_s"),
    [
        (Reply(status=401), "auth", None),
        (Reply(status=402), "refused", None),
        (Reply(status=404), "refused", None),
        (Reply(status=413), "overflow", None),
        (Reply(status=429, retry_after_s=7.5), "rate", 7.5),
        (Reply(status=500), "network", None),
        (Reply(status=529, retry_after_s=3), "network", 3.0),
        (Reply("abc", status=529, error_after=3), "network", None),
        (Reply("abc", status=429, error_after=3), "rate", None),
        (Reply("abc", disconnect_after=3), "network", None),
        (Reply("abc", truncate_after=3), "network", None),
        (Reply("abc", finish_reason="content_filter"), "refused", None),
    ],
)
async def test_a_failure_has_its_kind(
    reply: Reply, kind: str, wait_s: float | None, model_at: Model, ask: Ask, events_of: Collect
) -> None:
    with ScriptedModelServer([reply]) as server:
        error = failed(await events_of(model_at(server.base_url), ask("hi", model=INFO)))
    assert (error.kind, error.retry_after_s) == (kind, wait_s)


# -- against a server that sends exactly these bytes ----------------------------------------------


async def test_every_byte_may_come_alone(
    raw_server: Any, model_at: Model, ask: Ask, events_of: Collect
) -> None:
    body = b"".join(GOOD)
    raw_server.stream(*(body[i : i + 1] for i in range(len(body))))
    message = finished(await events_of(model_at(raw_server.base_url), ask("hi", model=INFO)))
    assert message["content"] == [{"type": "text", "text": "Grüß 🎉"}]
    assert (message["usage"]["input"], message["usage"]["output"]) == (10, 2)


async def test_a_server_that_does_not_stream_is_borne(
    raw_server: Any, model_at: Model, ask: Ask, events_of: Collect
) -> None:
    content = [{"type": "text", "text": "hello"}]
    whole = {"type": "message", "content": content, "stop_reason": "end_turn"}
    raw_server.whole("200 OK", json.dumps(whole).encode(), "content-type: application/json\r\n")
    events = await events_of(model_at(raw_server.base_url), ask("hi", model=INFO))
    assert finished(events)["content"] == content
    assert events[0] == TextDelta("hello")


@pytest.mark.parametrize("end", [b"", b"0\r\n\r\n"], ids=["broken", "clean"])
async def test_an_answer_that_stops_in_the_middle_is_a_network_failure_with_what_came(
    end: bytes, raw_server: Any, model_at: Model, ask: Ask, events_of: Collect
) -> None:
    raw_server.stream(*HELLO, end=end)
    events = await events_of(model_at(raw_server.base_url), ask("hi", model=INFO))
    assert failed(events).kind == "network"
    last = events[-1]
    assert isinstance(last, Failed)
    assert last.partial is not None
    assert last.partial["content"] == [{"type": "text", "text": "Grüß 🎉"}]


@pytest.mark.parametrize("end", [b"", b"0\r\n\r\n"], ids=["broken", "clean"])
async def test_the_last_event_may_be_missing_where_a_reason_was_given(
    end: bytes, raw_server: Any, model_at: Model, ask: Ask, events_of: Collect
) -> None:
    raw_server.stream(*HELLO, END, end=end)
    assert finished(await events_of(model_at(raw_server.base_url), ask("hi", model=INFO)))


async def test_words_of_the_user_in_an_error_are_no_overflow(
    raw_server: Any, model_at: Model, ask: Ask, events_of: Collect
) -> None:
    said = "prompt is too long: 210000 tokens > 200000 maximum"
    message = f"messages.0.content: Input should be valid [type=x, input_value={said!r}]"
    error = {"type": "invalid_request_error", "message": message}
    raw_server.whole("400 Bad Request", json.dumps({"type": "error", "error": error}).encode())
    error_seen = failed(await events_of(model_at(raw_server.base_url), ask(said, model=INFO)))
    assert error_seen.kind == "refused"


async def test_the_wait_is_read(
    raw_server: Any, model_at: Model, ask: Ask, events_of: Collect
) -> None:
    raw_server.whole("529 Overloaded", b"{}", "retry-after: 12\r\n")
    error = failed(await events_of(model_at(raw_server.base_url), ask("hi", model=INFO)))
    assert (error.kind, error.retry_after_s) == ("network", 12.0)


async def test_closing_the_iterator_closes_the_connection_at_once(
    raw_server: Any, model_at: Model, ask: Ask
) -> None:
    raw_server.stream(*HELLO, end=b"")
    raw_server.then = "wait"
    events = model_at(raw_server.base_url).stream(ask("hi", model=INFO))
    assert await anext(events) == TextDelta("Grüß ")
    await events.aclose()
    await asyncio.wait_for(raw_server.hung_up.wait(), 20)


async def test_cancelling_the_task_closes_the_connection_at_once(
    raw_server: Any, model_at: Model, ask: Ask
) -> None:
    raw_server.stream(*HELLO, end=b"")
    raw_server.then = "wait"

    async def read() -> None:
        async for _ in model_at(raw_server.base_url).stream(ask("hi", model=INFO)):
            pass

    task = asyncio.create_task(read())
    await asyncio.wait_for(raw_server.waiting.wait(), 20)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(raw_server.hung_up.wait(), 20)


async def test_calls_follow_each_other_on_one_connection(
    raw_server: Any, model_at: Model, ask: Ask, events_of: Collect
) -> None:
    raw_server.stream(*GOOD)
    raw_server.then = "serve"
    model = model_at(raw_server.base_url)
    for _ in range(3):
        assert finished(await events_of(model, ask("hi", model=INFO)))
    assert raw_server.connections == 1


# -- addresses and keys ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "path"),
    [
        ("", b"/v1/messages"),
        ("/", b"/v1/messages"),
        ("/v1", b"/v1/messages"),
        ("/v1/?beta=1", b"/v1/messages?beta=1"),
        ("/anthropic", b"/anthropic/v1/messages"),
    ],
)
async def test_the_base_url_may_end_with_the_version_or_not(
    base: str, path: bytes, raw_server: Any, model_at: Model, ask: Ask, events_of: Collect
) -> None:
    raw_server.stream(*GOOD)
    model = model_at(f"http://127.0.0.1:{raw_server.port}{base}")
    await events_of(model, ask("hi", model=INFO))
    assert raw_server.requests[0].startswith(b"POST %s HTTP/1.1" % path)


async def test_the_token_of_a_login_and_no_key_are_sent_as_they_have_to(
    raw_server: Any, model_at: Model, ask: Ask, events_of: Collect
) -> None:
    raw_server.stream(*GOOD)
    token = "sk-ant-oat01-abc"
    for key in (token, ""):
        await events_of(model_at(raw_server.base_url, key), ask("hi", model=INFO))
    with_login, with_nothing = (request.lower() for request in raw_server.requests)
    assert b"\r\nauthorization: bearer sk-ant-oat01-abc\r\n" in with_login
    assert b"\r\nanthropic-beta: oauth-2025-04-20\r\n" in with_login
    assert b"x-api-key" not in with_login + with_nothing
    assert b"authorization" not in with_nothing
    assert b"\r\nanthropic-version: 2023-06-01\r\n" in with_nothing


def test_an_unusable_address_or_key_is_refused_before_any_call() -> None:
    for url in ("", "api.anthropic.com", "http://x:99999/"):
        with pytest.raises(ConfigError, match="base URL"):
            AnthropicModel(url, KEY, clock=SimulatedClock())
    with pytest.raises(ConfigError, match="x-api-key") as caught:
        AnthropicModel("https://x", "sk-a\nb", clock=SimulatedClock())
    assert "sk-" not in str(caught.value)


def test_importing_and_making_one_loads_no_http_and_no_sdk() -> None:
    code = (
        "import sys; from strandline.clock import SystemClock;"
        "from strandline.models.anthropic import AnthropicModel;"
        "AnthropicModel('http://127.0.0.1:1', clock=SystemClock());"
        "assert not {'httpx2', 'httpcore2', 'anyio', 'anthropic'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
