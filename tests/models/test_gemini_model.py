"""The Gemini adapter against real servers: a turn in full, refusals, and broken connections."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest

from strandline.errors import ModelError
from strandline.models.gemini import API, GeminiModel
from strandline.runtime.model import (
    Failed,
    Finished,
    ModelEvent,
    ModelInfo,
    ModelRequest,
    TextDelta,
    ThinkingDelta,
)
from strandline.testing import gemini_wire
from strandline.testing.clock import SimulatedClock
from strandline.testing.model_server import ScriptedModelServer
from strandline.testing.reply import Reply, ToolCall

KEY = "AIza-test-0123456789abcdef"
SECOND = ModelInfo("google", "gemini-2.5-flash", API, 1_048_576, 65_536, reasoning=True)
THIRD = replace(SECOND, id="gemini-3-pro-preview")
TOOLS = ({"name": "read", "description": "Reads.", "parameters": {"type": "object"}},)

Ask = Callable[..., ModelRequest]
Collect = Callable[[Any, ModelRequest], Any]
Model = Callable[..., GeminiModel]


@pytest.fixture
async def model_at() -> AsyncIterator[Model]:
    async with contextlib.AsyncExitStack() as stack:

        def make(base_url: str, **options: Any) -> GeminiModel:
            model = GeminiModel(base_url, KEY, clock=SimulatedClock(77_000), **options)
            stack.push_async_callback(model.aclose)
            return model

        yield make


def chunk(*parts: dict[str, Any], finish: str | None = None) -> bytes:
    candidate = {"content": {"parts": list(parts)}, **({"finishReason": finish} if finish else {})}
    return b"data: %s\r\n\r\n" % json.dumps({"candidates": [candidate]}).encode()


def finished(events: list[ModelEvent]) -> dict[str, Any]:
    assert isinstance(events[-1], Finished), events[-1]
    assert not any(isinstance(e, Finished | Failed) for e in events[:-1])
    return events[-1].message


def failed(events: list[ModelEvent]) -> ModelError:
    assert isinstance(events[-1], Failed), events[-1]
    error = events[-1].error
    assert error.remedy
    assert KEY not in f"{error} {error!r} {error.__cause__!r} {error.__context__!r}"
    return error


@pytest.mark.parametrize("info", [SECOND, THIRD], ids=["2.5", "3"])
@pytest.mark.parametrize("identity", ["fc-1", ""], ids=["id", "no-id"])
async def test_a_turn_with_thoughts_and_tools_goes_through_and_back(
    info: ModelInfo, identity: str, model_at: Model, ask: Ask, events_of: Collect
) -> None:
    script = [
        Reply("I look.", thinking="hm", tool_calls=[ToolCall("read", {"path": "é"}, identity)]),
        Reply("Done.", thinking="so"),
        Reply("Bye."),
    ]
    with ScriptedModelServer(script) as server:
        model = model_at(f"{server.root_url}/v1beta")
        request = ask("go", model=info, tools=TOOLS, thinking="low", system_prompt="Be kind.")
        events = await events_of(model, request)
        called = finished(events)
        (call,) = [block for block in called["content"] if block["type"] == "toolCall"]
        answer = {"role": "toolResult", "toolCallId": call["id"], "toolName": "read"}
        answer |= {"content": [{"type": "text", "text": "x"}], "isError": False}
        messages = [*request.messages, called, answer]
        done = finished(await events_of(model, replace(request, messages=messages)))
        messages += [done, *ask("thanks").messages]
        finished(await events_of(model, replace(request, messages=messages)))
        assert server.refused == []
    assert "".join(e.text for e in events if isinstance(e, ThinkingDelta)) == "hm"
    assert [block["type"] for block in called["content"]] == ["thinking", "text", "toolCall"]
    assert (called["stopReason"], done["stopReason"]) == ("toolUse", "stop")
    assert called["timestamp"] == 77_000
    assert called["usage"]["output"] > 0
    assert call["id"] == (identity or "call_77000_2")
    first, second, third = server.requests
    assert first.headers["x-goog-api-key"] == KEY
    assert first.path == f"/v1beta/models/{info.id}:streamGenerateContent?alt=sse"
    contents = [sent.body["contents"] for sent in (first, second, third)]
    assert contents[2][: len(contents[1])] == contents[1]
    assert contents[1][: len(contents[0])] == contents[0]
    replayed = contents[1][1]["parts"][-1]
    assert replayed["thoughtSignature"] == call["thoughtSignature"]
    assert replayed["functionCall"].get("id", "") == identity


async def test_a_conversation_of_another_model_is_taken(
    model_at: Model, ask: Ask, events_of: Collect
) -> None:
    """Faults A15 and B1: foreign ids and signatures are not sent."""
    foreign: list[dict[str, Any]] = [
        {"type": "thinking", "thinking": "hm", "thinkingSignature": "Rm9yZWlnbg=="},
        {"type": "text", "text": "I look.", "textSignature": "msg_123"},
        {"type": "toolCall", "id": "call_1|" + "y" * 120, "name": "read", "arguments": {}},
    ]
    said = {"role": "assistant", "content": foreign, "api": "x", "provider": "y", "model": "z"}
    result = {"role": "toolResult", "toolCallId": foreign[2]["id"], "content": "one"}
    with ScriptedModelServer() as server:
        model = model_at(f"{server.root_url}/v1beta")
        assert finished(await events_of(model, ask("go", said, result, model=THIRD)))
        assert server.refused == []


async def test_cached_tokens_are_counted_apart(
    model_at: Model, ask: Ask, events_of: Collect
) -> None:
    with ScriptedModelServer() as server:
        model = model_at(f"{server.root_url}/v1beta")
        long = "x" * 40_000
        first = finished(await events_of(model, ask(long, "one", model=SECOND)))
        more = ask(long, "one", first, "two", model=SECOND)
        second = finished(await events_of(model, more))["usage"]
    assert first["usage"]["cacheRead"] == 0
    assert second["cacheRead"] > 1024
    assert second["input"] + second["cacheRead"] + second["output"] == second["totalTokens"]


async def test_an_overflow_is_told_with_its_counts(
    model_at: Model, ask: Ask, events_of: Collect
) -> None:
    """Faults H18."""
    with ScriptedModelServer(context_window=100) as server:
        model = model_at(f"{server.root_url}/v1beta")
        error = failed(await events_of(model, ask("x" * 1000, model=SECOND)))
    assert (error.kind, error.window_tokens) == ("overflow", 100)
    assert (error.prompt_tokens or 0) > 250


@pytest.mark.parametrize(
    ("reply", "kind", "wait_s"),
    [
        (gemini_wire.invalid_key(), "auth", None),
        (Reply(status=400), "refused", None),
        (Reply(status=403), "auth", None),
        (Reply(status=404), "refused", None),
        (Reply(status=429, retry_after_s=7.5), "rate", 7.5),
        (Reply("abcdef", status=429, retry_after_s=3, error_after=1, chunk_chars=2), "rate", 3.0),
        (Reply(status=503), "network", None),
        (Reply("abcdef", status=503, error_after=2, chunk_chars=2), "network", None),
        (Reply("abc", disconnect_after=0), "network", None),
        (Reply("abcdef", disconnect_after=1, chunk_chars=2), "network", None),
        (Reply("abcdef", truncate_after=1, chunk_chars=2), "network", None),
        (Reply("abc", finish_reason="content_filter"), "refused", None),
        (Reply(tool_calls=[ToolCall("read", '{"path":')]), "network", None),
    ],
)
async def test_a_failure_has_its_kind(
    reply: Reply, kind: str, wait_s: float | None, model_at: Model, ask: Ask, events_of: Collect
) -> None:
    with ScriptedModelServer([reply]) as server:
        events = await events_of(model_at(f"{server.root_url}/v1beta"), ask("hi", model=SECOND))
    error = failed(events)
    assert (error.kind, error.retry_after_s) == (kind, wait_s)
    spoken = "".join(event.text for event in events if isinstance(event, TextDelta))
    last = events[-1]
    assert isinstance(last, Failed)
    kept = [] if last.partial is None else last.partial["content"]
    assert "".join(block["text"] for block in kept) == spoken


async def test_a_whole_document_is_an_answer_too(
    raw_server: Any, model_at: Model, ask: Ask, events_of: Collect
) -> None:
    said = {"candidates": [{"content": {"parts": [{"text": "hello"}]}, "finishReason": "STOP"}]}
    begun = {"candidates": [{"content": {"parts": [{"text": "oh, "}]}}]}
    for body, text in ((said, "hello"), ([begun, said], "oh, hello")):
        raw_server.whole("200 OK", json.dumps(body).encode(), "content-type: application/json\r\n")
        message = finished(await events_of(model_at(raw_server.base_url), ask("hi")))
        assert message["content"] == [{"type": "text", "text": text}]


async def test_a_models_name_cannot_change_the_address(
    raw_server: Any, model_at: Model, ask: Ask, events_of: Collect
) -> None:
    raw_server.stream(chunk({"text": "ok"}, finish="STOP"))
    odd = replace(SECOND, id="../a?b=c#d e")
    finished(await events_of(model_at(raw_server.base_url), ask("hi", model=odd)))
    line = raw_server.requests[0].partition(b"\r\n")[0]
    path = b"/v1/models/..%2Fa%3Fb%3Dc%23d%20e:streamGenerateContent?alt=sse"
    assert line == b"POST " + path + b" HTTP/1.1"


async def test_no_error_tells_the_key(
    raw_server: Any, model_at: Model, ask: Ask, events_of: Collect
) -> None:
    for status in ("200 OK", "400 Bad Request"):
        told = {"error": {"code": 400, "message": f"got {KEY}", "status": "INVALID_ARGUMENT"}}
        raw_server.whole(status, json.dumps([told]).encode())
        assert failed(await events_of(model_at(raw_server.base_url), ask("hi"))).kind == "refused"


async def test_closing_the_iterator_closes_the_connection_at_once(
    raw_server: Any, model_at: Model, ask: Ask
) -> None:
    raw_server.stream(chunk({"text": "Hello"}), end=b"")
    raw_server.then = "wait"
    events = model_at(raw_server.base_url).stream(ask("hi"))
    assert await anext(events) == TextDelta("Hello")
    await events.aclose()
    async with asyncio.timeout(10):
        await raw_server.hung_up.wait()


async def test_cancelling_the_task_closes_the_connection_at_once(
    raw_server: Any, model_at: Model, ask: Ask
) -> None:
    raw_server.then = "wait"

    async def read() -> None:
        async for _ in model_at(raw_server.base_url).stream(ask("hi")):
            pass

    task = asyncio.create_task(read())
    async with asyncio.timeout(10):
        await raw_server.waiting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await raw_server.hung_up.wait()


def test_google_s_own_library_is_never_loaded() -> None:
    code = "import sys, strandline.models.gemini; print('google' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"
