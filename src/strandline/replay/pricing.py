"""Which cache a provider has, and what its tokens cost.

Dollars are US dollars for a million tokens, as in `Prices`. Where a model's prices leave out
those of the cache, they follow from the input's price by the provider's usual ratio.
Source: spec 3, Caches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from strandline.replay.caches import (
    GEMINI_MINIMUM_TOKENS,
    HOUR,
    MINUTES_5,
    AutomaticCache,
    CacheModel,
    MarkedCache,
    NoCache,
    Use,
)
from strandline.runtime.model import ModelInfo, Prices

CacheName = Literal["anthropic", "anthropic-1h", "openai", "gemini", "none"]
CACHE_NAMES: tuple[CacheName, ...] = get_args(CacheName)

TOKENS_PRICED = 1_000_000


@dataclass(frozen=True, slots=True)
class Rates:
    """What a million tokens cost: of the input by how they came, and of the output."""

    fresh: float
    written: float
    read: float
    output: float

    def input_cost(self, use: Use) -> float:
        """Dollars of one call's input."""
        cost = use.fresh * self.fresh + use.written * self.written + use.read * self.read
        return cost / TOKENS_PRICED

    def output_cost(self, tokens: int) -> float:
        """Dollars of so many tokens of answers."""
        return tokens * self.output / TOKENS_PRICED


@dataclass(frozen=True, slots=True)
class _Kind:
    """How a cache is made, how long it keeps what is idle, and its prices as shares of the
    input's: of writing and of reading.
    """

    make: Callable[[int, int], CacheModel]
    lifetime_ms: int
    write_share: float
    read_share: float


def _marked(lifetime_ms: int, cacheable_count: int) -> CacheModel:
    return MarkedCache(lifetime_ms, cacheable_count=cacheable_count)


def _openai(lifetime_ms: int, _cacheable_count: int) -> CacheModel:
    return AutomaticCache(lifetime_ms)


def _gemini(lifetime_ms: int, _cacheable_count: int) -> CacheModel:
    return AutomaticCache(lifetime_ms, minimum=GEMINI_MINIMUM_TOKENS, step=1)


def _none(_lifetime_ms: int, _cacheable_count: int) -> CacheModel:
    return NoCache()


_KINDS: Mapping[CacheName, _Kind] = {
    "anthropic": _Kind(_marked, MINUTES_5, 1.25, 0.1),
    "anthropic-1h": _Kind(_marked, HOUR, 2.0, 0.1),
    "openai": _Kind(_openai, MINUTES_5, 1.0, 0.1),
    "gemini": _Kind(_gemini, MINUTES_5, 1.0, 0.25),
    "none": _Kind(_none, 0, 1.0, 1.0),
}

_OF_PROVIDERS: Mapping[str, CacheName] = {
    "anthropic": "anthropic",
    "anthropic-messages": "anthropic",
    "openai": "openai",
    "openai-completions": "openai",
    "openai-responses": "openai",
    "google": "gemini",
    "google-generative-ai": "gemini",
}


def cache_of(model: ModelInfo) -> CacheName:
    """The cache of a model's provider; of a provider that is not known, that of its format."""
    named = _OF_PROVIDERS.get(model.provider) or _OF_PROVIDERS.get(model.api)
    return named or "none"


def lifetime_of(name: CacheName) -> int:
    """How long that cache keeps what is not used, in milliseconds."""
    return _KINDS[name].lifetime_ms


def new_cache(name: CacheName, lifetime_ms: int, cacheable_count: int = 10) -> CacheModel:
    """An empty cache; one that takes marks has the second `cacheable_count` messages back."""
    return _KINDS[name].make(lifetime_ms, cacheable_count)


def rates(name: CacheName, prices: Prices) -> Rates:
    """What tokens cost with that cache."""
    kind, fresh = _KINDS[name], prices.input
    if name == "none":
        return Rates(fresh, fresh, fresh, prices.output)
    write = prices.cache_write_1h if name == "anthropic-1h" else prices.cache_write
    return Rates(
        fresh,
        write or fresh * kind.write_share,
        prices.cache_read or fresh * kind.read_share,
        prices.output,
    )
