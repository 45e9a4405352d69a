"""The settings of what the model sees of a conversation (spec 3, Pruning in four layers, Caches).

A layer that is not written is off. How the values are meant is told by the values of
`strandline.context.policy`, which `strandline.wiring.policies` makes from these.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    AliasChoices,
    BeforeValidator,
    Field,
    PlainValidator,
    SecretStr,
    field_validator,
    model_validator,
)

from strandline.context.policy import SUMMARY_PROMPT
from strandline.errors import ConfigError
from strandline.settings.parts import MOST_ITEMS, Count, DurationMs, Name, Part, Ratio, Words
from strandline.settings.secrets import SecretText
from strandline.settings.units import DURATION_WORDS, duration_ms

TokenCounter = Literal["tiktoken", "heuristic"]


def _age(value: object) -> object:
    if isinstance(value, str) and value.strip().lower() == "inf":
        return "inf"
    try:
        return duration_ms(value, "")
    except ConfigError:
        raise ValueError(f'expected {DURATION_WORDS}, or "inf"') from None


def _keep(value: object) -> object:
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_KEPT
    if is_count or value in ("all", "summary", "none"):
        return value
    raise ValueError('expected "all", "summary", "none" or a whole number of at least 0')


_MOST_KEPT = 1_000_000_000

MaxAge = Annotated[int | Literal["inf"], BeforeValidator(_age), Words('duration or "inf"')]
Keep = Annotated[
    int | Literal["all", "summary", "none"],
    PlainValidator(_keep),
    Words("all, summary, none or a whole number"),
]


class ChatLimits(Part):
    """What is different in one kind of chat."""

    max_messages: Count | None = Field(
        default=None, description="In chats of this kind, instead of maxMessages."
    )


class ChannelOverrides(Part):
    """What is different by the kind of chat; `dm` is another word for `direct`."""

    direct: ChatLimits | None = Field(
        default=None,
        validation_alias=AliasChoices("direct", "dm"),
        description="Chats with one person.",
    )
    group: ChatLimits | None = Field(default=None, description="Group chats.")
    channel: ChatLimits | None = Field(default=None, description="Channels.")
    room: ChatLimits | None = Field(default=None, description="Rooms.")
    thread: ChatLimits | None = Field(default=None, description="Threads.")

    @model_validator(mode="before")
    @classmethod
    def _said_once(cls, value: Any) -> Any:
        if isinstance(value, dict) and {"direct", "dm"} <= set(value):
            raise ValueError("dm and direct are the same; expected one of them")
        return value


class TtlRule(Part):
    """One window of age: from the age of the rule before up to `maxAge`."""

    max_age: MaxAge = Field(description="Up to what age of a message the rule holds.")
    keep: Keep = Field(
        description="What of that age is kept: all, the newest so many, a summary, nothing."
    )


class TtlSettings(Part):
    """What is kept by age. What is older than the last rule is left out."""

    enabled: bool = Field(default=True, description="Whether the rules hold.")
    rules: Annotated[list[TtlRule], Field(max_length=MOST_ITEMS)] = Field(
        default=[], description="Windows of age, the youngest first."
    )


class LayerSummarySettings(Part):
    """How what a rule keeps as a summary is told."""

    enabled: bool = Field(
        default=True, description='Whether keep "summary" makes one; if not, it is "none".'
    )
    model: Name | None = Field(
        default=None,
        description="The model that summarises, its provider may be left out; unset, none does.",
    )
    summary_max_tokens: Annotated[Count, Field(ge=1)] = Field(
        default=512, description="Tokens of the longest summary."
    )
    summary_prompt: Name = Field(default=SUMMARY_PROMPT, description="What the model is asked.")
    cache_summary: bool = Field(
        default=True, description="Whether a summary is used again for the same messages."
    )
    summary_cache_ttl: DurationMs = Field(
        default=3_600_000, alias="summaryCacheTTL", description="For how long it is used again."
    )


class ContextCacheSettings(Part):
    """Views that were made already."""

    enabled: bool = Field(default=True, description="Whether views are kept.")
    invalidate_on: Annotated[
        list[Literal["new_message", "config_change"]], Field(max_length=MOST_ITEMS)
    ] = Field(
        default=["new_message", "config_change"],
        description="When a session's views are dropped at once.",
    )
    storage: Literal["memory", "redis"] = Field(
        default="memory", description="Where views are kept."
    )
    redis_url: SecretText | None = Field(
        default=None, description='The address of the Redis, or "${NAME}"; it may hold a password.'
    )
    max_entries: Annotated[Count, Field(ge=1)] = Field(
        default=1000, description="Views at most; the one not used for longest goes first."
    )

    @field_validator("redis_url")
    @classmethod
    def _is_an_address(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not _is_redis(value.get_secret_value()):
            raise ValueError("expected an address such as redis://host:6379/0")
        return value


def _is_redis(url: str) -> bool:
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises for one that is no port
    except ValueError:
        return False
    return bool(parts.path if parts.scheme == "unix" else parts.hostname) and parts.scheme in {
        "redis",
        "rediss",
        "unix",
    }


class ProviderCacheSettings(Part):
    """What the provider is asked to keep of a request."""

    enabled: bool = Field(
        default=True, description="Whether the provider is asked to keep anything."
    )
    cache_system_prompt: bool = Field(
        default=True, description="Whether that includes the tools and the system prompt."
    )
    cacheable_message_count: Count = Field(
        default=10,
        description="So many messages before the newest another point to resume from is marked.",
    )


class CacheAwareSettings(Part):
    """Trading exact limits for a cache that hits more often."""

    enabled: bool = Field(
        default=False, description="Whether cuts stay while the provider's cache lives."
    )
    low_water: Annotated[Ratio, Field(gt=0)] = Field(
        default=0.8, description="The share of a limit to which it is trimmed when it is reached."
    )


class ContextSettings(Part):
    """What the model sees of a conversation."""

    max_messages: Count | None = Field(
        default=None, description="The newest messages that are sent; unset, all."
    )
    channel_overrides: ChannelOverrides = Field(
        default=ChannelOverrides(), description="What is different by the kind of chat."
    )
    max_tokens: Count | None = Field(
        default=None,
        description="Tokens of the messages that are sent, without the system prompt; unset, all.",
    )
    reserved_output_tokens: Count = Field(
        default=0, description="Tokens kept free for the answer, where compaction keeps fewer."
    )
    token_counter: TokenCounter | None = Field(
        default=None,
        description="How this agent's tokens are counted; unset, as tokenCounter says.",
    )
    ttl: TtlSettings | None = Field(default=None, description="What is kept by age.")
    compaction: LayerSummarySettings = Field(
        default=LayerSummarySettings(), description="How what is kept as a summary is told."
    )
    cache: ContextCacheSettings | None = Field(
        default=None, description="Views that were made already."
    )
    provider_cache: ProviderCacheSettings = Field(
        default=ProviderCacheSettings(), description="What the provider is asked to keep."
    )
    cache_aware: CacheAwareSettings = Field(
        default=CacheAwareSettings(), description="Trading limits for a cache that hits."
    )
