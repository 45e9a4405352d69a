"""A Responses server that keeps the conversation itself gets only what is new."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest

from strandline.errors import ModelError, ThreadLost
from strandline.models.openai_responses import API, OpenAIResponsesModel
from strandline.models.openai_responses_wire import request_body
from strandline.runtime.model import Failed, Finished, ModelInfo, ModelRequest, ThreadPoint
from strandline.testing import Reply, ScriptedModelServer, SimulatedClock, ToolCall

DEEP = ModelInfo("acme", "deep", API, 8192, 512, reasoning=True)
TOOLS = ({"name": "read", "description": "Reads.", "parameters": {"type": "object"}},)
POINT = ThreadPoint("epoch-1", "abc")

Ask = Callable[..., ModelRequest]
Collect = Callable[[Any, ModelRequest], Any]
Json = dict[str, Any]


@pytest.fixture
async def model_at() -> AsyncIterator[Callable[[str], OpenAIResponsesModel]]:
    async with contextlib.AsyncExitStack() as stack:

        def make(base_url: str) -> OpenAIResponsesModel:
            model = OpenAIResponsesModel(base_url, clock=SimulatedClock(77_000))
            stack.push_async_callback(model.aclose)
            return model

        yield make


Model = Callable[[str], OpenAIResponsesModel]


def finished(events: list[Any]) -> Json:
    assert isinstance(events[-1], Finished), events[-1]
    return dict(events[-1].message)


def failed(events: list[Any]) -> ModelError:
    assert isinstance(events[-1], Failed), events[-1]
    return events[-1].error


def after(answer: Json) -> ThreadPoint:
    return replace(POINT, previous_id=answer["responseId"])


def body_of(request: ModelRequest) -> Json:
    body: Json = json.loads(request_body(request))
    return body


def test_a_thread_is_stored_and_may_lose_its_beginning_at_the_provider(ask: Ask) -> None:
    begun = body_of(ask("hi", model=DEEP, system_prompt="Be kind.", thread=POINT))
    assert (begun["store"], begun["truncation"]) == (True, "auto")
    assert "previous_response_id" not in begun
    point = replace(POINT, previous_id="resp_1")
    gone_on = body_of(ask("more", model=DEEP, system_prompt="Be kind.", thread=point))
    assert gone_on["previous_response_id"] == "resp_1"
    assert gone_on["instructions"] == "Be kind.", "the thread does not keep them"
    assert [item["content"][0]["text"] for item in gone_on["input"]] == ["more"]


def test_without_a_thread_nothing_is_stored(ask: Ask) -> None:
    body = body_of(ask("hi", model=DEEP))
    assert body["store"] is False
    assert not {"truncation", "previous_response_id"} & set(body)


async def test_a_turn_with_tools_goes_on_in_the_thread(
    model_at: Model, ask: Ask, events_of: Collect
) -> None:
    script = [
        Reply("I look.", thinking="hm", tool_calls=[ToolCall("read", {}, "call_1")]),
        Reply("Done.", thinking="so"),
        Reply("Bye."),
    ]
    with ScriptedModelServer(script) as server:
        model = model_at(server.base_url)
        request = ask("x" * 800, model=DEEP, tools=TOOLS, system_prompt="Be kind.", thread=POINT)
        called = finished(await events_of(model, request))
        (call,) = [block for block in called["content"] if block["type"] == "toolCall"]
        result = {"role": "toolResult", "toolCallId": call["id"], "toolName": "read"}
        result |= {"content": [{"type": "text", "text": "found"}], "isError": False}
        next_one = replace(request, messages=[result], thread=after(called))
        done = finished(await events_of(model, next_one))
        last = replace(request, messages=ask("thanks").messages, thread=after(done))
        bye = finished(await events_of(model, last))
        assert server.refused == []
    assert called["thread"] == {"epoch": "epoch-1", "fingerprint": "abc"}
    sent = [[item["type"] for item in each.body["input"]] for each in server.requests]
    assert sent == [["message"], ["function_call_output"], ["message"]]
    counts = [m["usage"]["input"] + m["usage"]["cacheRead"] for m in (called, done, bye)]
    assert 200 < counts[0] < counts[1] < counts[2], "the whole thread is read"


async def test_a_lost_thread_is_an_error_of_its_own(
    model_at: Model, ask: Ask, events_of: Collect
) -> None:
    with ScriptedModelServer() as server:
        model = model_at(server.base_url)
        answer = finished(await events_of(model, ask("hi", model=DEEP, thread=POINT)))
        request = ask("more", model=DEEP, thread=after(answer))
        assert finished(await events_of(model, request))
        server.forget()
        error = failed(await events_of(model, request))
        assert isinstance(error, ThreadLost)
        assert (error.kind, error.remedy) == ("refused", "begin the thread anew")
        assert "not found" in error.what
        assert finished(await events_of(model, replace(request, thread=POINT)))


@pytest.mark.parametrize(
    ("status", "message", "code", "lost"),
    [
        (404, "Previous response with id 'resp_1' not found.", None, True),
        (400, "unknown", "previous_response_not_found", True),
        (400, "Previous response cannot be used for this organization.", None, True),
        (404, "The model `deep` does not exist", "model_not_found", False),
        (400, "Item with id 'rs_1' not found.", None, False),
    ],
)
async def test_other_refusals_are_not_taken_for_a_lost_thread(
    status: int,
    message: str,
    code: str | None,
    lost: bool,  # noqa: FBT001 - a parameter
    model_at: Model,
    ask: Ask,
    events_of: Collect,
) -> None:
    error = {"error": {"message": message, "type": "invalid_request_error", "code": code}}
    with ScriptedModelServer([Reply(status=status, error=error)]) as server:
        found = failed(await events_of(model_at(server.base_url), ask("hi", model=DEEP)))
    assert isinstance(found, ThreadLost) is lost
    assert found.kind == "refused"


@pytest.mark.parametrize(
    ("reply", "point"),
    [
        (Reply("x"), None),
        (Reply("x", tool_calls=[ToolCall("read", '{"pa', "c")], finish_reason="length"), POINT),
    ],
    ids=["no-thread", "cut-off"],
)
async def test_an_answer_after_which_no_thread_can_go_on_names_none(
    reply: Reply, point: ThreadPoint | None, model_at: Model, ask: Ask, events_of: Collect
) -> None:
    """A call that was cut off would stand in the thread for ever, without its result."""
    with ScriptedModelServer([reply]) as server:
        request = ask("hi", model=DEEP, thread=point)
        message = finished(await events_of(model_at(server.base_url), request))
    assert not {"responseId", "thread"} & set(message)


async def test_a_server_that_gives_its_answers_no_ids_keeps_no_thread(
    raw_server: Any, model_at: Model, ask: Ask, events_of: Collect
) -> None:
    part = {"type": "output_text", "text": "hello"}
    said = {"object": "response", "output": [{"type": "message", "content": [part]}]}
    raw_server.whole("200 OK", json.dumps(said).encode())
    request = ask("hi", model=DEEP, thread=POINT)
    message = finished(await events_of(model_at(raw_server.base_url), request))
    assert not {"responseId", "thread"} & set(message)
