"""What a turn tells while it runs: values, handed to whoever listens.

A listener is a plain function; what it raises would end the turn, so faces catch their own
errors. Source: spec 4, A turn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from strandline.context.summarize import Audit
from strandline.transcript.messages import JsonObject, Message, Usage

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
    """The answer so far is void: the provider failed in the middle, and it is asked again.

    `usage` is what the provider said that it used all the same.
    """

    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class AnswerBroken:
    """The turn fails in the middle of this answer; what came of it is in the transcript."""

    message: Message


@dataclass(frozen=True, slots=True)
class AnswerKept:
    """An answer is complete and in the transcript; its tools, if it calls any, run next."""

    message: Message
    entry_id: str


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """A tool runs."""

    call_id: str
    name: str
    arguments: JsonObject


@dataclass(frozen=True, slots=True)
class ToolFinished:
    """A tool's result is in the transcript."""

    call_id: str
    name: str
    is_error: bool
    message: Message


@dataclass(frozen=True, slots=True)
class AskedAgain:
    """A call failed and is tried again in `wait_ms`; by `model`, another one after a fallback."""

    model: str
    reason: str
    wait_ms: int


@dataclass(frozen=True, slots=True)
class CompactionStarted:
    """A compaction is being made."""

    trigger: CompactionTrigger


@dataclass(frozen=True, slots=True)
class CompactionReceipt:
    """A compaction that was written: tokens of the messages before and after, ours.

    `budget_tokens` is what the messages may take. `summarizer` wrote the summary, `usage` is
    what that used (None without a model), `audit` what the summary was found to keep.
    """

    trigger: CompactionTrigger
    entry_id: str
    tokens_before: int
    tokens_after: int
    messages_summarised: int
    messages_kept: int
    budget_tokens: int
    summarizer: str
    usage: Usage | None = None
    audit: Audit | None = None

    @property
    def tokens_freed(self) -> int:
        """What it gained."""
        return self.tokens_before - self.tokens_after


@dataclass(frozen=True, slots=True)
class MemoryFlushed:
    """A memory flush is over: how many notes were written, and what it used."""

    notes: int
    usage: Usage | None


@dataclass(frozen=True, slots=True)
class LayerSummarised:
    """A summary of layer 4 was made: of how many messages, tokens before and after, ours.

    `summarizer` wrote it; `usage` and `audit` are as in a `CompactionReceipt`.
    """

    messages: int
    tokens_before: int
    tokens_after: int
    summarizer: str
    usage: Usage | None = None
    audit: Audit | None = None


@dataclass(frozen=True, slots=True)
class PrefixChange:
    """A request does not begin with the bytes of the one before, so the provider's cache is lost.

    `part` is where the first change is (``model``, ``tools``, ``system prompt`` or
    ``message``), `byte` how far into the prompt, written as JSON, `entry_id` whose message it is,
    and `why` what made it. `lost_tokens` are ours, behind that place.
    """

    part: str
    byte: int
    entry_id: str | None
    why: str
    lost_tokens: int


@dataclass(frozen=True, slots=True)
class CacheUsed:
    """What the provider's cache did for one answer, in its tokens.

    `expected` is what the call before lets one expect to be read. `why` explains a drop, and is
    empty where there is none; `change` is where the prompt stopped to begin as the last one did,
    whether that cost anything or not.
    """

    read: int
    written: int
    fresh: int
    expected: int
    why: str = ""
    change: PrefixChange | None = None


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that a person should know; the turn goes on."""

    text: str


TurnEvent = (
    ReplyText
    | ThinkingText
    | ReplyDiscarded
    | AnswerBroken
    | AnswerKept
    | ToolStarted
    | ToolFinished
    | AskedAgain
    | CompactionStarted
    | CompactionReceipt
    | MemoryFlushed
    | LayerSummarised
    | CacheUsed
    | Notice
)
Listener = Callable[[TurnEvent], None]


def nobody(event: TurnEvent) -> None:
    """The listener that does not care."""
    del event
