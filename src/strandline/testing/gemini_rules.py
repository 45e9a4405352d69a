"""What Gemini refuses, in its words. Source: cases/faults, A and B."""

from __future__ import annotations

import base64
import binascii
import itertools
from collections.abc import Iterator, Sequence

from strandline.testing.issued import Issued
from strandline.testing.wire import dicts
from strandline.transcript.messages import JsonObject

NO_SIGNATURE = frozenset(
    {"skip_thought_signature_validator", "context_engineering_is_the_way_to_go"}
)
"""What Google lets a history from elsewhere say in place of a signature."""

_DATA = frozenset(
    {
        "text",
        "inlineData",
        "fileData",
        "functionCall",
        "functionResponse",
        "executableCode",
        "codeExecutionResult",
    }
)
_REQUEST = "* GenerateContentRequest"


def problems(body: JsonObject, issued: Issued) -> Iterator[str]:
    """What is wrong, the first first."""
    contents = dicts(body, "contents")
    if not contents:
        yield f"{_REQUEST}.contents: contents is not specified\n"
    system = body.get("systemInstruction")
    if isinstance(system, dict):
        yield from _of_the_parts("system_instruction", system)
    for place, content in enumerate(contents):
        if content.get("role", "user") not in {"user", "model", "function"}:
            yield "Please use a valid role: user, model."
        yield from _of_the_parts(f"contents[{place}]", content)
    yield from _of_the_turns(contents)
    yield from _of_the_signatures(contents, issued)


def _of_the_parts(place: str, content: JsonObject) -> Iterator[str]:
    parts = dicts(content, "parts")
    if not parts:
        yield f"{_REQUEST}.{place}.parts: contents.parts must not be empty.\n"
    for index, part in enumerate(parts):
        where = f"{place}.parts[{index}]"
        data = [part[key] for key in _DATA if key in part]
        # A signature may stand on an empty text.
        if not data or (data == [""] and "thoughtSignature" not in part):
            yield (
                f"{_REQUEST}.{where}.data: required oneof field 'data' must have one "
                "initialized field\n"
            )
        yield from _of_a_response(where, part.get("functionResponse"))


def _of_a_response(where: str, response: object) -> Iterator[str]:
    if not isinstance(response, dict):
        return
    if not response.get("name"):
        yield f"{_REQUEST}.{where}.function_response.name: Name cannot be empty.\n"
    if not isinstance(response.get("response"), dict):
        yield (
            f"Invalid value at '{where}.function_response.response' "
            "(type.googleapis.com/google.protobuf.Struct)"
        )


def _count(content: JsonObject | None, key: str) -> int:
    return sum(key in part for part in dicts(content or {}, "parts"))


def _of_the_turns(contents: Sequence[JsonObject]) -> Iterator[str]:
    for before, content, after in zip(
        [None, *contents[:-1]], contents, [*contents[1:], None], strict=True
    ):
        calls, responses = _count(content, "functionCall"), _count(content, "functionResponse")
        if calls and (before is None or before.get("role", "user") == "model"):
            yield (
                "Please ensure that function call turn comes immediately after a user turn or "
                "after a function response turn."
            )
        if responses and not _count(before, "functionCall"):
            yield (
                "Please ensure that function response turn comes immediately after a function "
                "call turn."
            )
        if calls and _count(after, "functionResponse") != calls:
            yield (
                "Please ensure that the number of function response parts is equal to the number "
                "of function call parts of the function call turn."
            )


def _of_the_signatures(contents: Sequence[JsonObject], issued: Issued) -> Iterator[str]:
    for place, content in enumerate(contents):
        for index, part in enumerate(dicts(content, "parts")):
            signature = part.get("thoughtSignature")
            if signature is None or signature in NO_SIGNATURE:
                continue
            if not _is_base64(signature):
                yield (
                    f"Invalid value at 'contents[{place}].parts[{index}].thought_signature' "
                    f'(TYPE_BYTES), Base64 decoding failed for "{signature}"'
                )
            elif not (issued.knows(signature) or issued.knows(_standard(signature))):
                yield "Corrupted thought signature."
    for position, call in _unsigned_calls(contents):
        if issued.signed_call(call.get("name"), call.get("args")):
            yield (
                "Function call is missing a thought_signature in functionCall parts. This is "
                "required for tools to work correctly, and missing thought_signature may lead to "
                "degraded model performance. Additional data, function call "
                f"`default_api:{call.get('name')}` , position {position}. Please refer to "
                "https://ai.google.dev/gemini-api/docs/thought-signatures for more details."
            )


def _unsigned_calls(contents: Sequence[JsonObject]) -> Iterator[tuple[int, JsonObject]]:
    """The first call of each content since a person spoke last; only these need a signature."""
    turn = itertools.takewhile(
        lambda numbered: not _is_a_persons(numbered[1]), reversed(list(enumerate(contents, 1)))
    )
    for position, content in turn:
        for part in dicts(content, "parts"):
            if "functionCall" in part:
                if "thoughtSignature" not in part:
                    yield position, part["functionCall"]
                break


def _is_a_persons(content: JsonObject) -> bool:
    return content.get("role", "user") == "user" and _count(content, "text") > 0


def _standard(text: object) -> str:
    """Google takes both alphabets of base64; its own library sends the URL-safe one."""
    return str(text).replace("-", "+").replace("_", "/")


def _is_base64(text: object) -> bool:
    try:
        base64.b64decode(_standard(text), validate=True)
    except (binascii.Error, ValueError):
        return False
    return True
