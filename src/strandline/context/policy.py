"""The rules by which a context is pruned: what an operator sets, as values.

An unset layer is off. Times are milliseconds, sizes are tokens as we count them.
Source: spec 3, Pruning in four layers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Keep = Literal["all", "summary", "none"] | int
"""What is kept of an age window: all of it, its newest N messages, a summary, nothing."""

SUMMARY_PROMPT = (
    "Please compress the following conversation content into a concise summary, preserving "
    "key information and user preferences:"
)
"""The prompt of layer 4 where none is set, in the words of the format's documentation."""

CLEARED = "[Old tool result content cleared]"
"""What stands in place of a tool result that was cleared, where nothing else is set."""


@dataclass(frozen=True, slots=True)
class AgeRule:
    """One window of layer 3: messages up to `max_age_ms` old (None: any age)."""

    max_age_ms: int | None
    keep: Keep


@dataclass(frozen=True, slots=True)
class LayerSummaries:
    """Layer 4, `context.compaction`: how what rule "summary" selected is told.

    `enabled` False treats "summary" as "none". `model` is ``provider/model``; None for the
    offline summariser. A cached summary is used for `cache_ttl_ms`.
    """

    enabled: bool = True
    model: str | None = None
    max_tokens: int = 512
    prompt: str = SUMMARY_PROMPT
    cached: bool = True
    cache_ttl_ms: int = 3_600_000


@dataclass(frozen=True, slots=True)
class ToolResultPruning:
    """`contextPruning`: old tool results are trimmed when the provider's cache is lost anyway.

    `ttl_ms` is how long the provider's cache is taken to live after a call. Ratios are of the
    budget; characters are of a result's text. `allow` and `deny` are names of tools, in lower
    case, `*` standing for anything; an empty `allow` is every tool.
    """

    mode: Literal["off", "cache-ttl"] = "off"
    ttl_ms: int = 300_000
    keep_last_assistants: int = 3
    soft_trim_ratio: float = 0.3
    hard_clear_ratio: float = 0.5
    min_prunable_chars: int = 50_000
    soft_max_chars: int = 4000
    soft_head_chars: int = 1500
    soft_tail_chars: int = 1500
    hard_clear: bool = True
    placeholder: str = CLEARED
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CacheAware:
    """`context.cacheAware`: cuts stay where they are while the provider's cache lives.

    A limit that is reached is trimmed to the share `low_water` of it, so that it moves seldom.
    """

    enabled: bool = False
    low_water: float = 0.8


@dataclass(frozen=True, slots=True)
class ProviderCache:
    """`context.providerCache` and `cacheRetention`: what the provider is asked to keep.

    `system` is the tools and the system prompt. Of the messages, the newest is marked, and the
    one `message_count` before it. With `retention` "none" nothing is asked for.
    """

    enabled: bool = True
    system: bool = True
    message_count: int = 10
    retention: Literal["none", "short", "long"] = "short"


@dataclass(frozen=True, slots=True)
class ContextPolicy:
    """All rules of one agent, for one kind of chat.

    `ttl` None is layer 3 switched off; its rules stand as they were written. `cache_lifetime_ms`
    is how long the provider keeps what it was sent (`cacheRetention`), counted from the last call.
    """

    max_messages: int | None = None
    max_tokens: int | None = None
    reserved_output_tokens: int = 0
    ttl: tuple[AgeRule, ...] | None = None
    summaries: LayerSummaries = field(default_factory=LayerSummaries)
    tool_results: ToolResultPruning = field(default_factory=ToolResultPruning)
    cache_aware: CacheAware = field(default_factory=CacheAware)
    cache_lifetime_ms: int = 300_000

    @property
    def prunes(self) -> bool:
        """Whether any rule can leave out, shorten or summarise a message."""
        layers = (self.max_messages, self.max_tokens, self.ttl)
        return any(layer is not None for layer in layers) or self.tool_results.mode != "off"
