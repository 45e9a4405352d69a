"""The adapter against real servers: what they send well, badly, half or never."""

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
from strandline.models.http import MAX_ERROR_BYTES
from strandline.models.openai_chat import OpenAIChatModel
from strandline.models.openai_chat_wire import ServerTraits
from strandline.runtime.model import (
    Failed,
    Finished,
    ModelEvent,
    ModelRequest,
    TextDelta,
    ThinkingDelta,
)
from strandline.testing import Reply, ScriptedModelServer, SimulatedClock, ToolCall

KEY = "sk-test-0123456789abcdef"

Ask = Callable[..., ModelRequest]
Collect = Callable[[Any, ModelRequest], Any]


def event(said: Any, finish: str | None = None, **more: Any) -> bytes:
    choices = [{"index": 0, "delta": said, "finish_reason": finish}] if said is not None else []
    return b"data: %s\n\n" % json.dumps({"choices": choices, **more}, ensure_ascii=False).encode()


USAGE = event(None, usage={"prompt_tokens": 10, "completion_tokens": 2})
DONE = b"data: [DONE]\n\n"
HELLO = (
    event({"role": "assistant", "content": ""}),
    event({"content": "Grüß "}),
    event({"content": "🎉"}),
)
GOOD = (*HELLO, event({}, "stop"), USAGE, DONE)


@pytest.fixture
async def model_at() -> AsyncIterator[Callable[..., OpenAIChatModel]]:
    async with contextlib.AsyncExitStack() as stack:

        def make(base_url: str, **options: Any) -> OpenAIChatModel:
            model = OpenAIChatModel(base_url, KEY, clock=SimulatedClock(77_000), **options)
            stack.push_async_callback(model.aclose)
            return model

        yield make


Model = Callable[..., OpenAIChatModel]


def finished(events: list[ModelEvent]) -> dict[str, Any]:
    assert isinstance(events[-1], Finished), events[-1]
    assert not any(isinstance(e, Finished | Failed) for e in events[:-1])
    return events[-1].message


def failed(events: list[ModelEvent]) -> ModelError:
    assert isinstance(events[-1], Failed), events[-1]
    error = events[-1].error
    assert "acme/one" in error.what
    assert error.remedy
    assert KEY not in f"{error} {error!r} {error.__cause__!r} {error.__context__!r}"
    return error


async def test_a_scripted_server_is_answered_by(
    model_at: Model, ask: Ask, events_of: Collect
) -> None:
    reply = Reply("Good morning.", thinking="greet", tool_calls=[ToolCall("read", {"path": "a"})])
    with ScriptedModelServer([reply]) as server:
        events = await events_of(model_at(server.base_url), ask("hello", system_prompt="Be kind."))
    message = finished(events)
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == "Good morning."
    assert "".join(e.text for e in events if isinstance(e, ThinkingDelta)) == "greet"
    assert [b["type"] for b in message["content"]] == ["thinking", "text", "toolCall"]
    assert message["stopReason"] == "toolUse"
    assert message["timestamp"] == 77_000
    assert message["usage"]["output"] > 0
    sent = server.requests[0]
    assert sent.headers["authorization"] == f"Bearer {KEY}"
    assert [m["role"] for m in sent.body["messages"]] == ["system", "user"]


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


@pytest.mark.parametrize(
    "style",
    [
        "openai",
        "openai-no-counts",
        "vllm",
        "llama.cpp",
        "lm-studio",
        "input-is-longer",
        "bedrock",
        "out-of-room",
        "z.ai",
    ],
)
async def test_an_overflow_is_recognised_in_every_style(
    style: Any, model_at: Model, ask: Ask, events_of: Collect
) -> None:
    """Faults H18."""
    with ScriptedModelServer(context_window=100, overflow=style) as server:
        error = failed(await events_of(model_at(server.base_url), ask("x" * 1000)))
    assert error.kind == "overflow"
    if style in {"openai", "vllm", "llama.cpp", "input-is-longer"}:
        assert error.window_tokens == 100
        assert (error.prompt_tokens or 0) > 250


