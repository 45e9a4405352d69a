"""The scripted model server, asked over real HTTP."""

from __future__ import annotations

import asyncio
import gc
import json
import math
import threading
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.testing import (
    OverflowStyle,
    RecordedRequest,
    Reply,
    ScriptedModelServer,
    ToolCall,
)
from strandline.testing.chat_wire import prompt_text
from strandline.testing.prompt_cache import PromptCache

Json = dict[str, Any]


@pytest.fixture
def client() -> Iterator[httpx2.Client]:
    with httpx2.Client(trust_env=False, timeout=20) as client:
        yield client


def asking(text: str = "hello", **more: Any) -> Json:
    return {"model": "m", "messages": [{"role": "user", "content": text}], **more}


def post(client: httpx2.Client, server: ScriptedModelServer, body: Json) -> httpx2.Response:
    return client.post(f"{server.base_url}/chat/completions", json=body)


def events(response: httpx2.Response) -> list[Json]:
    """The JSON events of a stream that ended as it should."""
    payloads = [line[6:] for line in response.text.split("\n\n") if line]
    assert payloads[-1] == "[DONE]"
    return [json.loads(payload) for payload in payloads[:-1]]


def joined(chunks: list[Json], key: str = "content") -> str:
    return "".join(choice["delta"].get(key) or "" for c in chunks for choice in c["choices"])


def cached(response: httpx2.Response) -> int:
    count: int = response.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
    return count


# -- answers ----------------------------------------------------------------------------------


def test_an_answer_that_is_not_streamed(client: httpx2.Client) -> None:
    with ScriptedModelServer([Reply("Good morning.")]) as server:
        body = post(client, server, asking()).json()
    assert body["object"] == "chat.completion"
    assert body["model"] == "m"
    assert body["choices"][0]["message"] == {"role": "assistant", "content": "Good morning."}
    assert body["choices"][0]["finish_reason"] == "stop"
    assert body["usage"]["total_tokens"] == (
        body["usage"]["prompt_tokens"] + body["usage"]["completion_tokens"]
    )
    assert body["usage"]["completion_tokens"] == 4


def test_a_stream_says_the_role_then_pieces_then_the_reason_then_usage(
    client: httpx2.Client,
) -> None:
    request = asking(stream=True, stream_options={"include_usage": True})
    with ScriptedModelServer([Reply("Good morning, Åsa 🎉", chunk_chars=5)]) as server:
        response = post(client, server, request)
    assert response.headers["content-type"] == "text/event-stream"
    chunks = events(response)
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert [c["choices"][0]["delta"]["content"] for c in chunks[1:-2]] == [
        "Good ",
        "morni",
        "ng, Å",
        "sa 🎉",
    ]
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
    assert all(chunk["usage"] is None for chunk in chunks[:-1])
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == 5
    assert len({chunk["id"] for chunk in chunks}) == 1


def test_a_stream_has_no_usage_unless_it_was_asked_for(client: httpx2.Client) -> None:
    with ScriptedModelServer() as server:
        chunks = events(post(client, server, asking(stream=True)))
    assert not any("usage" in chunk for chunk in chunks)


def test_a_text_can_be_cut_into_any_pieces(client: httpx2.Client) -> None:
    pieces = ["a", "", "long piece with several words", "\n"]
    with ScriptedModelServer([Reply(pieces)]) as server:
        chunks = events(post(client, server, asking(stream=True)))
    assert [c["choices"][0]["delta"]["content"] for c in chunks[1:-1]] == pieces


