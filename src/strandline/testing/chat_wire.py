"""OpenAI's Chat Completions on the wire, as a server writes it: replies, events, errors.

Pure: values in, JSON objects out. `strandline.testing.model_server` sends them. The error
bodies are those that providers were seen to send; recognising them is what they are for.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from strandline.transcript.messages import JsonObject

OverflowStyle = Literal[
    "openai",
    "openai-no-counts",
    "vllm",
    "llama.cpp",
    "lm-studio",
    "input-is-longer",
    "bedrock",
    "out-of-room",
    "z.ai",
]
"""How a provider says that a prompt is longer than the window. All but ``z.ai`` answer 400;
``z.ai`` answers 200 and stops at once with a finish reason of its own."""

CREATED_S = 1_767_225_600
"""`created` of every answer, Unix seconds: the same script gives the same bytes."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool; `arguments` as text are sent as they are, valid JSON or not."""

    name: str
    arguments: JsonObject | str
    id: str = "call_1"

    @property
    def arguments_text(self) -> str:
        """The arguments as they go on the wire."""
        return self.arguments if isinstance(self.arguments, str) else _compact(self.arguments)


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer of the server.

    `text`: a text is sent in pieces of `chunk_chars`; a sequence is sent piece by piece.
    `thinking` goes before it (as ``reasoning_content``), `tool_calls` after it.
    `finish_reason`: None means ``tool_calls`` if there are any, else ``stop``.
    `delay_s`: the pause before each event after the first.

    `status`: 200, or an HTTP error with the body `error` (None: OpenAI's for that status)
    and, where given, a ``Retry-After`` of `retry_after_s`.

    The faults count events of the stream; the first (number 0) only says the role, and
    ``[DONE]`` is the last. With 0 they strike before the status line.
    `stall_after`: after so many events, silence for `stall_s`, at most 60.
    `disconnect_after`: after so many events, the connection is closed.
    `truncate_after`: after so many events, one with half of its JSON, and a clean end.
    Without streaming: the stall comes before the answer; a disconnect after half of the body
    (0: before the status line); a truncated answer is half of its JSON.
    """

    text: str | Sequence[str] = ""
    thinking: str = ""
    tool_calls: Sequence[ToolCall] = ()
    finish_reason: str | None = None
    chunk_chars: int = 16
    delay_s: float = 0.0
    status: int = 200
    error: JsonObject | None = None
    retry_after_s: float | None = None
    stall_after: int | None = None
    stall_s: float = 5.0
    disconnect_after: int | None = None
    truncate_after: int | None = None

    def __post_init__(self) -> None:
        if self.stall_s > 60 or self.delay_s > 60:
            raise ValueError("a reply may pause for 60 seconds at most")
        if self.chunk_chars < 1:
            raise ValueError("chunk_chars must be at least 1")

    @property
    def full_text(self) -> str:
        """The text in one piece."""
        return self.text if isinstance(self.text, str) else "".join(self.text)

    @property
    def reason(self) -> str:
        """The finish reason on the wire."""
        return self.finish_reason or ("tool_calls" if self.tool_calls else "stop")

    @property
    def output(self) -> str:
        """Everything that the model wrote, for counting its tokens."""
        calls = (call.name + call.arguments_text for call in self.tool_calls)
        return "".join([self.thinking, self.full_text, *calls])


@dataclass(frozen=True, slots=True)
class Envelope:
    """What is the same in every event of one answer, and its `usage` as OpenAI reports it."""

    id: str
    model: str
    usage: JsonObject


def usage_object(prompt_tokens: int, cached_tokens: int, completion_tokens: int) -> JsonObject:
    """``usage`` in OpenAI's shape, in tokens; the cached ones are among those of the prompt."""
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": cached_tokens},
    }


def stream_payloads(reply: Reply, envelope: Envelope, *, include_usage: bool) -> Iterator[str]:
    """The text after ``data: `` of each event, in order, ``[DONE]`` included."""
    usage: JsonObject = {"usage": None} if include_usage else {}
    head = {
        "id": envelope.id,
        "object": "chat.completion.chunk",
        "created": CREATED_S,
        "model": envelope.model,
    }
    for delta in _deltas(reply):
        yield _compact({**head, "choices": [_choice({"delta": delta}, None)], **usage})
    yield _compact({**head, "choices": [_choice({"delta": {}}, reply.reason)], **usage})
    if include_usage:
        yield _compact({**head, "choices": [], "usage": envelope.usage})
    yield "[DONE]"