async def test_every_byte_may_come_alone(
    raw_server: Any, model_at: Model, ask: Ask, events_of: Collect
) -> None:
    body = b"".join(GOOD)
    raw_server.stream(*(body[i : i + 1] for i in range(len(body))))
    message = finished(await events_of(model_at(raw_server.base_url), ask("hi")))
    assert message["content"] == [{"type": "text", "text": "Grüß 🎉"}]
    assert message["usage"]["input"] == 10


async def test_a_server_that_sends_no_usage_is_borne(
    raw_server: Any, model_at: Model, ask: Ask, events_of: Collect
) -> None:
    raw_server.stream(*HELLO, event({}, "stop"), DONE)
    message = finished(await events_of(model_at(raw_server.base_url), ask("hi")))
    assert message["usage"]["totalTokens"] == 0


async def test_a_server_that_does_not_stream_is_borne(
    raw_server: Any, model_at: Model, ask: Ask, events_of: Collect
) -> None:
    choice = {"message": {"content": "hello"}, "finish_reason": "stop"}
    for kind in ("application/json", "text/event-stream", "text/plain"):
        raw_server.whole(
            "200 OK", json.dumps({"choices": [choice]}).encode(), f"content-type: {kind}\r\n"
        )
        events = await events_of(model_at(raw_server.base_url), ask("hi"))
        assert finished(events)["content"] == [{"type": "text", "text": "hello"}]
        assert events[0] == TextDelta("hello")


async def test_the_end_mark_may_be_missing_where_a_reason_was_given(
    raw_server: Any, model_at: Model, ask: Ask, events_of: Collect
) -> None:
    raw_server.stream(*HELLO, event({}, "stop"))
    assert finished(await events_of(model_at(raw_server.base_url), ask("hi")))
    raw_server.stream(*HELLO, event({}, "stop"), end=b"")  # and the connection breaks
    assert finished(await events_of(model_at(raw_server.base_url), ask("hi")))


@pytest.mark.parametrize("end", [b"", b"0\r\n\r\n"], ids=["broken", "clean"])
async def test_an_answer_that_stops_in_the_middle_is_a_network_failure_with_what_came(
    end: bytes, raw_server: Any, model_at: Model, ask: Ask, events_of: Collect
) -> None:
    raw_server.stream(*HELLO, end=end)
    events = await events_of(model_at(raw_server.base_url), ask("hi"))
    assert failed(events).kind == "network"
    last = events[-1]
    assert isinstance(last, Failed)
    assert last.partial is not None
    assert last.partial["content"] == [{"type": "text", "text": "Grüß 🎉"}]
    assert last.partial["stopReason"] == "error"


@pytest.mark.parametrize(
    "reply",
    [
        Reply("abc", disconnect_after=0),
        Reply("abc", disconnect_after=2),
        Reply("abc", truncate_after=1),
    ],
)
async def test_a_server_that_breaks_off_is_a_network_failure(
    reply: Reply, model_at: Model, ask: Ask, events_of: Collect
) -> None:
    with ScriptedModelServer([reply]) as server:
        assert failed(await events_of(model_at(server.base_url), ask("hi"))).kind == "network"


async def test_silence_is_a_network_failure_after_the_idle_time(
    raw_server: Any, model_at: Model, ask: Ask, events_of: Collect
) -> None:
    raw_server.stream(*HELLO, end=b"")
    raw_server.then = "wait"
    model = model_at(raw_server.base_url, idle_timeout_s=0.1)
    error = failed(await events_of(model, ask("hi")))
    assert error.kind == "network"
    assert "nothing for 0.1 s" in error.what


