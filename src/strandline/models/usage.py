"""Usage in the four counts that everything else reckons with, and what they cost.

Every format has a reader of its own for what its provider reports; the counts that they
arrive at do not overlap. Source: spec 3, Caches (usage of every provider is normalised).
"""

from __future__ import annotations

from strandline.runtime.model import Prices
from strandline.transcript.messages import JsonObject, Usage


def usage_of(
    prices: Prices,
    *,
    fresh: int,
    output: int,
    cache_read: int = 0,
    cache_write: int = 0,
    cache_write_1h: int = 0,
) -> Usage:
    """Tokens that were read anew, written, read from the cache and written to it.

    `cache_write_1h` of those of `cache_write` are to stay for an hour, which has its price.
    """
    per_hour = prices.cache_write if prices.cache_write_1h is None else prices.cache_write_1h
    for_input, for_output = fresh * prices.input / 1e6, output * prices.output / 1e6
    for_reading = cache_read * prices.cache_read / 1e6
    for_writing = (cache_write - cache_write_1h) * prices.cache_write / 1e6
    for_writing += cache_write_1h * per_hour / 1e6
    return {
        "input": fresh,
        "output": output,
        "cacheRead": cache_read,
        "cacheWrite": cache_write,
        "totalTokens": fresh + output + cache_read + cache_write,
        "cost": {
            "input": for_input,
            "output": for_output,
            "cacheRead": for_reading,
            "cacheWrite": for_writing,
            "total": for_input + for_output + for_reading + for_writing,
        },
    }


def openai_usage(
    raw: JsonObject, prices: Prices, *, prompt: str, details: str, output: str, cached: int = 0
) -> Usage:
    """OpenAI's counts under the names of one of its formats: the prompt's include those that
    were read from its cache, and those that were written to it, which some models charge.

    `cached` is what a server says of its cache in its own way.
    """
    said = raw.get(details)
    told = said if isinstance(said, dict) else {}
    total = token_count(raw, prompt)
    read = min(token_count(told, "cached_tokens") or cached, total)
    written = min(token_count(told, "cache_write_tokens"), total - read)
    return usage_of(
        prices,
        fresh=total - read - written,
        output=token_count(raw, output),
        cache_read=read,
        cache_write=written,
    )


def token_count(usage: JsonObject, key: str) -> int:
    """The count under `key`; 0 for a missing or senseless one."""
    value = usage.get(key)
    return value if isinstance(value, int) and value > 0 else 0
