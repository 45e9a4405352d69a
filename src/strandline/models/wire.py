"""A `ModelRequest` as the body of an OpenAI Chat Completions request (source: spec 4, Models).

Pure, and deterministic: the same request gives the same bytes, and a conversation that only
grew gives a body whose messages begin with the same bytes, which providers cache. What
servers refuse never leaves: empty contents, halves of characters, tool call ids that they
cannot read. What the model thought is never sent as if it had been said.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from strandline.models.surrogates import whole_text
from strandline.runtime.model import ModelRequest
from strandline.transcript.messages import JsonObject, Message

NO_USER_TEXT = "(empty message)"
NO_TOOL_OUTPUT = "(no output)"
TOOL_IMAGES = "(images that the tools above returned)"
IMAGE_LEFT_OUT = "(an image, which this model cannot see)"

ToolCallIdStyle = Literal["openai", "mistral"]
_ID_STYLES: dict[ToolCallIdStyle, re.Pattern[str]] = {
    "openai": re.compile(r"[A-Za-z0-9_-]{1,40}"),
    "mistral": re.compile(r"[A-Za-z0-9]{9}"),
}


@dataclass(frozen=True, slots=True)
class ServerTraits:
    """What servers of this format want differently.

    `max_tokens_field`: OpenAI's newer models refuse the old name, most others know only it.
    `stream_usage`: ask for usage in the stream; a few servers refuse the question.
    `tool_call_ids`: the ids that the server accepts.
    `extra_body`: more keys for the body, such as ``temperature``.
    """

    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    stream_usage: bool = True
    tool_call_ids: ToolCallIdStyle = "openai"
    extra_body: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of_host(cls, host: str) -> ServerTraits:
        """What the server at `host` is known to want."""
        if host == "api.openai.com" or host.endswith(".openai.azure.com"):
            return cls(max_tokens_field="max_completion_tokens")
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
    body |= _sorted_keys(dict(traits.extra_body))
    return whole_text(_compact(body)).encode()


def chat_messages(request: ModelRequest, traits: ServerTraits) -> list[JsonObject]:
    """The system prompt and the messages, in the shapes of Chat Completions."""
    ids = _ToolCallIds(traits.tool_call_ids)
    wire: list[JsonObject] = []
    images: list[JsonObject] = []
    if request.system_prompt.strip():
        wire.append({"role": "system", "content": request.system_prompt})
    for message in request.messages:
        if message.get("role") == "toolResult":
            images += _images(message)
            wire.append(_tool_result(message, ids))
            continue
        wire += _tool_images(images)
        images = []
        if message.get("role") == "assistant":
            wire += _assistant(message, ids)
        else:
            wire.append({"role": "user", "content": _user_content(message)})
    return wire + _tool_images(images)


def plain_messages(request: ModelRequest) -> list[JsonObject]:
    """The same conversation for a model that knows text only: tools and images are told."""
    wire: list[JsonObject] = []
    if request.system_prompt.strip():
        wire.append({"role": "system", "content": whole_text(request.system_prompt)})
    for message in request.messages:
        role, parts = message.get("role"), [_text(message)]
        if role == "toolResult":
            parts.insert(0, f"[{message.get('toolName', 'tool')} returned]")
        parts += [f"[called {call['name']} {call['arguments']}]" for call in _calls(message)]
        parts += [IMAGE_LEFT_OUT for _ in _images(message)]
        text = "\n".join(filter(str.strip, parts))
        if text or role != "assistant":
            spoken = {"role": "assistant" if role == "assistant" else "user"}
            wire.append({**spoken, "content": whole_text(text or NO_USER_TEXT)})
    return wire


def _user_content(message: Message) -> str | list[JsonObject]:
    text, images = _text(message), _images(message)
    if not images:
        return text or NO_USER_TEXT
    return [*([{"type": "text", "text": text}] if text else []), *images]


def _assistant(message: Message, ids: _ToolCallIds) -> Iterator[JsonObject]:
    """One message; none where the model said nothing, as after an error."""
    text, calls = _text(message), list(_calls(message))
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
    return {"name": call["name"], "arguments": call["arguments"]}


def _tool_result(message: Message, ids: _ToolCallIds) -> JsonObject:
    identity = ids.of(str(message.get("toolCallId", "")))
    return {"role": "tool", "tool_call_id": identity, "content": _text(message) or NO_TOOL_OUTPUT}


def _tool_images(images: list[JsonObject]) -> list[JsonObject]:
    """Tool messages carry text only; images follow the last of them, as from the user."""
    if not images:
        return []
    return [{"role": "user", "content": [{"type": "text", "text": TOOL_IMAGES}, *images]}]


def _blocks(message: Message, kind: str) -> Iterator[JsonObject]:
    content = message.get("content")
    if isinstance(content, list):
        yield from (b for b in content if isinstance(b, dict) and b.get("type") == kind)


def _text(message: Message) -> str:
    """All text of a message; empty where there is only white space."""
    content = message.get("content")
    texts: Iterable[object]
    texts = (
        [content] if isinstance(content, str) else (b.get("text") for b in _blocks(message, "text"))
    )
    return "\n".join(t for t in texts if isinstance(t, str) and t.strip())


def _images(message: Message) -> list[JsonObject]:
    return [
        {"type": "image_url", "image_url": {"url": f"data:{b.get('mimeType')};base64,{b['data']}"}}
        for b in _blocks(message, "image")
        if b.get("data")
    ]


def _calls(message: Message) -> Iterator[JsonObject]:
    """The tool calls, `arguments` as JSON text with its keys as the model wrote them."""
    for block in _blocks(message, "toolCall"):
        name, identity = str(block.get("name", "")), str(block.get("id", ""))
        yield {"id": identity, "name": name, "arguments": _arguments(block.get("arguments"))}


def _arguments(value: object) -> str:
    try:
        return _compact(value) if isinstance(value, dict) else "{}"
    except (ValueError, RecursionError):
        return "{}"  # NaN, or deeper than JSON readers go: from a foreign transcript


def _tools(tools: Sequence[JsonObject]) -> list[JsonObject]:
    """Tools in order of name, with the keys of their schemas in order too."""
    wrapped = [t if "function" in t else {"type": "function", "function": t} for t in tools]
    ordered = [_sorted_keys(tool) for tool in wrapped]
    return sorted(ordered, key=lambda tool: (str(tool["function"].get("name")), _compact(tool)))


def _sorted_keys(value: JsonObject) -> JsonObject:
    ordered: JsonObject = json.loads(json.dumps(value, sort_keys=True))
    return ordered


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


class _ToolCallIds:
    """Ids that the server accepts, one for each id of the transcript (cases/faults, A15).

    An id that fits stays; another becomes a digest of itself. Where two would meet, the later
    one moves on, so that the ids of a beginning never depend on what comes after it.
    """

    def __init__(self, style: ToolCallIdStyle) -> None:
        self._style: ToolCallIdStyle = style
        self._sent: dict[str, str] = {}
        self._taken: set[str] = set()

    def of(self, identity: str) -> str:
        if identity in self._sent:
            return self._sent[identity]
        sent, tries = identity, 0
        while sent in self._taken or not _ID_STYLES[self._style].fullmatch(sent):
            tries += 1
            digest = hashlib.sha256(f"{tries}:{identity}".encode("utf-8", "surrogatepass"))
            sent = digest.hexdigest()[:9] if self._style == "mistral" else digest.hexdigest()[:32]
        self._taken.add(sent)
        self._sent[identity] = sent
        return sent
