"""The scripted model server as Chat Completions, asked by OpenAI's own client."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import openai
import pytest

from strandline.testing import Reply, ScriptedModelServer, ToolCall

CALLS = [ToolCall("read", {"path": "a.txt"}), ToolCall("broken", '{"pa', id="call_2")]


@contextmanager
def connected(server: ScriptedModelServer) -> Iterator[Any]:
    with openai.OpenAI(
        base_url=server.base_url,
        api_key="key",
        max_retries=0,
        http_client=openai.DefaultHttpxClient(trust_env=False, timeout=20),
        _strict_response_validation=True,
    ) as client:
        yield client.chat.completions


def asking(text: str = "hello", **more: Any) -> dict[str, Any]:
    return {"model": "gpt", "messages": [{"role": "user", "content": text}], **more}


@pytest.mark.parametrize("streamed", [True, False])
def test_text_and_calls_arrive_whole(streamed: bool) -> None:  # noqa: FBT001 - a parameter
    reply = Reply("Let me look. 🎉", thinking="Hm.", tool_calls=CALLS)
    with ScriptedModelServer([reply]) as server, connected(server) as completions:
        if streamed:
            options = {"include_usage": True}
            with completions.stream(**asking(), stream_options=options) as stream:
                answer = stream.get_final_completion()
        else:
            answer = completions.create(**asking())
    choice = answer.choices[0]
    assert (choice.message.content, choice.finish_reason) == ("Let me look. 🎉", "tool_calls")
    arguments = [call.function.arguments for call in choice.message.tool_calls]
    assert arguments == ['{"path":"a.txt"}', '{"pa']
    assert answer.usage.completion_tokens == server.tokens(reply.output)
    assert answer.usage.completion_tokens_details.reasoning_tokens == 1
    assert answer.usage.prompt_tokens_details.cached_tokens == 0


def test_an_error_can_come_in_the_middle_of_a_stream() -> None:
    reply = Reply("abcdef", chunk_chars=2, status=503, error_after=3)
    with ScriptedModelServer([reply]) as server, connected(server) as completions:
        seen: list[str] = []
        with pytest.raises(openai.APIError, match="overloaded"):
            seen.extend(
                chunk.choices[0].delta.content
                for chunk in completions.create(**asking(), stream=True)
            )
    assert seen == ["", "ab", "cd"]


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, openai.BadRequestError),
        (401, openai.AuthenticationError),
        (404, openai.NotFoundError),
        (429, openai.RateLimitError),
        (500, openai.InternalServerError),
    ],
)
def test_an_error_is_of_its_class(status: int, kind: type[openai.APIStatusError]) -> None:
    with (
        ScriptedModelServer([Reply(status=status)]) as server,
        connected(server) as completions,
        pytest.raises(kind),
    ):
        completions.create(**asking())


def test_an_overflow_has_openais_code() -> None:
    with (
        ScriptedModelServer(context_window=1000) as server,
        connected(server) as completions,
        pytest.raises(openai.BadRequestError) as caught,
    ):
        completions.create(**asking("x" * 8000))
    assert caught.value.code == "context_length_exceeded"


def test_an_error_in_a_stream_needs_a_status() -> None:
    with pytest.raises(ValueError, match="error_after"):
        Reply("x", error_after=1)
