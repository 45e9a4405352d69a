"""Whatever happens to a conversation under whatever rules, in whatever order, it goes on.

The four layers, the trimming of tool results, cache-aware cuts, summaries by a model that is
bad at it, views that are kept, pins, clocks that jump, messages without a time, sub-agents.
Source: spec 3, Pruning in four layers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strandline.transcript.messages import JsonObject

APIS = ["openai-completions", "openai-responses", "anthropic-messages", "google-generative-ai"]
HAPPENINGS = [
    *["say"] * 4,
    *["say_much"] * 3,
    *["other_rules"] * 4,
    *["jump"] * 5,
    *["import_messages"] * 2,
    *["pin"] * 2,
    *["compact", "undo", "branch", "branch", "other_prompt"],
    *["heartbeat", "say_well", "retry", "stop", "two_at_once", "two_conversations"],
    *["another_model", "another_mode", "think", "reset", "another_key", "settle", "restart"],
    *["spawn", "spawn_and_stop"],
]


def maybe(**keys: st.SearchStrategy[Any]) -> st.SearchStrategy[JsonObject]:
    """An object with some of these keys."""
    return st.fixed_dictionaries({}, optional=keys)


AGES = st.sampled_from(["1s", "1m", "10m", "1h", "2d", "inf"])
TTL_RULES = st.fixed_dictionaries(
    {"maxAge": AGES, "keep": st.sampled_from(["all", "summary", "summary", "none", 0, 1, 3])}
)
TTL = st.fixed_dictionaries({"rules": st.lists(TTL_RULES, max_size=4)})
LAYERS: dict[str, st.SearchStrategy[Any]] = {
    "maxMessages": st.sampled_from([0, 1, 2, 5, 20]),
    "maxTokens": st.sampled_from([0, 1, 60, 300, 2_000, 100_000]),
    "reservedOutputTokens": st.sampled_from([0, 500, 7_000, 100_000]),
    "compaction": maybe(
        enabled=st.booleans(),
        model=st.sampled_from(["chat-sum", "google-generative-ai/gemini-3-sum"]),
        summaryMaxTokens=st.sampled_from([1, 40, 512]),
        cacheSummary=st.booleans(),
        summaryCacheTTL=st.sampled_from(["1s", "1h"]),
    ),
    "cache": maybe(
        maxEntries=st.sampled_from([1, 1_000]),
        invalidateOn=st.sampled_from([[], ["new_message"], ["config_change"]]),
    ),
    "providerCache": maybe(enabled=st.booleans(), cacheableMessageCount=st.integers(0, 4)),
    "cacheAware": maybe(enabled=st.just(True), lowWater=st.sampled_from([0.01, 0.5, 1])),
}
PRUNING = st.fixed_dictionaries(
    {"mode": st.just("cache-ttl"), "ttl": st.sampled_from(["1s", "5m"])},
    optional={
        "keepLastAssistants": st.integers(0, 3),
        "softTrimRatio": st.sampled_from([0, 0.3, 1]),
        "hardClearRatio": st.sampled_from([0, 0.5, 1]),
        "minPrunableToolChars": st.sampled_from([0, 50_000]),
        "softTrim": st.just({"maxChars": 50, "headChars": 20, "tailChars": 10}),
        "hardClear": maybe(enabled=st.booleans(), placeholder=st.just("gone")),
        "tools": maybe(allow=st.just(["f*"]), deny=st.just(["list"])),
    },
)
RULES = st.fixed_dictionaries(
    {"context": maybe(**LAYERS) | st.fixed_dictionaries({"ttl": TTL}, optional=LAYERS)},
    optional={
        "contextPruning": PRUNING,
        "cacheRetention": st.sampled_from(["none", "short", "long"]),
    },
)


@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    names=st.lists(st.sampled_from(HAPPENINGS), min_size=6, max_size=20),
    dice=st.lists(st.integers(0, 999), min_size=8, max_size=40),
    api=st.sampled_from(APIS),
    rules=st.lists(RULES, min_size=1, max_size=4),
)
def test_it_goes_on_under_whatever_rules(
    names: list[str],
    dice: list[int],
    api: str,
    rules: list[JsonObject],
    live: Callable[..., None],
) -> None:
    live(["other_rules", *names], dice, api, rules)
