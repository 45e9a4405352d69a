"""How providers say that a prompt is longer than the window, as they were seen to say it."""

from __future__ import annotations

from typing import Literal

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


def overflow_reply(style: OverflowStyle, prompt_tokens: int, window_tokens: int) -> Reply:
    """What a provider answers to a prompt longer than its window, in that provider's words."""
    if style == "z.ai":
        return Reply(finish_reason="model_context_window_exceeded")
    error = _overflow_error(style, prompt_tokens, window_tokens)
    return Reply(status=400, error=error, error_after=2 if style == "responses" else None)


def _overflow_error(style: OverflowStyle, prompt: int, window: int) -> JsonObject:
    limit = f"This model's maximum context length is {window} tokens."
    coded = "context_length_exceeded"
    bodies: dict[OverflowStyle, JsonObject] = {
        "openai": _openai(
            f"{limit} However, your messages resulted in {prompt} tokens. "
            "Please reduce the length of the messages.",
            code=coded,
            param="messages",
        ),
        "openai-no-counts": _openai(
            "Your input exceeds the context window of this model.", code=coded, param="input"
        ),
        "responses": _openai(
            "Your input exceeds the context window of this model. "
            "Please adjust your input and try again.",
            code=coded,
            param="input",
        ),
        "vllm": _openai(
            f"{limit} However, you requested 0 output tokens and your prompt contains "
            f"at least {prompt} input tokens.",
            "BadRequestError",
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
        "input-is-longer": _openai(
            f"The input ({prompt} tokens) is longer than the model's context length "
            f"({window} tokens)."
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
                "message": f"prompt is too long: {prompt} tokens > {window} maximum",
            },
            "request_id": "req_overflow",
        },
        "gemini": {
            "error": {
                "code": 400,
                "message": f"The input token count ({prompt}) exceeds the maximum number of "
                f"tokens allowed ({window}).",
                "status": "INVALID_ARGUMENT",
            }
        },
    }
    return bodies[style]


def _openai(
    message: str, kind: str = _REFUSED, *, code: str | None = None, param: str | None = None
) -> JsonObject:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}
