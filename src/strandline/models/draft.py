"""One assistant message in the making, whatever the format of its stream.

A reader of a format (`strandline.models.http.Answer`) begins blocks and adds pieces to them
in the order in which they come; texts cut inside a character are joined. At the end the
draft is a message, or what was said before a failure. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from strandline.errors import ModelError
from strandline.models.failures import Failures
from strandline.models.surrogates import TextPieces, whole_text
from strandline.runtime.model import Failed, ModelEvent, ModelInfo, TextDelta, ThinkingDelta
from strandline.runtime.tools import UNPARSED_ARGUMENTS
from strandline.transcript.messages import JsonObject, Message, StopReason, Usage

MAX_ANSWER_CHARS = 16 * 1024 * 1024
"""The longest answer that is kept."""

MAX_CALLS = 1000

Kind = Literal["text", "thinking", "toolCall"]


@dataclass(slots=True)
class DraftBlock:
    """A block that grows. `extra` are keys of the block beside its text, signatures for
    instance; `id` and `name` are a call's.
    """

    kind: Kind
    id: str = ""
    name: str = ""
    extra: JsonObject = field(default_factory=dict)
    pieces: list[str] = field(default_factory=list)
    cut: TextPieces = field(default_factory=TextPieces)

    @property
    def text(self) -> str:
        """What it holds so far; of a call, the JSON of its arguments."""
        return "".join(self.pieces)


class Draft:
    """The blocks of one answer, in the order in which they were begun."""

    def __init__(self, model: ModelInfo, timestamp_ms: int, failures: Failures) -> None:
        self.model = model
        self.blocks: list[DraftBlock] = []
        self._timestamp_ms = timestamp_ms
        self._failures = failures
        self._chars = 0

    @property
    def calls(self) -> list[DraftBlock]:
        """The calls, in their order."""
        return [block for block in self.blocks if block.kind == "toolCall"]

    def begin(self, kind: Kind, identity: str = "", name: str = "") -> DraftBlock:
        """A new block at the end. Raises `ModelError` for a call beyond `MAX_CALLS`."""
        if kind == "toolCall" and len(self.calls) >= MAX_CALLS:
            raise self._failures.refused(f"called more than {MAX_CALLS} tools at once")
        block = DraftBlock(kind, identity, name)
        self.blocks.append(block)
        return block

    def add(self, block: DraftBlock, piece: str) -> list[ModelEvent]:
        """More of a block, and the deltas of it. Raises `ModelError` where it is too much."""
        self._chars += len(piece)
        if self._chars > MAX_ANSWER_CHARS:
            raise self._failures.refused(f"answered with more than {MAX_ANSWER_CHARS} characters")
        if block.kind == "toolCall":
            block.pieces.append(piece)
            return []
        return self._spoken(block, block.cut.add(piece))

    def end(self, block: DraftBlock) -> list[ModelEvent]:
        """What a block still held back. Ending it twice does nothing."""
        return self._spoken(block, block.cut.end())

    def end_all(self) -> list[ModelEvent]:
        """The same for every block."""
        return [event for block in self.blocks for event in self.end(block)]

    def message(self, stop_reason: StopReason, usage: Usage) -> Message:
        """The whole answer. Calls that the output limit cut off are left out."""
        content = [*self._content(cut_off=stop_reason == "length")]
        return self._message(content, stop_reason, usage)

    def failed(self, error: ModelError, usage: Usage) -> Failed:
        """The end by `error`. What was said so far goes with it, without tool calls."""
        content = [block for block in self._content() if block["type"] != "toolCall"]
        if not content:
            return Failed(error)
        partial = self._message(content, "error", usage)
        return Failed(error, {**partial, "errorMessage": str(error)})

    def _spoken(self, block: DraftBlock, text: str) -> list[ModelEvent]:
        if not text:
            return []
        block.pieces.append(text)
        return [TextDelta(text) if block.kind == "text" else ThinkingDelta(text)]

    def _content(self, *, cut_off: bool = False) -> Iterator[JsonObject]:
        taken: set[str] = set()
        for number, block in enumerate(self.blocks):
            if block.kind != "toolCall":
                # A signature may stand alone: a thought that the provider does not show.
                if block.text or block.extra:
                    yield {"type": block.kind, block.kind: block.text, **block.extra}
                continue
            arguments = parsed_arguments(block.text)
            if block.name and not (cut_off and UNPARSED_ARGUMENTS in arguments):
                identity = self._identity(block, number, taken)
                name = whole_text(block.name)
                call = {"type": "toolCall", "id": identity, "name": name, "arguments": arguments}
                yield {**call, **block.extra}

    def _identity(self, block: DraftBlock, number: int, taken: set[str]) -> str:
        """The call's id, or one of ours where the provider gave none, or one twice."""
        identity = whole_text(block.id)
        if not identity or identity in taken:
            identity = f"call_{self._timestamp_ms}_{number}"
        taken.add(identity)
        return identity

    def _message(self, content: list[JsonObject], stop_reason: StopReason, usage: Usage) -> Message:
        return {
            "role": "assistant",
            "content": content,
            "api": self.model.api,
            "provider": self.model.provider,
            "model": self.model.id,
            "usage": usage,
            "stopReason": stop_reason,
            "timestamp": self._timestamp_ms,
        }


def parsed_arguments(text: str) -> JsonObject:
    """The object in the JSON of a call's arguments, or its text under `UNPARSED_ARGUMENTS`."""
    try:
        arguments = json.loads(whole_text(text) or "{}")
        # An escaped half of a character comes out of the JSON, not of the text around it.
        arguments = json.loads(
            whole_text(json.dumps(arguments, ensure_ascii=False, allow_nan=False))
        )
    except (ValueError, RecursionError):
        arguments = None
    return arguments if isinstance(arguments, dict) else {UNPARSED_ARGUMENTS: whole_text(text)}


def event_object(text: str, failures: Failures) -> JsonObject:
    """The object in the JSON text of an event. Raises `ModelError` for anything else."""
    try:
        document: Any = json.loads(text)
    except (ValueError, RecursionError):
        document = None
    if isinstance(document, list):
        raise failures.from_server(document)
    if not isinstance(document, dict):
        raise failures.network("sent something that is not JSON")
    return document


def objects_in(value: object) -> list[JsonObject]:
    """The objects of a list; none of what is no list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def object_in(value: object) -> JsonObject:
    """The object, or an empty one."""
    return value if isinstance(value, dict) else {}


def string_in(value: object) -> str:
    """The text, or an empty one."""
    return value if isinstance(value, str) else ""
