"""How providers say that a prompt is longer than the window: their words and their counts.

There is no common code for it, so this is a table. It is read against a provider's own
message, parsed out of the error's JSON and cut where the message repeats what it was sent;
a conversation *about* these errors must not look like one. (cases/faults, H18.)
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

CODES = frozenset(
    {
        "context_length_exceeded",  # OpenAI, Azure, Groq
        "exceed_context_size_error",  # llama.cpp
        "model_context_window_exceeded",  # z.ai, as code and as finish reason
        "request_too_large",  # Anthropic: the body above 32 MB
        "contextwindowexceedederror",  # LiteLLM
    }
)
"""Error codes and types that mean an overflow, in lower case."""

_WORDINGS: tuple[tuple[str, str], ...] = (
    ("Anthropic, Fireworks, Ollama, oMLX", r"prompt (?:is )?too long"),
    ("Anthropic", r"exceed context limit"),
    ("Bedrock", r"input is too long|exceeds the max input token limit|too many input tokens\."),
    ("OpenAI", r"exceeds? (?:the |this )?(?:model(?:'s)? )?context (?:window|length|size)"),
    ("OpenAI", r"input tokens exceed the configured limit"),
    # One part of a message above 10 MiB; ids that are too long are told in the same words.
    ("OpenAI", r"string with maximum length \d{7,}"),
    ("OpenAI", r"ran out of room in the model's context window"),
    ("OpenAI, DeepSeek, vLLM, SGLang, OpenRouter", r"maximum context length"),
    ("Gemini", r"input token count.{0,40}exceeds the maximum number of tokens"),
    ("Gemini on Vertex", r"input token count is \d+ but model only supports up to"),
    ("xAI", r"maximum prompt length is"),
    ("Groq, Together", r"reduce the length of the (?:messages|input|prompt)"),
    ("llama.cpp", r"exceeds the available context size|context size has been exceeded"),
    ("LM Studio", r"greater than the context length|loaded with context length of only"),
    ("Copilot", r"prompt token count of .{1,20} exceeds the limit"),
    ("MiniMax", r"context window exceeds limit"),
    ("Kimi", r"exceeded model token limit"),
    ("Mistral", r"too large for model with"),
    ("vLLM", r"longer than the maximum model length"),
    ("z.ai", r"prompt exceeds max(?:imum)? length"),
    ("SGLang, Together", r"longer than the model's context length"),
    ("SGLang, Poolside, GLM", r"exceeds the maximum allowed (?:input )?length"),
    (
        "Text Generation Inference",
        r"inputs`? (?:tokens \+ `?max_new_tokens`? must be <=|must have)",
    ),
    ("DashScope", r"range of input length should be"),
    ("Ollama", r"exceeded max context length|context length exceeded"),
    ("DS4", r"configured context size is"),
    ("Cohere", r"total number of tokens in the prompt|total tokens exceeds the model's max"),
    ("LiteLLM", r"ContextWindowExceededError"),
    ("z.ai, by way of others", r"model_context_window_exceeded"),
)
_OVERFLOW = re.compile("|".join(wording for _, wording in _WORDINGS), re.IGNORECASE | re.DOTALL)

# More than a minute's allowance in one request: waiting never helps, a shorter prompt does.
_ABOVE_ALLOWANCE = re.compile(
    r"request too large for .{1,200}tokens per min.{0,40}limit \d+, requested \d+",
    re.IGNORECASE | re.DOTALL,
)

_N = r"(\d[\d,]{0,14})"
_PROMPT_COUNTS = (
    rf"prompt (?:is )?too long:? {_N}",
    rf"context limit: {_N} \+",
    rf"messages resulted in {_N} tokens",
    rf"{_N} (?:in the messages|of text input|in your prompt|input tokens)",
    rf"{_N} tokens from the input messages",
    rf"input (?:length |token count )?\({_N}",
    rf"input token count is {_N}",
    rf"input length {_N}",
    rf"request \({_N} tokens\)",
    rf"request contains {_N} tokens",
    rf"request input token count: {_N}",
    rf"prompt token count of {_N}",
    rf"prompt (?:contains|has) {_N} tokens",
    rf"prompt \(length {_N}\)",
    rf"keep the first {_N} tokens",
    rf"given: {_N}",
    rf"requested:? {_N}\b(?! output)",
    rf"requested (?:about |a total of )?{_N} tokens",
)
_WINDOW_COUNTS = (
    rf"> {_N} maximum",
    rf"\+ [\d,]+ > {_N}",
    rf"maximum context length:? (?:is |of )?\(?{_N}",
    rf"{_N} maximum context length",
    rf"maximum prompt length is {_N}",
    rf"maximum model length of {_N}",
    rf"maximum number of tokens allowed \(?{_N}",
    rf"model only supports up to {_N}",
    rf"context (?:size|length|window) (?:is |of (?:only )?)?\(?{_N}",
    rf"limit of {_N}",
    rf"token limit: {_N}",
    rf"max input tokens: {_N}",
    rf"maximum allowed (?:input )?length (?:of )?\(?{_N}",
    rf"length should be \[\d+, {_N}\]",
    rf"must be <= {_N}",
    rf"must have less than {_N} tokens",
    rf"limit {_N}, requested",
    rf"model's max of {_N}",
    rf"prompt cannot exceed {_N}",
)
_PROMPT = tuple(re.compile(words, re.IGNORECASE) for words in _PROMPT_COUNTS)
_WINDOW = tuple(re.compile(words, re.IGNORECASE) for words in _WINDOW_COUNTS)


@dataclass(frozen=True, slots=True)
class Overflow:
    """The provider's own counts, in tokens, where it told them."""

    prompt_tokens: int | None = None
    window_tokens: int | None = None


def find_overflow(message: str, codes: Collection[str], status: int | None) -> Overflow | None:
    """What `message` says about an overflow; None if it is about something else.

    `codes` are the error's codes and types in lower case; `status` is HTTP's, None inside a
    stream.
    """
    if status in {401, 403}:
        return None
    if status == 429 or any("rate_limit" in code for code in codes):
        said = bool(_ABOVE_ALLOWANCE.search(message))
    else:
        # 413 is HTTP's own word for a request that is too large, whatever the message.
        coded = not CODES.isdisjoint(codes)
        said = coded or status == 413 or bool(_OVERFLOW.search(message))
    if not said:
        return None
    return Overflow(_first_count(_PROMPT, message), _first_count(_WINDOW, message))


def _first_count(patterns: tuple[re.Pattern[str], ...], message: str) -> int | None:
    for pattern in patterns:
        if found := pattern.search(message):
            return int(found.group(1).replace(",", ""))
    return None
