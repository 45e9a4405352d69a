"""From the settings of an agent to the values that the core takes (spec 3).

Settings say what was written; these say what it comes to: for one kind of chat, with names
of models resolved.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from strandline.context.budget import CompactionSettings
from strandline.context.policy import (
    AgeRule,
    CacheAware,
    ContextPolicy,
    LayerSummaries,
    ProviderCache,
    ToolResultPruning,
)
from strandline.runtime.flush_settings import FLUSH_PROMPT, FLUSH_SYSTEM_PROMPT, FlushSettings
from strandline.settings.context import ContextSettings, TtlRule
from strandline.settings.model import AgentSettings
from strandline.settings.providers import Models

CACHE_LIFETIMES_MS = {"none": 0, "short": 300_000, "long": 3_600_000}
"""How long a provider keeps what it was sent, by `cacheRetention`."""

ResolveModel = Callable[[str], str | None]
"""From a model's name, with or without its provider, to ``provider/model``; None: unknown."""


@dataclass(frozen=True, slots=True)
class CacheChoice:
    """`context.cache`: whether and where views are kept, and when a session's are dropped.

    A view is kept under the settings that it was made by, so no change of those finds it:
    ``config_change`` in `invalidateOn` asks for nothing more.
    """

    enabled: bool = False
    storage: Literal["memory", "redis"] = "memory"
    redis_url: str | None = field(default=None, repr=False)  # it may hold a password
    max_entries: int = 1000
    drop_on_new_message: bool = True


def policy_of(
    own: AgentSettings, *, chat_type: str = "direct", resolve_model: ResolveModel
) -> ContextPolicy:
    """The rules by which an agent's context is pruned in chats of one type."""
    context = own.context
    return ContextPolicy(
        max_messages=_max_messages(context, chat_type),
        max_tokens=context.max_tokens,
        reserved_output_tokens=context.reserved_output_tokens,
        ttl=_ttl(context),
        summaries=_summaries(context, resolve_model),
        tool_results=_tool_results(own),
        cache_aware=CacheAware(context.cache_aware.enabled, context.cache_aware.low_water),
        cache_lifetime_ms=CACHE_LIFETIMES_MS[own.cache_retention],
    )


def compaction_of(own: AgentSettings) -> CompactionSettings:
    """How an agent's context is kept small."""
    settings = own.compaction.model_dump(exclude={"timeout_ms", "memory_flush"})
    return CompactionSettings(**settings)


def flush_of(own: AgentSettings) -> FlushSettings:
    """When and how an agent's memory is flushed."""
    wanted = own.compaction.memory_flush
    return FlushSettings(
        wanted.enabled,
        wanted.soft_threshold_tokens,
        wanted.prompt or FLUSH_PROMPT,
        wanted.system_prompt or FLUSH_SYSTEM_PROMPT,
    )


def provider_cache_of(own: AgentSettings) -> ProviderCache:
    """What the provider is asked to keep of an agent's requests."""
    cache = own.context.provider_cache
    return ProviderCache(
        enabled=cache.enabled,
        system=cache.cache_system_prompt,
        message_count=cache.cacheable_message_count,
        retention=own.cache_retention,
    )


def context_cache_of(own: AgentSettings) -> CacheChoice:
    """Whether and where the views of an agent are kept."""
    cache = own.context.cache
    if cache is None:
        return CacheChoice()
    return CacheChoice(
        enabled=cache.enabled,
        storage=cache.storage,
        redis_url=cache.redis_url.get_secret_value() if cache.redis_url else None,
        max_entries=cache.max_entries,
        drop_on_new_message="new_message" in cache.invalidate_on,
    )


def model_resolver(models: Models) -> ResolveModel:
    """Resolves a name by the models of the settings, then as it stands, then by the catalog."""
    from strandline.models import catalog  # noqa: PLC0415 - only where a model is picked

    refs = [
        (f"{provider_id}/{model.id}", model.id)
        for provider_id, provider in models.providers.items()
        for model in provider.models
    ]
    by_name = {model_id.lower(): ref for ref, model_id in reversed(refs)}  # the first one holds
    by_name |= {ref.lower(): ref for ref, _ in refs}

    def resolve(name: str) -> str | None:
        name = name.strip()
        if name.lower() in by_name:
            return by_name[name.lower()]
        provider_id, _, model_id = name.partition("/")
        if provider_id and model_id:
            return name
        known = catalog.find(name)
        return known.ref if known else None

    return resolve


def model_warning(own: AgentSettings, resolve_model: ResolveModel) -> str | None:
    """A sentence where the model of layer summaries is not known; they are made without then."""
    told = own.context.compaction
    if not told.enabled or told.model is None or resolve_model(told.model) is not None:
        return None
    return (
        f"{told.model!r} of context.compaction.model is no provider/model and not known: "
        "summaries of old messages are made without a model"
    )


def _max_messages(context: ContextSettings, chat_type: str) -> int | None:
    """The override for a kind of chat; a thread (``channel/thread``) has that of threads first."""
    overrides = context.channel_overrides
    own = {
        "direct": overrides.direct,
        "dm": overrides.direct,
        "group": overrides.group,
        "channel": overrides.channel,
        "room": overrides.room,
        "thread": overrides.thread,
    }
    for kind in reversed(chat_type.strip().lower().split("/")):
        limits = own.get(kind)
        if limits is not None and "max_messages" in limits.model_fields_set:
            return limits.max_messages
    return context.max_messages


def _ttl(context: ContextSettings) -> tuple[AgeRule, ...] | None:
    """The rules as they were written; None where age does not count."""
    ttl = context.ttl
    if ttl is None or not ttl.enabled or not ttl.rules:
        return None
    return tuple(map(_age_rule, ttl.rules))


def _age_rule(rule: TtlRule) -> AgeRule:
    return AgeRule(None if rule.max_age == "inf" else rule.max_age, rule.keep)


def _summaries(context: ContextSettings, resolve_model: ResolveModel) -> LayerSummaries:
    told = context.compaction
    return LayerSummaries(
        enabled=told.enabled,
        model=resolve_model(told.model) if told.model else None,
        max_tokens=told.summary_max_tokens,
        prompt=told.summary_prompt,
        cached=told.cache_summary,
        cache_ttl_ms=told.summary_cache_ttl,
    )


def _tool_results(own: AgentSettings) -> ToolResultPruning:
    told = own.context_pruning
    return ToolResultPruning(
        mode=told.mode,
        ttl_ms=told.ttl,
        keep_last_assistants=told.keep_last_assistants,
        soft_trim_ratio=told.soft_trim_ratio,
        hard_clear_ratio=told.hard_clear_ratio,
        min_prunable_chars=told.min_prunable_tool_chars,
        soft_max_chars=told.soft_trim.max_chars,
        soft_head_chars=told.soft_trim.head_chars,
        soft_tail_chars=told.soft_trim.tail_chars,
        hard_clear=told.hard_clear.enabled,
        placeholder=told.hard_clear.placeholder,
        allow=tuple(name.lower() for name in told.tools.allow),
        deny=tuple(name.lower() for name in told.tools.deny),
    )
