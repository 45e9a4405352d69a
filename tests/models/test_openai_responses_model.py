"""The Responses adapter against real servers: turns in full, refusals, broken connections."""

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

from strandline.context.pairing import pair
from strandline.context.sanitize import sanitize
from strandline.context.tokens import HeuristicCounter, MessageTokens
from strandline.errors import ModelError
from strandline.models.openai_responses import API, OpenAIResponsesModel
from strandline.runtime.model import (
    Failed,
    Finished,
    ModelEvent,
    ModelInfo,
    ModelRequest,
    TextDelta,
    ThinkingDelta,
)
from strandline.testing.clock import SimulatedClock
from strandline.testing.model_server import ScriptedModelServer
from strandline.testing.reply import Reply, ToolCall
from strandline.transcript.context import PathMessage

KEY = "sk-test-0123456789abcdef"
DEEP = ModelInfo("acme", "deep", API, 8192, 512, reasoning=True)
OTHER = replace(DEEP, id="other")
TOOLS = ({"name": "read", "description": "Reads.", "parameters": {"type": "object"}},)

Ask = Callable[..., ModelRequest]
Collect = Callable[[Any, ModelRequest], Any]
Model = Callable[..., OpenAIResponsesModel]
Json = dict[str, Any]


@pytest.fixture
async def model_at() -> AsyncIterator[Model]:
    async with contextlib.AsyncExitStack() as stack:

        def make(base_url: str, **options: Any) -> OpenAIResponsesModel:
            model = OpenAIResponsesModel(base_url, KEY, clock=SimulatedClock(77_000), **options)
            stack.push_async_callback(model.aclose)
            return model

        yield make


def event(kind: str, **more: Any) -> bytes:
    data = json.dumps({"type": f"response.{kind}", **more}, ensure_ascii=False)
    return f"event: response.{kind}\ndata: {data}\n\n".encode()


HELLO = (event("created"), event("output_text.delta", delta="Grüß "))
GOOD = (
    *HELLO,
    event("output_text.delta", delta="🎉"),
    event("completed", response={"usage": {"input_tokens": 10, "output_tokens": 2}}),
)


def finished(events: list[ModelEvent]) -> Json:
    assert isinstance(events[-1], Finished), events[-1]
    assert not any(isinstance(e, Finished | Failed) for e in events[:-1])
    return events[-1].message


def failed(events: list[ModelEvent]) -> ModelError:
    assert isinstance(events[-1], Failed), events[-1]
    error = events[-1].error
    assert error.remedy
    assert KEY not in f"{error} {error!r} {error.__cause__!r} {error.__context__!r}"
    return error


def results_of(message: Json, words: str = "x") -> list[Json]:
    calls = (block for block in message["content"] if block["type"] == "toolCall")
    return [
        {
            "role": "toolResult",
            "toolCallId": call["id"],
            "toolName": call["name"],
            "content": [{"type": "text", "text": words}],
            "isError": False,
            "timestamp": 2,
        }
        for call in calls
    ]


CALLS = [ToolCall("read", {"path": "é"}, "call_1"), ToolCall("read", {"path": "b"}, "call_2")]


async def test_a_turn_with_thoughts_and_tools_goes_through_and_back(
    model_at: Model, ask: Ask, events_of: Collect
) -> None:
    script = [
        Reply("I look.", thinking="hm", tool_calls=CALLS),
        Reply("Done.", thinking="so"),
        Reply("Bye."),
    ]
    with ScriptedModelServer(script) as server:
        model = model_at(server.base_url)
        request = ask("go", model=DEEP, tools=TOOLS, thinking="low", system_prompt="Be kind.")
        events = await events_of(model, request)
        called = finished(events)
        messages = [*request.messages, called, *results_of(called)]
        done = finished(await events_of(model, replace(request, messages=messages)))
        messages += [done, *ask("thanks").messages]
        finished(await events_of(model, replace(request, messages=messages)))
        assert server.refused == []
    assert "".join(e.text for e in events if isinstance(e, ThinkingDelta)) == "hm"
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == "I look."
    kinds = [block["type"] for block in called["content"]]
    assert kinds == ["thinking", "text", "toolCall", "toolCall"]
    assert called["content"][2]["id"].startswith("call_1|fc_")
    assert (called["stopReason"], done["stopReason"]) == ("toolUse", "stop")
    assert called["timestamp"] == 77_000
    first, second, third = server.requests
    assert first.headers["authorization"] == f"Bearer {KEY}"
    assert first.path == "/v1/responses"
    inputs = [sent.body["input"] for sent in (first, second, third)]
    assert inputs[2][: len(inputs[1])] == inputs[1]
    assert inputs[1][: len(inputs[0])] == inputs[0]
    assert inputs[1][1] == json.loads(called["content"][0]["thinkingSignature"])


