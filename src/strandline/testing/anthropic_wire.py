"""Anthropic's Messages on the wire, as its server writes it (`strandline.testing.wire`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from strandline.testing import anthropic_rules, prompt_cache, wire
from strandline.testing.issued import Issued
from strandline.testing.overflow_words import OverflowStyle
from strandline.testing.prompt_cache import Block
from strandline.testing.reply import Reply, ToolCall
from strandline.testing.wire import (
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

NAME = "anthropic"
ASKED = "messages"
NOT_JSON = "The request body is not valid JSON: no low surrogate in string"
CACHE = prompt_cache.ANTHROPIC
OVERFLOW: OverflowStyle = "anthropic"
recalled = wire.as_sent
keep = wire.keep_nothing
shortened = wire.never_shortened

_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
}
_ERRORS: dict[int, tuple[str, str]] = {
    400: ("invalid_request_error", "the request is not acceptable"),
    401: ("authentication_error", "invalid x-api-key"),
    402: ("billing_error", "Your credit balance is too low to access the Anthropic API."),
    403: ("permission_error", "Your API key does not have permission to use this resource."),
    404: ("not_found_error", "Not Found"),
    413: ("request_too_large", "Request exceeds the maximum size"),
    429: ("rate_limit_error", "This request would exceed your organization's rate limit."),
    504: ("timeout_error", "Request timed out."),
    529: ("overloaded_error", "Overloaded"),
}


def is_request(body: JsonObject) -> bool:
    """Whether there is a list of messages."""
    return isinstance(body.get("messages"), list)


def prompt_blocks(body: JsonObject) -> list[Block]:
    """Tools, system, messages, one content block a block. Marks are no part of the text, so
    that a mark which moves on finds what was written under it.
    """
    parts: list[JsonObject] = [*dicts(body, "tools"), *content_blocks(body.get("system"))]
    for message in dicts(body, "messages"):
        role = {"role": message.get("role")}
        parts += [{**role, **block} for block in content_blocks(message.get("content"))]
    blocks = [_block(part) for part in parts]
    if blocks and (mark := body.get("cache_control")):  # on the request: the last block's
        blocks[-1] = blocks[-1]._replace(ttl=_ttl(mark))
    return blocks


def _block(part: JsonObject) -> Block:
    mark = part.get("cache_control")
    text = compact({k: v for k, v in part.items() if k != "cache_control"}, ascii_only=False)
    return Block(text, _ttl(mark) if mark else "")


def _ttl(mark: Any) -> str:
    return str(mark.get("ttl") or "5m") if isinstance(mark, dict) else "5m"


def content_blocks(content: Any) -> list[JsonObject]:
    """The blocks of a content; a text stands for one block."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return dicts({"content": content}, "content")


def last_user_text(body: JsonObject) -> str:
    """The text of the last user message that is more than tool results."""
    for message in reversed(dicts(body, "messages")):
        blocks = content_blocks(message.get("content"))
        if message.get("role") == "user" and any(b.get("type") != "tool_result" for b in blocks):
            return joined_text(blocks)
    return ""


def broken_rule(request: RecordedRequest, issued: Issued) -> Problem | None:
    """The rule of Anthropic that a request breaks; see `anthropic_rules`."""
    message = next(anthropic_rules.problems(request, issued), None)
    return None if message is None else Problem(message=message)


def headers(number: int, retry_after_s: float | None) -> dict[str, str]:
    """The request's id, and the wait."""
    wait = {} if retry_after_s is None else {"retry-after": f"{retry_after_s:g}"}
    return {"request-id": _request_id(number), **wait}


def error_body(problem: Problem, number: int) -> JsonObject:
    """Anthropic's error body."""
    kind, text = _ERRORS.get(problem.status, ("api_error", "Internal server error"))
    return {
        "type": "error",
        "error": {"type": kind, "message": problem.message or text},
        "request_id": _request_id(number),
    }


def error_event(error: JsonObject, envelope: Envelope, position: int) -> Event:  # noqa: ARG001 - Wire's
    """The error's body, named ``error``."""
    return Event(compact(error), "error")


