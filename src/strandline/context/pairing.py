"""Pairing: a tool call and its results stay or go together.

Providers refuse a request in which a call has no result, a result has no call, or the two
are not side by side. After this step no view has any of these, whatever its history:
crashes, aborted turns, results that came late or twice, ids that are used again.
Matching goes by place: a result answers the newest call of its id before it.
Source: spec 3, The way of a message (Invariants).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from strandline.context.blocks import without_item_id
from strandline.context.restate import restated
from strandline.context.sanitize import FAILED_REASONS
from strandline.context.tokens import MessageTokens
from strandline.context.view import Decision, View, ViewMessage
from strandline.transcript.messages import JsonObject, Message

NO_RESULT = "(no result: the call was interrupted before it came, and its outcome is unknown)"
"""What the model reads where a call was never answered."""

_ADDED = Decision("added", "pairing", "call_without_result", "the call was never answered")
_MOVED = Decision("kept", "pairing", "moved", "moved next to the call that it answers")
_ORPHAN = Decision(
    "left_out", "pairing", "result_without_call", "no call before it asked for this result"
)
_SECOND = Decision("left_out", "pairing", "second_result", "the call has its result already")
_TWICE = Decision(
    "shortened", "pairing", "call_twice", "a call whose id is taken in the same message"
)
_FAILED_CALLS = Decision(
    "shortened",
    "pairing",
    "calls_of_failed_turn",
    "an aborted or failed answer keeps its text only: its calls were never run to the end",
)
_FAILED = Decision(
    "left_out", "pairing", "failed_turn", "the answer failed before anything was said"
)


@dataclass(slots=True)
class _Place:
    """A message of the next view, and after it the results of its calls.

    `open` holds the calls without a result yet, by id, in their order.
    """

    said: ViewMessage
    open: dict[str, JsonObject] = field(default_factory=dict)
    results: list[ViewMessage] = field(default_factory=list)

    def flat(self, tokens: MessageTokens) -> Iterator[ViewMessage]:
        """The message and a result for each of its calls, some of them stand-ins."""
        yield self.said
        yield from self.results
        for call in self.open.values():
            yield _unanswered(self.said, call, tokens)


def pair(view: View, tokens: MessageTokens) -> View:
    """The view with every call followed at once by exactly one result each."""
    pairing = Pairing(tokens)
    for said in view.messages:
        pairing.take(said)
    return view.to(pairing.messages, pairing.left_out)


class Pairing:
    """Takes the messages of a view one by one; `messages` are always paired.

    A result that comes late changes what is behind its call, so `take` says from where on
    `messages` are others than before.
    """

    def __init__(self, tokens: MessageTokens) -> None:
        self._tokens = tokens
        self._places: list[_Place] = []
        self._starts: list[int] = []  # where each place begins in `messages`
        self._asked: dict[str, int] = {}  # call id -> the newest place that asked
        self.messages: list[ViewMessage] = []
        self.left_out: list[ViewMessage] = []

    def take(self, said: ViewMessage) -> int:
        """Take the next message; returns the first place in `messages` that has changed."""
        if said.message.get("role") == "toolResult":
            place = self._answered(said)
            return len(self.messages) if place is None else self._lay_out(place)
        if said.message.get("role") == "assistant":
            asking = self._assistant_place(said)
            if asking is None:
                self.left_out.append(said.noted(_FAILED))
                return len(self.messages)
            for call_id in asking.open:
                self._asked[call_id] = len(self._places)
        else:
            asking = _Place(said)
        self._places.append(asking)
        self._starts.append(len(self.messages))
        return self._lay_out(len(self._places) - 1)

    def _lay_out(self, first: int) -> int:
        """Write `messages` anew from a place on; returns where that is."""
        start = self._starts[first]
        del self.messages[start:]
        for index in range(first, len(self._places)):
            self._starts[index] = len(self.messages)
            self.messages += self._places[index].flat(self._tokens)
        return start

    def _answered(self, result: ViewMessage) -> int | None:
        """Puts a result beside its call and says where; None where it is left out."""
        call_id = result.message.get("toolCallId")
        asked = self._asked.get(call_id) if isinstance(call_id, str) else None
        if asked is None or call_id is None:
            self.left_out.append(result.noted(_ORPHAN))
            return None
        place = self._places[asked]
        if call_id not in place.open:
            self.left_out.append(result.noted(_SECOND))
            return None
        del place.open[call_id]
        is_last = asked == len(self._places) - 1
        place.results.append(result if is_last else result.noted(_MOVED))
        return asked

    def _assistant_place(self, said: ViewMessage) -> _Place | None:
        """The place of an assistant message; None when nothing is left of it."""
        calls = list(_calls(said.message))
        if said.message.get("stopReason") in FAILED_REASONS:
            for call in calls:
                self._asked.pop(call["id"], None)
            return _failed_place(said, self._tokens)
        if not calls:
            return _Place(said)
        place = _Place(said, {call["id"]: call for call in calls})
        if len(place.open) < len(calls):
            place.said = _without_second_calls(said, self._tokens)
            place.open = {call["id"]: call for call in _calls(place.said.message)}
        return place


def _calls(message: Message) -> Iterator[JsonObject]:
    content = message.get("content")
    if isinstance(content, list):
        for block in content:
            if (
                isinstance(block, dict)
                and block.get("type") == "toolCall"
                and isinstance(block.get("id"), str)
            ):
                yield block


def _failed_place(said: ViewMessage, tokens: MessageTokens) -> _Place | None:
    content = said.message.get("content")
    if not isinstance(content, list):
        return _Place(said)
    text = [b for b in content if isinstance(b, dict) and b.get("type") == "text"]
    if not text:
        return None
    if len(text) == len(content):
        return _Place(said)
    message = {**said.message, "content": [without_item_id(block) for block in text]}
    return _Place(restated(said, message, _FAILED_CALLS, tokens))


def _without_second_calls(said: ViewMessage, tokens: MessageTokens) -> ViewMessage:
    seen: set[str] = set()
    content = []
    for block in said.message["content"]:
        call_id = block.get("id") if isinstance(block, dict) else None
        if isinstance(call_id, str) and block.get("type") == "toolCall":
            if call_id in seen:
                continue
            seen.add(call_id)
        content.append(block)
    return restated(said, {**said.message, "content": content}, _TWICE, tokens)


def _unanswered(asker: ViewMessage, call: JsonObject, tokens: MessageTokens) -> ViewMessage:
    """An error result for a call that has none; the same bytes at every assembly."""
    message: Message = {
        "role": "toolResult",
        "toolCallId": call["id"],
        "toolName": call.get("name", ""),
        "content": [{"type": "text", "text": NO_RESULT}],
        "isError": True,
        "timestamp": asker.message.get("timestamp", 0),
    }
    return ViewMessage(None, message, tokens.count(message), (_ADDED,), asker.said_ms)
