"""Usage as Chat Completions reports it, in the counts that everything else reckons with.

Source: spec 3, Caches (usage of every provider is normalised).
"""

from __future__ import annotations

from strandline.runtime.model import Prices
from strandline.transcript.messages import Cost, JsonObject, Usage


def normalised_usage(raw: JsonObject, prices: Prices) -> Usage:
    """Usage in four counts of tokens that do not overlap, and what they cost.

    OpenAI's ``prompt_tokens`` include those from its cache; writing to it is free.
    """
    details = raw.get("prompt_tokens_details")
    prompt, output = token_count(raw, "prompt_tokens"), token_count(raw, "completion_tokens")
    cached = token_count(details if isinstance(details, dict) else {}, "cached_tokens")
    # DeepSeek's name, then Moonshot's.
    cached = (
        cached or token_count(raw, "prompt_cache_hit_tokens") or token_count(raw, "cached_tokens")
    )
    cached = min(cached, prompt)
    fresh = prompt - cached
    return {
        "input": fresh,
        "output": output,
        "cacheRead": cached,
        "cacheWrite": 0,
        "totalTokens": prompt + output,
        "cost": _cost(fresh, output, cached, prices),
    }


def _cost(fresh: int, output: int, cached: int, prices: Prices) -> Cost:
    for_input, for_output = fresh * prices.input / 1e6, output * prices.output / 1e6
    for_cached = cached * prices.cache_read / 1e6
    return {
        "input": for_input,
        "output": for_output,
        "cacheRead": for_cached,
        "cacheWrite": 0.0,
        "total": for_input + for_output + for_cached,
    }


def token_count(usage: JsonObject, key: str) -> int:
    """The count under `key`; 0 for a missing or senseless one."""
    value = usage.get(key)
    return value if isinstance(value, int) and value > 0 else 0