def _deltas(reply: Reply) -> Iterator[JsonObject]:
    yield {"role": "assistant", "content": ""}
    for piece in _pieces(reply.thinking, reply.chunk_chars):
        yield {"reasoning_content": piece}
    for piece in _pieces(reply.text, reply.chunk_chars):
        yield {"content": piece}
    for index, call in enumerate(reply.tool_calls):
        yield {"tool_calls": [{"index": index, **_wire_call(call, "")}]}
        for piece in _pieces(call.arguments_text, reply.chunk_chars):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _pieces(text: str | Sequence[str], size: int) -> Iterator[str]:
    if not isinstance(text, str):
        return iter(text)
    return (text[start : start + size] for start in range(0, len(text), size))


def completion(reply: Reply, envelope: Envelope) -> JsonObject:
    """The body of an answer that is not streamed."""
    message: JsonObject = {"role": "assistant", "content": reply.full_text or None}
    if reply.thinking:
        message["reasoning_content"] = reply.thinking
    if reply.tool_calls:
        message["tool_calls"] = [_wire_call(call, call.arguments_text) for call in reply.tool_calls]
    return {
        "id": envelope.id,
        "object": "chat.completion",
        "created": CREATED_S,
        "model": envelope.model,
        "choices": [_choice({"message": message}, reply.reason)],
        "usage": envelope.usage,
    }


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


_ERRORS: dict[int, tuple[str, str, str | None]] = {
    400: ("the request is not acceptable", "invalid_request_error", None),
    401: ("the API key is not accepted", "invalid_request_error", "invalid_api_key"),
    403: ("the API key may not do this", "invalid_request_error", None),
    404: ("there is no such address or model", "invalid_request_error", "model_not_found"),
    429: ("too many requests", "requests", "rate_limit_exceeded"),
    503: ("the model is overloaded", "service_unavailable_error", None),
}


def error_object(status: int, message: str | None = None) -> JsonObject:
    """OpenAI's error body for an HTTP status; `message` in place of a standing text."""
    text, kind, code = _ERRORS.get(status, ("the server failed", "server_error", None))
    return _error(message or text, kind, code)


def _error(message: str, kind: str, code: str | None, param: str | None = None) -> JsonObject:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def overflow_reply(style: OverflowStyle, prompt_tokens: int, window_tokens: int) -> Reply:
    """What a provider answers to a prompt longer than its window, in that provider's words."""
    if style == "z.ai":
        return Reply(finish_reason="model_context_window_exceeded")
    return Reply(status=400, error=_overflow_error(style, prompt_tokens, window_tokens))


def _overflow_error(style: OverflowStyle, prompt: int, window: int) -> JsonObject:
    refused = "invalid_request_error"
    limit = f"This model's maximum context length is {window} tokens."
    bodies: dict[OverflowStyle, JsonObject] = {
        "openai": _error(
            f"{limit} However, your messages resulted in {prompt} tokens. "
            "Please reduce the length of the messages.",
            refused,
            "context_length_exceeded",
            "messages",
        ),
        "openai-no-counts": _error(
            "Your input exceeds the context window of this model.",
            refused,
            "context_length_exceeded",
            "input",
        ),
        "vllm": _error(
            f"{limit} However, you requested 0 output tokens and your prompt contains "
            f"at least {prompt} input tokens.",
            "BadRequestError",
            None,
        ),
        "llama.cpp": {
            "error": {
                "code": 400,
                "message": f"request ({prompt} tokens) exceeds the available context size "
                f"({window} tokens), try increasing it",
                "type": "exceed_context_size_error",
                "n_prompt_tokens": prompt,
                "n_ctx": window,
            }
        },
        "lm-studio": {"error": "Context size has been exceeded."},
        "input-is-longer": _error(
            f"The input ({prompt} tokens) is longer than the model's context length "
            f"({window} tokens).",
            refused,
            None,
        ),
        "bedrock": {
            "__type": "ValidationException",
            "message": "Input is too long for requested model.",
        },
        "out-of-room": _error(
            "The model ran out of room in the model's context window.", refused, None
        ),
    }
    return bodies[style]


def prompt_text(body: JsonObject) -> str:
    """What a model reads of a request, as one text whose beginning a prompt cache can keep.

    Tools stand before messages, one object a line, keys in the order in which they were
    sent: a request that only adds messages begins with the request before it.
    """
    parts = itertools.chain(_list(body, "tools"), _list(body, "messages"))
    return "\n".join(_compact(part, ascii_only=False) for part in parts)


def last_user_text(body: JsonObject) -> str:
    """The text of the last user message; empty if there is none."""
    for message in reversed(_list(body, "messages")):
        if isinstance(message, dict) and message.get("role") == "user":
            return _text_of(message.get("content"))
    return ""


def _text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "".join(str(part.get("text", "")) for part in parts if isinstance(part, dict))


def _list(body: JsonObject, key: str) -> list[Any]:
    value = body.get(key)
    return value if isinstance(value, list) else []


def _compact(value: Any, *, ascii_only: bool = True) -> str:
    return json.dumps(value, ensure_ascii=ascii_only, separators=(",", ":"))
