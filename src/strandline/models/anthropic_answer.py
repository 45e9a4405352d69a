"""An Anthropic Messages answer, read: the events of a stream or one whole message.

Pure. Blocks stay in the order in which they came, because thinking is signed for its place.
Source: spec 4, Models; spec 3, Caches (usage).
"""

from __future__ import annotations

import json
import re

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
from strandline.models.usage import token_count, usage_of
from strandline.runtime.model import Failed, Finished, ModelEvent, ModelInfo, Prices
from strandline.transcript.messages import JsonObject, StopReason, Usage

REDACTED = "[Reasoning redacted]"
"""The text of thinking that only Anthropic can read; its data is kept as the signature."""

_STOPS: dict[str, StopReason] = {"max_tokens": "length"}
_COUNTS = (
    "input_tokens",
    "output_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
)
_LIFETIMES = "cache_creation"  # what was written to the cache, by how long it is to stay
# Kinds of deltas: the kind of block that they belong to, and where their text is.
_DELTAS = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "input_json_delta": ("toolCall", "partial_json"),
}
_CATEGORY = re.compile(r"[a-z_]{1,40}")


class Answer:
    """Feed it objects in order, then `finish` it, or say why it `failed`.

    `timestamp_ms` becomes the message's; `failures` names what the server did wrong.
    """

    def __init__(self, model: ModelInfo, timestamp_ms: int, failures: Failures) -> None:
        self._draft = Draft(model, timestamp_ms, failures)
        self._failures = failures
        self._by_index: dict[int, DraftBlock] = {}
        self._whole_inputs: list[tuple[DraftBlock, JsonObject]] = []
        self._usage: JsonObject = {}
        self._stop = ""
        self._refused_for = ""
        self._ended = False

    @property
    def complete(self) -> bool:
        """Whether the server said why, or that, the answer ends."""
        return self._ended or bool(self._stop)

    def feed_text(self, text: str) -> list[ModelEvent]:
        """`feed` the object in a JSON text. Raises `ModelError` for what is no object."""
        return self.feed(event_object(text, self._failures))

    def feed(self, document: JsonObject) -> list[ModelEvent]:
        """The deltas in one event or message. Raises `ModelError` where it is an error."""
        kind = string_in(document.get("type"))
        if document.get("error") or (kind in {"", "error"} and is_error(document)):
            raise self._failures.from_server(document)
        if kind == "message":
            return self._whole(document)
        if kind == "message_start":
            self._count(object_in(document.get("message")))
        elif kind == "message_delta":
            self._count(document)
            self._end(object_in(document.get("delta")))
        elif kind == "message_stop":
            self._ended = True
        else:
            return self._of_a_block(kind, document)
        return []

    def finish(self) -> list[ModelEvent]:
        """What is left to say, then `Finished`, or `Failed` where the server gave up."""
        events = self._draft.end_all()
        stop = _STOPS.get(self._stop)
        try:
            self._refuse_bad_end()
            self._take_whole_inputs(cut_off=stop == "length")
        except ModelError as error:
            return [*events, self.failed(error)]
        usual: StopReason = "toolUse" if any(c.name for c in self._draft.calls) else "stop"
        return [*events, Finished(self._draft.message(stop or usual, self._normalised()))]

    def failed(self, error: ModelError) -> Failed:
        """The end by `error`. What was said so far goes with it, without tool calls."""
        return self._draft.failed(error, self._normalised())

    def _normalised(self) -> Usage:
        return normalised_usage(self._usage, self._draft.model.prices)

    def _of_a_block(self, kind: str, document: JsonObject) -> list[ModelEvent]:
        """The deltas in the event of a block; none in a ping or in an event newer than this."""
        index = document.get("index")
        match kind:
            case "content_block_start":
                return self._begin(index, object_in(document.get("content_block")))
            case "content_block_delta":
                return self._go_on(index, object_in(document.get("delta")))
            case "content_block_stop" if block := self._by_index.get(_key(index)):
                return self._draft.end(block)
        return []

    def _begin(self, index: object, start: JsonObject) -> list[ModelEvent]:
        """A block; what it holds already belongs to it. Those of other kinds are passed over."""
        match start.get("type"):
            case "text":
                block, said = self._draft.begin("text"), string_in(start.get("text"))
            case "thinking":
                block, said = self._draft.begin("thinking"), string_in(start.get("thinking"))
                _sign(block, string_in(start.get("signature")))
            case "redacted_thinking":
                block, said = self._draft.begin("thinking"), REDACTED
                _sign(block, string_in(start.get("data")))
                block.extra["redacted"] = True
            case "tool_use":
                identity, name = string_in(start.get("id")), string_in(start.get("name"))
                block, said = self._draft.begin("toolCall", identity, name), ""
                self._whole_inputs.append((block, object_in(start.get("input"))))
            case _:
                self._by_index.pop(_key(index), None)
                return []
        self._by_index[_key(index)] = block
        return self._draft.add(block, said) if said else []

    def _go_on(self, index: object, delta: JsonObject) -> list[ModelEvent]:
        block, kind = self._by_index.get(_key(index)), string_in(delta.get("type"))
        if block is None:
            return []
        if kind == "signature_delta" and block.kind == "thinking":
            _sign(block, string_in(delta.get("signature")))
        belongs_to, where = _DELTAS.get(kind, ("", ""))
        said = string_in(delta.get(where))
        return self._draft.add(block, said) if said and belongs_to == block.kind else []

    def _whole(self, message: JsonObject) -> list[ModelEvent]:
        """A message that was not streamed."""
        self._count(message)
        self._end(message)
        self._ended = True
        blocks = enumerate(objects_in(message.get("content")))
        return [event for index, block in blocks for event in self._begin(index, block)]

    def _count(self, holder: JsonObject) -> None:
        """The counts go on from those before; some events leave out what did not change."""
        usage = object_in(holder.get("usage"))
        for key in _COUNTS:
            self._usage[key] = token_count(usage, key) or self._usage.get(key, 0)
        if lifetimes := object_in(usage.get(_LIFETIMES)):
            self._usage[_LIFETIMES] = lifetimes

    def _end(self, said: JsonObject) -> None:
        self._stop = string_in(said.get("stop_reason")) or self._stop
        category = string_in(object_in(said.get("stop_details")).get("category"))
        self._refused_for = category if _CATEGORY.fullmatch(category) else ""

    def _refuse_bad_end(self) -> None:
        if not self.complete:
            raise self._failures.network(
                "sent something that is no answer", "check that the base URL is right"
            )
        if self._stop == "model_context_window_exceeded":
            usage = self._normalised()
            prompt = usage["totalTokens"] - usage["output"]
            raise self._failures.overflow("ran out of its context window", prompt or None)
        if self._stop == "refusal":
            why = f" ({self._refused_for})" if self._refused_for else ""
            raise self._failures.refused(
                f"declined to answer{why}", "say it differently, or ask another model"
            )

    def _take_whole_inputs(self, *, cut_off: bool) -> None:
        """Inputs that came with the beginning of their calls, where no pieces followed.

        Of the call that the output limit cut off before its first piece, nothing is known:
        it would look like a call without arguments.
        """
        for block, given in self._whole_inputs:
            if not block.text and given:
                self._draft.add(block, json.dumps(given))
        last = self._draft.blocks[-1] if self._draft.blocks else None
        if cut_off and last is not None and last.kind == "toolCall" and not last.text:
            del self._draft.blocks[-1]


def normalised_usage(raw: JsonObject, prices: Prices) -> Usage:
    """Anthropic's ``input_tokens`` are those that were neither read from the cache nor
    written to it.
    """
    fresh, output, cache_read, cache_write = (token_count(raw, key) for key in _COUNTS)
    for_an_hour = token_count(object_in(raw.get(_LIFETIMES)), "ephemeral_1h_input_tokens")
    return usage_of(
        prices,
        fresh=fresh,
        output=output,
        cache_read=cache_read,
        cache_write=cache_write,
        cache_write_1h=min(for_an_hour, cache_write),
    )


def _sign(block: DraftBlock, piece: str) -> None:
    if piece:
        block.extra["thinkingSignature"] = block.extra.get("thinkingSignature", "") + piece


def _key(index: object) -> int:
    """The number of a block; 0 for what is no number."""
    return index if isinstance(index, int) else 0
