"""A Chat Completions answer, read: the events of a stream or one whole completion.

Pure. Every server of the format and the local model speak through here. Source: spec 4,
Models; spec 3, Caches (usage).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal, NoReturn

from strandline.errors import ModelError
from strandline.models.draft import (
    Draft,
    DraftBlock,
    event_object,
    object_in,
    objects_in,
    string_in,
)
from strandline.models.failures import Failures, is_error
from strandline.models.usage import openai_usage, token_count
from strandline.runtime.model import Failed, Finished, ModelEvent, ModelInfo, Prices
from strandline.transcript.messages import JsonObject, StopReason, Usage

_REASONING_KEYS = ("reasoning_content", "reasoning", "reasoning_text")
_STOPS: dict[str, StopReason] = {"length": "length", "max_tokens": "length"}
_REFUSING_STOPS = frozenset({"content_filter", "sensitive"})
_BROKEN_STOPS = frozenset({"error", "network_error", "abort"})
_OVERFLOW_STOPS = frozenset({"model_context_window_exceeded", "context_length_exceeded"})


class Answer:
    """Feed it objects in order, then `finish` it, or say why it `failed`.

    `timestamp_ms` becomes the message's; `failures` names what the server did wrong.
    """

    def __init__(self, model: ModelInfo, timestamp_ms: int, failures: Failures) -> None:
        self._draft = Draft(model, timestamp_ms, failures)
        self._failures = failures
        self._spoken: DraftBlock | None = None
        self._by_index: dict[int, DraftBlock] = {}
        self._usage: JsonObject = {}
        self._finish = ""

    @property
    def complete(self) -> bool:
        """Whether the server said why the answer ends; only usage may follow."""
        return bool(self._finish)

    def feed_text(self, text: str) -> list[ModelEvent]:
        """`feed` the object in a JSON text. Raises `ModelError` for what is no object."""
        return self.feed(event_object(text, self._failures))

    def feed(self, document: JsonObject) -> list[ModelEvent]:
        """The deltas in one event or completion. Raises `ModelError` where it is an error."""
        if is_error(document):
            raise self._failures.from_server(document)
        choice = _first_choice(document)
        usage = document.get("usage") or choice.get("usage")
        if isinstance(usage, dict):
            self._usage = usage
        said = object_in(choice.get("delta")) or object_in(choice.get("message"))
        events = [*self._thoughts(said), *self._texts(said)]
        for piece in objects_in(said.get("tool_calls")):
            self._add_call(piece)
        self._finish = string_in(choice.get("finish_reason")) or self._finish
        return events

    def finish(self) -> list[ModelEvent]:
        """What is left to say, then `Finished`, or `Failed` where the server gave up."""
        events = self._draft.end_all()
        try:
            self._refuse_bad_end()
        except ModelError as error:
            return [*events, self.failed(error)]
        # What was said stands before what was called, in whatever order they came.
        self._draft.blocks.sort(key=lambda block: block.kind == "toolCall")
        usual: StopReason = "toolUse" if any(c.name for c in self._draft.calls) else "stop"
        message = self._draft.message(_STOPS.get(self._finish, usual), self._normalised())
        return [*events, Finished(message)]

    def failed(self, error: ModelError) -> Failed:
        """The end by `error`. What was said so far goes with it, without tool calls."""
        return self._draft.failed(error, self._normalised())

    def _normalised(self) -> Usage:
        return normalised_usage(self._usage, self._draft.model.prices)

    def _thoughts(self, said: JsonObject) -> Iterator[ModelEvent]:
        # Some servers send the same thought under two names.
        thought = next(filter(None, (string_in(said.get(key)) for key in _REASONING_KEYS)), "")
        thought += "".join(string_in(t) for t in _parts(said.get("content"), "thinking"))
        yield from self._say("thinking", thought)

    def _texts(self, said: JsonObject) -> Iterator[ModelEvent]:
        content = said.get("content")
        text = string_in(content) or "".join(string_in(t) for t in _parts(content, "text"))
        yield from self._say("text", text + string_in(said.get("refusal")))

    def _say(self, kind: Literal["text", "thinking"], piece: str) -> Iterator[ModelEvent]:
        if not piece:
            return
        if self._spoken is None or self._spoken.kind != kind:
            if self._spoken is not None:
                yield from self._draft.end(self._spoken)
            self._spoken = self._draft.begin(kind)
        yield from self._draft.add(self._spoken, piece)

    def _add_call(self, piece: JsonObject) -> None:
        function = object_in(piece.get("function"))
        call = self._call_of(piece, string_in(piece.get("id")), string_in(function.get("name")))
        call.id = call.id or string_in(piece.get("id"))
        call.name = call.name or string_in(function.get("name"))
        arguments = function.get("arguments")
        text = json.dumps(arguments) if isinstance(arguments, dict) else string_in(arguments)
        self._draft.add(call, text)

    def _call_of(self, piece: JsonObject, identity: str, name: str) -> DraftBlock:
        """The call that a piece belongs to. Not every server numbers them, and some number
        all of them 0: a new id is a new call.
        """
        index = piece.get("index")
        if isinstance(index, int):
            known = self._by_index.get(index)
            fresh = known is None or (identity and known.id and identity != known.id)
        else:
            known = self._draft.calls[-1] if self._draft.calls else None
            fresh = known is None or bool(name) or (identity and identity != known.id)
        if known is not None and not fresh:
            return known
        call = self._draft.begin("toolCall")
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
        silent = not self._draft.blocks and not token_count(self._usage, "completion_tokens")
        if self._finish == "length" and silent and self._usage:
            self._raise_overflow("had no room left for an answer")

    def _raise_overflow(self, what: str) -> NoReturn:
        raise self._failures.overflow(what, token_count(self._usage, "prompt_tokens") or None)


def normalised_usage(raw: JsonObject, prices: Prices) -> Usage:
    """The counts of Chat Completions, and of servers that tell of their cache otherwise."""
    return openai_usage(
        raw,
        prices,
        prompt="prompt_tokens",
        details="prompt_tokens_details",
        output="completion_tokens",
        # DeepSeek's name, then Moonshot's.
        cached=token_count(raw, "prompt_cache_hit_tokens") or token_count(raw, "cached_tokens"),
    )


def _first_choice(document: JsonObject) -> JsonObject:
    choices = objects_in(document.get("choices"))
    return next((c for c in choices if not c.get("index")), {})


def _parts(content: object, kind: str) -> Iterator[Any]:
    """The texts of content that comes as a list of parts; Mistral nests thoughts once more."""
    for part in objects_in(content):
        if part.get("type") == kind:
            value = part.get(kind)
            yield from _parts(value, "text") if isinstance(value, list) else [value]
