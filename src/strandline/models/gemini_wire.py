"""A `ModelRequest` as the body of a Gemini ``generateContent`` request (source: spec 4, Models).

Pure, and deterministic: the same request gives the same bytes, and a conversation that only
grew gives a body that begins with the same bytes, which Google caches. What the API refuses
never leaves: empty parts, two contents of one role in a row, a call without its result.
Signatures of thoughts go back as they came, and only to the model that wrote them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from strandline.context.pairing import NO_RESULT
from strandline.models.content import (
    NO_TOOL_OUTPUT,
    NO_USER_TEXT,
    body_bytes,
    clean_arguments,
    is_own,
    ordered_tools,
    spoken_of,
)
from strandline.models.draft import objects_in, string_in
from strandline.models.efforts import Effort, nearest
from strandline.runtime.model import ModelInfo, ModelRequest
from strandline.transcript.messages import JsonObject, Message, ThinkingLevel

BEGINNING_LEFT_OUT = "(what was said before is not shown)"
"""The first content has to be the user's; this stands in where it is not."""

IMAGE_FOLLOWS = "(an image, which follows)"
"""The result of a tool that gave back images only."""

SKIP_SIGNATURE = "skip_thought_signature_validator"
"""What Google documents for calls that another model made: they have no signature."""

_SIGNATURE = re.compile(r"[A-Za-z0-9+/_-]+={0,2}")
_MADE_UP_ID = re.compile(r".*_\d+_\d+", re.DOTALL)  # `Draft`'s, and pi's: name, time, number
_SECOND_GENERATION = re.compile(r"gemini-[12]\.")

# Budgets are tokens. These are within the ranges of all Gemini 2.5 models.
_BUDGETS: Mapping[ThinkingLevel, int] = {
    "minimal": 512,
    "low": 2048,
    "medium": 8192,
    "high": 16_384,
    "xhigh": 24_576,
}
_LEAST_BUDGET = 512
_LEAST_BUDGET_OF_PRO = 128
# What came after 2.5 takes a level, and cannot be kept from thinking. The first pattern that is
# found counts. The Flash models before 3.7 think least; only the smaller ones of the fourth
# generation go beyond HIGH.
_LEVELS: tuple[tuple[re.Pattern[str], tuple[Effort, ...]], ...] = (
    (re.compile(r"gemini-3-pro"), ("low", "high")),
    (re.compile(r"gemini-3(?:\.[1-6])?-flash"), ("minimal", "low", "medium", "high")),
    (re.compile(r"gemini-4-(?:hydrogen|neon)"), ("low", "medium", "high", "xhigh")),
    (re.compile(r""), ("low", "medium", "high")),
)


_Call = tuple[object, JsonObject]
"""A call's id in the transcript, and what names it to the API."""


def request_body(request: ModelRequest, cached_content: str = "") -> bytes:
    """The body. What grows stands last.

    `cached_content`: the name under which the server has `stable_beginning` of this request.
    """
    kept: JsonObject = {"cachedContent": cached_content}
    body = kept if cached_content else stable_beginning(request)
    body["generationConfig"] = _generation(request)
    body["contents"] = gemini_contents(request)
    return body_bytes(body)


def stable_beginning(request: ModelRequest) -> JsonObject:
    """What all requests of a session begin with: system prompt and tools."""
    beginning: JsonObject = {}
    if request.system_prompt.strip():
        beginning["systemInstruction"] = {"parts": [{"text": request.system_prompt}]}
    if request.tools:
        declared = [_declaration(tool) for tool in ordered_tools(request.tools)]
        beginning["tools"] = [{"functionDeclarations": declared}]
    return beginning


def is_second_generation(model_id: str) -> bool:
    """Whether it is a Gemini 2, or older: those think, and cache, by other rules."""
    return bool(_SECOND_GENERATION.search(model_id))


def gemini_contents(request: ModelRequest) -> list[JsonObject]:
    """The messages as contents of user and model in turn, the first of them the user's."""
    model = request.model
    wire: list[JsonObject] = []
    calls: list[_Call] = []  # of the last message
    results: list[Message] = []  # since then
    for message in request.messages:
        if message.get("role") == "toolResult":
            results.append(message)
            continue
        _add(wire, "user", _results(calls, results, model))
        calls, results = [], []
        if message.get("role") == "assistant":
            calls = _calls(message, model)
            _add(wire, "model", _said(message, model))
        else:
            _add(wire, "user", _asked(message, model))
    _add(wire, "user", _results(calls, results, model))
    if not wire or wire[0]["role"] != "user":
        missing = BEGINNING_LEFT_OUT if wire else NO_USER_TEXT
        wire.insert(0, {"role": "user", "parts": [{"text": missing}]})
    return wire


def _add(
    wire: list[JsonObject], role: Literal["user", "model"], parts: Iterable[JsonObject]
) -> None:
    said = [*parts]
    if said and wire and wire[-1]["role"] == role:
        wire[-1]["parts"] += said
    elif said:
        wire.append({"role": role, "parts": said})


