"""Content blocks as models take them.

Transcripts may hold any block (spec 1, File); models take four kinds, each only in some
roles. A cleaner returns the very same object when there is nothing to change, another
block when there is, or None when the block says nothing; why is noted as a decision.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from strandline.context.view import Decision
from strandline.transcript.messages import JsonObject

Notes = list[Decision]
"""Where cleaners write down what they did to a message."""

BlockCleaner = Callable[[JsonObject, Notes], JsonObject | None]

EMPTY_TEXT = Decision(
    "shortened", "sanitize", "empty_text", "an empty text block is left out: providers refuse it"
)
LONE_SURROGATE = Decision(
    "shortened",
    "sanitize",
    "lone_surrogate",
    "half of a character pair is replaced by U+FFFD: it cannot be sent",
)
UNSIGNED_THINKING = Decision(
    "shortened",
    "sanitize",
    "unsigned_thinking",
    "thinking without a usable signature is left out: providers refuse it",
)
ODD_CALL = Decision(
    "shortened", "sanitize", "odd_call", "a tool call without an id or a name cannot be answered"
)
ODD_ARGUMENTS = Decision(
    "kept", "sanitize", "odd_arguments", "arguments of a call that are no object are wrapped in one"
)
ODD_BLOCK = Decision(
    "kept", "sanitize", "odd_block", "a block that models do not take here is told in words"
)
ODD_CONTENT = Decision(
    "kept", "sanitize", "odd_content", "content that is not a list of blocks is put into one"
)
NO_BLOCK = Decision("shortened", "sanitize", "no_block", "a null in place of a block is left out")


def well_formed(text: str) -> str:
    r"""`text` with every lone surrogate replaced by U+FFFD; halves that meet become one.

    >>> ascii(well_formed("cut \ud83c"))
    "'cut \\ufffd'"
    """
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


_WRITER = json.JSONEncoder(ensure_ascii=False, default=str)


def json_text(value: object) -> str:
    """Any value as text, the way JSON writes it; a word for what cannot be written."""
    try:
        return well_formed(_WRITER.encode(value))
    except (ValueError, TypeError, RecursionError):
        return "(cannot be written as JSON)"


def text_block(text: str) -> JsonObject:
    """A block of plain text."""
    return {"type": "text", "text": text}


def without_item_id(block: JsonObject) -> JsonObject:
    """The block without the provider's own id of its text.

    That id is only valid beside the thinking that came with it: it goes when that goes.
    """
    if "textSignature" not in block:
        return block
    return {key: value for key, value in block.items() if key != "textSignature"}


def blocks_of(content: object, notes: Notes) -> list[Any]:
    """The content of a message as a list; the same object when it is one."""
    if isinstance(content, list):
        return content
    if content is None:
        return []
    notes.append(ODD_CONTENT)
    return [text_block(content if isinstance(content, str) else json_text(content))]


def clean_blocks(
    content: list[Any], cleaners: Mapping[str, BlockCleaner], notes: Notes
) -> list[Any]:
    """The blocks that models take, in order; `content` itself when all are fine."""
    cleaned = [_clean(block, cleaners, notes) for block in content]
    for new, old in zip(cleaned, content, strict=True):
        if new is not old or new is None:
            return [block for block in cleaned if block is not None]
    return content


def _clean(block: object, cleaners: Mapping[str, BlockCleaner], notes: Notes) -> JsonObject | None:
    if isinstance(block, dict):
        kind = block.get("type")
        cleaner = cleaners.get(kind) if isinstance(kind, str) else None
        return (cleaner or _other)(block, notes)
    if block is None:
        notes.append(NO_BLOCK)
        return None
    notes.append(ODD_BLOCK)
    return _text(text_block(block if isinstance(block, str) else json_text(block)), notes)


def _text(block: JsonObject, notes: Notes) -> JsonObject | None:
    text = block.get("text")
    if not isinstance(text, str):
        notes.append(EMPTY_TEXT if text is None else ODD_BLOCK)
        return None if text is None else {**block, "text": json_text(text)}
    if not text or text.isspace():
        notes.append(EMPTY_TEXT)
        return None
    fixed = well_formed(text)
    if fixed is text:
        return block
    notes.append(LONE_SURROGATE)
    return {**block, "text": fixed}


def _image(block: JsonObject, notes: Notes) -> JsonObject | None:
    data, mime_type = block.get("data"), block.get("mimeType")
    if data and mime_type and isinstance(data, str) and isinstance(mime_type, str):
        return block
    return _other(block, notes)


def _thinking(block: JsonObject, notes: Notes) -> JsonObject | None:
    text, signature = block.get("thinking"), block.get("thinkingSignature")
    signed = isinstance(signature, str) and signature and not signature.isspace()
    # A signature is over exact bytes: what would have to be mended is left out instead.
    if signed and isinstance(text, str) and well_formed(text) is text:
        return block
    notes.append(UNSIGNED_THINKING)
    return None


def _tool_call(block: JsonObject, notes: Notes) -> JsonObject | None:
    call_id, name = block.get("id"), block.get("name")
    if not (isinstance(call_id, str) and call_id and isinstance(name, str) and name):
        notes.append(ODD_CALL)
        return None
    given = block.get("arguments")
    arguments = clean_arguments(given, notes)
    fixed_id, fixed_name = well_formed(call_id), well_formed(name)
    if arguments is given and fixed_id is call_id and fixed_name is name:
        return block
    return {**block, "id": fixed_id, "name": fixed_name, "arguments": arguments}


def clean_arguments(given: object, notes: Notes) -> JsonObject:
    """The arguments of a call as an object that can be sent; the same one when it can."""
    if not isinstance(given, dict):
        notes.append(ODD_ARGUMENTS)
        return {} if given is None else {"value": json_text(given)}
    try:
        text = _WRITER.encode(given)
    except (ValueError, TypeError, RecursionError):
        notes.append(ODD_ARGUMENTS)
        return {"value": "(cannot be written as JSON)"}
    fixed = well_formed(text)
    if fixed is text:
        return given
    notes.append(LONE_SURROGATE)
    mended: JsonObject = json.loads(fixed)
    return mended


def _other(block: JsonObject, notes: Notes) -> JsonObject | None:
    """A block of another kind: its own text where it has one, else a word about it."""
    notes.append(ODD_BLOCK)
    text = block.get("text")
    if isinstance(text, str) and text and not text.isspace():
        return text_block(well_formed(text))
    return text_block(f"[a block of type {json_text(block.get('type'))} that is not shown]")


SPOKEN_BLOCKS: Mapping[str, BlockCleaner] = {"text": _text, "image": _image}
"""What users say and tools give back."""

ASSISTANT_BLOCKS: Mapping[str, BlockCleaner] = {
    "text": _text,
    "thinking": _thinking,
    "toolCall": _tool_call,
}
"""What models answer."""
