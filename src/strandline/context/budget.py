"""The budget: how many tokens the messages of a request may take, and how that is known.

Sizes of the window and the reserve are in the provider's tokens; `keep_recent`, `fixed`
and `limit` are in ours (what a `TokenCounter` counts). `scale` is how many of the
provider's tokens one of ours stands for. Source: spec 3, Budget and compaction.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

from strandline.context.clean_path import Clean
from strandline.context.sanitize import FAILED_REASONS
from strandline.context.turns import is_summary
from strandline.errors import ContextOverflow
from strandline.transcript.messages import Message

CompactionMode = Literal["auto", "off", "error"]

SMALLEST_LIMIT_TOKENS = 256
"""With less than this for messages no conversation is possible."""

SMALLEST_SAMPLE_TOKENS = 1000
"""A prompt below this says nothing about the scale: the provider's frame outweighs it."""

LARGEST_SCALE = 4.0
"""No vocabulary is this much finer than ours; a larger report is about something else."""


@dataclass(frozen=True, slots=True)
class CompactionSettings:
    """`agents.defaults.compaction`, or an agent's own (tokens throughout).

    `mode` says what happens when the context is too large: "auto" compacts, "off" leaves
    out the oldest turns, "error" gives `ContextOverflow`. `enabled` False is mode "off".
    `reserve_tokens_floor` 0 turns the floor off. `model` is ``provider/model`` of the
    summariser, None for the session's own.
    """

    enabled: bool = True
    mode: CompactionMode = "auto"
    reserve_tokens: int = 16_384
    keep_recent_tokens: int = 20_000
    reserve_tokens_floor: int = 20_000
    model: str | None = None

    @property
    def effective_mode(self) -> CompactionMode:
        """The mode that holds."""
        return self.mode if self.enabled else "off"