def events(reply: Reply, envelope: Envelope) -> Iterator[Event]:
    """``message_start``, the blocks with a ``ping`` after the first start, ``message_stop``."""
    started = {**_message([], None, envelope), "usage": _usage(envelope.usage, 1)}
    yield _event("message_start", {"message": started})
    for index, (start, deltas) in enumerate(_blocks(reply, envelope)):
        yield _event("content_block_start", {"index": index, "content_block": start})
        if index == 0:
            yield _event("ping", {})
        for delta in deltas:
            yield _event("content_block_delta", {"index": index, "delta": delta})
        yield _event("content_block_stop", {"index": index})
    ended = {"stop_reason": _reason(reply), "stop_sequence": None}
    usage = _usage(envelope.usage, envelope.usage.output_tokens)
    counts = {key: value for key, value in usage.items() if key.endswith("_tokens")}
    yield _event("message_delta", {"delta": ended, "usage": counts})
    yield _event("message_stop", {})


def _event(name: str, data: JsonObject) -> Event:
    return Event(compact({"type": name, **data}), name)


def _blocks(reply: Reply, envelope: Envelope) -> Iterator[tuple[JsonObject, list[JsonObject]]]:
    """Each block as it starts, and what is added to it."""
    if reply.thinking:
        pieces: list[JsonObject] = [
            {"type": "thinking_delta", "thinking": piece} for piece in reply.pieces(reply.thinking)
        ]
        if envelope.signature:
            pieces.append({"type": "signature_delta", "signature": envelope.signature})
        yield {"type": "thinking", "thinking": "", "signature": ""}, pieces
    if reply.redacted_thinking:
        yield {"type": "redacted_thinking", "data": reply.redacted_thinking}, []
    if reply.text:
        texts = reply.pieces(reply.text)
        yield (
            {"type": "text", "text": ""},
            [{"type": "text_delta", "text": piece} for piece in texts],
        )
    for call in reply.tool_calls:
        # Always an empty piece first, and nothing more if there are no arguments.
        texts = ["", *([] if call.arguments == {} else reply.pieces(call.arguments_text))]
        yield (
            {"type": "tool_use", "id": call.id, "name": call.name, "input": {}},
            [{"type": "input_json_delta", "partial_json": text} for text in texts],
        )


def whole(reply: Reply, envelope: Envelope) -> JsonObject:
    """The body of an answer that is not streamed."""
    content: list[JsonObject] = []
    if reply.thinking:
        signature = envelope.signature
        content.append({"type": "thinking", "thinking": reply.thinking, "signature": signature})
    if reply.redacted_thinking:
        content.append({"type": "redacted_thinking", "data": reply.redacted_thinking})
    if reply.full_text:
        content.append({"type": "text", "text": reply.full_text})
    content += [_tool_use(call) for call in reply.tool_calls]
    return _message(content, _reason(reply), envelope)


def _tool_use(call: ToolCall) -> JsonObject:
    parsed = call.arguments_object
    arguments = {"INVALID_JSON": call.arguments_text} if parsed is None else parsed
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": arguments}


def _message(content: list[JsonObject], reason: str | None, envelope: Envelope) -> JsonObject:
    return {
        "id": f"msg_{envelope.number:024d}",
        "type": "message",
        "role": "assistant",
        "model": envelope.model,
        "content": content,
        "stop_reason": reason,
        "stop_sequence": None,
        "usage": _usage(envelope.usage, envelope.usage.output_tokens),
    }


def _usage(usage: Usage, output_tokens: int) -> JsonObject:
    """``input_tokens`` are those that the cache has nothing to do with."""
    return {
        "input_tokens": usage.prompt_tokens - usage.cached_tokens - usage.created_tokens,
        "cache_creation_input_tokens": usage.created_tokens,
        "cache_read_input_tokens": usage.cached_tokens,
        "cache_creation": {
            "ephemeral_5m_input_tokens": usage.created_tokens - usage.created_1h_tokens,
            "ephemeral_1h_input_tokens": usage.created_1h_tokens,
        },
        "output_tokens": output_tokens,
        "service_tier": "standard",
    }


def _reason(reply: Reply) -> str:
    return _REASONS.get(reply.reason, reply.reason)


def _request_id(number: int) -> str:
    return f"req_{number:024d}"