def test_tool_calls_stream_their_arguments_and_change_the_finish_reason(
    client: httpx2.Client,
) -> None:
    calls = [ToolCall("read", {"path": "a.txt"}), ToolCall("broken", '{"pa', id="call_2")]
    reply = Reply("Let me look.", thinking="Hm.", tool_calls=calls, chunk_chars=4)
    with ScriptedModelServer([reply, reply]) as server:
        chunks = events(post(client, server, asking(stream=True)))
        whole = post(client, server, asking()).json()["choices"][0]
    assert joined(chunks) == "Let me look."
    assert joined(chunks, "reasoning_content") == "Hm."
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"
    deltas = [d for c in chunks for d in c["choices"][0]["delta"].get("tool_calls", [])]
    names = {d["index"]: (d["id"], d["function"]["name"]) for d in deltas if "id" in d}
    assert names == {0: ("call_1", "read"), 1: ("call_2", "broken")}
    arguments = [
        "".join(d["function"]["arguments"] for d in deltas if d["index"] == i) for i in (0, 1)
    ]
    assert arguments == ['{"path":"a.txt"}', '{"pa']
    assert whole["finish_reason"] == "tool_calls"
    assert [c["function"]["arguments"] for c in whole["message"]["tool_calls"]] == arguments
    assert whole["message"]["reasoning_content"] == "Hm."


def test_without_a_script_and_after_its_end_it_says_how_much_it_heard(
    client: httpx2.Client,
) -> None:
    parts = [{"type": "text", "text": "four"}, {"type": "image_url", "image_url": {"url": "data:"}}]
    with ScriptedModelServer([Reply("once")]) as server:
        answers = [post(client, server, asking(t)).json() for t in ("x", "seven c")]
        answers.append(post(client, server, asking(parts)).json())  # type: ignore[arg-type]
    texts = [answer["choices"][0]["message"]["content"] for answer in answers]
    assert texts == ["once", "I heard 7 characters.", "I heard 4 characters."]


def test_a_script_can_be_a_function_of_the_request(client: httpx2.Client) -> None:
    def script(request: RecordedRequest) -> Reply:
        return Reply(f"{request.headers['authorization']} {request.body['temperature']}")

    with ScriptedModelServer(script) as server:
        response = client.post(
            f"{server.base_url}/chat/completions",
            json=asking(temperature=0.5),
            headers={"Authorization": "Bearer key"},
        )
    assert response.json()["choices"][0]["message"]["content"] == "Bearer key 0.5"


def test_every_request_is_recorded_in_order(client: httpx2.Client) -> None:
    with ScriptedModelServer([Reply(status=500), Reply("ok")]) as server:
        for text in ("first", "second"):
            post(client, server, asking(text))
        assert [r.body["messages"][0]["content"] for r in server.requests] == ["first", "second"]
        assert server.requests[0].path == "/v1/chat/completions"
        assert server.requests[0].headers["content-type"] == "application/json"


def test_the_models_are_listed(client: httpx2.Client) -> None:
    with ScriptedModelServer(models=["large", "small"]) as server:
        listed = client.get(f"{server.base_url}/models").json()
        assert [row["id"] for row in listed["data"]] == ["large", "small"]
        assert client.get(f"{server.base_url}/other").status_code == 404
        assert client.post(f"{server.base_url}/embeddings", json={}).status_code == 404


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"messages": 1}', b"\xff"])
def test_a_body_that_is_no_request_is_refused(client: httpx2.Client, content: bytes) -> None:
    with ScriptedModelServer() as server:
        response = client.post(f"{server.base_url}/chat/completions", content=content)
        assert response.status_code == 400
        assert response.json()["error"]["type"] == "invalid_request_error"
        assert server.requests == []


# -- tokens, cache, overflow ------------------------------------------------------------------


def test_tokens_are_counted_over_messages_and_tools_times_the_factor() -> None:
    body = asking("x" * 400, tools=[{"type": "function", "function": {"name": "read"}}])
    size = len(prompt_text(body))
    with ScriptedModelServer() as server:
        _, envelope = server.answer(RecordedRequest("/v1/chat/completions", {}, body))
        assert envelope.usage.prompt_tokens == math.ceil(size / 4)
        server.token_factor = 1.5
        _, envelope = server.answer(RecordedRequest("/v1/chat/completions", {}, body))
        assert envelope.usage.prompt_tokens == math.ceil(math.ceil(size / 4) * 1.5)
        server.count = len
        server.token_factor = 1.0
        _, envelope = server.answer(RecordedRequest("/v1/chat/completions", {}, body))
        assert envelope.usage.prompt_tokens == size


