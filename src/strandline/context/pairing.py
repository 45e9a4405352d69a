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


def pair(view: View, tokens: MessageTokens) -> View:
    """The view with every call followed at once by exactly one result each."""
    places: list[_Place] = []
    left_out: list[ViewMessage] = []
    asked: dict[str, _Place] = {}  # call id -> the newest place that asked
    for said in view.messages:
        role = said.message.get("role")
        if role == "toolResult":
            answered = _answer(said, asked, places)
            if answered is not None:
                left_out.append(answered)
            continue
        if role == "assistant":
            place = _assistant_place(said, asked, tokens)
            if place is None:
                left_out.append(said.noted(_FAILED))
                continue
        else:
            place = _Place(said)
        places.append(place)
    return view.to(_flat(places, tokens), left_out)


def _answer(
    result: ViewMessage, asked: dict[str, _Place], places: list[_Place]
) -> ViewMessage | None:
    """Puts a result beside its call, or returns it with the reason why it is left out."""
    call_id = result.message.get("toolCallId")
    place = asked.get(call_id) if isinstance(call_id, str) else None
    if place is None or call_id is None:
        return result.noted(_ORPHAN)
    if call_id not in place.open:
        return result.noted(_SECOND)
    del place.open[call_id]
    place.results.append(result if place is places[-1] else result.noted(_MOVED))
    return None


def _assistant_place(
    said: ViewMessage, asked: dict[str, _Place], tokens: MessageTokens
) -> _Place | None:
    """The place of an assistant message, its calls asked; None when nothing is left of it."""
    calls = list(_calls(said.message))
    if said.message.get("stopReason") in FAILED_REASONS:
        for call in calls:
            asked.pop(call["id"], None)
        return _failed_place(said, tokens)
    if not calls:
        return _Place(said)
    place = _Place(said, {call["id"]: call for call in calls})
    if len(place.open) < len(calls):
        place.said = _without_second_calls(said, tokens)
        place.open = {call["id"]: call for call in _calls(place.said.message)}
    for call_id in place.open:
        asked[call_id] = place
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


def _flat(places: list[_Place], tokens: MessageTokens) -> Iterator[ViewMessage]:
    for place in places:
        yield place.said
        yield from place.results
        for call in place.open.values():
            yield _unanswered(place.said.message, call, tokens)


def _unanswered(asker: Message, call: JsonObject, tokens: MessageTokens) -> ViewMessage:
    """An error result for a call that has none; the same bytes at every assembly."""
    message: Message = {
        "role": "toolResult",
        "toolCallId": call["id"],
        "toolName": call.get("name", ""),
        "content": [{"type": "text", "text": NO_RESULT}],
        "isError": True,
        "timestamp": asker.get("timestamp", 0),
    }
    return ViewMessage(None, message, tokens.count(message), (_ADDED,))
