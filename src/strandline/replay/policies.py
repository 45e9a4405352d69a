"""Policies by name: what an operator compares.

Source: spec 3, Pruning in four layers; the three sets of rules are the examples of the format's
documentation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from strandline.context.budget import CompactionSettings
from strandline.context.policy import AgeRule, ContextPolicy, LayerSummaries
from strandline.runtime.model import Prices

PolicyName = Literal["full", "plain", "cache-ttl", "cache-aware"]
POLICY_NAMES: tuple[PolicyName, ...] = get_args(PolicyName)


@dataclass(frozen=True, slots=True)
class Policy:
    """Rules under a name. `summary_prices` are those of the model that makes layer summaries,
    None where they are made without a model and cost nothing. `cacheable_count` is how many
    messages before the newest the second mark stands, for a provider that takes marks.
    """

    name: str
    rules: ContextPolicy
    compaction: CompactionSettings = field(default_factory=CompactionSettings)
    summary_prices: Prices | None = None
    cacheable_count: int = 10


def named(name: PolicyName, rules: Policy, cache_lifetime_ms: int) -> Policy:
    """The policy of that name, with what `rules` say.

    `full` has no rule at all. The others have those of `rules`: `plain` at every call;
    `cache-ttl` trims old tool results too, when the provider's cache has expired after
    `cache_lifetime_ms`; `cache-aware` lets cuts stay while it lives.
    """
    plain = replace(
        rules.rules,
        tool_results=replace(rules.rules.tool_results, mode="off"),
        cache_aware=replace(rules.rules.cache_aware, enabled=False),
    )
    match name:
        case "full":
            return Policy(name, ContextPolicy(), rules.compaction)
        case "plain":
            own = plain
        case "cache-ttl":
            trimming = replace(plain.tool_results, mode="cache-ttl", ttl_ms=cache_lifetime_ms)
            own = replace(plain, tool_results=trimming)
        case "cache-aware":
            own = replace(plain, cache_aware=replace(plain.cache_aware, enabled=True))
    return replace(rules, name=name, rules=own)


def _minutes(count: int) -> int:
    return count * 60_000


_DAY = _minutes(24 * 60)

EXAMPLES: Mapping[str, ContextPolicy] = {
    "assistant": ContextPolicy(
        max_messages=100,
        max_tokens=32_000,
        ttl=(
            AgeRule(_minutes(30), "all"),
            AgeRule(_minutes(240), 30),
            AgeRule(_DAY, "summary"),
            AgeRule(None, "none"),
        ),
        summaries=LayerSummaries(max_tokens=1024),
    ),
    "support": ContextPolicy(
        max_messages=30,
        max_tokens=8000,
        ttl=(AgeRule(_minutes(10), "all"), AgeRule(_minutes(60), 10), AgeRule(None, "none")),
    ),
    "group": ContextPolicy(
        max_messages=15,
        max_tokens=4000,
        ttl=(AgeRule(_minutes(5), "all"), AgeRule(_minutes(30), 5), AgeRule(None, "none")),
    ),
}
"""The example configurations: a personal assistant, customer support, a group chat."""
