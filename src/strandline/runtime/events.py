"""What a turn tells while it runs: values, handed to whoever listens.

A listener is a plain function; what it raises would end the turn, so faces catch their own
errors. Source: spec 4, A turn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

CompactionTrigger = Literal["threshold", "pre-send", "overflow", "manual"]


@dataclass(frozen=True, slots=True)
class ReplyText:
    """More of the visible answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ThinkingText:
    """More of what the model thinks."""

    text: str


@dataclass(frozen=True, slots=True)
class ReplyDiscarded:
    """The answer so far is void: the provider refused in the middle, and it is asked again."""


@dataclass(frozen=True, slots=True)
class CompactionStarted:
    """A compaction is being made."""

    trigger: CompactionTrigger


@dataclass(frozen=True, slots=True)
class CompactionReceipt:
    """A compaction that was written: tokens of the messages before and after, ours."""

    trigger: CompactionTrigger
    entry_id: str
    tokens_before: int
    tokens_after: int
    messages_summarised: int
    messages_kept: int


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that a person should know; the turn goes on."""

    text: str


TurnEvent = (
    ReplyText | ThinkingText | ReplyDiscarded | CompactionStarted | CompactionReceipt | Notice
)
Listener = Callable[[TurnEvent], None]


def nobody(event: TurnEvent) -> None:
    """The listener that does not care."""
    del event
