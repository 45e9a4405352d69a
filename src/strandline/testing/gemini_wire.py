"""Gemini's generateContent on the wire, as its server writes it (`strandline.testing.wire`).

The model is in the path. A call whose `id` is empty is sent without one, as older models do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import unquote

from strandline.testing import gemini_contents, gemini_rules, prompt_cache, wire
from strandline.testing.issued import Issued
from strandline.testing.kept import Kept, Recalled
from strandline.testing.overflow_words import OverflowStyle
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

NAME = "gemini"
ASKED = "contents"
NOT_JSON = "Invalid JSON payload received. Unexpected end of string."
CACHE = prompt_cache.GEMINI
OVERFLOW: OverflowStyle = "gemini"
keep = wire.keep_nothing
shortened = wire.never_shortened
prompt_blocks = gemini_contents.blocks

PATH = re.compile(
    r"/v1(?:beta)?/models/([^/:?]+):"
    r"(?:generateContent(?=\?|$)|(streamGenerateContent)(?=\?(?:.*&)?alt=sse(?:&|$)))"
)
"""Of a request for an answer; a stream must ask for ``alt=sse``."""

_REASONS = {
    "stop": "STOP",
    "tool_calls": "STOP",
    "length": "MAX_TOKENS",
    "content_filter": "SAFETY",
}
_ERRORS: dict[int, tuple[str, str]] = {
    400: ("INVALID_ARGUMENT", "Request contains an invalid argument."),
    401: ("UNAUTHENTICATED", "Request had invalid authentication credentials."),
    403: ("PERMISSION_DENIED", "The caller does not have permission."),
    404: ("NOT_FOUND", "The model is not found for API version v1beta."),
    429: ("RESOURCE_EXHAUSTED", "You exceeded your current quota."),
    500: ("INTERNAL", "An internal error has occurred."),
    503: ("UNAVAILABLE", "The model is overloaded. Please try again later."),
    504: ("DEADLINE_EXCEEDED", "Deadline expired before operation could complete."),
}
_RPC = "type.googleapis.com/google.rpc"


def invalid_key() -> Reply:
    """What Gemini answers to a key that it does not know: a 400, unlike everybody else."""
    info = {
        "@type": f"{_RPC}.ErrorInfo",
        "reason": "API_KEY_INVALID",
        "domain": "googleapis.com",
        "metadata": {"service": "generativelanguage.googleapis.com"},
    }
    error = {
        "code": 400,
        "message": "API key not valid. Please pass a valid API key.",
        "status": "INVALID_ARGUMENT",
        "details": [info],
    }
    return Reply(status=400, error={"error": error})


def is_request(body: JsonObject) -> bool:
    """Whether there is a list of contents."""
    return isinstance(body.get("contents"), list)


def recalled(request: RecordedRequest, kept: Kept) -> Recalled | Problem:
    """See `gemini_contents`."""
    return gemini_contents.recalled(asked_model(request.path), request.body, kept)


def asked_model(path: str) -> str:
    """The model in a path."""
    found = PATH.match(path)
    return unquote(found[1]) if found else ""


def last_user_text(body: JsonObject) -> str:
    """The text of the last user content that is more than function responses."""
    for content in reversed(dicts(body, "contents")):
        parts = dicts(content, "parts")
        if content.get("role", "user") == "user" and any("text" in part for part in parts):
            return joined_text(parts)
    return ""


def broken_rule(request: RecordedRequest, issued: Issued) -> Problem | None:
    """The rule of Gemini that a request breaks; see `gemini_rules`."""
    message = next(gemini_rules.problems(request.body, issued), None)
    return None if message is None else Problem(message=message)


def headers(number: int, retry_after_s: float | None) -> dict[str, str]:  # noqa: ARG001 - Wire's
    """None: the wait stands in the body."""
    return {}


def error_body(problem: Problem, number: int) -> JsonObject:  # noqa: ARG001 - Wire's
    """Google's error body, with ``RetryInfo`` where a wait is known."""
    status, text = _ERRORS.get(problem.status, ("INTERNAL", "An internal error has occurred."))
    error: JsonObject = {"code": problem.status, "message": problem.message or text}
    error["status"] = status
    if problem.retry_after_s is not None:
        delay = f"{problem.retry_after_s:g}s"
        error["message"] += f" Please retry in {delay}."
        error["details"] = [{"@type": f"{_RPC}.RetryInfo", "retryDelay": delay}]
    return {"error": error}


