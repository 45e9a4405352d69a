"""The view: what the model will see, and why.

Every step of the way from a transcript's path to a request is a function from one `View`
to the next. A view keeps, for each message, the entry that it came from, its tokens and
each decision taken about it, so that any context can be explained afterwards.
Source: spec 3, The way of a message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Literal, overload

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
    """One message of a view. `entry_id` is None for a message that no entry holds.

    `said_ms` is when it was said (Unix ms), None where that is not known.
    """

    entry_id: str | None
    message: Message
    tokens: int
    decisions: tuple[Decision, ...] = ()
    said_ms: float | None = field(default=None, compare=False)

    def changed(self, message: Message, tokens: int, decision: Decision) -> ViewMessage:
        """The same place in the conversation, said differently, with the reason noted."""
        decisions = (*self.decisions, decision)
        return ViewMessage(self.entry_id, message, tokens, decisions, self.said_ms)

    def noted(self, decision: Decision) -> ViewMessage:
        """The same message with one more decision about it."""
        return self.changed(self.message, self.tokens, decision)

    @property
    def outcome(self) -> Outcome:
        """What became of the message: the last decision's outcome, else kept."""
        return self.decisions[-1].outcome if self.decisions else "kept"


class LeftOut(Sequence[ViewMessage]):
    """What was left out on the way, in pieces that cost nothing until somebody looks."""

    def __init__(self, pieces: Iterable[Sequence[ViewMessage]] = ()) -> None:
        self.pieces = tuple(piece for piece in pieces if len(piece))

    def plus(self, piece: Sequence[ViewMessage]) -> LeftOut:
        """These and more."""
        return LeftOut((*self.pieces, piece))

    def __len__(self) -> int:
        return sum(map(len, self.pieces))

    def __iter__(self) -> Iterator[ViewMessage]:
        return chain.from_iterable(self.pieces)

    @overload
    def __getitem__(self, index: int) -> ViewMessage: ...
    @overload
    def __getitem__(self, index: slice) -> list[ViewMessage]: ...
    def __getitem__(self, index: int | slice) -> ViewMessage | list[ViewMessage]:
        return list(self)[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True)
class View:
    """What the model will see (`messages`), and what was left out of it on the way.

    `sum_tokens` is what the messages take, where whoever made the view knows.
    """

    messages: tuple[ViewMessage, ...]
    left_out: LeftOut = field(default_factory=LeftOut)
    sum_tokens: int | None = field(default=None, compare=False, repr=False)

    @cached_property
    def tokens(self) -> int:
        """Estimated tokens of all messages of the view."""
        if self.sum_tokens is not None:
            return self.sum_tokens
        return sum(said.tokens for said in self.messages)

    def to(self, messages: Iterable[ViewMessage], left_out: Sequence[ViewMessage] = ()) -> View:
        """The next view: these messages, and more that were left out."""
        return View(tuple(messages), self.left_out.plus(left_out))
