"""The seam to tools: what a model may call, and what comes back.

A `Tool` is a value with a function in it. A `Toolbox` holds the tools of an agent in the
order of their names, so that a request has the same bytes whatever order they were
registered in, and answers a call with a tool result message whatever happens inside.
Source: spec 4, A turn (Tools).
"""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from strandline.errors import ConfigError, StrandlineError
from strandline.runtime.access import WorkspaceAccess
from strandline.runtime.finishing import cancellings
from strandline.transcript.messages import JsonObject, Message

UNPARSED_ARGUMENTS = "unparsedArguments"
"""The one key of a call's arguments where the model wrote no JSON object: the text it wrote."""

MAX_RESULT_CHARS = 8 * 1024 * 1024
"""The longest text that one result keeps; more is cut, and the result says so."""

MAX_ERROR_CHARS = 2000
"""Of what a tool's exception says."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call. `agent_id` and `session_key` say for whom, `now_ms` when (Unix ms)."""

    id: str
    name: str
    arguments: JsonObject
    agent_id: str
    session_key: str
    now_ms: int


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """What a tool gives back: `content` blocks (text, image), `details` for faces only."""

    content: Sequence[JsonObject]
    is_error: bool = False
    details: Any = None

    @classmethod
    def of_text(cls, text: str, *, is_error: bool = False, details: Any = None) -> ToolOutput:
        """The output that is one text."""
        return cls([{"type": "text", "text": text}], is_error, details)


RunTool = Callable[[ToolCall], Awaitable[ToolOutput | str] | ToolOutput | str]
"""A coroutine function, or a plain one, which runs on a thread."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool: `parameters` is the JSON Schema of its arguments, an object's.

    `needs` is the access to the workspace without which it is not offered. `run` may raise
    a `StrandlineError`: the model reads its text, as an error.
    """

    name: str
    description: str
    parameters: JsonObject
    run: RunTool = field(repr=False)
    needs: WorkspaceAccess = "none"


