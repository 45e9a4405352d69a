"""OpenAI's Responses on the wire, as its server writes it (`strandline.testing.wire`).

What is stored (as everything is, unless ``store`` is false) can be gone on with by its id.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from strandline.testing import prompt_cache, responses_rules, wire
from strandline.testing.issued import Issued
from strandline.testing.kept import Kept, Recalled
from strandline.testing.overflow_words import OverflowStyle
from strandline.testing.prompt_cache import Block
from strandline.testing.reply import Reply, ToolCall
from strandline.testing.wire import (
    CREATED_S,
    Envelope,
    Event,
    Problem,
    RecordedRequest,
    Usage,
    compact,
    dicts,
    joined_text,
)
from strandline.transcript.messages import JsonObject

NAME = "responses"
ASKED = "input"
NOT_JSON = wire.OPENAI_NOT_JSON
CACHE = prompt_cache.OPENAI
OVERFLOW: OverflowStyle = "responses"
headers = wire.openai_headers

_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


def is_request(body: JsonObject) -> bool:
    """Whether there is an input: a text or a list of items."""
    return isinstance(body.get("input"), list | str)


def input_items(body: JsonObject) -> list[JsonObject]:
    """The items of the input; a text stands for a user message."""
    asked = body.get("input")
    if isinstance(asked, str):
        return [{"role": "user", "content": asked}]
    return dicts(body, "input")


def recalled(request: RecordedRequest, kept: Kept) -> Recalled | Problem:
    """The items of the thread that is gone on with stand before those of the request."""
    previous = request.body.get("previous_response_id")
    if previous is None:
        return Recalled(request.body)
    if str(previous) not in kept.threads:
        return Problem(
            message=f"Previous response with id '{previous}' not found.",
            code="previous_response_not_found",
            param="previous_response_id",
        )
    items = [*kept.threads[str(previous)], *input_items(request.body)]
    return Recalled({**request.body, "input": items})


def keep(body: JsonObject, reply: Reply, envelope: Envelope, kept: Kept) -> None:
    """The items up to the answer's end, by its id."""
    answer = whole(reply, envelope)
    if body.get("store", True) and answer["status"] != "failed":
        kept.threads[answer["id"]] = [*input_items(body), *answer["output"]]


def shortened(body: JsonObject) -> JsonObject | None:
    """Without its first item, where it asks for that."""
    items = input_items(body)
    if body.get("truncation") != "auto" or len(items) < 2:
        return None
    return {**body, "input": items[1:]}


def prompt_blocks(body: JsonObject) -> list[Block]:
    """Tools, instructions, items."""
    instructions = body.get("instructions")
    parts: list[Any] = [*dicts(body, "tools"), *([instructions] if instructions else [])]
    return wire.openai_blocks(body, [*parts, *input_items(body)])


def last_user_text(body: JsonObject) -> str:
    """The text of the last user message; empty if there is none."""
    for item in reversed(input_items(body)):
        if item.get("role") == "user":
            return joined_text(item.get("content"))
    return ""


def broken_rule(request: RecordedRequest, issued: Issued) -> Problem | None:
    """The rule of OpenAI that a (recalled) request breaks; see `responses_rules`."""
    items = input_items(request.body)
    return next(responses_rules.problems(request.body, items, issued), None)


def error_body(problem: Problem, number: int) -> JsonObject:  # noqa: ARG001 - Wire's
    """OpenAI's error body."""
    return wire.openai_error(problem)


def error_event(error: JsonObject, envelope: Envelope, position: int) -> Event:
    """``response.failed`` for an overflow, as OpenAI does; ``error`` for all else."""
    said = error.get("error", error)
    said = said if isinstance(said, dict) else {"message": str(said)}
    code, message = said.get("code") or said.get("type"), str(said.get("message", ""))
    if code == "context_length_exceeded":
        failed = _response([], "failed", envelope, error={"code": code, "message": message})
        return _event("response.failed", position, {"response": failed})
    flat = {"code": code, "message": message, "param": said.get("param")}
    return _event("error", position, flat)


def events(reply: Reply, envelope: Envelope) -> Iterator[Event]:
    """All events of an answer, numbered from 0."""
    for number, (name, data) in enumerate(_stream(reply, envelope)):
        yield _event(name, number, data)


def _event(name: str, number: int, data: JsonObject) -> Event:
    return Event(compact({"type": name, "sequence_number": number, **data}), name)


_Named = tuple[str, JsonObject]


def _stream(reply: Reply, envelope: Envelope) -> Iterator[_Named]:
    opened = {"response": _response([], "in_progress", envelope)}
    yield "response.created", opened
    yield "response.in_progress", opened
    parts = itertools.chain(
        [_stream_reasoning(reply, envelope)] if reply.thinking else [],
        [_stream_message(reply, envelope)] if reply.text else [],
        (_stream_call(reply, envelope, index) for index in range(len(reply.tool_calls))),
    )
    for index, part in enumerate(parts):
        for name, data in part:
            yield name, {"output_index": index, **data}
    ended = whole(reply, envelope)
    yield f"response.{ended['status']}", {"response": ended}


