"""From settings to the rules of a context: every example of the format, every default."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from strandline.context.policy import (
    AgeRule,
    CacheAware,
    ContextPolicy,
    Keep,
    LayerSummaries,
    ProviderCache,
    ToolResultPruning,
)
from strandline.settings import AgentSettings, Settings, load_context_file
from strandline.wiring.policies import (
    CacheChoice,
    context_cache_of,
    model_resolver,
    model_warning,
    policy_of,
    provider_cache_of,
)

ROOT = Path(__file__).parents[2]
SEED = ROOT / "../shared/seeds/context-pruning-and-cache-ttl.ja.txt"
MINUTE, HOUR = 60_000, 3_600_000
RESOLVE = model_resolver(Settings().models)


def settings_of(folder: Path, text: str, environ: dict[str, str] | None = None) -> Settings:
    path = folder / "any.json5"
    path.write_text(text, encoding="utf-8")
    result = load_context_file(path, environ or {})
    assert result.warnings == ()
    return result.settings


def own_of(folder: Path, text: str, environ: dict[str, str] | None = None) -> AgentSettings:
    return settings_of(folder, text, environ).agent("my-agent")


def policy(own: AgentSettings, chat_type: str = "direct") -> ContextPolicy:
    return policy_of(own, chat_type=chat_type, resolve_model=RESOLVE)


def ages(*rules: tuple[int | None, Keep]) -> tuple[AgeRule, ...]:
    return tuple(AgeRule(age, keep) for age, keep in rules)


# -- the three examples of the format ----------------------------------------------------------

ASSISTANT = """
{
  context: {
    maxMessages: 100,
    maxTokens: 32000,
    ttl: {
      enabled: true,
      rules: [
        { maxAge: "30m", keep: "all" },
        { maxAge: "4h", keep: 30 },
        { maxAge: "24h", keep: "summary" },
        { maxAge: "inf", keep: "none" }
      ]
    },
    compaction: { enabled: true, summaryMaxTokens: 1024 }
  }
}
"""
CUSTOMERS = """
{
  context: {
    maxMessages: 30,
    maxTokens: 8000,
    ttl: {
      enabled: true,
      rules: [
        { maxAge: "10m", keep: "all" },
        { maxAge: "1h", keep: 10 },
        { maxAge: "inf", keep: "none" }
      ]
    }
  }
}
"""
GROUP = """
{
  context: {
    maxMessages: 15,
    maxTokens: 4000,
    ttl: {
      enabled: true,
      rules: [
        { maxAge: "5m", keep: "all" },
        { maxAge: "30m", keep: 5 },
        { maxAge: "inf", keep: "none" }
      ]
    }
  }
}
"""
EXAMPLES = [
    (
        ASSISTANT,
        ContextPolicy(
            max_messages=100,
            max_tokens=32_000,
            ttl=ages((30 * MINUTE, "all"), (4 * HOUR, 30), (24 * HOUR, "summary"), (None, "none")),
            summaries=LayerSummaries(max_tokens=1024),
        ),
    ),
    (
        CUSTOMERS,
        ContextPolicy(
            max_messages=30,
            max_tokens=8000,
            ttl=ages((10 * MINUTE, "all"), (HOUR, 10), (None, "none")),
        ),
    ),
    (
        GROUP,
        ContextPolicy(
            max_messages=15,
            max_tokens=4000,
            ttl=ages((5 * MINUTE, "all"), (30 * MINUTE, 5), (None, "none")),
        ),
    ),
]


@pytest.mark.parametrize(("text", "expected"), EXAMPLES, ids=["assistant", "customers", "group"])
def test_the_three_examples_of_the_format_are_these_rules(
    tmp_path: Path, text: str, expected: ContextPolicy
) -> None:
    assert policy(own_of(tmp_path, text)) == expected


# -- its other snippets ------------------------------------------------------------------------

MESSAGES = """{ agents: { "my-agent": { context: {
    maxMessages: 50,
    channelOverrides: {
      dm: { maxMessages: 80 },
      group: { maxMessages: 20 }
    }
} } } }"""
TOKENS = """{ agents: { "my-agent": { context: {
    maxTokens: 16000,
    reservedOutputTokens: 4000,
    tokenCounter: "tiktoken"
} } } }"""
TTL = """{ agents: { "my-agent": { context: {
    ttl: {
      enabled: true,
      rules: [
        { maxAge: "5m", keep: "all" },
        { maxAge: "1h", keep: 20 },
        { maxAge: "6h", keep: 10 },
        { maxAge: "24h", keep: "summary" },
        { maxAge: "inf", keep: "none" }
      ]
    }
} } } }"""
COMPACTION = """{ agents: { "my-agent": { context: {
    compaction: {
      enabled: true,
      model: "gpt-4o-mini",
      summaryMaxTokens: 512,
      summaryPrompt: "Please compress the following conversation content into a concise summary, \
preserving key information and user preferences:",
      cacheSummary: true,
      summaryCacheTTL: "1h"
    }
} } } }"""
CACHE = """{ agents: { "my-agent": { context: {
    cache: {
      enabled: true,
      invalidateOn: [
        "new_message",
        "config_change"
      ],
      storage: "memory",
      maxEntries: 1000
    }
} } } }"""
PROVIDER_CACHE = """{ agents: { "my-agent": { context: {
    providerCache: {
      enabled: true,
      cacheSystemPrompt: true,
      cacheableMessageCount: 10
    }
} } } }"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (MESSAGES, ContextPolicy(max_messages=80)),
        (TOKENS, ContextPolicy(max_tokens=16_000, reserved_output_tokens=4000)),
        (
            TTL,
            ContextPolicy(
                ttl=ages(
                    (5 * MINUTE, "all"),
                    (HOUR, 20),
                    (6 * HOUR, 10),
                    (24 * HOUR, "summary"),
                    (None, "none"),
                )
            ),
        ),
        (COMPACTION, ContextPolicy(summaries=LayerSummaries(model="openai/gpt-4o-mini"))),
        (CACHE, ContextPolicy()),
        (PROVIDER_CACHE, ContextPolicy()),
    ],
    ids=["messages", "tokens", "ttl", "compaction", "cache", "providerCache"],
)
def test_the_snippets_of_the_format_are_these_rules(
    tmp_path: Path, text: str, expected: ContextPolicy
) -> None:
    own = own_of(tmp_path, text)
    assert policy(own) == expected
    assert provider_cache_of(own) == ProviderCache()
    assert context_cache_of(own) == CacheChoice(enabled=text is CACHE)