class Toolbox:
    """The tools of one agent, by name. Immutable: `plus` makes another.

    `checked` are tools of another one, which need no check. Raises `ConfigError` for a tool
    that cannot be offered and for a name that is taken.
    """

    def __init__(self, tools: Iterable[Tool] = (), *, checked: Iterable[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        for tool in sorted([*checked, *map(_checked, tools)], key=lambda tool: tool.name):
            if tool.name in self._tools:
                raise ConfigError(f"two tools are called {tool.name}", remedy="rename one of them")
            self._tools[tool.name] = tool

    def __len__(self) -> int:
        return len(self._tools)

    @property
    def names(self) -> list[str]:
        """The names, sorted by code point."""
        return list(self._tools)

    def purposes(self) -> list[tuple[str, str]]:
        """Each name with what the tool is for, in a sentence."""
        return [(name, tool.description) for name, tool in self._tools.items()]

    def plus(self, tools: Iterable[Tool]) -> Toolbox:
        """These and more. Raises `ConfigError` for a name that is taken."""
        return Toolbox(tools, checked=self._tools.values())

    def only(self, wanted: Callable[[Tool], bool]) -> Toolbox:
        """Those that are wanted."""
        return Toolbox(checked=filter(wanted, self._tools.values()))

    def described(self) -> list[JsonObject]:
        """The tools as a `ModelRequest` carries them, by name."""
        return [
            {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
            for tool in self._tools.values()
        ]

    async def answer(self, call: ToolCall) -> Message:
        """The result message of a call. Errors are results too; only cancelling goes through."""
        output = await self._output(call, cancellings())
        message: Message = {
            "role": "toolResult",
            "toolCallId": call.id,
            "toolName": call.name,
            "content": list(output.content),
            "isError": output.is_error,
            "timestamp": call.now_ms,
        }
        return message if output.details is None else {**message, "details": output.details}

    async def _output(self, call: ToolCall, asked_to_stop: int) -> ToolOutput:
        try:
            return await asyncio.to_thread(_checked_output, await self._run(call))
        except asyncio.CancelledError:
            if cancellings() > asked_to_stop:
                raise  # somebody stops the turn, not the tool something of its own
            return _refusal(f"{call.name} failed: what it waited for was cancelled")
        except StrandlineError as error:
            return _refusal(str(error))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a tool is anybody's code; the turn goes on
            return _refusal(f"{call.name} failed: {_words(error)}")

    async def _run(self, call: ToolCall) -> ToolOutput | str:
        tool = self._tools.get(call.name)
        if tool is None:
            known = ", ".join(self._tools) or "none"
            return _refusal(f"there is no tool {call.name[:64]!r}; there are: {known}")
        if isinstance(call.arguments, dict) and call.arguments.keys() == {UNPARSED_ARGUMENTS}:
            return _refusal(f"the arguments of {call.name} are not a JSON object: write them again")
        wrong = await asyncio.to_thread(_what_is_wrong, call.arguments, tool.parameters)
        if wrong:
            return _refusal(f"the arguments of {call.name} are not acceptable: {wrong}")
        if inspect.iscoroutinefunction(tool.run):
            given: Awaitable[ToolOutput | str] | ToolOutput | str = tool.run(call)
        else:
            given = await asyncio.to_thread(tool.run, call)  # a plain function may block
        return await given if inspect.isawaitable(given) else given


def _checked(tool: Tool) -> Tool:
    """The tool, as it can be offered. Raises `ConfigError`. Checking a schema takes a while."""
    from jsonschema import Draft202012Validator, SchemaError  # noqa: PLC0415 - 0.1 s

    if not _NAME.fullmatch(tool.name):
        raise ConfigError(
            f"{tool.name!a} cannot be a tool's name", remedy="use 1 to 64 of A-Z a-z 0-9 _ -"
        )
    try:
        Draft202012Validator.check_schema(tool.parameters)
    except SchemaError as error:
        raise ConfigError(
            f"the parameters of the tool {tool.name} are no JSON Schema: {error.message}",
            remedy="correct the schema",
        ) from None
    if tool.parameters.get("type", "object") != "object" or _points_elsewhere(tool.parameters):
        raise ConfigError(
            f"the parameters of the tool {tool.name} are no object, or need another schema",
            remedy='say "type": "object", and let every $ref begin with #',
        )
    return replace(tool, parameters={"type": "object", **tool.parameters})


def _points_elsewhere(schema: object) -> bool:
    """Whether a schema refers to another one, which would be fetched from wherever it is."""
    if isinstance(schema, dict):
        refs = (schema.get("$ref"), schema.get("$dynamicRef"))
        if any(isinstance(ref, str) and not ref.startswith("#") for ref in refs):
            return True
        return any(map(_points_elsewhere, schema.values()))
    return isinstance(schema, list) and any(map(_points_elsewhere, schema))


def _what_is_wrong(arguments: JsonObject, schema: JsonObject) -> str:
    from jsonschema import Draft202012Validator  # noqa: PLC0415 - 0.1 s

    errors = sorted(Draft202012Validator(schema).iter_errors(arguments), key=lambda e: e.json_path)
    return "; ".join(f"{error.json_path}: {error.message[:200]}" for error in errors[:3])


def _refusal(text: str) -> ToolOutput:
    return ToolOutput.of_text(text, is_error=True)


def _words(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - the error's own code fails too
        text = "(it cannot be told)"
    return f"{type(error).__name__}: {text[:MAX_ERROR_CHARS]}"


def _checked_output(output: object) -> ToolOutput:
    """What a tool gave back, bounded. Raises `TypeError`, `ValueError` if that is no output."""
    if isinstance(output, str):
        output = ToolOutput.of_text(output)
    if not isinstance(output, ToolOutput):
        raise TypeError(f"it gave back a {type(output).__name__}, not a text or a ToolOutput")
    room, blocks = MAX_RESULT_CHARS, []
    for block in output.content:
        bounded = _bounded(block, room)
        room -= _size(bounded)
        blocks.append(bounded)
    json.dumps([blocks, output.details], allow_nan=False)  # what a transcript cannot hold
    return replace(output, content=blocks)


def _size(block: JsonObject) -> int:
    return sum(len(v) for key, v in block.items() if key != "type" and isinstance(v, str))


def _bounded(block: JsonObject, room: int) -> JsonObject:
    """The block within `room` characters: a text is cut, anything else left out with a note."""
    if not isinstance(block, dict):
        raise TypeError(f"its content holds a {type(block).__name__}, not a block")
    size = _size(block)
    if size <= max(room, 0):
        return block
    text = block.get("text")
    if isinstance(text, str):
        cut = f"{text[: max(room, 0)]}\n[cut: the output had {len(text):,} characters here]"
        return {"type": "text", "text": cut}
    return {"type": "text", "text": f"[left out for its size: {size:,} characters]"}
