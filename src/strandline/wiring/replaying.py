"""What a replay is given: models with their prices, counters, rules from settings files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from strandline.context.budget import CompactionSettings
from strandline.context.tokens import MessageTokens
from strandline.errors import ConfigError
from strandline.models import catalog
from strandline.models.tokenizer import counter
from strandline.replay.policies import Policy
from strandline.runtime.model import ModelInfo
from strandline.settings import load_context_file
from strandline.wiring.policies import model_resolver, policy_of, provider_cache_of
from strandline.wiring.providers import Providers


def priced_model(providers: Providers, ref: str) -> ModelInfo | None:
    """What is known of a model, whether it can be reached from here or not; None: nothing."""
    try:
        return providers.info(ref)
    except ConfigError:
        return catalog.find(ref)


def message_tokens(token_counter: str) -> MessageTokens:
    """Counts messages as that setting says."""
    return MessageTokens(counter(token_counter))


def policy_in(
    path: Path,
    environ: Mapping[str, str],
    providers: Providers,
    *,
    agent_id: str,
    chat_type: str,
) -> tuple[Policy, tuple[str, ...]]:
    """The rules of an agent in a settings file, under the file's name; and what to mention.

    Raises `ConfigError`.
    """
    loaded = load_context_file(path, environ)
    own = loaded.settings.agent(agent_id)
    resolve = model_resolver(loaded.settings.models)
    rules = policy_of(own, chat_type=chat_type, resolve_model=resolve)
    told_by = rules.summaries.model
    models = replace(providers, settings=loaded.settings.models)
    model = priced_model(models, told_by) or priced_model(providers, told_by) if told_by else None
    warnings = loaded.warnings
    if told_by and model is None:
        rules = replace(rules, summaries=replace(rules.summaries, model=None))
        warnings = (
            *warnings,
            f"{path}: nothing is known of the prices of {told_by}: its summaries are taken as free",
        )
    compaction = own.compaction.model_dump(exclude={"timeout_ms", "memory_flush"})
    policy = Policy(
        str(path),
        rules,
        CompactionSettings(**compaction),
        model.prices if model else None,
        provider_cache_of(own).message_count,
    )
    return policy, warnings
