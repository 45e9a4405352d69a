"""How providers say that a prompt is longer than the window, as they were seen to say it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from strandline.testing.reply import Reply
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
    "responses",
    "anthropic",
    "gemini",
]
"""Whose words are used. All but ``z.ai`` answer 400; ``z.ai`` answers 200 and stops at once
with a finish reason of its own, and a stream of ``responses`` begins before it fails."""

_REFUSED = "invalid_request_error"
_CODE = "context_length_exceeded"
_PROMPT, _WINDOW = "{prompt}", "{window}"


def _openai(
    message: str, kind: str = _REFUSED, *, code: str | None = None, param: str | None = None
) -> JsonObject:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


_BODIES: Mapping[OverflowStyle, JsonObject] = {
    "openai": _openai(
        "This model's maximum context length is {window} tokens. However, your messages resulted "
        "in {prompt} tokens. Please reduce the length of the messages.",
        code=_CODE,
        param="messages",
    ),
    "openai-no-counts": _openai(
        "Your input exceeds the context window of this model.", code=_CODE, param="input"
    ),
    "responses": _openai(
        "Your input exceeds the context window of this model. "
        "Please adjust your input and try again.",
        code=_CODE,
        param="input",
    ),
    "vllm": _openai(
        "This model's maximum context length is {window} tokens. However, you requested 0 output "
        "tokens and your prompt contains at least {prompt} input tokens.",
        "BadRequestError",
    ),
    "llama.cpp": {
        "error": {
            "code": 400,
            "message": "request ({prompt} tokens) exceeds the available context size "
            "({window} tokens), try increasing it",
            "type": "exceed_context_size_error",
            "n_prompt_tokens": _PROMPT,
            "n_ctx": _WINDOW,
        }
    },
    "lm-studio": {"error": "Context size has been exceeded."},
    "input-is-longer": _openai(
        "The input ({prompt} tokens) is longer than the model's context length ({window} tokens)."
    ),
    "bedrock": {
        "__type": "ValidationException",
        "message": "Input is too long for requested model.",
    },
    "out-of-room": _openai("The model ran out of room in the model's context window."),
    "anthropic": {
        "type": "error",
        "error": {
            "type": _REFUSED,
            "message": "prompt is too long: {prompt} tokens > {window} maximum",
        },
        "request_id": "req_overflow",
    },
    "gemini": {
        "error": {
            "code": 400,
            "message": "The input token count ({prompt}) exceeds the maximum number of tokens "
            "allowed ({window}).",
            "status": "INVALID_ARGUMENT",
        }
    },
}
"""The error of each, with places for the counts; a place that stands alone becomes a number."""


def overflow_reply(style: OverflowStyle, prompt_tokens: int, window_tokens: int) -> Reply:
    """What a provider answers to a prompt longer than its window, in that provider's words."""
    if style == "z.ai":
        return Reply(finish_reason="model_context_window_exceeded")
    error = _filled(_BODIES[style], {_PROMPT: prompt_tokens, _WINDOW: window_tokens})
    return Reply(status=400, error=error, error_after=2 if style == "responses" else None)


def _filled(value: Any, counts: Mapping[str, int]) -> Any:
    if isinstance(value, dict):
        return {key: _filled(inner, counts) for key, inner in value.items()}
    if not isinstance(value, str):
        return value
    if value in counts:
        return counts[value]
    for place, count in counts.items():
        value = value.replace(place, str(count))
    return value