async def test_a_server_that_is_not_there_is_a_network_failure_that_names_it(
    raw_server: Any, model_at: Model, ask: Ask, events_of: Collect
) -> None:
    server = await asyncio.start_server(raw_server.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    error = failed(await events_of(model_at(f"http://user:pass@127.0.0.1:{port}"), ask("hi")))
    assert error.kind == "network"
    assert f"127.0.0.1:{port}" in error.what
    assert "pass" not in str(error)


@pytest.mark.parametrize(
    ("reply", "kind", "wait_s"),
    [
        (Reply(status=401), "auth", None),
        (Reply(status=403), "auth", None),
        (Reply(status=404), "refused", None),
        (Reply(status=400), "refused", None),
        (Reply(status=429, retry_after_s=7.5), "rate", 7.5),
        (Reply(status=503, retry_after_s=3), "network", 3.0),
        (Reply(status=500), "network", None),
    ],
)
async def test_a_refusal_has_its_kind(
    reply: Reply, kind: str, wait_s: float | None, model_at: Model, ask: Ask, events_of: Collect
) -> None:
    with ScriptedModelServer([reply]) as server:
        error = failed(await events_of(model_at(server.base_url), ask("hi")))
    assert (error.kind, error.retry_after_s) == (kind, wait_s)


@pytest.mark.parametrize(
    ("header", "wait_s"),
    [
        ("retry-after: 12\r\n", 12.0),
        ("retry-after-ms: 1500\r\nretry-after: 2\r\n", 1.5),
        ("retry-after: Thu, 01 Jan 1970 00:01:27 GMT\r\n", 10.0),
        ("retry-after: Thu, 01 Jan 1970 00:00:01 GMT\r\n", 0.0),
        ("retry-after: -3\r\n", 0.0),
        ("retry-after: inf\r\n", None),
        ("retry-after: soon\r\n", None),
        ("", None),
    ],
)
async def test_the_wait_is_read_in_every_form(
    header: str,
    wait_s: float | None,
    raw_server: Any,
    model_at: Model,
    ask: Ask,
    events_of: Collect,
) -> None:
    raw_server.whole("429 Too Many Requests", b"{}", header)
    assert failed(await events_of(model_at(raw_server.base_url), ask("hi"))).retry_after_s == wait_s


async def test_no_error_tells_the_key(
    raw_server: Any, model_at: Model, ask: Ask, events_of: Collect
) -> None:
    """Servers and proxies repeat what they were sent."""
    secret = "proxy-password-1"
    for status in ("200 OK", "400 Bad Request", "401 Unauthorized", "500 Oops"):
        words = f"got authorization: Bearer {KEY} and {secret}"
        for body in ({"error": {"message": words}}, {"error": words}, words):
            raw_server.whole(status, json.dumps(body).encode())
            model = model_at(raw_server.base_url, headers={"x-proxy": secret})
            assert secret not in str(failed(await events_of(model, ask("hi"))))


async def test_an_error_page_is_not_shown_and_an_endless_one_not_read(
    raw_server: Any, model_at: Model, ask: Ask, events_of: Collect
) -> None:
    raw_server.whole("502 Bad Gateway", b"<html>prompt is too long</html>")
    error = failed(await events_of(model_at(raw_server.base_url), ask("hi")))
    assert (error.kind, error.what) == ("network", "acme/one answered HTTP 502")
    raw_server.whole("400 Bad Request", b"x" * (MAX_ERROR_BYTES * 40))
    assert len(str(failed(await events_of(model_at(raw_server.base_url), ask("hi"))))) < 500


async def test_a_page_in_place_of_an_answer_points_to_the_base_url(
    raw_server: Any, model_at: Model, ask: Ask, events_of: Collect
) -> None:
    for body in (b"<html>welcome</html>", b""):
        raw_server.whole("200 OK", body)
        error = failed(await events_of(model_at(raw_server.base_url), ask("hi")))
        assert "base URL" in error.remedy


async def test_an_endless_line_is_refused(
    raw_server: Any, model_at: Model, ask: Ask, events_of: Collect
) -> None:
    raw_server.stream(*[b"data: " + b"x" * 1024 * 1024] * 10)
    assert failed(await events_of(model_at(raw_server.base_url), ask("hi"))).kind == "refused"


async def test_the_key_does_not_follow_to_another_server(
    raw_server: Any, model_at: Model, ask: Ask, events_of: Collect
) -> None:
    raw_server.whole("307 Temporary Redirect", b"", f"location: {raw_server.base_url}/other\r\n")
    assert failed(await events_of(model_at(raw_server.base_url), ask("hi"))).kind == "refused"
    assert len(raw_server.requests) == 1


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


async def test_calls_follow_each_other_on_one_connection(
    raw_server: Any, model_at: Model, ask: Ask, events_of: Collect
) -> None:
    raw_server.stream(*GOOD)
    raw_server.then = "serve"
    model = model_at(raw_server.base_url)
    for _ in range(3):
        assert finished(await events_of(model, ask("hi")))
    assert raw_server.connections == 1


async def test_what_follows_the_end_mark_neither_counts_nor_hangs(
    raw_server: Any, model_at: Model, ask: Ask, events_of: Collect
) -> None:
    raw_server.stream(*GOOD, event({"content": "more"}), end=b"")
    raw_server.then = "wait"
    message = finished(await events_of(model_at(raw_server.base_url), ask("hi")))
    assert message["content"] == [{"type": "text", "text": "Grüß 🎉"}]


async def test_the_same_call_is_the_same_bytes_on_the_wire(
    raw_server: Any, model_at: Model, ask: Ask, events_of: Collect
) -> None:
    raw_server.stream(*GOOD)
    traits = ServerTraits(extra_body={"temperature": 0})
    for _ in range(2):
        await events_of(model_at(raw_server.base_url, traits=traits), ask("hi\ud83c"))
    one, two = raw_server.requests
    assert one == two
    assert "hi�".encode() in one


async def test_a_query_in_the_base_url_stays(
    raw_server: Any, model_at: Model, ask: Ask, events_of: Collect
) -> None:
    raw_server.stream(*GOOD)
    await events_of(model_at(f"{raw_server.base_url}/?api-version=1"), ask("hi"))
    assert raw_server.requests[0].startswith(b"POST /v1/chat/completions?api-version=1 HTTP/1.1")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "api.openai.com",
        "ftp://x/v1",
        "http://",
        "http://x:99999/",
        "http://a\nb/",
        "http://[::1",
    ],
)
def test_an_unusable_address_is_refused_before_any_call(url: str) -> None:
    with pytest.raises(ConfigError, match="base URL"):
        OpenAIChatModel(url, KEY, clock=SimulatedClock())