def _asked(message: Message, model: ModelInfo) -> list[JsonObject]:
    """What the user said, never nothing."""
    text, images = spoken_of(message, model)
    words: list[JsonObject] = [{"text": text}] if text else []
    return [*words, *_images(images)] or [{"text": NO_USER_TEXT}]


def _said(message: Message, model: ModelInfo) -> Iterator[JsonObject]:
    """What a model said, thought and called, in its order; thoughts only to that model."""
    own = is_own(message, model)
    unsigned = {"thoughtSignature": SKIP_SIGNATURE} if _wants_signatures(model) else {}
    for block in _blocks(message):
        kind = block.get("type")
        text = string_in(block.get("thinking" if kind == "thinking" else "text"))
        if kind == "text" and text.strip():
            yield {"text": text, **_signature(block, "textSignature", own=own)}
        elif kind == "thinking" and text:
            if signature := _signature(block, "thinkingSignature", own=own):
                yield {"text": text, "thought": True, **signature}
        elif _is_call(block):
            called = {**_call(block, own=own), "args": clean_arguments(block.get("arguments"))}
            signature = _signature(block, "thoughtSignature", own=own)
            yield {"functionCall": called, **(signature or unsigned)}
            unsigned = {}  # only the first call of a step has to have one


def _results(
    calls: Sequence[_Call], results: Sequence[Message], model: ModelInfo
) -> list[JsonObject]:
    """One answer for each call, in the calls' order, then the images that the tools gave back.

    The first result of a call counts; what answers none of them is not sent. (faults, A17.)
    """
    parts, images, left = [], [], [*results]
    for identity, call in calls:
        place = next((i for i, r in enumerate(left) if r.get("toolCallId") == identity), None)
        if place is None:
            response = {"error": NO_RESULT}
        else:
            result = left.pop(place)
            text, shown = spoken_of(result, model)
            images += _images(shown)
            said = text or (IMAGE_FOLLOWS if shown else NO_TOOL_OUTPUT)
            response = {"error" if result.get("isError") is True else "output": said}
        parts.append({"functionResponse": {**call, "response": response}})
    return parts + images


def _blocks(message: Message) -> list[JsonObject]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return objects_in(content)


def _is_call(block: JsonObject) -> bool:
    return block.get("type") == "toolCall" and bool(string_in(block.get("name")))


def _calls(message: Message, model: ModelInfo) -> list[_Call]:
    own = is_own(message, model)
    calls = filter(_is_call, _blocks(message))
    return [(block.get("id"), _call(block, own=own)) for block in calls]


def _call(block: JsonObject, *, own: bool) -> JsonObject:
    """What names a call on both sides: its name, and its id where the API gave it one."""
    identity = string_in(block.get("id"))
    given = own and identity and not _MADE_UP_ID.fullmatch(identity)
    return {**({"id": identity} if given else {}), "name": block["name"]}


def _signature(block: JsonObject, key: str, *, own: bool) -> JsonObject:
    """A signature byte for byte, for the model that gave it; the API refuses any other."""
    signature = string_in(block.get(key))
    usable = own and _SIGNATURE.fullmatch(signature) and len(signature) % 4 == 0
    return {"thoughtSignature": signature} if usable else {}


def _images(blocks: Iterable[JsonObject]) -> list[JsonObject]:
    return [
        {"inlineData": {"mimeType": str(b.get("mimeType") or "image/png"), "data": b["data"]}}
        for b in blocks
        if isinstance(b["data"], str)
    ]


def _declaration(tool: JsonObject) -> JsonObject:
    wire = {"name": tool.get("name"), "description": tool.get("description")}
    wire["parametersJsonSchema"] = tool.get("parameters")
    return {key: value for key, value in wire.items() if value is not None}


def _generation(request: ModelRequest) -> JsonObject:
    config: JsonObject = {"maxOutputTokens": request.max_output_tokens}
    if request.model.reasoning:
        config["thinkingConfig"] = _thinking(request)
    return config


def _thinking(request: ModelRequest) -> JsonObject:
    """How hard to think: a budget for Gemini 2.5, a level for what came after it."""
    shown: JsonObject = {} if request.thinking == "off" else {"includeThoughts": True}
    name = request.model.id
    if not is_second_generation(name):
        taken = next(levels for pattern, levels in _LEVELS if pattern.search(name))
        return {**shown, "thinkingLevel": nearest(request.thinking, taken).upper()}
    if request.thinking == "off":
        return {"thinkingBudget": _LEAST_BUDGET_OF_PRO if "-pro" in name else 0}
    # Thoughts count as output: half of it stays for the answer.
    budget = min(_BUDGETS[request.thinking], request.max_output_tokens // 2)
    return {**shown, "thinkingBudget": max(budget, _LEAST_BUDGET)}


def _wants_signatures(model: ModelInfo) -> bool:
    """Gemini 3 refuses a step whose first call has no signature."""
    return "gemini" in model.id and not is_second_generation(model.id)