def _stream_reasoning(reply: Reply, envelope: Envelope) -> Iterator[_Named]:
    item = _reasoning(reply, envelope)
    where = {"item_id": item["id"], "summary_index": 0}
    part = {"type": "summary_text", "text": ""}
    prefix = "response.reasoning_summary"
    yield "response.output_item.added", {"item": _open(item, summary=[])}
    yield f"{prefix}_part.added", {**where, "part": part}
    for piece in reply.pieces(reply.thinking):
        yield f"{prefix}_text.delta", {**where, "delta": piece}
    yield f"{prefix}_text.done", {**where, "text": reply.thinking}
    yield f"{prefix}_part.done", {**where, "part": {**part, "text": reply.thinking}}
    yield "response.output_item.done", {"item": item}


def _stream_message(reply: Reply, envelope: Envelope) -> Iterator[_Named]:
    item = _message(reply, envelope)
    where = {"item_id": item["id"], "content_index": 0}
    yield "response.output_item.added", {"item": _open(item, status="in_progress", content=[])}
    yield "response.content_part.added", {**where, "part": _output_text("")}
    for piece in reply.pieces(reply.text):
        yield "response.output_text.delta", {**where, "delta": piece, "logprobs": []}
    yield "response.output_text.done", {**where, "text": reply.full_text, "logprobs": []}
    yield "response.content_part.done", {**where, "part": _output_text(reply.full_text)}
    yield "response.output_item.done", {"item": item}


def _stream_call(reply: Reply, envelope: Envelope, index: int) -> Iterator[_Named]:
    call = reply.tool_calls[index]
    item = _function_call(call, envelope, index)
    where = {"item_id": item["id"]}
    prefix = "response.function_call_arguments"
    yield "response.output_item.added", {"item": _open(item, status="in_progress", arguments="")}
    for piece in reply.pieces(call.arguments_text):
        yield f"{prefix}.delta", {**where, "delta": piece}
    yield f"{prefix}.done", {**where, "arguments": call.arguments_text}
    yield "response.output_item.done", {"item": item}


def _open(item: JsonObject, **changed: Any) -> JsonObject:
    """An item before it has anything in it."""
    opened = {**item, **changed}
    opened.pop("encrypted_content", None)
    return opened


def whole(reply: Reply, envelope: Envelope) -> JsonObject:
    """The response as it ended."""
    output = [_reasoning(reply, envelope)] if reply.thinking else []
    output += [_message(reply, envelope)] if reply.full_text else []
    output += [_function_call(call, envelope, index) for index, call in enumerate(reply.tool_calls)]
    if reply.reason == "failed":
        error = {"code": "server_error", "message": "The server had an error."}
        return _response(output, "failed", envelope, error=error)
    if reply.reason in {"stop", "tool_calls"}:
        return _response(output, "completed", envelope)
    reason = _INCOMPLETE.get(reply.reason, reply.reason)
    return _response(output, "incomplete", envelope, incomplete_details={"reason": reason})


def _response(
    output: list[JsonObject],
    status: str,
    envelope: Envelope,
    *,
    error: JsonObject | None = None,
    incomplete_details: JsonObject | None = None,
) -> JsonObject:
    request = envelope.request
    ended = status != "in_progress"
    return {
        "id": f"resp_{envelope.number:08d}",
        "object": "response",
        "created_at": CREATED_S,
        "status": status,
        "error": error,
        "incomplete_details": incomplete_details,
        "instructions": request.get("instructions"),
        "max_output_tokens": request.get("max_output_tokens"),
        "model": envelope.model,
        "output": output,
        "parallel_tool_calls": True,
        "previous_response_id": request.get("previous_response_id"),
        "reasoning": request.get("reasoning") or {"effort": None, "summary": None},
        "store": request.get("store", True),
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": request.get("tool_choice") or "auto",
        "tools": [{"strict": True, **tool} for tool in dicts(request, "tools")],
        "top_p": 1.0,
        "truncation": request.get("truncation") or "disabled",
        "usage": _usage(envelope.usage) if ended else None,
        "metadata": {},
    }


def _usage(usage: Usage) -> JsonObject:
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.thinking_tokens},
        "total_tokens": usage.total_tokens,
    }


def _reasoning(reply: Reply, envelope: Envelope) -> JsonObject:
    summary = [{"type": "summary_text", "text": reply.thinking}]
    item: JsonObject = {"id": f"rs_{envelope.number:08d}", "type": "reasoning", "summary": summary}
    return {**item, "encrypted_content": envelope.signature} if envelope.signature else item


def _message(reply: Reply, envelope: Envelope) -> JsonObject:
    return {
        "id": f"msg_{envelope.number:08d}",
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": [_output_text(reply.full_text)],
    }


def _output_text(text: str) -> JsonObject:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _function_call(call: ToolCall, envelope: Envelope, index: int) -> JsonObject:
    return {
        "id": f"fc_{envelope.number:08d}_{index}",
        "type": "function_call",
        "status": "completed",
        "call_id": call.id,
        "name": call.name,
        "arguments": call.arguments_text,
    }
