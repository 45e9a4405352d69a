"""What an engine chose of a path, as a path of its own, and what it left out.

A message is known by its entry. What the engine did not give back was left out by it, what
it gave back in other words is told so, and what has no entry is the engine's own.
Source: spec 3, Engine slot; The way of a message (coverage).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from strandline.context.tokens import MessageTokens
from strandline.context.view import Decision, LeftOut, View, ViewMessage
from strandline.transcript.context import PathMessage
from strandline.transcript.messages import Message

STEP = "engine"

OWN = ""
"""Stands for the entry id of a message that no entry holds."""


class TokensOfForms(MessageTokens):
    """Counts messages of which an entry may have several forms: each form once in a row."""

    def __init__(self, like: MessageTokens) -> None:
        super().__init__(like.counter)
        self._forms: dict[str, tuple[Message, int]] = {}

    def of(self, entry_id: str | None, message: Message) -> int:
        """Tokens of `message`, from memory where it is the form that was counted last."""
        if not entry_id:
            return self.count(message)
        form, counted = self._forms.get(entry_id, (None, 0))
        if form is not message:
            counted = self.count(message)
            self._forms[entry_id] = (message, counted)
        return counted


def chosen_path(messages: Sequence[PathMessage | Message]) -> list[PathMessage]:
    """The messages that an engine gave, each as a `PathMessage`."""
    return [each if isinstance(each, PathMessage) else PathMessage(OWN, each) for each in messages]


def explained(
    view: View,
    chosen: Sequence[PathMessage],
    items: Sequence[PathMessage],
    engine_id: str,
    tokens: MessageTokens,
) -> View:
    """The view of a `chosen` path with the engine's decisions about `items`, the whole path."""
    given = {item.entry_id: item for item in items}
    reworded = {each.entry_id for each in chosen if _is_reworded(each, given.get(each.entry_id))}
    present = {each.entry_id for each in chosen}
    why = Decision("left_out", STEP, engine_id, f"the engine {engine_id} did not choose it")
    left_out = [
        ViewMessage(item.entry_id, item.message, tokens.of(item.entry_id, item.message), (why,))
        for item in items
        if item.entry_id not in present and isinstance(item.message, dict)
    ]
    kept = _told(view.messages, set(given), reworded, engine_id)
    gone = _told(view.left_out, set(given), reworded, engine_id)
    return View(tuple(kept), LeftOut([[*gone], left_out]))


def _is_reworded(chosen: PathMessage, given: PathMessage | None) -> bool:
    return given is not None and chosen.message != given.message


def _told(
    messages: Sequence[ViewMessage], given: set[str], reworded: set[str], engine_id: str
) -> Iterator[ViewMessage]:
    added = Decision("added", STEP, engine_id, f"the engine {engine_id} says it")
    other = Decision("shortened", STEP, engine_id, f"the engine {engine_id} says it otherwise")
    for said in messages:
        if said.entry_id is not None and said.entry_id not in given:
            yield replace(said, entry_id=None, decisions=(added, *said.decisions))
        elif said.entry_id in reworded:
            yield replace(said, decisions=(other, *said.decisions))
        else:
            yield said