async def test_another_model_and_a_shortened_past_are_never_refused(
    model_at: Model, ask: Ask, events_of: Collect
) -> None:
    """Faults A15, A19, B1: the server refuses an id whose thought it does not get."""
    script = [Reply("I look.", thinking="hm", tool_calls=CALLS), *[Reply("ok")] * 4]
    summary = {"role": "compactionSummary", "summary": "s", "timestamp": 99_000}
    with ScriptedModelServer(script) as server:
        model = model_at(server.base_url)
        said = finished(await events_of(model, ask("go", model=DEEP)))
        thoughtless = {**said, "content": said["content"][1:]}
        unsealed = {**said["content"][0], "thinkingSignature": '{"type":"reasoning"}'}
        for answer, info, before in (
            (said, OTHER, []),
            (thoughtless, DEEP, []),
            ({**said, "content": [unsealed, *said["content"][1:]]}, DEEP, []),
            (said, DEEP, [summary]),
        ):
            tokens = MessageTokens(HeuristicCounter())
            path = [PathMessage(str(n), m) for n, m in enumerate([*before, answer])]
            path += [PathMessage(f"r{n}", m) for n, m in enumerate(results_of(answer))]
            messages = [seen.message for seen in pair(sanitize(path, tokens), tokens).messages]
            assert finished(await events_of(model, ask("go", *messages, model=info)))
        assert server.refused == []


async def test_cached_tokens_are_counted_apart(
    model_at: Model, ask: Ask, events_of: Collect
) -> None:
    with ScriptedModelServer() as server:
        model = model_at(server.base_url)
        first = finished(await events_of(model, ask("x" * 8000)))["usage"]
        second = finished(await events_of(model, ask("x" * 8000, "more")))["usage"]
    assert first["cacheRead"] == 0
    assert second["cacheRead"] > 1024
    assert second["input"] + second["cacheRead"] + second["output"] == second["totalTokens"]


@pytest.mark.parametrize("style", ["responses", "openai", "vllm", "llama.cpp", "lm-studio"])
async def test_an_overflow_is_recognised_in_every_style(
    style: Any, model_at: Model, ask: Ask, events_of: Collect
) -> None:
    """Faults H18."""
    with ScriptedModelServer(context_window=100, overflow=style) as server:
        error = failed(await events_of(model_at(server.base_url), ask("x" * 1000)))
    assert error.kind == "overflow"


@pytest.mark.parametrize(
    ("reply", "kind", "wait_s"),
    [
        (Reply(status=400), "refused", None),
        (Reply(status=401), "auth", None),
        (Reply(status=404), "refused", None),
        (Reply(status=429, retry_after_s=7.5), "rate", 7.5),
        (Reply("abcdef", status=429, error_after=4, chunk_chars=2), "rate", None),
        (Reply(status=503), "network", None),
        (Reply("abcdef", status=500, error_after=4, chunk_chars=2), "network", None),
        (Reply("abc", disconnect_after=0), "network", None),
        (Reply("abcdef", disconnect_after=5, chunk_chars=2), "network", None),
        (Reply("abcdef", truncate_after=5, chunk_chars=2), "network", None),
        (Reply("abc", finish_reason="content_filter"), "refused", None),
        (Reply("abc", finish_reason="failed"), "network", None),
    ],
)
async def test_a_failure_has_its_kind_and_what_was_said(
    reply: Reply, kind: str, wait_s: float | None, model_at: Model, ask: Ask, events_of: Collect
) -> None:
    with ScriptedModelServer([reply]) as server:
        events = await events_of(model_at(server.base_url), ask("hi"))
    error = failed(events)
    assert (error.kind, error.retry_after_s) == (kind, wait_s)
    spoken = "".join(event.text for event in events if isinstance(event, TextDelta))
    last = events[-1]
    assert isinstance(last, Failed)
    kept = [] if last.partial is None else last.partial["content"]
    assert "".join(block["text"] for block in kept) == spoken


