"""A `ModelRequest` as the body of an OpenAI Responses request (source: spec 4, Models).

Pure, and deterministic: the same request gives the same bytes, and a conversation that only
grew gives a body whose input begins with the same bytes, which providers cache. Nothing is
stored at the provider, unless it is to keep the thread: what a model thought goes back to it
encrypted, beside what it led to, and to no other model.

The system prompt goes as `instructions`: every server puts them first in the prompt, in the
role that the model wants (system or developer), and the input stays a list that only grows.
A thread does not keep them, so they go with every call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from strandline.context.sanitize import FAILED_REASONS
from strandline.models.content import (
    NO_TOOL_OUTPUT,
    NO_USER_TEXT,
    body_bytes,
    calls_of,
    compact,
    is_own,
    ordered_tools,
    spoken_of,
)
from strandline.models.draft import objects_in
from strandline.models.efforts import openai_effort
from strandline.models.openai_caching import cache_fields
from strandline.models.openai_responses_stored import (
    CallIds,
    call_item_id,
    function_name,
    message_item,
    reasoning_item,
)
from strandline.runtime.model import ModelInfo, ModelRequest, ThreadPoint
from strandline.transcript.messages import JsonObject, Message

MIN_OUTPUT_TOKENS = 16
"""What the API wants at least."""


def request_body(request: ModelRequest, *, prompt_cache: bool = False) -> bytes:
    """The body of a streaming request.

    `prompt_cache`: the server takes OpenAI's keys about the prompt cache.
    """
    body: JsonObject = {"model": request.model.id}
    if request.system_prompt.strip():
        body["instructions"] = request.system_prompt
    # An empty input is refused.
    body["input"] = input_items(request) if request.messages else [_asked({}, request.model)]
    if request.tools and request.model.tools:
        body["tools"] = _tools(request.tools)
    body |= {"stream": True, **_kept(request.thread)}
    if prompt_cache:
        body |= cache_fields(request)
    body["max_output_tokens"] = max(request.max_output_tokens, MIN_OUTPUT_TOKENS)
    if request.model.reasoning:
        # Models that do not reason refuse to be asked for it.
        body["include"] = ["reasoning.encrypted_content"]
        if reasoning := _reasoning(request):
            body["reasoning"] = reasoning
    return body_bytes(body)


def _kept(thread: ThreadPoint | None) -> JsonObject:
    """What the server is to keep. A thread that outgrows the window loses its beginning there,
    where nobody else can shorten it.
    """
    if thread is None:
        return {"store": False}
    after = {} if thread.previous_id is None else {"previous_response_id": thread.previous_id}
    return {"store": True, "truncation": "auto", **after}


def _reasoning(request: ModelRequest) -> JsonObject:
    """How hard to think. Who asked for no thinking is not shown what is thought anyway."""
    effort = openai_effort(request.model.id, request.thinking)
    shown = {} if request.thinking == "off" else {"summary": "auto"}
    return {"effort": effort, **shown} if effort is not None else {}


def input_items(request: ModelRequest) -> list[JsonObject]:
    """The messages as items of the input."""
    ids = CallIds()
    sent: set[str] = set()
    items: list[JsonObject] = [*_bootstrap(request.thread)]
    for message in request.messages:
        match message.get("role"):
            case "assistant":
                items += _Answered(message, request.model, ids, sent).items()
            case "toolResult":
                items.append(_output(message, request.model, ids))
            case _:
                items.append(_asked(message, request.model))
    return items


def _bootstrap(thread: ThreadPoint | None) -> Iterator[JsonObject]:
    """The context that a thread begins with, as the developer's; the thread keeps it."""
    if thread is not None and thread.previous_id is None and thread.context:
        yield {"role": "developer", "content": thread.context}


