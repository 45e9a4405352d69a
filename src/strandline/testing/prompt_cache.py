"""What a provider's prompt cache knows, so that a scripted server's counters are earned."""

from __future__ import annotations

import bisect
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

LOOKBACK_BLOCKS = 20
"""How far before a mark Anthropic looks for something that it wrote earlier."""

_MINUTE_MS = 60_000
LIFETIMES_MS: Mapping[str, int] = {
    "": 5 * _MINUTE_MS,
    "5m": 5 * _MINUTE_MS,
    "1h": 60 * _MINUTE_MS,
    "24h": 24 * 60 * _MINUTE_MS,
}
"""How long what was written stays, from its last use on; the shortest that providers promise."""


class Block(NamedTuple):
    """A part of a prompt; `ttl` is how long the cache mark on it keeps it, empty without one.

    Where a provider needs no marks, the `ttl` of the last block counts, for the whole prompt.
    """

    text: str
    ttl: str = ""


@dataclass(frozen=True, slots=True)
class CacheRule:
    """From how many tokens a beginning counts, and in which steps.

    `marked`: only what lies before a mark is written or read.
    """

    minimum: int = 1024
    step: int = 1
    marked: bool = False


OPENAI = CacheRule(step=128)
ANTHROPIC = CacheRule(marked=True)
GEMINI = CacheRule()


class CacheUse(NamedTuple):
    """Tokens of one prompt: `read` from the cache, `created` in it; of these, for an hour."""

    read: int = 0
    created: int = 0
    created_1h: int = 0


CountTokens = Callable[[str], int]
NowMs = Callable[[], int]


def time_stands_still() -> int:
    """A clock for caches that keep everything."""
    return 0


class Cache(Protocol):
    """What was sent before, model by model."""

    def use(self, model: str, blocks: Sequence[Block], count: CountTokens) -> CacheUse:
        """What this prompt finds; from now on it is known itself."""
        ...


def cache_of(rule: CacheRule, now_ms: NowMs = time_stands_still) -> Cache:
    """An empty cache with that rule; `now_ms` ends the lives of what is in it."""
    return MarkedCache(rule, now_ms) if rule.marked else PromptCache(rule, now_ms)


class PromptCache:
    """Keeps every prompt by itself, as OpenAI and Gemini do."""

    def __init__(self, rule: CacheRule = OPENAI, now_ms: NowMs = time_stands_still) -> None:
        self._rule = rule
        self._now_ms = now_ms
        self._prompts: dict[str, list[str]] = {}
        self._ends_ms: dict[tuple[str, str], int] = {}

    def use(self, model: str, blocks: Sequence[Block], count: CountTokens) -> CacheUse:
        """See `Cache`. Nothing is said of what is created."""
        prompt = "\n".join(block.text for block in blocks)
        self._let_die()
        known = self.common_prefix(model, prompt)
        self.remember(model, prompt, blocks[-1].ttl if blocks else "")
        return CacheUse(self.credited(count(known)))

    def common_prefix(self, model: str, prompt: str) -> str:
        """The longest beginning that `prompt` shares with any remembered prompt."""
        known = self._prompts.get(model, [])
        place = bisect.bisect_left(known, prompt)
        # In sorted order, nothing has more in common with a text than one of its neighbours.
        lengths = [_common_length(prompt, other) for other in known[max(place - 1, 0) : place + 1]]
        return prompt[: max(lengths, default=0)]

    def _let_die(self) -> None:
        now_ms = self._now_ms()
        for model, prompt in [key for key, end_ms in self._ends_ms.items() if end_ms <= now_ms]:
            self._prompts[model].remove(prompt)
            del self._ends_ms[model, prompt]

    def remember(self, model: str, prompt: str, ttl: str = "") -> None:
        """Keep it for its lifetime from now on, or for a longer one that it has already."""
        end_ms = self._now_ms() + LIFETIMES_MS[ttl]
        self._ends_ms[model, prompt] = max(end_ms, self._ends_ms.get((model, prompt), 0))
        known = self._prompts.setdefault(model, [])
        place = bisect.bisect_left(known, prompt)
        if known[place : place + 1] != [prompt]:
            known.insert(place, prompt)

    def credited(self, tokens: int) -> int:
        """How many of `tokens` known tokens a provider takes from its cache."""
        rule = self._rule
        return tokens // rule.step * rule.step if tokens >= rule.minimum else 0


class MarkedCache:
    """Keeps the beginnings that a mark ends, as Anthropic does, block by block.

    Before a mark it finds what an earlier mark wrote, at most `LOOKBACK_BLOCKS` blocks back.
    What is read or written again lives for its whole lifetime from then on.
    """

    def __init__(self, rule: CacheRule = ANTHROPIC, now_ms: NowMs = time_stands_still) -> None:
        self._rule = rule
        self._now_ms = now_ms
        self._known: dict[tuple[str, bytes], tuple[int, int]] = {}  # lifetime, end

    def use(self, model: str, blocks: Sequence[Block], count: CountTokens) -> CacheUse:
        """See `Cache`."""
        keys = [(model, digest) for digest in _digests(blocks)]
        marks = [place for place, block in enumerate(blocks) if block.ttl]
        seen = [
            place
            for mark in marks
            for place in range(mark, max(mark - LOOKBACK_BLOCKS, -1), -1)
            if self._lives(keys[place])
        ]
        found = max(seen, default=-1)
        if seen:
            self._keep(keys[found], 0)
        read = reached = self._count_to(blocks, found, count)
        for_an_hour = 0
        for mark in marks:
            tokens = self._count_to(blocks, mark, count)
            if tokens < self._rule.minimum:
                continue
            self._keep(keys[mark], LIFETIMES_MS[blocks[mark].ttl])
            added = max(tokens - reached, 0)  # a mark before what was read adds nothing
            reached += added
            for_an_hour += added if blocks[mark].ttl == "1h" else 0
        return CacheUse(read, reached - read, for_an_hour)

    def _lives(self, key: tuple[str, bytes]) -> bool:
        _, end_ms = self._known.get(key, (0, 0))
        return end_ms > self._now_ms()

    def _keep(self, key: tuple[str, bytes], lifetime_ms: int) -> None:
        """From now on, for the longer of its lifetimes."""
        if self._lives(key):
            lifetime_ms = max(lifetime_ms, self._known[key][0])
        self._known[key] = (lifetime_ms, self._now_ms() + lifetime_ms)

    @staticmethod
    def _count_to(blocks: Sequence[Block], place: int, count: CountTokens) -> int:
        return count("\n".join(block.text for block in blocks[: place + 1]))


def _digests(blocks: Sequence[Block]) -> list[bytes]:
    """What stands for the beginning up to each block."""
    running = hashlib.sha256()
    digests = []
    for block in blocks:
        running.update(block.text.encode("utf-8", "surrogatepass") + b"\n")
        digests.append(running.digest())
    return digests


def _common_length(one: str, other: str) -> int:
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
