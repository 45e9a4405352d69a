"""The view: what the model will see, and why.

Every step of the way from a transcript's path to a request is a function from one `View`
to the next. A view keeps, for each message, the entry that it came from, its tokens and
each decision taken about it, so that any context can be explained afterwards.
Source: spec 3, The way of a message.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from strandline.transcript.messages import Message

Outcome = Literal["kept", "shortened", "summarised", "left_out", "added"]


@dataclass(frozen=True, slots=True)
class Decision:
    """Why a message is not simply as it was said.

    `step` is the stage (sanitize, pairing, limit …), `rule` the rule of that stage by
    name, `reason` a sentence for a person.
    """

    outcome: Outcome
    step: str
    rule: str
    reason: str


@dataclass(frozen=True, slots=True)
class ViewMessage:
    """One message of a view. `entry_id` is None for a message that no entry holds."""

    entry_id: str | None
    message: Message
    tokens: int
    decisions: tuple[Decision, ...] = ()

    def changed(self, message: Message, tokens: int, decision: Decision) -> ViewMessage:
        """The same place in the conversation, said differently, with the reason noted."""
        return replace(self, message=message, tokens=tokens, decisions=(*self.decisions, decision))

    def noted(self, decision: Decision) -> ViewMessage:
        """The same message with one more decision about it."""
        return replace(self, decisions=(*self.decisions, decision))

    @property
    def outcome(self) -> Outcome:
        """What became of the message: the last decision's outcome, else kept."""
        return self.decisions[-1].outcome if self.decisions else "kept"


@dataclass(frozen=True, slots=True)
class View:
    """What the model will see (`messages`), and what was left out of it on the way."""

    messages: tuple[ViewMessage, ...]
    left_out: tuple[ViewMessage, ...] = ()

    @property
    def tokens(self) -> int:
        """Estimated tokens of all messages of the view."""
        return sum(m.tokens for m in self.messages)

    def to(self, messages: Iterable[ViewMessage], left_out: Sequence[ViewMessage] = ()) -> View:
        """The next view: these messages, and more that were left out."""
        return View(tuple(messages), (*self.left_out, *left_out))
