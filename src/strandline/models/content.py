"""Reading the messages of a request, for every format that is written from them.

Messages have passed `strandline.context.sanitize`, but adapters may be called with anything:
what is odd is skipped here, never sent. What providers refuse never leaves: empty texts,
halves of characters, numbers that are not JSON. Source: spec 4, Models.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from strandline.models.surrogates import whole_text
from strandline.runtime.model import ModelInfo
from strandline.transcript.messages import JsonObject, Message

NO_USER_TEXT = "(empty message)"
NO_TOOL_OUTPUT = "(no output)"
IMAGE_LEFT_OUT = "(an image, which this model cannot see)"


def blocks(message: Message, kind: str) -> Iterator[JsonObject]:
    """The blocks of one kind."""
    content = message.get("content")
    if isinstance(content, list):
        yield from (b for b in content if isinstance(b, dict) and b.get("type") == kind)


def text_of(message: Message) -> str:
    """All text of a message; empty where there is only white space."""
    content = message.get("content")
    texts: Iterable[object]
    texts = (
        [content] if isinstance(content, str) else (b.get("text") for b in blocks(message, "text"))
    )
    return "\n".join(t for t in texts if isinstance(t, str) and t.strip())


def images_of(message: Message) -> list[JsonObject]:
    """The image blocks that have data, base64 of `mimeType`."""
    return [b for b in blocks(message, "image") if b.get("data")]


def spoken_of(message: Message, model: ModelInfo) -> tuple[str, list[JsonObject]]:
    """Text and images as `model` takes them: one without eyes is told that there was one."""
    text, images = text_of(message), images_of(message)
    if model.images or not images:
        return text, images
    return "\n".join(filter(None, [text, *[IMAGE_LEFT_OUT] * len(images)])), []


def calls_of(message: Message) -> Iterator[JsonObject]:
    """The tool calls: `id`, `name`, `arguments` as an object that is JSON, `block` as it is."""
    for block in blocks(message, "toolCall"):
        name, identity = str(block.get("name", "")), str(block.get("id", ""))
        arguments = clean_arguments(block.get("arguments"))
        yield {"id": identity, "name": name, "arguments": arguments, "block": block}


def clean_arguments(value: object) -> JsonObject:
    """The arguments with their keys as the model wrote them; empty for what is no JSON."""
    try:
        compact([[[[[[[[[[[[value]]]]]]]]]]]])  # it stands this deep in a body, at most
    except (ValueError, RecursionError, TypeError):
        return {}  # NaN, or deeper than JSON readers go: from a foreign transcript
    return value if isinstance(value, dict) else {}


def is_own(message: Message, model: ModelInfo) -> bool:
    """Whether the model that is asked wrote this message, in the same format.

    Signatures of thinking and ids of a provider's own items hold for their model only.
    """
    written = (message.get("api"), message.get("provider"), message.get("model"))
    return written == (model.api, model.provider, model.id)


def ordered_tools(tools: Sequence[JsonObject]) -> list[JsonObject]:
    """Tools by name: the same set, the same bytes.

    The keys of their schemas are in order too, and so are lists whose order says nothing
    (``required``, an ``enum`` of texts); descriptions have one kind of line end and no white
    space that nobody sees.
    """
    ordered = [_normalised(sorted_keys(tool)) for tool in tools]
    return sorted(ordered, key=lambda tool: (str(tool.get("name")), compact(tool)))


def _normalised(value: Any, key: str = "") -> Any:
    """A part of a tool without the differences that mean nothing; `key` is where it stands."""
    match value:
        case dict() if key not in {"const", "default", "examples"}:
            # Under `properties` the keys are names, and what they name is a schema.
            return {k: _normalised(v, "" if key == "properties" else k) for k, v in value.items()}
        case list() if key in {"required", "enum"} and all(isinstance(v, str) for v in value):
            return sorted(set(value))
        case _ if key in {"const", "default", "enum", "examples"}:
            return value  # what a caller may say, word for word
        case list():
            return [_normalised(each) for each in value]
        case str() if key == "description":
            return "\n".join(line.rstrip() for line in value.strip().splitlines())
        case _:
            return value


def sorted_keys(value: Mapping[str, object]) -> JsonObject:
    """A copy whose keys are in order at every depth."""
    ordered: JsonObject = json.loads(json.dumps(dict(value), sort_keys=True))
    return ordered


def compact(value: object) -> str:
    """JSON without white space. Raises `ValueError` for NaN."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def body_bytes(body: JsonObject) -> bytes:
    """A request's body, every text whole."""
    return whole_text(compact(body)).encode()