@dataclass(frozen=True, slots=True)
class Budget:
    """What a request may hold.

    `window` and `reserve` (what is kept free for the answer) are the provider's tokens;
    `fixed` (system prompt and tools), `keep_recent` (what a compaction keeps) and `limit`
    (what the messages may take) are ours. `max_tokens` is the setting `maxTokens`, where it is
    less: it bounds the view, and is no reason to compact.
    """

    window: int
    reserve: int
    fixed: int
    keep_recent: int
    limit: int
    scale: float = 1.0
    max_tokens: int | None = None

    @property
    def view_limit(self) -> int:
        """What the messages of a view may take: `limit`, or `max_tokens` where that is less."""
        return self.limit if self.max_tokens is None else min(self.limit, max(1, self.max_tokens))

    @property
    def message_cap(self) -> int:
        """The most that one message may take: a power of two, at most 3/4 of `view_limit`.

        A power of two, because the limit moves a little when the system prompt or the scale
        does, and a shortened message should keep its bytes then.
        """
        return _power_of_two_within(self.view_limit * 3 // 4)

    @property
    def tool_result_cap(self) -> int:
        """The most that one tool result may take once the provider has refused the request."""
        return max(1, self.message_cap // 8)

    @property
    def summary_cap(self) -> int:
        """The most that a summary may take: 4/5 of the reserve, a quarter of `limit`."""
        return max(1, min(self.reserve * 4 // 5, self.limit // 4))

    def flush_line(self, soft_threshold: int) -> int:
        """From where on the memory is flushed: `soft_threshold` (the provider's) below `limit`.

        At most a quarter of what the messages may take, so that a small window is not spent
        on flushes (spec 3, Memory flush).
        """
        return self.limit - min(int(soft_threshold / self.scale), self.limit // 4)

    def provider_tokens(self, message_tokens: int) -> int:
        """The whole request in the provider's tokens, for that many tokens of messages."""
        return int((message_tokens + self.fixed) * self.scale)

    def is_over(self, message_tokens: int) -> bool:
        """Whether that many tokens of messages cross the threshold.

        That is ``contextTokens > contextWindow - reserveTokens``, everything that is sent
        counted, and the same line as "does not fit": one meter for both.
        """
        return message_tokens > self.limit

    def fits_meanwhile(self, message_tokens: int) -> bool:
        """Whether that many tokens can be sent while a compaction is being made already.

        Half of the reserve may be used then: waiting for the summary would be the longer way,
        and the answer keeps the other half.
        """
        return message_tokens <= self.limit + int(self.reserve / 2 / self.scale)

    def answer_tokens(self, message_tokens: int, max_output: int) -> int:
        """How long the answer may be: `max_output`, or what the window leaves, at least 1."""
        return max(1, min(max_output, self.window - self.provider_tokens(message_tokens)))


def resolve_budget(
    window: int,
    settings: CompactionSettings,
    *,
    reserved_output: int = 0,
    system_tokens: int = 0,
    tool_tokens: int = 0,
    max_tokens: int | None = None,
    scale: float = 1.0,
) -> Budget:
    """The budget of a model's window.

    `reserved_output` and `max_tokens` are the settings `reservedOutputTokens` and
    `maxTokens` (the system prompt not counted). The model's own greatest output is no
    reserve: it may be most of the window. Raises `ContextOverflow` when the system prompt
    and the tools leave the messages nothing to speak of.
    """
    fixed = system_tokens + tool_tokens
    wanted = max(settings.reserve_tokens, settings.reserve_tokens_floor, reserved_output, 0)
    reserve = _reserve(window, wanted, fixed, scale)
    limit = int((window - reserve) / scale) - fixed
    if limit < min(SMALLEST_LIMIT_TOKENS, window // 8):
        raise _no_room(window, reserve, system_tokens, tool_tokens)
    keep = max(1, min(settings.keep_recent_tokens, limit // 2))
    return Budget(window, reserve, fixed, keep, limit, scale, max_tokens)


def _reserve(window: int, wanted: int, fixed: int, scale: float) -> int:
    """The wanted reserve, capped so that the window stays usable.

    At most half of the window; less, down to an eighth, where the system prompt would
    otherwise leave the messages less than an eighth.
    """
    eighth = window // 8
    for_messages = max(eighth, math.ceil((SMALLEST_LIMIT_TOKENS + 1) * scale))
    spare = window - math.ceil(fixed * scale) - for_messages
    return max(min(wanted, window // 2, spare), min(wanted, eighth))


def _no_room(window: int, reserve: int, system_tokens: int, tool_tokens: int) -> ContextOverflow:
    parts = sorted([(system_tokens, "the system prompt"), (tool_tokens, "the tools")], reverse=True)
    largest = " and ".join(f"{name} ({size:,} tokens)" for size, name in parts)
    return ContextOverflow(
        f"a window of {window:,} tokens, of which {reserve:,} are kept for the answer, has no "
        f"room for messages beside {largest}",
        remedy="shorten the system prompt, offer fewer tools, or use a model with a larger window",
    )


def _power_of_two_within(limit: int) -> int:
    return 1 << (limit.bit_length() - 1) if limit > 0 else 1


def calibrated(previous: float, estimate: int, reported: int, *, overflowed: bool = False) -> float:
    """The scale, after a provider has counted `reported` tokens where we had `estimate`.

    Never below 1: what a provider counts lower for one mix of text it may not for the
    next, and an estimate that is too high only compacts a little earlier. A report about
    a small prompt changes nothing. After an overflow the scale never falls.
    """
    if reported <= 0 or estimate < SMALLEST_SAMPLE_TOKENS:
        return previous
    scale = min(LARGEST_SCALE, max(1.0, reported / estimate))
    return max(previous, scale) if overflowed else scale


class ReportedCall(NamedTuple):
    """An answer in a clean path, at `place`, and what the provider counted as its prompt."""

    place: int
    prompt_tokens: int


def newest_report(clean: Clean, model: tuple[str, str] | None = None) -> ReportedCall | None:
    """The newest usable usage on a path, which tells how its provider counts.

    Usage from before the last compaction is about a context that is gone; usage of
    another `model` (provider, id) or of a failed call says nothing about this one.
    """
    messages = clean.messages
    start = next((p for p in reversed(clean.summaries) if is_summary(messages[p])), None)
    summarised_ms = -1.0 if start is None else messages[start].said_ms or 0
    for place in reversed(clean.calls):
        if start is not None and place < start:
            break
        reported = _prompt_tokens(messages[place].message, model)
        if reported and (messages[place].said_ms or 0) > summarised_ms:
            return ReportedCall(place, reported)
    return None


def _prompt_tokens(message: Message, model: tuple[str, str] | None) -> int:
    """What the provider counted as the prompt of this answer; 0 when that says nothing."""
    usage = message.get("usage") if isinstance(message, dict) else None
    if usage is None or message.get("role") != "assistant" or not isinstance(usage, dict):
        return 0
    if message.get("stopReason") in FAILED_REASONS or "thread" in message:
        return 0  # of a thread, the backend counts what we do not see
    if model is not None and (message.get("provider"), message.get("model")) != model:
        return 0
    counts = [usage.get(key) for key in ("input", "cacheRead", "cacheWrite")]
    return sum(count for count in counts if isinstance(count, int))