def error_event(error: JsonObject, envelope: Envelope, position: int) -> Event:  # noqa: ARG001 - Wire's
    """The error's body as the data of an event."""
    return Event(compact(error))


def events(reply: Reply, envelope: Envelope) -> Iterator[Event]:
    """A chunk for each piece; a call is one piece. The last has the reason."""
    parts: list[JsonObject] = [
        {"text": piece, "thought": True} for piece in reply.pieces(reply.thinking)
    ]
    parts += [{"text": piece} for piece in reply.pieces(reply.text)]
    parts += _call_parts(reply, envelope)
    for part in parts:
        yield Event(compact(_chunk([part], None, envelope, ended=False)))
    # The signature of a text comes after it, on a part of its own.
    last: JsonObject = {"text": ""}
    if envelope.signature and not reply.tool_calls:
        last["thoughtSignature"] = envelope.signature
    yield Event(compact(_chunk([last], _reason(reply), envelope, ended=True)))


def whole(reply: Reply, envelope: Envelope) -> JsonObject:
    """The body of an answer that is not streamed."""
    parts: list[JsonObject] = []
    if reply.thinking:
        parts.append({"text": reply.thinking, "thought": True})
    signature = "" if reply.tool_calls else envelope.signature
    if reply.full_text or signature:
        signed = {"thoughtSignature": signature} if signature else {}
        parts.append({"text": reply.full_text, **signed})
    parts += _call_parts(reply, envelope)
    return _chunk(parts, _reason(reply), envelope, ended=True)


def _sendable(reply: Reply) -> list[ToolCall]:
    return [call for call in reply.tool_calls if call.arguments_object is not None]


def _call_parts(reply: Reply, envelope: Envelope) -> list[JsonObject]:
    """The calls; the signature stands on the first."""
    parts: list[JsonObject] = [{"functionCall": _function_call(call)} for call in _sendable(reply)]
    if parts and envelope.signature:
        parts[0]["thoughtSignature"] = envelope.signature
    return parts


def _function_call(call: ToolCall) -> JsonObject:
    named: JsonObject = {"id": call.id} if call.id else {}
    return {**named, "name": call.name, "args": call.arguments_object}


def _reason(reply: Reply) -> str:
    if len(_sendable(reply)) < len(reply.tool_calls):
        return "MALFORMED_FUNCTION_CALL"
    return _REASONS.get(reply.reason, reply.reason)


def _chunk(
    parts: list[JsonObject], reason: str | None, envelope: Envelope, *, ended: bool
) -> JsonObject:
    content: JsonObject = {"role": "model"}
    if parts:
        content["parts"] = parts
    candidate: JsonObject = {"content": content, "index": 0}
    if reason:
        candidate["finishReason"] = reason
    return {
        "candidates": [candidate],
        "usageMetadata": _usage(envelope.usage, ended=ended),
        "modelVersion": envelope.model,
        "responseId": f"response-{envelope.number:08d}",
    }


def _usage(usage: Usage, *, ended: bool) -> JsonObject:
    """Thoughts are not among the candidates' tokens; counts that are 0 are left out."""
    written = usage.output_tokens - usage.thinking_tokens if ended else 0
    thought = usage.thinking_tokens if ended else 0
    optional = {
        "cachedContentTokenCount": usage.cached_tokens,
        "candidatesTokenCount": written,
        "thoughtsTokenCount": thought,
    }
    return {
        "promptTokenCount": usage.prompt_tokens,
        **{name: count for name, count in optional.items() if count},
        "totalTokenCount": usage.prompt_tokens + written + thought,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": usage.prompt_tokens}],
    }
