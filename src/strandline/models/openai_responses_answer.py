"""A Responses answer, read: the events of a stream or one whole response.

Events say which item of the output they are about; items become blocks in their order.
Servers that speak alike leave out events, numbers or ids: what the deltas did not say, the
finished item or the finished response says. Unknown events and items are passed over. Pure.
Source: spec 4, Models; spec 3, Caches (usage).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from strandline.errors import ModelError
from strandline.models.draft import (
    Draft,
    DraftBlock,
    Kind,
    event_object,
    object_in,
    objects_in,
    string_in,
)
from strandline.models.failures import Failures, is_error
from strandline.models.openai_responses_stored import (
    reasoning_item,
    stored_call_id,
    text_signature,
    thinking_signature,
    without_call_item_id,
)
from strandline.models.surrogates import whole_text
from strandline.models.usage import openai_usage, token_count
from strandline.runtime.model import Failed, Finished, ModelEvent, ModelInfo, Prices, ThreadPoint
from strandline.transcript.messages import JsonObject, StopReason, Usage

_KINDS: dict[str, Kind] = {
    "message": "text",
    "reasoning": "thinking",
    "function_call": "toolCall",
}
"""Types of items, and the blocks that they become."""

_DELTAS: dict[str, Kind] = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "text",
    "response.reasoning_summary_text.delta": "thinking",
    "response.reasoning_text.delta": "thinking",
    "response.function_call_arguments.delta": "toolCall",
}
_ENDS = frozenset({"completed", "incomplete", "failed", "cancelled"})
_NEW_PART = "\n\n"
"""What stands between two parts of a thought."""


@dataclass(slots=True, eq=False)
class _Item:
    """An item of the output and its block. `part` is the part of a thought that came last."""

    block: DraftBlock
    index: int | None
    identity: str
    part: tuple[str, object] | None = None
    call_id: str = ""
    done: bool = False

    def is_meant(self, index: int | None, identity: str) -> bool:
        """Whether an event with these, and no item with its id, can be about this one."""
        if index is not None and self.index is not None:
            return index == self.index and not self.done
        return not self.done and not (identity and self.identity)


class Answer:
    """Feed it the texts of events in order, then `finish` it, or say why it `failed`.

    `timestamp_ms` becomes the message's; `failures` names what the server did wrong. Where the
    server keeps a `thread`, the message says at which answer of it the thread can go on.
    """

    def __init__(
        self,
        model: ModelInfo,
        timestamp_ms: int,
        failures: Failures,
        thread: ThreadPoint | None = None,
    ) -> None:
        self._thread = thread
        self._response_id = ""
        self._draft = Draft(model, timestamp_ms, failures)
        self._failures = failures
        self._items: list[_Item] = []
        self._usage: JsonObject = {}
        self._end = ""
        self._reason = ""

    @property
    def complete(self) -> bool:
        """Whether the server said how the answer ends; nothing follows."""
        return bool(self._end)

    def feed_text(self, text: str) -> list[ModelEvent]:
        """`feed` the object in a JSON text. Raises `ModelError` for what is no object."""
        return self.feed(event_object(text, self._failures))

    def feed(self, document: JsonObject) -> list[ModelEvent]:
        """The deltas in one event or response. Raises `ModelError` where it is an error."""
        name = string_in(document.get("type"))
        if name in _DELTAS:
            return self._add_delta(name, _DELTAS[name], document)
        if name == "response.function_call_arguments.done":
            return self._end_arguments(document)
        if name in {"response.output_item.added", "response.output_item.done"}:
            return self._add_item(document, done=name.endswith("done"))
        end = name.removeprefix("response.")
        if end in _ENDS:
            return self._add_response(object_in(document.get("response")), end)
        if not name and (document.get("object") == "response" or "output" in document):
            return self._add_response(document, string_in(document.get("status")) or "completed")
        if document.get("error") or name == "error" or (not name and is_error(document)):
            raise self._failures.from_server(document)
        return []

    def finish(self) -> list[ModelEvent]:
        """What is left to say, then `Finished`, or `Failed` where the server gave up."""
        events = self._draft.end_all()
        try:
            self._refuse_bad_end()
        except ModelError as error:
            return [*events, self.failed(error)]
        self._drop_ids_of_lost_thoughts()
        usual: StopReason = "toolUse" if any(c.name for c in self._draft.calls) else "stop"
        stop: StopReason = "length" if self._end == "incomplete" else usual
        message = self._draft.message(stop, self._normalised())
        return [*events, Finished({**message, **self._thread_keys()})]

    def failed(self, error: ModelError) -> Failed:
        """The end by `error`. What was said so far goes with it, without tool calls."""
        return self._draft.failed(error, self._normalised())

    def _thread_keys(self) -> JsonObject:
        """Where the thread stands now. An answer that was cut off is no such place: what it
        had begun to call stands in the thread for ever, without a result.
        """
        if self._thread is None or not self._response_id or self._end != "completed":
            return {}
        point = {"epoch": self._thread.epoch, "fingerprint": self._thread.fingerprint}
        return {"responseId": self._response_id, "thread": point}

    def _normalised(self) -> Usage:
        return normalised_usage(self._usage, self._draft.model.prices)

    def _add_delta(self, name: str, kind: Kind, event: JsonObject) -> list[ModelEvent]:
        piece = string_in(event.get("delta"))
        if not piece:
            return []
        item = self._item(kind, event) or self._begin(kind, event)
        if kind == "thinking":
            part = (name, event.get("summary_index", event.get("content_index")))
            if item.part is not None and item.part != part:
                piece = _NEW_PART + piece
            item.part = part
        return self._draft.add(item.block, piece)

    def _end_arguments(self, event: JsonObject) -> list[ModelEvent]:
        item = self._item("toolCall", event) or self._begin("toolCall", event)
        item.block.name = item.block.name or string_in(event.get("name"))
        return self._complete(item, _arguments(event))

    def _add_item(self, event: JsonObject, *, done: bool) -> list[ModelEvent]:
        raw = object_in(event.get("item"))
        kind = _KINDS.get(string_in(raw.get("type")))
        if kind is None:
            return []
        place = {**event, "item_id": raw.get("id")}
        item = (self._item(kind, place) if done else None) or self._begin(kind, place)
        return self._take(item, raw, done=done)

    def _add_response(self, response: JsonObject, end: str) -> list[ModelEvent]:
        self._response_id = string_in(response.get("id"))
        self._usage = object_in(response.get("usage")) or self._usage
        self._reason = string_in(object_in(response.get("incomplete_details")).get("reason"))
        if response.get("error"):
            raise self._failures.from_server({"error": response["error"]})
        self._end = end
        events: list[ModelEvent] = []
        order: dict[int, int] = {}
        seen = {kind: [i for i in self._items if i.block.kind == kind] for kind in _KINDS.values()}
        output = objects_in(response.get("output"))
        ids = {string_in(raw.get("id")) for raw in output} - {""}
        for raw in output:
            if kind := _KINDS.get(string_in(raw.get("type"))):
                item = _taken(seen[kind], string_in(raw.get("id")), ids) or self._begin(kind, {})
                order[id(item.block)] = len(order)
                events += self._take(item, raw, done=True)
        # An item of which nothing was streamed stands where the response has it.
        self._draft.blocks.sort(key=lambda block: order.get(id(block), -1))
        return events

    def _item(self, kind: Kind, event: JsonObject) -> _Item | None:
        """The item that an event is about, if it is known."""
        index, identity = _index(event), string_in(event.get("item_id"))
        known = [i for i in reversed(self._items) if i.block.kind == kind]
        same = [i for i in known if identity and i.identity == identity]
        # Some servers change the id with every event, others number all items alike.
        return next(iter(same or [i for i in known if i.is_meant(index, identity)]), None)

    def _begin(self, kind: Kind, event: JsonObject) -> _Item:
        item = _Item(self._draft.begin(kind), _index(event), string_in(event.get("item_id")))
        self._items.append(item)
        return item

    def _take(self, item: _Item, raw: JsonObject, *, done: bool) -> list[ModelEvent]:
        """What an item says of itself, and what it says that its deltas did not."""
        item.identity = string_in(raw.get("id")) or item.identity
        item.done = item.done or done
        match item.block.kind:
            case "toolCall":
                return self._take_call(item, raw, done=done)
            case "thinking":
                return self._take_thought(item, raw) if done else []
            case _:
                return self._take_text(item, raw) if done else []

    def _take_call(self, item: _Item, raw: JsonObject, *, done: bool) -> list[ModelEvent]:
        item.call_id = string_in(raw.get("call_id")) or item.call_id
        item.block.id = stored_call_id(item.call_id, item.identity)
        item.block.name = string_in(raw.get("name")) or item.block.name
        # At the beginning, some servers send "{}" and then the arguments as deltas.
        return self._complete(item, _arguments(raw)) if done else []

    def _take_thought(self, item: _Item, raw: JsonObject) -> list[ModelEvent]:
        signature = thinking_signature(raw)
        kept = item.block.extra.get("thinkingSignature")
        if signature and not (kept and reasoning_item(kept)):
            item.block.extra["thinkingSignature"] = signature
        parts = objects_in(raw.get("summary")) + objects_in(raw.get("content"))
        texts = filter(None, (string_in(part.get("text")) for part in parts))
        return self._complete(item, _NEW_PART.join(texts))

    def _take_text(self, item: _Item, raw: JsonObject) -> list[ModelEvent]:
        events = self._complete(item, "".join(_texts(raw.get("content"))))
        signature = text_signature(raw)
        if signature and item.block.text:  # a signature alone would make an empty text
            item.block.extra["textSignature"] = signature
        return events

    def _complete(self, item: _Item, whole: str) -> list[ModelEvent]:
        """Add what is missing from a block, now that its whole text is known."""
        block, whole = item.block, whole_text(whole)
        if block.kind == "toolCall":
            if whole and whole != block.text:
                block.pieces.clear()
                self._draft.add(block, whole)
            return []
        events = self._draft.end(block)
        if whole.startswith(block.text):
            events += self._draft.add(block, whole[len(block.text) :])
        return events

    def _refuse_bad_end(self) -> None:
        if not self._end and not self._draft.blocks:
            raise self._failures.network("sent no answer", "check that the base URL is right")
        if self._end not in {"", "completed", "incomplete"}:
            raise self._failures.network(f"gave up in the middle of its answer ({self._end})")
        if self._reason == "content_filter":
            raise self._failures.refused(
                "stopped the answer by its content filter",
                "say it differently, or ask another model",
            )
        # Some servers take a prompt that fills the window and then have no room for a word.
        silent = not self._draft.blocks and not token_count(self._usage, "output_tokens")
        if self._end == "incomplete" and silent and self._usage:
            prompt = token_count(self._usage, "input_tokens") or None
            raise self._failures.overflow("had no room left for an answer", prompt)

    def _drop_ids_of_lost_thoughts(self) -> None:
        """A thought that was never finished is not replayed; ids after it would ask for it."""
        lost = False
        for block in self._draft.blocks:
            if block.kind == "thinking":
                lost = "thinkingSignature" not in block.extra
            elif lost:
                block.extra.pop("textSignature", None)
                block.id = without_call_item_id(block.id)


def _taken(waiting: list[_Item], identity: str, ids: Collection[str]) -> _Item | None:
    """The streamed item that an item of the response is: that of its id, else the next one.

    Ids and numbers may differ from those of the stream; the order of a kind does not.
    """
    same = [item for item in waiting if identity and item.identity == identity]
    found = next(iter(same or [item for item in waiting if item.identity not in ids]), None)
    if found is not None:
        waiting.remove(found)
    return found


def normalised_usage(raw: JsonObject, prices: Prices) -> Usage:
    """The counts of Responses."""
    return openai_usage(
        raw,
        prices,
        prompt="input_tokens",
        details="input_tokens_details",
        output="output_tokens",
    )


def _index(event: JsonObject) -> int | None:
    index = event.get("output_index")
    return index if isinstance(index, int) else None


def _arguments(holder: JsonObject) -> str:
    arguments = holder.get("arguments")
    return json.dumps(arguments) if isinstance(arguments, dict) else string_in(arguments)


def _texts(content: object) -> Iterator[str]:
    """What the parts of a message say; a refusal is said too."""
    for part in objects_in(content):
        yield string_in(part.get("text")) or string_in(part.get("refusal"))