class _Answered:
    """The items of one answer, in their order.

    The API refuses an item whose id came with a reasoning item that is missing, and a
    reasoning item that nothing follows. So an id goes only where the thought before it goes,
    and a thought only where something that it led to does; ids are optional. (cases/faults,
    A19.) `sent` has the ids of items that went already: none may go twice.
    """

    def __init__(self, message: Message, model: ModelInfo, ids: CallIds, sent: set[str]) -> None:
        self._message = message
        self._own = is_own(message, model) and message.get("stopReason") not in FAILED_REASONS
        self._ids = ids
        self._sent = sent
        self._named = False  # whether the thought before the next item is there

    def items(self) -> Iterator[JsonObject]:
        content = self._message.get("content")
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        thoughts: list[JsonObject] = []
        for block in objects_in(content):
            if block.get("type") == "thinking":
                thought = self._thought(block)
                self._named = thought is not None
                thoughts = [*thoughts, thought] if thought is not None else []
            elif item := self._said(block):
                yield from thoughts
                thoughts = []
                yield item

    def _thought(self, block: JsonObject) -> JsonObject | None:
        item = reasoning_item(block.get("thinkingSignature")) if self._own else None
        return item if item and self._once(item["id"]) else None

    def _said(self, block: JsonObject) -> JsonObject | None:
        match block.get("type"):
            case "text":
                return self._text(block)
            case "toolCall":
                return self._call(block)
            case _:
                return None

    def _text(self, block: JsonObject) -> JsonObject | None:
        text = block.get("text")
        if not isinstance(text, str) or not text.strip():
            return None
        identity, more = message_item(block.get("textSignature")) if self._own else ("", {})
        item: JsonObject = {"type": "message", "role": "assistant", "content": text, **more}
        if not self._may_name(identity):
            return item
        content = [{"type": "output_text", "text": text, "annotations": []}]
        return {**item, "id": identity, "status": "completed", "content": content}

    def _call(self, block: JsonObject) -> JsonObject:
        call = next(calls_of({"content": [block]}))
        item: JsonObject = {
            "type": "function_call",
            "call_id": self._ids.of(call["id"]),
            "name": function_name(call["name"]),
            "arguments": compact(call["arguments"]),
        }
        identity = call_item_id(call["id"])
        return {**item, "id": identity} if self._may_name(identity) else item

    def _may_name(self, identity: str) -> bool:
        return self._named and bool(identity) and self._once(identity)

    def _once(self, identity: str) -> bool:
        fresh = identity not in self._sent
        self._sent.add(identity)
        return fresh


def _asked(message: Message, model: ModelInfo) -> JsonObject:
    content = _parts(message, model) or [{"type": "input_text", "text": NO_USER_TEXT}]
    return {"type": "message", "role": "user", "content": content}


def _output(message: Message, model: ModelInfo, ids: CallIds) -> JsonObject:
    """A tool's result: a plain text, which every server takes, or a list with its images."""
    parts = _parts(message, model)
    texts = "\n".join(part["text"] for part in parts if "text" in part)
    pictured = any("image_url" in part for part in parts)
    return {
        "type": "function_call_output",
        "call_id": ids.of(str(message.get("toolCallId", ""))),
        "output": parts if pictured else texts or NO_TOOL_OUTPUT,
    }


def _parts(message: Message, model: ModelInfo) -> list[JsonObject]:
    text, images = spoken_of(message, model)
    parts: list[JsonObject] = [{"type": "input_text", "text": text}] if text else []
    for image in images:
        url = f"data:{image.get('mimeType')};base64,{image['data']}"
        parts.append({"type": "input_image", "detail": "auto", "image_url": url})
    return parts


def _tools(tools: Sequence[JsonObject]) -> list[JsonObject]:
    plain = [tool.get("function", tool) for tool in tools]
    return [_tool(tool) for tool in ordered_tools(plain)]


def _tool(tool: JsonObject) -> JsonObject:
    parameters = tool.get("parameters") or {"type": "object", "properties": {}}
    # Without "strict", the API would make every parameter required.
    return {"type": "function", **tool, "parameters": parameters, "strict": False}
