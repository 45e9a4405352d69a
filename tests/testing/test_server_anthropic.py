"""The scripted model server as Anthropic, asked by Anthropic's own client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anthropic
import httpx2
import pytest

from strandline.testing import Reply, ScriptedModelServer, ToolCall

CALLS = [ToolCall("read", {"path": "a.txt"}, "toolu_1"), ToolCall("now", {}, "toolu_2")]


@contextmanager
def connected(server: ScriptedModelServer) -> Iterator[Any]:
    with anthropic.Anthropic(
        base_url=server.root_url,
        api_key="key",
        max_retries=0,
        http_client=anthropic.DefaultHttpxClient(trust_env=False, timeout=20),
        _strict_response_validation=True,
    ) as client:
        yield client


def asking(text: str = "hello", **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    return {"model": "claude", "max_tokens": 100, "messages": messages, **more}


@pytest.mark.parametrize("streamed", [True, False])
def test_text_thinking_and_calls_arrive_whole(streamed: bool) -> None:  # noqa: FBT001 - a parameter
    reply = Reply(
        "Let me look. 🎉", thinking="Hm, a file.", tool_calls=CALLS, redacted_thinking="c2VjcmV0"
    )
    with ScriptedModelServer([reply]) as server, connected(server) as client:
        if streamed:
            with client.messages.stream(**asking()) as stream:
                message = stream.get_final_message()
        else:
            message = client.messages.create(**asking())
    thinking, redacted, text, read, now = message.content
    assert (thinking.type, thinking.thinking) == ("thinking", "Hm, a file.")
    assert thinking.signature == reply.signed("anthropic") != ""
    assert (redacted.type, redacted.data) == ("redacted_thinking", "c2VjcmV0")
    assert (text.type, text.text) == ("text", "Let me look. 🎉")
    assert (read.id, read.name, read.input) == ("toolu_1", "read", {"path": "a.txt"})
    assert (now.id, now.input) == ("toolu_2", {})
    assert message.stop_reason == "tool_use"
    assert message.usage.output_tokens == server.tokens(reply.output)
    assert message.usage.input_tokens > 0
    assert message.usage.cache_read_input_tokens == 0
    assert message.usage.cache_creation_input_tokens == 0


def test_the_events_have_the_names_and_the_order_of_anthropic() -> None:
    reply = Reply(["one", "two"], thinking="Hm.")
    with ScriptedModelServer([reply]) as server:
        response = httpx2.post(
            f"{server.base_url}/messages",
            json=asking(stream=True),
            headers={"anthropic-version": "2023-06-01"},
            trust_env=False,
        )
    events = [part.split("\n") for part in response.text.split("\n\n") if part]
    names = [name.removeprefix("event: ") for name, _ in events]
    assert names == [
        "message_start",
        *["content_block_start", "ping", "content_block_delta", "content_block_delta"],
        *["content_block_stop", "content_block_start"],
        *["content_block_delta", "content_block_delta", "content_block_stop"],
        "message_delta",
        "message_stop",
    ]
    bodies = [json.loads(data.removeprefix("data: ")) for _, data in events]
    assert [body["type"] for body in bodies] == names
    assert [b["delta"]["type"] for b in bodies if b["type"] == "content_block_delta"] == [
        *["thinking_delta", "signature_delta"],
        *["text_delta", "text_delta"],
    ]
    assert response.headers["request-id"]


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (None, "end_turn"),
        ("stop", "end_turn"),
        ("length", "max_tokens"),
        ("content_filter", "refusal"),
        ("model_context_window_exceeded", "model_context_window_exceeded"),
    ],
)
def test_reasons_are_said_in_anthropics_words(reason: str | None, words: str) -> None:
    with (
        ScriptedModelServer([Reply("x", finish_reason=reason)] * 2) as server,
        connected(server) as client,
    ):
        assert client.messages.create(**asking()).stop_reason == words
        with client.messages.stream(**asking()) as stream:
            assert stream.get_final_message().stop_reason == words


def test_an_answer_without_words_has_no_content() -> None:
    with ScriptedModelServer([Reply(), Reply()]) as server, connected(server) as client:
        assert client.messages.create(**asking()).content == []
        with client.messages.stream(**asking()) as stream:
            assert stream.get_final_message().content == []


def test_arguments_that_are_no_json_are_streamed_as_they_are() -> None:
    reply = Reply(tool_calls=[ToolCall("broken", '{"pa', "toolu_1")])
    with ScriptedModelServer([reply, reply]) as server, connected(server) as client:
        whole = client.messages.create(**asking())
        events = list(client.messages.create(**asking(), stream=True))
    assert whole.content[0].input == {"INVALID_JSON": '{"pa'}
    pieces = [e.delta.partial_json for e in events if e.type == "content_block_delta"]
    assert pieces == ["", '{"pa']


ERRORS: list[tuple[int, type[anthropic.APIStatusError], str]] = [
    (400, anthropic.BadRequestError, "invalid_request_error"),
    (401, anthropic.AuthenticationError, "authentication_error"),
    (403, anthropic.PermissionDeniedError, "permission_error"),
    (404, anthropic.NotFoundError, "not_found_error"),
    (429, anthropic.RateLimitError, "rate_limit_error"),
    (500, anthropic.InternalServerError, "api_error"),
    (529, anthropic.APIStatusError, "overloaded_error"),
]


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize(("status", "kind", "name"), ERRORS)
def test_an_error_is_of_its_class(
    status: int,
    kind: type[anthropic.APIStatusError],
    name: str,
    streamed: bool,  # noqa: FBT001 - a parameter
) -> None:
    script = [Reply(status=status, retry_after_s=1.5)]
    with (
        ScriptedModelServer(script) as server,
        connected(server) as client,
        pytest.raises(kind) as caught,
    ):
        client.messages.create(**asking(), stream=streamed)
    error: Any = caught.value
    assert (error.status_code, error.body["error"]["type"]) == (status, name)
    assert error.body["type"] == "error"
    assert error.response.headers["retry-after"] == "1.5"
    assert error.body["request_id"] == error.request_id


def test_an_error_can_come_in_the_middle_of_a_stream() -> None:
    reply = Reply("abcdef", chunk_chars=2, status=529, error_after=5)
    with ScriptedModelServer([reply, reply]) as server, connected(server) as client:
        seen: list[str] = []
        with pytest.raises(anthropic.APIStatusError, match="overloaded_error"):
            seen.extend(event.type for event in client.messages.create(**asking(), stream=True))
        assert seen[-2:] == ["content_block_delta", "content_block_delta"]
        with pytest.raises(anthropic.APIStatusError) as caught:
            client.messages.create(**asking())
        assert caught.value.status_code == 529, "not streamed, it is the answer"


@pytest.mark.parametrize("streamed", [True, False])
def test_an_overflow_tells_both_counts_and_takes_nothing(
    streamed: bool,  # noqa: FBT001 - a parameter
) -> None:
    with (
        ScriptedModelServer([Reply("fits")], context_window=1000) as server,
        connected(server) as client,
    ):
        with pytest.raises(anthropic.BadRequestError) as caught:
            client.messages.create(**asking("x" * 8000), stream=streamed)
        body: Any = caught.value.body
        assert body["error"]["type"] == "invalid_request_error"
        assert body["error"]["message"] == "prompt is too long: 2010 tokens > 1000 maximum"
        assert client.messages.create(**asking()).content[0].text == "fits"


def test_keys_are_recorded_and_the_end_of_the_script_says_what_was_heard() -> None:
    with ScriptedModelServer() as server, connected(server) as client:
        answer = client.messages.create(**asking("seven c"))
        assert answer.content[0].text == "I heard 7 characters."
        assert server.requests[0].headers["authorization"] == "Bearer key"
        assert server.requests[0].path == "/v1/messages"


def test_a_disconnect_in_the_middle_is_an_error_of_the_connection() -> None:
    reply = Reply("abcdef", chunk_chars=2, disconnect_after=4)
    with (
        ScriptedModelServer([reply]) as server,
        connected(server) as client,
        pytest.raises((anthropic.APIConnectionError, httpx2.RemoteProtocolError)),
    ):
        list(client.messages.create(**asking(), stream=True))
