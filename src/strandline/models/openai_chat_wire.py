"""A `ModelRequest` as the body of an OpenAI Chat Completions request (source: spec 4, Models).

Pure, and deterministic: the same request gives the same bytes, and a conversation that only
grew gives a body whose messages begin with the same bytes, which providers cache. What
servers refuse never leaves: empty contents, halves of characters, tool call ids that they
cannot read. What the model thought is never sent as if it had been said.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from strandline.models.content import (
    IMAGE_LEFT_OUT,
    NO_TOOL_OUTPUT,
    NO_USER_TEXT,
    body_bytes,
    calls_of,
    compact,
    images_of,
    ordered_tools,
    sorted_keys,
    spoken_of,
    text_of,
)
from strandline.models.efforts import openai_effort
from strandline.models.openai_caching import cache_fields, is_openai
from strandline.models.surrogates import whole_text
from strandline.models.tool_call_ids import MISTRAL_IDS, OPENAI_IDS, ToolCallIds
from strandline.runtime.model import ModelInfo, ModelRequest
from strandline.transcript.messages import JsonObject, Message

TOOL_IMAGES = "(images that the tools above returned)"

ToolCallIdStyle = Literal["openai", "mistral"]
_ID_STYLES: dict[ToolCallIdStyle, re.Pattern[str]] = {"openai": OPENAI_IDS, "mistral": MISTRAL_IDS}


@dataclass(frozen=True, slots=True)
class ServerTraits:
    """What servers of this format want differently.

    `max_tokens_field`: OpenAI's newer models refuse the old name, most others know only it.
    `stream_usage`: ask for usage in the stream; a few servers refuse the question.
    `tool_call_ids`: the ids that the server accepts.
    `prompt_cache`: it takes OpenAI's keys about the prompt cache, which others may refuse.
    `extra_body`: more keys for the body, such as ``temperature``.
    """

    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    stream_usage: bool = True
    tool_call_ids: ToolCallIdStyle = "openai"
    prompt_cache: bool = False
    extra_body: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of_host(cls, host: str) -> ServerTraits:
        """What the server at `host` is known to want."""
        if is_openai(host):
            return cls(max_tokens_field="max_completion_tokens", prompt_cache=True)
        if host == "api.mistral.ai":
            return cls(tool_call_ids="mistral")
        return cls()


def request_body(request: ModelRequest, traits: ServerTraits) -> bytes:
    """The body of a streaming request."""
    body: JsonObject = {"model": request.model.id, "messages": chat_messages(request, traits)}
    if request.tools:
        body["tools"] = _tools(request.tools)
    body["stream"] = True
    if traits.stream_usage:
        body["stream_options"] = {"include_usage": True}
    body[traits.max_tokens_field] = request.max_output_tokens
    effort = openai_effort(request.model.id, request.thinking) if request.model.reasoning else None
    if effort is not None:
        body["reasoning_effort"] = effort
    if traits.prompt_cache:
        body |= cache_fields(request)
    body |= sorted_keys(traits.extra_body)
    return body_bytes(body)


def chat_messages(request: ModelRequest, traits: ServerTraits) -> list[JsonObject]:
    """The system prompt and the messages, in the shapes of Chat Completions."""
    ids = ToolCallIds(_ID_STYLES[traits.tool_call_ids])
    wire: list[JsonObject] = []
    images: list[JsonObject] = []
    if request.system_prompt.strip():
        wire.append({"role": "system", "content": request.system_prompt})
    for message in request.messages:
        if message.get("role") == "toolResult":
            text, shown = spoken_of(message, request.model)
            images += _image_parts(shown)
            wire.append(_tool_result(message, text, ids))
            continue
        wire += _tool_images(images)
        images = []
        if message.get("role") == "assistant":
            wire += _assistant(message, ids)
        else:
            wire.append({"role": "user", "content": _user_content(message, request.model)})
    if not request.messages:  # many servers refuse a system prompt alone
        wire.append({"role": "user", "content": NO_USER_TEXT})
    return wire + _tool_images(images)


def plain_messages(request: ModelRequest) -> list[JsonObject]:
    """The same conversation for a model that knows text only: tools and images are told."""
    wire: list[JsonObject] = []
    if request.system_prompt.strip():
        wire.append({"role": "system", "content": whole_text(request.system_prompt)})
    for message in request.messages:
        role, parts = message.get("role"), [text_of(message)]
        if role == "toolResult":
            parts.insert(0, f"[{message.get('toolName', 'tool')} returned]")
        parts += [f"[called {c['name']} {compact(c['arguments'])}]" for c in calls_of(message)]
        parts += [IMAGE_LEFT_OUT for _ in images_of(message)]
        text = "\n".join(filter(str.strip, parts))
        if text or role != "assistant":
            spoken = {"role": "assistant" if role == "assistant" else "user"}
            wire.append({**spoken, "content": whole_text(text or NO_USER_TEXT)})
    return wire


def _user_content(message: Message, model: ModelInfo) -> str | list[JsonObject]:
    text, images = spoken_of(message, model)
    if not images:
        return text or NO_USER_TEXT
    return [*([{"type": "text", "text": text}] if text else []), *_image_parts(images)]


def _assistant(message: Message, ids: ToolCallIds) -> Iterator[JsonObject]:
    """One message; none where the model said nothing, as after an error."""
    text, calls = text_of(message), list(calls_of(message))
    if not text and not calls:
        return
    wire: JsonObject = {"role": "assistant", "content": text or None}
    if calls:
        wire["tool_calls"] = [
            {"id": ids.of(call["id"]), "type": "function", "function": _function(call)}
            for call in calls
        ]
    yield wire


def _function(call: JsonObject) -> JsonObject:
    return {"name": call["name"], "arguments": compact(call["arguments"])}


def _tool_result(message: Message, text: str, ids: ToolCallIds) -> JsonObject:
    identity = ids.of(str(message.get("toolCallId", "")))
    return {"role": "tool", "tool_call_id": identity, "content": text or NO_TOOL_OUTPUT}


def _tool_images(images: list[JsonObject]) -> list[JsonObject]:
    """Tool messages carry text only; images follow the last of them, as from the user."""
    if not images:
        return []
    return [{"role": "user", "content": [{"type": "text", "text": TOOL_IMAGES}, *images]}]


def _image_parts(images: Sequence[JsonObject]) -> list[JsonObject]:
    return [
        {"type": "image_url", "image_url": {"url": f"data:{b.get('mimeType')};base64,{b['data']}"}}
        for b in images
    ]


def _tools(tools: Sequence[JsonObject]) -> list[JsonObject]:
    plain = [tool.get("function", tool) for tool in tools]
    return [{"type": "function", "function": tool} for tool in ordered_tools(plain)]