def test_what_the_formats_documentation_quotes_is_what_is_tested_here(tmp_path: Path) -> None:
    """With its comments, as it stands there; alerts belong to no context."""
    if not SEED.exists():
        pytest.skip("the documentation of the format is not here")
    found = re.findall(r"^\{\n.+?^\}$", SEED.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    quoted = [text for text in found if "monitoring:" not in text]
    ours = [MESSAGES, TOKENS, TTL, COMPACTION, CACHE, PROVIDER_CACHE, ASSISTANT, CUSTOMERS, GROUP]
    assert len(quoted) == len(ours)
    for theirs, own in zip(quoted, ours, strict=True):
        assert settings_of(tmp_path, theirs) == settings_of(tmp_path, own)


# -- defaults and single values ----------------------------------------------------------------


def test_the_defaults_of_the_settings_are_those_of_the_core() -> None:
    own = AgentSettings()
    assert policy(own) == ContextPolicy()
    assert provider_cache_of(own) == ProviderCache()
    assert context_cache_of(own) == CacheChoice()
    assert not policy(own).prunes


def test_every_value_arrives(tmp_path: Path) -> None:
    own = own_of(
        tmp_path,
        """{
          context: {
            compaction: { enabled: false, model: "a/b", summaryMaxTokens: 9, summaryPrompt: "p",
              cacheSummary: false, summaryCacheTTL: 5 },
            cacheAware: { enabled: true, lowWater: 0.5 },
            providerCache: { enabled: false, cacheSystemPrompt: false, cacheableMessageCount: 3 },
            cache: { storage: "redis", redisUrl: "${URL}", invalidateOn: [], maxEntries: 7 },
          },
          contextPruning: { mode: "cache-ttl", ttl: "1h", keepLastAssistants: 1,
            softTrimRatio: 0.1, hardClearRatio: 1, minPrunableToolChars: 2,
            softTrim: { maxChars: 30, headChars: 10, tailChars: 20 },
            hardClear: { enabled: false, placeholder: "gone" },
            tools: { allow: ["Read*"], deny: ["EXEC"] } },
          cacheRetention: "long",
        }""",
        {"URL": "redis://:secret@cache"},
    )
    assert policy(own) == ContextPolicy(
        summaries=LayerSummaries(
            enabled=False, model="a/b", max_tokens=9, prompt="p", cached=False, cache_ttl_ms=5
        ),
        tool_results=ToolResultPruning(
            mode="cache-ttl",
            ttl_ms=HOUR,
            keep_last_assistants=1,
            soft_trim_ratio=0.1,
            hard_clear_ratio=1,
            min_prunable_chars=2,
            soft_max_chars=30,
            soft_head_chars=10,
            soft_tail_chars=20,
            hard_clear=False,
            placeholder="gone",
            allow=("read*",),
            deny=("exec",),
        ),
        cache_aware=CacheAware(enabled=True, low_water=0.5),
        cache_lifetime_ms=HOUR,
    )
    assert provider_cache_of(own) == ProviderCache(
        enabled=False, system=False, message_count=3, retention="long"
    )
    choice = context_cache_of(own)
    assert choice == CacheChoice(
        enabled=True,
        storage="redis",
        redis_url="redis://:secret@cache",
        max_entries=7,
        drop_on_new_message=False,
    )
    assert "secret" not in repr(choice)


@pytest.mark.parametrize(
    ("chat_type", "expected"),
    [("direct", 80), ("dm", 80), ("Group", 20), ("room", 50), ("thread", None), ("other", 50)],
)
def test_a_kind_of_chat_has_its_own_number_of_messages_or_the_general_one(
    tmp_path: Path, chat_type: str, expected: int | None
) -> None:
    overrides: dict[str, Any] = {
        "direct": {"maxMessages": 80},
        "group": {"maxMessages": 20},
        "channel": {},
        "thread": {"maxMessages": None},
    }
    text = json.dumps({"context": {"maxMessages": 50, "channelOverrides": overrides}})
    assert policy(own_of(tmp_path, text), chat_type).max_messages == expected


def test_rules_that_are_switched_off_or_empty_are_no_rules(tmp_path: Path) -> None:
    rule = '{ maxAge: "inf", keep: 1 }'
    on = own_of(tmp_path, f"{{ context: {{ ttl: {{ rules: [{rule}] }} }} }}")
    off = own_of(tmp_path, f"{{ context: {{ ttl: {{ enabled: false, rules: [{rule}] }} }} }}")
    assert policy(on).ttl == (AgeRule(None, 1),)
    assert policy(off).ttl is None
    path = tmp_path / "empty.json5"
    path.write_text("{ context: { ttl: { enabled: true } } }")
    assert policy(load_context_file(path, {}).settings.agent("main")).ttl is None


def test_rules_stand_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "unsorted.json5"
    rules = '[{ maxAge: "2h", keep: 1 }, { maxAge: "1h", keep: "all" }]'
    path.write_text(f"{{ context: {{ ttl: {{ rules: {rules} }} }} }}")
    loaded = load_context_file(path, {})
    assert loaded.warnings
    assert policy(loaded.settings.agent("main")).ttl == ages((2 * HOUR, 1), (HOUR, "all"))


@pytest.mark.parametrize(
    ("retention", "lifetime_ms"), [("none", 0), ("short", 5 * MINUTE), ("long", HOUR)]
)
def test_the_cache_lives_as_long_as_the_retention_says(
    tmp_path: Path, retention: str, lifetime_ms: int
) -> None:
    own = own_of(tmp_path, f'{{ cacheRetention: "{retention}" }}')
    assert policy(own) == replace(ContextPolicy(), cache_lifetime_ms=lifetime_ms)


# -- names of models ---------------------------------------------------------------------------


def test_a_name_without_its_provider_is_one_of_the_settings_or_of_the_known_models(
    tmp_path: Path,
) -> None:
    text = """{ models: { providers: {
      mine: { baseUrl: "u", models: [
        { id: "gpt-4o", contextWindow: 1, maxTokens: 1 },
        { id: "meta/Llama", contextWindow: 1, maxTokens: 1 } ] },
      yours: { baseUrl: "u", models: [
        { id: "gpt-4o", contextWindow: 1, maxTokens: 1 } ] } } } }"""
    resolve = model_resolver(settings_of(tmp_path, text).models)
    assert resolve("gpt-4o") == "mine/gpt-4o"
    assert resolve("yours/gpt-4o") == "yours/gpt-4o"
    assert resolve("meta/llama") == "mine/meta/Llama"
    assert resolve(" GPT-4o-mini ") == "openai/gpt-4o-mini"
    assert resolve("any/thing") == "any/thing"
    assert [resolve(name) for name in ("nothing", "", " ", "/x", "x/")] == [None] * 5


def test_a_model_that_nobody_knows_is_told_and_done_without(tmp_path: Path) -> None:
    own = own_of(tmp_path, '{ context: { compaction: { model: "gpt-nine" } } }')
    assert policy(own).summaries.model is None
    warning = model_warning(own, RESOLVE)
    assert warning is not None
    assert warning.startswith("'gpt-nine' of context.compaction.model is no provider/model")
    for silent in ("{ model: 'gpt-4o-mini' }", "{ model: 'x', enabled: false }", "{}"):
        own = own_of(tmp_path, f"{{ context: {{ compaction: {silent} }} }}")
        assert model_warning(own, RESOLVE) is None


@pytest.mark.parametrize(
    ("kind", "most"),
    [("direct", 80), ("group", 20), ("group/thread", 5), ("channel/thread", 5), ("channel", 50)],
)
def test_a_thread_has_its_own_limit_and_else_that_of_what_it_is_in(
    tmp_path: Path, kind: str, most: int
) -> None:
    own = own_of(tmp_path, MESSAGES.replace("group:", "thread: { maxMessages: 5 }, group:"))
    assert policy_of(own, chat_type=kind, resolve_model=str).max_messages == most
    without = own_of(tmp_path, MESSAGES)
    assert policy_of(without, chat_type="group/thread", resolve_model=str).max_messages == 20