def test_a_repeated_beginning_is_reported_as_cached_in_steps_of_128(
    client: httpx2.Client,
) -> None:
    messages = [{"role": "system", "content": "s" * 6000}, {"role": "user", "content": "hi"}]
    with ScriptedModelServer() as server:
        first = post(client, server, {"model": "m", "messages": messages})
        again = post(client, server, {"model": "m", "messages": messages})
        longer = [*messages, {"role": "assistant", "content": "a" * 900}]
        third = post(client, server, {"model": "m", "messages": longer})
        fourth = post(client, server, {"model": "m", "messages": longer})
        other = post(client, server, {"model": "other", "messages": longer})
    tokens = first.json()["usage"]["prompt_tokens"]
    assert cached(first) == 0
    assert cached(again) == cached(third) == tokens // 128 * 128 == 1408
    assert cached(fourth) > cached(third)
    assert cached(other) == 0, "each model has its own cache"


def test_a_change_near_the_beginning_loses_the_cache(client: httpx2.Client) -> None:
    def request(clock: str, tools: list[str]) -> Json:
        return {
            "model": "m",
            "messages": [{"role": "system", "content": clock + "s" * 9000}],
            "tools": [{"type": "function", "function": {"name": name}} for name in tools],
        }

    with ScriptedModelServer() as server:
        post(client, server, request("12:00", ["a", "b"]))
        assert cached(post(client, server, request("12:00", ["a", "b"]))) > 2000
        assert cached(post(client, server, request("12:01", ["a", "b"]))) == 0
        assert cached(post(client, server, request("12:00", ["b", "a"]))) == 0


def test_short_and_refused_prompts_are_not_cached(client: httpx2.Client) -> None:
    with ScriptedModelServer([Reply(status=500)]) as server:
        post(client, server, asking("x" * 9000))
        assert cached(post(client, server, asking("x" * 9000))) == 0
        assert cached(post(client, server, asking("x" * 9000))) > 0
        post(client, server, asking("y" * 3000))
        assert cached(post(client, server, asking("y" * 3000))) == 0


@given(st.lists(st.text("ab", max_size=6)), st.text("ab", max_size=6))
def test_the_cache_finds_the_longest_beginning_of_any_earlier_prompt(
    earlier: list[str], prompt: str
) -> None:
    cache = PromptCache()
    for each in earlier:
        cache.remember("m", each)
    beginnings = [prompt[:size] for size in range(len(prompt) + 1)]
    best = max(
        (b for b in beginnings if any(e.startswith(b) for e in earlier)), key=len, default=""
    )
    assert cache.common_prefix("m", prompt) == best


OVERFLOWS: list[tuple[OverflowStyle, int, str]] = [
    ("openai", 400, "maximum context length is 1000 tokens. However, your messages resulted in"),
    ("openai-no-counts", 400, "exceeds the context window"),
    ("vllm", 400, "maximum context length is 1000 tokens"),
    ("llama.cpp", 400, "exceed_context_size_error"),
    ("lm-studio", 400, "Context size has been exceeded."),
    ("input-is-longer", 400, "is longer than the model's context length (1000 tokens)."),
    ("bedrock", 400, "ValidationException"),
    ("out-of-room", 400, "ran out of room in the model's context window"),
    ("z.ai", 200, "model_context_window_exceeded"),
]


