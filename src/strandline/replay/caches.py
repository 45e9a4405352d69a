"""How providers' prompt caches keep what they were sent, as far as they say so themselves.

Every cache keeps beginnings of prompts, whole messages at the finest here, and forgets them
when they were not used for its lifetime; each use begins that anew. Differences:

* `MarkedCache` (Anthropic): the request marks where a beginning ends that is worth keeping:
  the fixed part, the newest message, and the message `cacheable_count` before it. A mark
  writes its beginning, from 1,024 tokens on; it finds what was written at most 20 content
  blocks before it.
* `AutomaticCache` (OpenAI, Gemini): every beginning of every prompt is kept by itself, from a
  minimum on, and counted in steps (OpenAI: 1,024 and 128; Gemini: 2,048).
* `NoCache`.

Source: spec 3, Caches.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple, Protocol

from strandline.replay.prompts import Prompt

MINUTES_5 = 300_000
HOUR = 3_600_000

MARKED_MINIMUM_TOKENS = 1024
LOOKBACK_BLOCKS = 20
OPENAI_MINIMUM_TOKENS, OPENAI_STEP_TOKENS = 1024, 128
GEMINI_MINIMUM_TOKENS = 2048

MOST_BEGINNINGS = 500_000
"""With more than this in memory, those that have expired are let go."""


class Use(NamedTuple):
    """Input tokens of one call: sent afresh, written to the cache, read from it."""

    fresh: int = 0
    written: int = 0
    read: int = 0

    @property
    def tokens(self) -> int:
        """All of them."""
        return self.fresh + self.written + self.read

    def plus(self, other: Use) -> Use:
        """Both together."""
        return Use(self.fresh + other.fresh, self.written + other.written, self.read + other.read)


class CacheModel(Protocol):
    """What a provider keeps of one conversation, for `lifetime_ms` after its last use."""

    @property
    def lifetime_ms(self) -> int: ...

    def use(self, prompt: Prompt, at_ms: float) -> Use:
        """What the prompt finds at that time; from then on it is known itself."""
        ...


class NoCache:
    """Nothing is kept."""

    lifetime_ms = 0

    def use(self, prompt: Prompt, at_ms: float) -> Use:  # noqa: ARG002 - the seam's
        """All of it is new."""
        return Use(fresh=prompt.tokens)


class MarkedCache:
    """Keeps what ends at a mark, as Anthropic does."""

    def __init__(
        self,
        lifetime_ms: int = MINUTES_5,
        *,
        cacheable_count: int = 10,
        minimum: int = MARKED_MINIMUM_TOKENS,
    ) -> None:
        self.lifetime_ms = lifetime_ms
        self._count = cacheable_count
        self._minimum = minimum
        self._used_ms: dict[int, float] = {}

    def use(self, prompt: Prompt, at_ms: float) -> Use:
        """See `CacheModel`."""
        marks = sorted({0, max(0, prompt.newest - self._count), prompt.newest})
        found = max(self._found(prompt, mark, at_ms) for mark in marks)
        read = prompt.tokens_to[found + 1]
        if found >= 0:
            self._used_ms[prompt.beginnings[found]] = at_ms
        for mark in marks:
            if prompt.tokens_to[mark + 1] >= self._minimum:
                self._used_ms[prompt.beginnings[mark]] = at_ms
        rest = prompt.tokens - read
        return Use(0, rest, read) if prompt.tokens >= self._minimum else Use(rest, 0, read)

    def _found(self, prompt: Prompt, mark: int, at_ms: float) -> int:
        """The place of the longest kept beginning that a mark sees, -1 for none."""
        last_block = prompt.blocks_to[mark + 1]
        for place in range(mark, -1, -1):
            if last_block - prompt.blocks_to[place + 1] >= LOOKBACK_BLOCKS:
                break
            used_ms = self._used_ms.get(prompt.beginnings[place])
            if used_ms is not None and at_ms - used_ms <= self.lifetime_ms:
                return place
        return -1


class AutomaticCache:
    """Keeps every beginning by itself, as OpenAI and Gemini do."""

    def __init__(
        self,
        lifetime_ms: int = MINUTES_5,
        *,
        minimum: int = OPENAI_MINIMUM_TOKENS,
        step: int = OPENAI_STEP_TOKENS,
    ) -> None:
        self.lifetime_ms = lifetime_ms
        self._minimum = minimum
        self._step = step
        self._used_ms: dict[int, float] = {}

    def use(self, prompt: Prompt, at_ms: float) -> Use:
        """See `CacheModel`."""
        oldest_ms = at_ms - self.lifetime_ms
        # A beginning was used whenever a longer one was: the first that is not kept ends them.
        known = bisect_left(
            prompt.beginnings,
            True,
            key=lambda beginning: self._used_ms.get(beginning, -float("inf")) < oldest_ms,
        )
        read = self._credited(prompt.tokens_to[known])
        self._used_ms |= dict.fromkeys(prompt.beginnings, at_ms)
        if len(self._used_ms) > MOST_BEGINNINGS:
            self._used_ms = {b: used for b, used in self._used_ms.items() if used >= oldest_ms}
        written = max(0, self._credited(prompt.tokens) - read)
        return Use(prompt.tokens - written - read, written, read)

    def _credited(self, tokens: int) -> int:
        return tokens // self._step * self._step if tokens >= self._minimum else 0
