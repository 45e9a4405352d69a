"""OpenAI's Chat Completions on the wire, as a server writes it (`strandline.testing.wire`).

Pure: values in, JSON objects out. `strandline.testing.model_server` sends them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from strandline.testing import chat_rules, prompt_cache, wire
from strandline.testing.issued import Issued
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

NAME = "chat"
ASKED = "messages"
NOT_JSON = wire.OPENAI_NOT_JSON
CACHE = prompt_cache.OPENAI
OVERFLOW: OverflowStyle = "openai"
headers = wire.openai_headers
recalled = wire.as_sent
keep = wire.keep_nothing
shortened = wire.never_shortened


def is_request(body: JsonObject) -> bool:
    """Whether there is a list of messages."""
    return isinstance(body.get("messages"), list)


def prompt_blocks(body: JsonObject) -> list[Block]:
    """Tools before messages, one object a block, keys in the order in which they were sent:
    a request that only adds messages begins with the request before it.
    """
    parts = itertools.chain(body.get("tools") or [], body.get("messages") or [])
    return wire.openai_blocks(body, parts)


def prompt_text(body: JsonObject) -> str:
    """What a model reads of a request, as one text."""
    return wire.prompt_of(prompt_blocks(body))


def last_user_text(body: JsonObject) -> str:
    """The text of the last user message; empty if there is none."""
    for message in reversed(dicts(body, "messages")):
        if message.get("role") == "user":
            return joined_text(message.get("content"))
    return ""


def broken_rule(request: RecordedRequest, issued: Issued) -> Problem | None:  # noqa: ARG001 - Wire's
    """The rule of OpenAI that a request breaks; see `chat_rules`."""
    return next(chat_rules.problems(request.body), None)


def usage_object(usage: Usage) -> JsonObject:
    """``usage`` in OpenAI's shape, in tokens; the cached ones are among those of the prompt."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.thinking_tokens},
    }


def events(reply: Reply, envelope: Envelope) -> Iterator[Event]:
    """Chunks, with usage at the end if it was asked for, then ``[DONE]``."""
    options = envelope.request.get("stream_options") or {}
    with_usage = bool(options.get("include_usage"))
    usage: JsonObject = {"usage": None} if with_usage else {}
    head = {
        "id": _id(envelope),
        "object": "chat.completion.chunk",
        "created": CREATED_S,
        "model": envelope.model,
        "system_fingerprint": "fp_scripted",
    }
    for delta in _deltas(reply):
        yield Event(compact({**head, "choices": [_choice({"delta": delta}, None)], **usage}))
    yield Event(compact({**head, "choices": [_choice({"delta": {}}, reply.reason)], **usage}))
    if with_usage:
        yield Event(compact({**head, "choices": [], "usage": usage_object(envelope.usage)}))
    yield Event("[DONE]")


def _deltas(reply: Reply) -> Iterator[JsonObject]:
    yield {"role": "assistant", "content": ""}
    for piece in reply.pieces(reply.thinking):
        yield {"reasoning_content": piece}
    for piece in reply.pieces(reply.text):
        yield {"content": piece}
    for index, call in enumerate(reply.tool_calls):
        yield {"tool_calls": [{"index": index, **_wire_call(call, "")}]}
        for piece in reply.pieces(call.arguments_text):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def error_event(error: JsonObject, envelope: Envelope, position: int) -> Event:  # noqa: ARG001 - Wire's
    """The error's body as the data of an event."""
    return Event(compact(error))


def whole(reply: Reply, envelope: Envelope) -> JsonObject:
    """The body of an answer that is not streamed."""
    message: JsonObject = {"role": "assistant", "content": reply.full_text or None}
    if reply.thinking:
        message["reasoning_content"] = reply.thinking
    if reply.tool_calls:
        message["tool_calls"] = [_wire_call(call, call.arguments_text) for call in reply.tool_calls]
    return {
        "id": _id(envelope),
        "object": "chat.completion",
        "created": CREATED_S,
        "model": envelope.model,
        "system_fingerprint": "fp_scripted",
        "choices": [_choice({"message": message}, reply.reason)],
        "usage": usage_object(envelope.usage),
    }


def _id(envelope: Envelope) -> str:
    return f"chatcmpl-{envelope.number:08d}"


def _choice(content: JsonObject, reason: str | None) -> JsonObject:
    return {"index": 0, **content, "logprobs": None, "finish_reason": reason}


def _wire_call(call: ToolCall, arguments: str) -> JsonObject:
    function = {"name": call.name, "arguments": arguments}
    return {"id": call.id, "type": "function", "function": function}


def model_list(models: Sequence[str]) -> JsonObject:
    """The body of ``GET /v1/models``."""
    rows = [
        {"id": model, "object": "model", "created": CREATED_S, "owned_by": "strandline"}
        for model in models
    ]
    return {"object": "list", "data": rows}


def error_body(problem: Problem, number: int) -> JsonObject:  # noqa: ARG001 - Wire's
    """OpenAI's error body."""
    return wire.openai_error(problem)
