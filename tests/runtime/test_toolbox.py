"""The Toolbox: every call gets a result message, whatever the model or the tool does."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from strandline.errors import ConfigError, SessionNotFound
from strandline.runtime import tools
from strandline.runtime.tools import Tool, Toolbox, ToolCall, ToolOutput
from strandline.transcript.messages import JsonObject, Message

Run = Callable[[ToolCall], Awaitable[Any]]


async def says_hello(call: ToolCall) -> str:
    return f"hello {call.arguments.get('name', 'you')}"


def tool(name: str = "greet", run: Run = says_hello, **parameters: Any) -> Tool:
    return Tool(name, "Greets.", parameters, run)


def gives(value: object) -> Run:
    async def run(call: ToolCall) -> object:
        return value

    return run


def raises(error: BaseException) -> Run:
    async def run(call: ToolCall) -> object:
        raise error

    return run


async def answer(box: Toolbox, arguments: Any = None, name: str = "greet") -> Message:
    call = ToolCall("call-1", name, arguments if arguments is not None else {}, "main", "key", 42)
    return await box.answer(call)


def text_of(message: Message) -> str:
    return "\n".join(block["text"] for block in message["content"])


async def test_a_result_is_a_message_with_the_call_it_answers_and_the_time() -> None:
    assert await answer(Toolbox([tool()]), {"name": "Anna"}) == {
        "role": "toolResult",
        "toolCallId": "call-1",
        "toolName": "greet",
        "content": [{"type": "text", "text": "hello Anna"}],
        "isError": False,
        "timestamp": 42,
    }


async def test_a_plain_function_is_a_tool_too_and_runs_on_a_thread() -> None:
    def run(call: ToolCall) -> str:
        return f"{call.name} on {threading.current_thread() is threading.main_thread()}"

    plain = Tool("greet", "Greets.", {}, run)
    assert text_of(await answer(Toolbox([plain]))) == "greet on False"


async def test_details_and_images_are_handed_on_as_they_are() -> None:
    image = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
    output = ToolOutput([image], is_error=True, details={"path": "a.png"})
    message = await answer(Toolbox([tool(run=gives(output))]))
    assert message["content"] == [image]
    assert message["isError"] is True
    assert message["details"] == {"path": "a.png"}


def test_tools_are_in_the_order_of_their_names_whatever_the_order_they_came_in() -> None:
    first = Toolbox([tool("b"), tool("C"), tool("a")])
    second = Toolbox([tool("a")]).plus([tool("C"), tool("b")])
    assert first.names == second.names == ["C", "a", "b"]
    assert json.dumps(first.described()) == json.dumps(second.described())
    assert first.described()[0] == {
        "name": "C",
        "description": "Greets.",
        "parameters": {"type": "object"},
    }
    assert len(first) == 3
    assert first.only(lambda one: one.name != "a").names == ["C", "b"]


@pytest.mark.parametrize("name", ["", "a b", "a.b", "ä", "x" * 65, "a\n"])
def test_a_name_that_providers_refuse_is_refused_at_once(name: str) -> None:
    with pytest.raises(ConfigError, match="A-Z"):
        Toolbox([tool(name)])


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="greet"):
        Toolbox([tool(), tool()])
    with pytest.raises(ConfigError, match="rename"):
        Toolbox([tool()]).plus([tool()])


@pytest.mark.parametrize(
    "parameters",
    [
        {"type": "nothing"},
        {"properties": {"a": {"pattern": "["}}},
        {"type": "array"},
        {"properties": {"a": {"$ref": "http://127.0.0.1:9/schema.json"}}},
        {"allOf": [{"$ref": "other.json"}]},
    ],
)
def test_parameters_that_are_no_schema_of_an_object_or_need_another_are_refused(
    parameters: JsonObject,
) -> None:
    with pytest.raises(ConfigError, match="greet"):
        Toolbox([tool(**parameters)])


async def test_a_tool_that_is_not_there_is_told_with_those_that_are() -> None:
    message = await answer(Toolbox([tool("a"), tool("b")]), name="x" * 100_000)
    assert message["isError"]
    assert text_of(message).endswith("; there are: a, b")
    assert len(text_of(message)) < 200
    assert text_of(await answer(Toolbox())).endswith("there are: none")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({}, "'name' is a required property"),
        ({"name": 5}, "$.name: 5 is not of type 'string'"),
        ({"name": "a", "more": 1}, "'more' was unexpected"),
        (["name"], "is not of type 'object'"),
        ("name", "is not of type 'object'"),
    ],
)
async def test_arguments_that_do_not_fit_are_told_and_the_tool_is_not_run(
    arguments: Any, told: str
) -> None:
    greet = tool(
        run=raises(AssertionError("it was run")),
        properties={"name": {"type": "string"}},
        required=["name"],
        additionalProperties=False,
    )
    message = await answer(Toolbox([greet]), arguments)
    assert message["isError"]
    assert told in text_of(message)


async def test_arguments_nested_without_end_or_a_reference_to_nothing_end_no_turn() -> None:
    deep: JsonObject = {}
    for _ in range(5000):
        deep = {"a": deep}
    node = {"type": "object", "properties": {"a": {"$ref": "#/$defs/node"}}}
    recursive: JsonObject = {"$defs": {"node": node}, "$ref": "#/$defs/node"}
    box = Toolbox([tool(**recursive)])
    assert (await answer(box, deep))["isError"]
    box = Toolbox([tool(properties={"a": {"$ref": "#/nowhere"}})])
    assert (await answer(box, {"a": 1}))["isError"]


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise ValueError


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (SessionNotFound("no session x", remedy="list them"), "no session x: list them"),
        (ValueError("bad value"), "greet failed: ValueError: bad value"),
        (KeyError("k"), "greet failed: KeyError: 'k'"),
        (RuntimeError("x" * 5000), "greet failed: RuntimeError: " + "x" * 2000),
        (UnspeakableError(), "greet failed: UnspeakableError: (it cannot be told)"),
        (SystemExit(3), "greet failed: SystemExit: 3"),
        (asyncio.CancelledError(), "greet failed: what it waited for was cancelled"),
    ],
)
async def test_a_tool_that_raises_whatever_it_is_gives_an_error_result(
    error: BaseException, told: str
) -> None:
    message = await answer(Toolbox([tool(run=raises(error))]))
    assert message["isError"]
    assert text_of(message) == told


@pytest.mark.parametrize(
    "value",
    [
        None,
        {"content": []},
        ToolOutput(["text"]),  # type: ignore[list-item]  # what a plugin may do
        ToolOutput(5),  # type: ignore[arg-type]  # the same
        ToolOutput([], details={1, 2}),
        ToolOutput([], details=float("nan")),
        ToolOutput([{"type": "image", "data": b"bytes"}]),
    ],
)
async def test_what_is_no_output_or_no_json_is_an_error_result(value: object) -> None:
    message = await answer(Toolbox([tool(run=gives(value))]))
    assert message["isError"]
    assert text_of(message).startswith("greet failed: ")
    json.dumps(message, allow_nan=False)


async def test_cancelling_the_turn_goes_through_to_the_tool_and_out_again() -> None:
    inside, cleaned = asyncio.Event(), []

    async def waits(call: ToolCall) -> str:
        inside.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append(True)
        return ""

    turn = asyncio.create_task(answer(Toolbox([tool(run=waits)])))
    await inside.wait()
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    assert cleaned == [True]


async def test_h22_a_result_is_bounded_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "MAX_RESULT_CHARS", 100)
    message = await answer(Toolbox([tool(run=gives("🎉" * 300))]))
    assert text_of(message) == "🎉" * 100 + "\n[cut: the output had 300 characters here]"
    whole = await answer(Toolbox([tool(run=gives("🎉" * 100))]))
    assert text_of(whole) == "🎉" * 100


async def test_h22_the_bound_is_for_all_blocks_together_and_images_are_never_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tools, "MAX_RESULT_CHARS", 100)
    text = {"type": "text", "text": "x" * 60}
    large = {"type": "image", "data": "a" * 400, "mimeType": "image/png"}
    message = await answer(Toolbox([tool(run=gives(ToolOutput([text, large, text])))]))
    assert message["content"][:2] == [
        text,
        {"type": "text", "text": "[left out for its size: 409 characters]"},
    ]
    assert message["content"][2]["text"].endswith("x\n[cut: the output had 60 characters here]")
    assert sum(block["text"].count("x") for block in message["content"]) < 100
