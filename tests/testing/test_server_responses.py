"""The scripted model server as OpenAI's Responses, asked by OpenAI's own client."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import openai
import pytest

from strandline.testing import Reply, ScriptedModelServer, SimulatedClock, ToolCall

CALLS = [ToolCall("read", {"path": "a.txt"}, "call_1"), ToolCall("broken", '{"pa', "call_2")]
TOOLS = [{"type": "function", "name": "read", "parameters": {"type": "object"}}]


@contextmanager
def connected(server: ScriptedModelServer) -> Iterator[Any]:
    with openai.OpenAI(
        base_url=server.base_url,
        api_key="key",
        max_retries=0,
        http_client=openai.DefaultHttpxClient(trust_env=False, timeout=20),
        _strict_response_validation=True,
    ) as client:
        yield client


def asking(text: str = "hello", **more: Any) -> dict[str, Any]:
    return {"model": "gpt", "input": text, **more}


@pytest.mark.parametrize("streamed", [True, False])
def test_text_reasoning_and_calls_arrive_whole(streamed: bool) -> None:  # noqa: FBT001 - a parameter
    reply = Reply("Let me look. 🎉", thinking="Hm, a file.", tool_calls=CALLS)
    request = asking(tools=TOOLS, instructions="Be brief.")
    with ScriptedModelServer([reply]) as server, connected(server) as client:
        if streamed:
            *_, last = client.responses.create(**request, stream=True)
            response = last.response
        else:
            response = client.responses.create(**request)
    reasoning, message, read, broken = response.output
    assert [part.text for part in reasoning.summary] == ["Hm, a file."]
    assert reasoning.encrypted_content == reply.signed("responses") != ""
    assert response.output_text == message.content[0].text == "Let me look. 🎉"
    assert (read.call_id, read.name, read.arguments) == ("call_1", "read", '{"path":"a.txt"}')
    assert broken.arguments == '{"pa'
    assert (response.status, response.model) == ("completed", "gpt")
    usage = response.usage
    assert usage.output_tokens == server.tokens(reply.output)
    assert usage.output_tokens_details.reasoning_tokens == server.tokens("Hm, a file.")
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens
    assert usage.input_tokens_details.cached_tokens == 0


def test_the_events_are_numbered_and_come_in_the_order_of_openai() -> None:
    reply = Reply(["one", "two"], thinking="Hm.", tool_calls=CALLS[:1])
    with ScriptedModelServer([reply]) as server, connected(server) as client:
        events = list(client.responses.create(**asking(), stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    types = [event.type.removeprefix("response.") for event in events]
    assert types == [
        *["created", "in_progress"],
        *["output_item.added", "reasoning_summary_part.added", "reasoning_summary_text.delta"],
        *["reasoning_summary_text.done", "reasoning_summary_part.done", "output_item.done"],
        *["output_item.added", "content_part.added", "output_text.delta", "output_text.delta"],
        *["output_text.done", "content_part.done", "output_item.done"],
        *["output_item.added", "function_call_arguments.delta"],
        *["function_call_arguments.done", "output_item.done"],
        "completed",
    ]
    indices = [event.output_index for event in events if hasattr(event, "output_index")]
    assert indices == sorted(indices)
    assert set(indices) == {0, 1, 2}


def test_the_typed_stream_of_the_client_puts_it_together() -> None:
    reply = Reply("Good morning.", thinking="Hm.", tool_calls=CALLS[:1], chunk_chars=3)
    with (
        ScriptedModelServer([reply]) as server,
        connected(server) as client,
        client.responses.stream(**asking()) as stream,
    ):
        deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert "".join(deltas) == final.output_text == "Good morning."


@pytest.mark.parametrize(
    ("reason", "status", "why"),
    [
        ("stop", "completed", None),
        ("length", "incomplete", "max_output_tokens"),
        ("content_filter", "incomplete", "content_filter"),
    ],
)
def test_an_answer_can_be_incomplete(reason: str, status: str, why: str | None) -> None:
    script = [Reply("x", finish_reason=reason)] * 2
    with ScriptedModelServer(script) as server, connected(server) as client:
        whole = client.responses.create(**asking())
        *_, last = client.responses.create(**asking(), stream=True)
    assert last.type == f"response.{status}"
    for response in (whole, last.response):
        assert response.status == status
        details = response.incomplete_details
        assert (details and details.reason) == why
        assert response.usage.output_tokens == 1


def test_an_answer_can_fail() -> None:
    script = [Reply("x", finish_reason="failed")]
    with ScriptedModelServer(script) as server, connected(server) as client:
        *_, last = client.responses.create(**asking(), stream=True)
    assert (last.type, last.response.error.code) == ("response.failed", "server_error")


ERRORS: list[tuple[int, type[openai.APIStatusError]]] = [
    (400, openai.BadRequestError),
    (401, openai.AuthenticationError),
    (403, openai.PermissionDeniedError),
    (404, openai.NotFoundError),
    (429, openai.RateLimitError),
    (500, openai.InternalServerError),
    (503, openai.InternalServerError),
]


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize(("status", "kind"), ERRORS)
def test_an_error_is_of_its_class(
    status: int,
    kind: type[openai.APIStatusError],
    streamed: bool,  # noqa: FBT001 - a parameter
) -> None:
    script = [Reply(status=status, retry_after_s=2)]
    with (
        ScriptedModelServer(script) as server,
        connected(server) as client,
        pytest.raises(kind) as caught,
    ):
        client.responses.create(**asking(), stream=streamed)
    assert caught.value.status_code == status
    assert caught.value.response.headers["retry-after"] == "2"
    assert caught.value.request_id


def test_an_error_can_come_in_the_middle_of_a_stream() -> None:
    reply = Reply("abcdef", chunk_chars=2, status=429, error_after=5)
    with ScriptedModelServer([reply]) as server, connected(server) as client:
        *before, last = client.responses.create(**asking(), stream=True)
    assert before[-1].delta == "ab"
    assert (last.type, last.code) == ("error", "rate_limit_exceeded")
    assert last.sequence_number == 5


def test_an_overflow_is_a_400_or_the_failure_of_a_stream() -> None:
    with (
        ScriptedModelServer([Reply("fits")], context_window=1000) as server,
        connected(server) as client,
    ):
        with pytest.raises(openai.BadRequestError) as caught:
            client.responses.create(**asking("x" * 8000))
        assert caught.value.code == "context_length_exceeded"
        body = asking("x" * 8000, stream=True)
        raw = httpx2.post(f"{server.base_url}/responses", json=body, trust_env=False)
        names = [line for line in raw.text.split("\n") if line.startswith("event: ")]
        assert names[-1] == "event: response.failed"
        assert '"code":"context_length_exceeded"' in raw.text
        assert client.responses.create(**asking()).output_text == "fits"


def test_what_was_said_can_be_said_again_with_its_reasoning() -> None:
    first = Reply(thinking="Hm.", tool_calls=CALLS[:1])
    with ScriptedModelServer([first, Reply("done")]) as server, connected(server) as client:
        response = client.responses.create(**asking(store=False))
        result = {"type": "function_call_output", "call_id": "call_1", "output": "text"}
        items = [item.model_dump(exclude_none=True) for item in response.output]
        history = [{"role": "user", "content": "hello"}, *items, result]
        again = client.responses.create(model="gpt", input=history, store=False)
    assert again.output_text == "done"
    assert server.refused == []


def test_a_prefix_is_cached_in_steps_of_128() -> None:
    with ScriptedModelServer() as server, connected(server) as client:
        used = [client.responses.create(**asking("x" * 8000)).usage for _ in range(2)]
    assert [u.input_tokens_details.cached_tokens for u in used] == [0, 1920]


def test_a_day_of_retention_is_taken_and_kept_for() -> None:
    clock = SimulatedClock()
    more: dict[str, Any] = {"prompt_cache_key": "s1", "prompt_cache_retention": "24h"}
    with ScriptedModelServer(now_ms=clock.now_ms) as server, connected(server) as client:
        used = []
        for hours in (0, 20, 25):
            clock.advance(hours * 3_600_000)
            used.append(client.responses.create(**asking("x" * 8000, **more)).usage)
    assert [u.input_tokens_details.cached_tokens for u in used] == [0, 1920, 0]
    assert server.requests[0].body["prompt_cache_key"] == "s1"


def test_a_thread_is_gone_on_with_by_the_id_of_its_last_answer() -> None:
    script = [Reply("I look.", thinking="Hm.", tool_calls=CALLS[:1]), Reply("Done."), Reply("Bye.")]
    with ScriptedModelServer(script) as server, connected(server) as client:
        first = client.responses.create(**asking("x" * 800, tools=TOOLS))
        result = {"type": "function_call_output", "call_id": "call_1", "output": "text"}
        second = client.responses.create(
            model="gpt", input=[result], previous_response_id=first.id, tools=TOOLS
        )
        again = client.responses.create(**asking("bye"), previous_response_id=second.id)
        with pytest.raises(openai.BadRequestError) as caught:
            client.responses.create(**asking("no result"), previous_response_id=first.id)
    assert "No tool output found for function call call_1." in str(caught.value)
    assert second.previous_response_id == first.id
    assert again.output_text == "Bye."
    assert first.usage.input_tokens < second.usage.input_tokens
    assert second.usage.input_tokens > 200, "the earlier turns are read again"


@pytest.mark.parametrize("lost", ["not-stored", "forgotten", "failed"])
def test_what_was_not_kept_cannot_be_gone_on_with(lost: str) -> None:
    script = [Reply("x", finish_reason="failed" if lost == "failed" else None)]
    with ScriptedModelServer(script) as server, connected(server) as client:
        first = client.responses.create(**asking(store=lost != "not-stored"))
        if lost == "forgotten":
            server.forget()
        with pytest.raises(openai.BadRequestError) as caught:
            client.responses.create(**asking(), previous_response_id=first.id)
    assert caught.value.code == "previous_response_not_found"
    assert server.refused == [f"Previous response with id '{first.id}' not found."]


def test_a_thread_that_outgrows_the_window_loses_its_beginning_where_it_may() -> None:
    with ScriptedModelServer(context_window=300) as server, connected(server) as client:
        first = client.responses.create(**asking("x" * 800))
        with pytest.raises(openai.BadRequestError) as caught:
            client.responses.create(**asking("y" * 800), previous_response_id=first.id)
        assert caught.value.code == "context_length_exceeded"
        cut = client.responses.create(
            **asking("y" * 800), previous_response_id=first.id, truncation="auto"
        )
        with pytest.raises(openai.BadRequestError):
            client.responses.create(**asking("z" * 8000, truncation="auto"))
    assert cut.truncation == "auto"
    assert 200 < cut.usage.input_tokens <= 300