@pytest.mark.parametrize(("style", "status", "words"), OVERFLOWS)
def test_a_prompt_above_the_window_is_refused_in_the_words_of_a_provider(
    client: httpx2.Client, style: OverflowStyle, status: int, words: str
) -> None:
    with ScriptedModelServer([Reply("fits")], context_window=1000, overflow=style) as server:
        refused = post(client, server, asking("x" * 5000, stream=True))
        fits = post(client, server, asking("x" * 500))
    assert refused.status_code == status
    assert words in refused.text
    answer = fits.json()["choices"][0]["message"]["content"]
    assert answer == "fits", "an overflow takes nothing from the script"


def test_the_counts_of_an_overflow_are_the_servers_own(client: httpx2.Client) -> None:
    body = asking("x" * 8000)
    with ScriptedModelServer(context_window=1000, token_factor=1.5) as server:
        expected = server.tokens(prompt_text(body))
        openai = post(client, server, body).json()["error"]
        server.overflow = "llama.cpp"
        llama = post(client, server, body).json()["error"]
        server.context_window = expected
        assert post(client, server, body).status_code == 200, "exactly full is not too much"
    assert openai["code"] == "context_length_exceeded"
    assert f"resulted in {expected} tokens" in openai["message"]
    assert (llama["n_prompt_tokens"], llama["n_ctx"]) == (expected, 1000)


# -- faults -----------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [401, 429, 500, 503])
def test_http_errors_have_openais_shape(client: httpx2.Client, status: int) -> None:
    with ScriptedModelServer([Reply(status=status, retry_after_s=1.5)]) as server:
        response = post(client, server, asking(stream=True))
        assert response.status_code == status
        assert set(response.json()["error"]) == {"message", "type", "param", "code"}
        assert response.headers["retry-after"] == "1.5"
        assert post(client, server, asking()).status_code == 200, "on the same connection"


def test_an_error_can_have_any_body(client: httpx2.Client) -> None:
    with ScriptedModelServer([Reply(status=529, error={"detail": "tired"})]) as server:
        response = post(client, server, asking())
    assert (response.status_code, response.json()) == (529, {"detail": "tired"})
    assert "retry-after" not in response.headers


def test_a_disconnect_shows_the_events_before_it_and_no_clean_end(client: httpx2.Client) -> None:
    reply = Reply("abcdef", chunk_chars=2, disconnect_after=3)
    with ScriptedModelServer([reply]) as server:
        url = f"{server.base_url}/chat/completions"
        lines: list[str] = []
        with (
            client.stream("POST", url, json=asking(stream=True)) as response,
            pytest.raises(httpx2.RemoteProtocolError),
        ):
            lines.extend(line for line in response.iter_lines() if line)
        assert [json.loads(line[6:])["choices"][0]["delta"]["content"] for line in lines] == [
            "",
            "ab",
            "cd",
        ]
        assert post(client, server, asking()).status_code == 200


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("after", [0, 1])
def test_a_disconnect_can_come_before_or_within_any_answer(
    client: httpx2.Client,
    stream: bool,  # noqa: FBT001 - a parameter
    after: int,
) -> None:
    with (
        ScriptedModelServer([Reply("hello", disconnect_after=after)]) as server,
        pytest.raises(httpx2.RemoteProtocolError),
    ):
        post(client, server, asking(stream=stream))


def test_a_truncated_event_is_half_of_its_json_and_a_clean_end(client: httpx2.Client) -> None:
    replies = [Reply("abcdef", chunk_chars=2, truncate_after=2), Reply("abc", truncate_after=0)]
    with ScriptedModelServer(replies) as server:
        streamed = post(client, server, asking(stream=True))
        whole = post(client, server, asking())
    payloads = [line[6:] for line in streamed.text.split("\n\n") if line]
    assert len(payloads) == 3
    assert json.loads(payloads[1])["choices"][0]["delta"]["content"] == "ab"
    for text in (payloads[2], whole.text):
        with pytest.raises(json.JSONDecodeError):
            json.loads(text)