def test_an_unusable_key_or_body_is_refused_without_telling_it() -> None:
    for key in ("sk-a\nb", "“sk-quoted”"):
        with pytest.raises(ConfigError, match="authorization") as caught:
            OpenAIChatModel("https://x/v1", key, clock=SimulatedClock())
        assert "sk-" not in str(caught.value)
    traits = ServerTraits(extra_body={"temperature": float("nan")})
    with pytest.raises(ConfigError, match="extra body"):
        OpenAIChatModel("https://x/v1", KEY, clock=SimulatedClock(), traits=traits)


def test_importing_and_making_one_loads_no_http() -> None:
    code = (
        "import sys; from strandline.clock import SystemClock;"
        "from strandline.models.openai_chat import OpenAIChatModel;"
        "OpenAIChatModel('http://127.0.0.1:1', clock=SystemClock());"
        "assert not {'httpx2', 'httpcore2', 'anyio'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


async def test_no_log_shows_the_query_of_an_address(
    raw_server: Any, ask: Ask, events_of: Any, caplog: pytest.LogCaptureFixture
) -> None:
    raw_server.whole("401 Unauthorized", b"{}")
    model = OpenAIChatModel(f"{raw_server.base_url}?key={KEY}", clock=SimulatedClock())
    with caplog.at_level(0):
        await events_of(model, ask("hi"))
    await model.aclose()
    assert KEY.encode() in raw_server.requests[0], "it is sent"
    assert "chat/completions" in caplog.text, "the library tells of its requests"
    assert KEY not in caplog.text
