"""One assistant message in the making, from the objects of a Chat Completions answer.

Pure: the parsed events of a stream (or one whole completion) go in; deltas and, at the end,
the message come out, with usage in the four counts that everything else reckons with
(source: spec 3, Caches). Every server of the format and the local model speak through here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn

from strandline.errors import ModelError
from strandline.models.failures import Failures, is_error
from strandline.models.surrogates import TextPieces, whole_text
from strandline.models.usage import normalised_usage, token_count
from strandline.runtime.model import (
    Failed,
    Finished,
    ModelEvent,
    ModelInfo,
    TextDelta,
    ThinkingDelta,
)
from strandline.transcript.messages import JsonObject, Message, StopReason

UNPARSED_ARGUMENTS = "unparsedArguments"
"""The only argument of a call whose arguments were no JSON object: their text as it came.
No tool knows it, so the call is answered with an error that the model can learn from."""

MAX_ANSWER_CHARS = 16 * 1024 * 1024
"""The longest answer that is kept."""

_MAX_CALLS = 1000
_REASONING_KEYS = ("reasoning_content", "reasoning", "reasoning_text")
_STOPS: dict[str, StopReason] = {"length": "length", "max_tokens": "length"}
_REFUSING_STOPS = frozenset({"content_filter", "sensitive"})
_BROKEN_STOPS = frozenset({"error", "network_error", "abort"})
_OVERFLOW_STOPS = frozenset({"model_context_window_exceeded", "context_length_exceeded"})


@dataclass(slots=True)
class _Block:
    kind: Literal["text", "thinking"]
    pieces: list[str] = field(default_factory=list)
    cut: TextPieces = field(default_factory=TextPieces)


@dataclass(slots=True)
class _Call:
    id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list)


class Answer:
    """Feed it objects in order, then `finish` it, or say why it `failed`.

    `timestamp_ms` becomes the message's; `failures` names what the server did wrong.
    """

    def __init__(self, model: ModelInfo, timestamp_ms: int, failures: Failures) -> None:
        self._model = model
        self._timestamp_ms = timestamp_ms
        self._failures = failures
        self._blocks: list[_Block] = []
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._usage: JsonObject = {}
        self._finish = ""
        self._chars = 0

    @property
    def complete(self) -> bool:
        """Whether the server said why the answer ends; only usage may follow."""
        return bool(self._finish)

    def feed_text(self, text: str) -> list[ModelEvent]:
        """`feed` the object in a JSON text. Raises `ModelError` for what is no object."""
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            document = None
        if isinstance(document, list):
            raise self._failures.from_server(document)
        if not isinstance(document, dict):
            raise self._failures.network("sent something that is not JSON")
        return self.feed(document)

    def feed(self, document: JsonObject) -> list[ModelEvent]:
        """The deltas in one event or completion. Raises `ModelError` where it is an error."""
        if is_error(document):
            raise self._failures.from_server(document)
        choice = _first_choice(document)
        usage = document.get("usage") or choice.get("usage")
        if isinstance(usage, dict):
            self._usage = usage
        said = _object(choice.get("delta")) or _object(choice.get("message"))
        events = [*self._thoughts(said), *self._texts(said)]
        for piece in _objects(said.get("tool_calls")):
            self._add_call(piece)
        self._finish = _string(choice.get("finish_reason")) or self._finish
        if self._chars > MAX_ANSWER_CHARS:
            raise self._failures.refused(f"answered with more than {MAX_ANSWER_CHARS} characters")
        return events

    def finish(self) -> list[ModelEvent]:
        """What is left to say, then `Finished`, or `Failed` where the server gave up."""
        events = [event for block in self._blocks for event in self._end_block(block)]
        try:
            self._refuse_bad_end()
        except ModelError as error:
            return [*events, self.failed(error)]
        calls = list(self._tool_calls())
        usual: StopReason = "toolUse" if calls else "stop"
        stop_reason = _STOPS.get(self._finish, usual)
        return [*events, Finished(self._message([*self._spoken(), *calls], stop_reason))]

    def failed(self, error: ModelError) -> Failed:
        """The end by `error`. What was said so far goes with it, without tool calls."""
        content = list(self._spoken())
        if not content:
            return Failed(error)
        return Failed(error, {**self._message(content, "error"), "errorMessage": str(error)})

    def _thoughts(self, said: JsonObject) -> Iterator[ModelEvent]:
        # Some servers send the same thought under two names.
        thought = next(filter(None, (_string(said.get(key)) for key in _REASONING_KEYS)), "")
        thought += "".join(_string(t) for t in _parts(said.get("content"), "thinking"))
        yield from self._say("thinking", thought)

    def _texts(self, said: JsonObject) -> Iterator[ModelEvent]:
        content = said.get("content")
        text = _string(content) or "".join(_string(t) for t in _parts(content, "text"))
        yield from self._say("text", text + _string(said.get("refusal")))

    def _say(self, kind: Literal["text", "thinking"], piece: str) -> Iterator[ModelEvent]:
        if not piece:
            return
        if not self._blocks or self._blocks[-1].kind != kind:
            if self._blocks:
                yield from self._end_block(self._blocks[-1])
            self._blocks.append(_Block(kind))
        self._chars += len(piece)
        yield from self._spoken_now(self._blocks[-1], self._blocks[-1].cut.add(piece))

    def _end_block(self, block: _Block) -> Iterator[ModelEvent]:
        yield from self._spoken_now(block, block.cut.end())

    def _spoken_now(self, block: _Block, text: str) -> Iterator[ModelEvent]:
        if text:
            block.pieces.append(text)
            yield TextDelta(text) if block.kind == "text" else ThinkingDelta(text)

    def _add_call(self, piece: JsonObject) -> None:
        function = _object(piece.get("function"))
        call = self._call_of(piece, _string(piece.get("id")), _string(function.get("name")))
        call.id = call.id or _string(piece.get("id"))
        call.name = call.name or _string(function.get("name"))
        arguments = function.get("arguments")
        text = json.dumps(arguments) if isinstance(arguments, dict) else _string(arguments)
        self._chars += len(text)
        call.pieces.append(text)

    def _call_of(self, piece: JsonObject, identity: str, name: str) -> _Call:
        """The call that a piece belongs to. Not every server numbers them, and some number
        all of them 0: a new id is a new call.
        """
        index = piece.get("index")
        if isinstance(index, int):
            known = self._by_index.get(index)
            fresh = known is None or (identity and known.id and identity != known.id)
        else:
            known = self._calls[-1] if self._calls else None
            fresh = known is None or bool(name) or (identity and identity != known.id)
        if known is not None and not fresh:
            return known
        if len(self._calls) >= _MAX_CALLS:
            raise self._failures.refused(f"called more than {_MAX_CALLS} tools at once")
        call = _Call()
        self._calls.append(call)
        if isinstance(index, int):
            self._by_index[index] = call
        return call

    def _refuse_bad_end(self) -> None:
        if self._finish in _OVERFLOW_STOPS:
            self._raise_overflow("ran out of its context window")
        if self._finish in _REFUSING_STOPS:
            raise self._failures.refused(
                "stopped the answer by its content filter",
                "say it differently, or ask another model",
            )
        if self._finish in _BROKEN_STOPS:
            raise self._failures.network(f"gave up in the middle of its answer ({self._finish})")
        # Some servers take a prompt that fills the window and then have no room for a word.
        silent = (
            not self._blocks
            and not self._calls
            and not token_count(self._usage, "completion_tokens")
        )
        if self._finish == "length" and silent and self._usage:
            self._raise_overflow("had no room left for an answer")

    def _raise_overflow(self, what: str) -> NoReturn:
        raise self._failures.overflow(what, token_count(self._usage, "prompt_tokens") or None)

    def _message(self, content: list[JsonObject], stop_reason: StopReason) -> Message:
        return {
            "role": "assistant",
            "content": content,
            "api": self._model.api,
            "provider": self._model.provider,
            "model": self._model.id,
            "usage": normalised_usage(self._usage, self._model.prices),
            "stopReason": stop_reason,
            "timestamp": self._timestamp_ms,
        }

    def _spoken(self) -> Iterator[JsonObject]:
        for block in self._blocks:
            if text := "".join(block.pieces):
                yield {"type": block.kind, block.kind: text}

    def _tool_calls(self) -> Iterator[JsonObject]:
        seen: set[str] = set()
        for number, call in enumerate(self._calls):
            arguments = _arguments("".join(call.pieces))
            if not call.name or (self._finish in _STOPS and UNPARSED_ARGUMENTS in arguments):
                continue  # cut off by the output limit: nobody may run it
            identity = whole_text(call.id)
            if not identity or identity in seen:
                identity = f"call_{self._timestamp_ms}_{number}"
            seen.add(identity)
            name = whole_text(call.name)
            yield {"type": "toolCall", "id": identity, "name": name, "arguments": arguments}


def _arguments(text: str) -> JsonObject:
    try:
        arguments = json.loads(whole_text(text) or "{}")
        # An escaped half of a character comes out of the JSON, not of the text around it.
        arguments = json.loads(
            whole_text(json.dumps(arguments, ensure_ascii=False, allow_nan=False))
        )
    except (ValueError, RecursionError):
        arguments = None
    return arguments if isinstance(arguments, dict) else {UNPARSED_ARGUMENTS: whole_text(text)}


def _first_choice(document: JsonObject) -> JsonObject:
    choices = _objects(document.get("choices"))
    return next((c for c in choices if not c.get("index")), {})


def _parts(content: object, kind: str) -> Iterator[Any]:
    """The texts of content that comes as a list of parts; Mistral nests thoughts once more."""
    for part in _objects(content):
        if part.get("type") == kind:
            value = part.get(kind)
            yield from _parts(value, "text") if isinstance(value, list) else [value]


def _objects(value: object) -> list[JsonObject]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _object(value: object) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _string(value: object) -> str:
    return value if isinstance(value, str) else ""