@pytest.mark.parametrize("stream", [True, False])
def test_a_stall_is_longer_than_the_clients_patience_and_ends_when_the_server_closes(
    client: httpx2.Client,
    stream: bool,  # noqa: FBT001 - a parameter
) -> None:
    with ScriptedModelServer([Reply("slow", stall_after=1, stall_s=60)]) as server:
        url = f"{server.base_url}/chat/completions"
        with pytest.raises(httpx2.ReadTimeout):
            client.post(url, json=asking(stream=stream), timeout=0.2)
    assert server.hung_up == 0, "the server broke off, not the client"


def test_a_short_stall_and_a_delay_change_nothing_but_the_time(client: httpx2.Client) -> None:
    reply = Reply("abcd", chunk_chars=1, delay_s=0.001, stall_after=0, stall_s=0.01)
    with ScriptedModelServer([reply]) as server:
        assert joined(events(post(client, server, asking(stream=True)))) == "abcd"


def test_a_reply_cannot_pause_for_longer_than_a_test_may_take() -> None:
    with pytest.raises(ValueError, match="60 seconds"):
        Reply(stall_s=61)
    with pytest.raises(ValueError, match="chunk_chars"):
        Reply(chunk_chars=0)


def test_a_client_that_leaves_is_noticed(client: httpx2.Client) -> None:
    left = threading.Event()

    class Watching(ScriptedModelServer):
        def client_left(self) -> None:
            super().client_left()
            left.set()

    with Watching([Reply("x" * 3000, chunk_chars=1, delay_s=0.005)]) as server:
        url = f"{server.base_url}/chat/completions"
        with client.stream("POST", url, json=asking(stream=True)) as response:
            next(response.iter_raw())
        assert left.wait(20)
        assert server.hung_up == 1


def test_an_error_in_the_script_is_a_500_and_comes_out_of_the_with_block(
    client: httpx2.Client,
) -> None:
    def script(request: RecordedRequest) -> Reply:
        raise LookupError("no such step")

    with pytest.raises(LookupError, match="no such step"), ScriptedModelServer(script) as server:
        assert post(client, server, asking()).status_code == 500


# -- many at once, and the end ----------------------------------------------------------------


async def test_many_requests_at_once_each_get_their_own_answer() -> None:
    arrived = threading.Barrier(40)

    def script(request: RecordedRequest) -> Reply:
        arrived.wait(20)  # nobody is answered before all are there
        return Reply(request.body["messages"][0]["content"], chunk_chars=3)

    async def ask(client: httpx2.AsyncClient, url: str, text: str) -> str:
        response = await client.post(url, json=asking(text, stream=True))
        return joined(events(response))

    limits = httpx2.Limits(max_connections=None)
    texts = [f"conversation number {number}" for number in range(40)]
    with ScriptedModelServer(script) as server:
        url = f"{server.base_url}/chat/completions"
        async with httpx2.AsyncClient(trust_env=False, limits=limits, timeout=20) as client:
            answers = await asyncio.gather(*(ask(client, url, text) for text in texts))
        assert len(server.requests) == 40
    assert answers == texts


def test_it_closes_while_clients_are_connected_and_leaves_nothing_open() -> None:
    threads = set(threading.enumerate())
    with (
        httpx2.Client(trust_env=False, timeout=20) as idle,
        httpx2.Client(trust_env=False, timeout=20) as busy,
    ):
        with ScriptedModelServer(
            [Reply("done"), Reply("x" * 99, stall_after=2, stall_s=60)]
        ) as server:
            post(idle, server, asking())
            url = f"{server.base_url}/chat/completions"
            with busy.stream("POST", url, json=asking(stream=True)) as response:
                rest = response.iter_raw()
                next(rest)
                server.close()
                with pytest.raises(httpx2.TransportError):
                    b"".join(rest)
        with pytest.raises(httpx2.ConnectError):
            post(idle, server, asking())
    server.close()
    assert set(threading.enumerate()) <= threads
    gc.collect()  # a socket left open would warn here