async def test_a_thought_that_broke_off_is_not_sent_again(
    model_at: Model, ask: Ask, events_of: Collect
) -> None:
    """Faults B2."""
    script = [Reply("I look.", thinking="hm, what", disconnect_after=5, chunk_chars=3)]
    with ScriptedModelServer(script) as server:
        model = model_at(server.base_url)
        last = (await events_of(model, ask("go", model=DEEP)))[-1]
        assert isinstance(last, Failed)
        assert last.partial is not None
        assert last.partial["content"] == [{"type": "thinking", "thinking": "hm,"}]
        assert finished(await events_of(model, ask("go", last.partial, "again", model=DEEP)))
        assert server.refused == []


async def test_every_byte_may_come_alone(
    raw_server: Any, model_at: Model, ask: Ask, events_of: Collect
) -> None:
    body = b"".join(GOOD)
    raw_server.stream(*(body[i : i + 1] for i in range(len(body))))
    message = finished(await events_of(model_at(raw_server.base_url), ask("hi")))
    assert message["content"] == [{"type": "text", "text": "Grüß 🎉"}]
    assert message["usage"]["input"] == 10


async def test_a_server_that_does_not_stream_is_borne(
    raw_server: Any, model_at: Model, ask: Ask, events_of: Collect
) -> None:
    part = {"type": "output_text", "text": "hello"}
    said = {"object": "response", "output": [{"type": "message", "content": [part]}]}
    for kind in ("application/json", "text/event-stream"):
        raw_server.whole("200 OK", json.dumps(said).encode(), f"content-type: {kind}\r\n")
        events = await events_of(model_at(raw_server.base_url), ask("hi"))
        assert events[0] == TextDelta("hello")
        assert finished(events)["content"] == [{"type": "text", "text": "hello"}]


@pytest.mark.parametrize("end", [b"", b"0\r\n\r\n"], ids=["broken", "clean"])
async def test_an_answer_without_its_end_is_a_network_failure_and_with_it_complete(
    end: bytes, raw_server: Any, model_at: Model, ask: Ask, events_of: Collect
) -> None:
    raw_server.stream(*GOOD, end=end)
    assert finished(await events_of(model_at(raw_server.base_url), ask("hi")))
    raw_server.stream(*HELLO, end=end)
    assert failed(await events_of(model_at(raw_server.base_url), ask("hi"))).kind == "network"


async def test_no_error_tells_the_key(
    raw_server: Any, model_at: Model, ask: Ask, events_of: Collect
) -> None:
    told = {"type": "error", "error": {"code": "invalid_api_key", "message": f"got {KEY}"}}
    for status in ("200 OK", "401 Unauthorized"):
        raw_server.whole(status, json.dumps(told).encode())
        assert failed(await events_of(model_at(raw_server.base_url), ask("hi"))).kind == "auth"


async def test_closing_the_iterator_closes_the_connection_at_once(
    raw_server: Any, model_at: Model, ask: Ask
) -> None:
    raw_server.stream(*HELLO, end=b"")
    raw_server.then = "wait"
    events = model_at(raw_server.base_url).stream(ask("hi"))
    assert await anext(events) == TextDelta("Grüß ")
    await events.aclose()
    await asyncio.wait_for(raw_server.hung_up.wait(), 20)


@pytest.mark.parametrize("pieces", [(), HELLO], ids=["before-the-answer", "in-the-answer"])
async def test_cancelling_the_task_closes_the_connection_at_once(
    pieces: tuple[bytes, ...], raw_server: Any, model_at: Model, ask: Ask
) -> None:
    if pieces:
        raw_server.stream(*pieces, end=b"")
    raw_server.then = "wait"

    async def read() -> None:
        async for _ in model_at(raw_server.base_url).stream(ask("hi")):
            pass

    task = asyncio.create_task(read())
    await asyncio.wait_for(raw_server.waiting.wait(), 20)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(raw_server.hung_up.wait(), 20)


async def test_the_same_call_is_the_same_bytes_on_the_wire(
    raw_server: Any, model_at: Model, ask: Ask, events_of: Collect
) -> None:
    raw_server.stream(*GOOD)
    for _ in range(2):
        await events_of(model_at(raw_server.base_url), ask("hi", tools=TOOLS))
    one, two = raw_server.requests
    assert one == two
    assert one.startswith(b"POST /v1/responses HTTP/1.1")


def test_importing_and_making_one_loads_no_http_and_no_sdk() -> None:
    code = (
        "import sys; from strandline.clock import SystemClock;"
        "from strandline.models.openai_responses import OpenAIResponsesModel;"
        "OpenAIResponsesModel('http://127.0.0.1:1', clock=SystemClock());"
        "assert not {'httpx2', 'httpcore2', 'anyio', 'openai'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
