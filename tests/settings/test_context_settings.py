"""The settings of context: what is understood, what is refused with its key, what is doubtful."""

from __future__ import annotations

import json
import traceback
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.errors import ConfigError
from strandline.settings import LoadedSettings, Settings, load, load_context_file, setting_keys
from strandline.settings.units import DURATION_WORDS

SECRET = "hunter2"
TTL = "agents.defaults.context.ttl.rules"


def loaded(folder: Path, name: str = "strandline.json", **defaults: Any) -> LoadedSettings:
    """Settings whose `agents.defaults` are these."""
    (folder / name).write_text(json.dumps({"agents": {"defaults": defaults}}), encoding="utf-8")
    return load(folder, {"REDIS": f"redis://:{SECRET}@cache"})


def refused(folder: Path, **defaults: Any) -> str:
    """The message of the error behind its line and column."""
    with pytest.raises(ConfigError) as caught:
        loaded(folder, **defaults)
    assert caught.value.remedy
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    return str(caught.value).split(": ", 1)[1]


def rules(*written: tuple[object, object]) -> dict[str, Any]:
    return {"rules": [{"maxAge": age, "keep": keep} for age, keep in written]}


# -- what is understood


def test_nothing_is_left_out_unless_something_is_written(tmp_path: Path) -> None:
    own = loaded(tmp_path).settings.agent("main")
    context = own.context
    assert (context.max_messages, context.max_tokens, context.ttl) == (None, None, None)
    assert context.cache is None
    assert own.context_pruning.mode == "off"
    assert not context.cache_aware.enabled
    assert own.cache_retention == "short"


def test_a_layer_that_is_written_is_on_unless_it_says_otherwise(tmp_path: Path) -> None:
    context = loaded(tmp_path, context={"ttl": rules(("inf", 1)), "cache": {}})
    assert context.settings.agent("main").context.ttl.enabled  # type: ignore[union-attr]
    assert context.settings.agent("main").context.cache.enabled  # type: ignore[union-attr]


def test_an_agent_overrides_key_by_key_replaces_lists_and_takes_away_with_null(
    tmp_path: Path,
) -> None:
    defaults = {
        "context": {
            "maxMessages": 50,
            "maxTokens": 9000,
            "channelOverrides": {"dm": {"maxMessages": 80}, "group": {"maxMessages": 20}},
            "ttl": rules(("5m", "all"), ("inf", 3)),
            "cache": {"storage": "redis", "redisUrl": "${REDIS}"},
        },
        "contextPruning": {"softTrim": {"maxChars": 9000}},
    }
    own = {
        "context": {
            "maxTokens": None,
            "channelOverrides": {"direct": {"maxMessages": 7}},
            "ttl": rules(("inf", "none")),
        },
        "contextPruning": {"mode": "cache-ttl", "softTrim": {"headChars": 5000}},
    }
    file = tmp_path / "strandline.json"
    file.write_text(json.dumps({"agents": {"defaults": defaults, "Clerk": own}}))
    clerk = load(tmp_path, {"REDIS": "redis://cache"}).settings.agent("clerk")
    assert (clerk.context.max_messages, clerk.context.max_tokens) == (50, None)
    overrides = clerk.context.channel_overrides
    assert overrides.direct is not None
    assert overrides.group is not None
    assert (overrides.direct.max_messages, overrides.group.max_messages) == (7, 20)
    assert clerk.context.ttl is not None
    assert [(rule.max_age, rule.keep) for rule in clerk.context.ttl.rules] == [("inf", "none")]
    assert clerk.context.cache is not None
    assert clerk.context.cache.redis_url is not None
    assert clerk.context.cache.redis_url.get_secret_value() == "redis://cache"
    pruning = clerk.context_pruning
    assert (pruning.mode, pruning.soft_trim.head_chars) == ("cache-ttl", 5000)
    assert pruning.soft_trim.max_chars == 9000


def test_an_agent_may_count_tokens_in_its_own_way(tmp_path: Path) -> None:
    agents = {"main": {}, "clerk": {"context": {"tokenCounter": "heuristic"}}}
    (tmp_path / "strandline.json").write_text(json.dumps({"agents": agents}))
    result = load(tmp_path, {}).settings
    assert (result.counter_of("main"), result.counter_of("clerk")) == ("tiktoken", "heuristic")


def test_openclaws_tool_result_pruning_is_understood_where_it_stands(tmp_path: Path) -> None:
    pruning = {
        "mode": "cache-ttl",
        "ttl": "1h",
        "softTrim": {"maxChars": 100, "headChars": 40, "tailChars": 60},
        "hardClear": {"enabled": False, "placeholder": "gone"},
        "tools": {"deny": ["browser", "canvas"]},
    }
    result = loaded(tmp_path, "openclaw.json", contextPruning=pruning)
    assert result.warnings == ()
    told = result.settings.agent("main").context_pruning
    assert told.ttl == 3_600_000
    assert told.tools.deny == ["browser", "canvas"]


def test_the_password_of_a_redis_is_shown_nowhere(tmp_path: Path) -> None:
    for url in ("${REDIS}", f"redis://:{SECRET}@cache:6379/0", f"unix://:{SECRET}@/run/redis"):
        result = loaded(tmp_path, context={"cache": {"storage": "redis", "redisUrl": url}})
        assert SECRET not in repr(result)
        assert SECRET not in str(result.settings.model_dump())
        assert SECRET not in repr(result.settings.agent("main"))


# -- what is refused


CONTEXT, PRUNING = "agents.defaults.context", "agents.defaults.contextPruning"
KEEP = 'expected "all", "summary", "none" or a whole number of at least 0'
AGE = f'expected {DURATION_WORDS}, or "inf"'
REDIS = {"cache": {"storage": "redis"}}
ADDRESS = "expected an address such as redis://host:6379/0"
MANY = [("inf", 1)] * 101
UNTOLD = 'is "summary" while context.compaction.enabled is false: it is taken as "none"'


@pytest.mark.parametrize(
    ("context", "key", "said"),
    [
        ({"maxMessages": -1}, "maxMessages", "expected a number of at least 0"),
        ({"maxMessages": 10**400}, "maxMessages", "expected a number of at most 1000000000"),
        ({"maxMessages": 1e300}, "maxMessages", "expected a whole number"),
        ({"maxMessages": float("nan")}, "maxMessages", "expected a whole number"),
        ({"maxTokens": "many"}, "maxTokens", "expected a whole number"),
        ({"reservedOutputTokens": True}, "reservedOutputTokens", "expected a whole number"),
        ({"tokenCounter": "abacus"}, "tokenCounter", "expected 'tiktoken' or 'heuristic'"),
        ({"maxMesages": 1}, "maxMesages", "unknown key: did you mean 'maxMessages'?"),
        (
            {"channelOverrides": {"dm": {}, "direct": {}}},
            "channelOverrides",
            "dm and direct are the same; expected one of them",
        ),
        (
            {"channelOverrides": {"dm": {"maxMessages": -1}}},
            "channelOverrides.dm.maxMessages",
            "expected a number of at least 0",
        ),
        (
            {"channelOverrides": {"groop": {}}},
            "channelOverrides.groop",
            "unknown key: did you mean 'group'?",
        ),
        ({"ttl": rules(("soon", 1))}, "ttl.rules[0].maxAge", AGE),
        ({"ttl": rules((-5, 1))}, "ttl.rules[0].maxAge", AGE),
        ({"ttl": rules((float("inf"), 1))}, "ttl.rules[0].maxAge", AGE),
        ({"ttl": rules((True, 1))}, "ttl.rules[0].maxAge", AGE),
        ({"ttl": rules(("5m", "some"))}, "ttl.rules[0].keep", KEEP),
        ({"ttl": rules(("5m", -1))}, "ttl.rules[0].keep", KEEP),
        ({"ttl": rules(("5m", 1.5))}, "ttl.rules[0].keep", KEEP),
        ({"ttl": rules(("5m", True))}, "ttl.rules[0].keep", KEEP),
        ({"ttl": rules(("5m", 10**400))}, "ttl.rules[0].keep", KEEP),
        ({"ttl": {"rules": [{"maxAge": "5m"}]}}, "ttl.rules[0].keep", "missing"),
        ({"ttl": rules(*MANY)}, "ttl.rules", "expected at most 100 items"),
        ({"ttl": {"rules": {}}}, "ttl.rules", "expected a list"),
        ({"ttl": []}, "ttl", "expected an object"),
        (
            {"compaction": {"summaryMaxTokens": 0}},
            "compaction.summaryMaxTokens",
            "expected a number of at least 1",
        ),
        (
            {"compaction": {"summaryCacheTtl": "1h"}},
            "compaction.summaryCacheTtl",
            "unknown key: did you mean 'summaryCacheTTL'?",
        ),
        (
            {"cache": {"invalidateOn": ["full_moon"]}},
            "cache.invalidateOn[0]",
            "expected 'new_message' or 'config_change'",
        ),
        ({"cache": {"maxEntries": 0}}, "cache.maxEntries", "expected a number of at least 1"),
        (REDIS, "cache.redisUrl", "missing where storage is redis"),
        ({"cache": {"redisUrl": f"http://{SECRET}@x"}}, "cache.redisUrl", ADDRESS),
        ({"cache": {"redisUrl": f"redis://{SECRET}@x:nine"}}, "cache.redisUrl", ADDRESS),
        ({"cache": {"redisUrl": f"redis://[{SECRET}"}}, "cache.redisUrl", ADDRESS),
        ({"cache": {"redisUrl": {"url": SECRET}}}, "cache.redisUrl", "expected text"),
        (
            {"cache": {"redisUrl": "${NOT_SET}"}},
            "cache.redisUrl",
            "the environment variable NOT_SET is not set",
        ),
        (
            {"providerCache": {"cacheableMessageCount": -1}},
            "providerCache.cacheableMessageCount",
            "expected a number of at least 0",
        ),
        ({"cacheAware": {"lowWater": 0}}, "cacheAware.lowWater", "expected a number above 0"),
        (
            {"cacheAware": {"lowWater": 1.1}},
            "cacheAware.lowWater",
            "expected a number of at most 1",
        ),
        ({"cacheAware": {"lowWater": float("nan")}}, "cacheAware.lowWater", "expected a number"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_context_cannot_be_is_refused_with_its_key(
    tmp_path: Path, context: dict[str, Any], key: str, said: str
) -> None:
    assert refused(tmp_path, context=context).startswith(f"{CONTEXT}.{key}: {said}")


@pytest.mark.parametrize(
    ("pruning", "key", "said"),
    [
        ({"mode": "always"}, "mode", "expected 'off' or 'cache-ttl'"),
        ({"ttl": "soon"}, "ttl", f"expected {DURATION_WORDS}"),
        ({"softTrimRatio": -0.1}, "softTrimRatio", "expected a number of at least 0"),
        ({"hardClearRatio": 1.5}, "hardClearRatio", "expected a number of at most 1"),
        ({"hardClearRatio": 10**400}, "hardClearRatio", "expected a number"),
        ({"softTrim": {"headChars": -1}}, "softTrim.headChars", "expected a number of at least 0"),
        (
            {"softTrim": {"headChars": 3000}},
            "softTrim.maxChars",
            "expected at least headChars and tailChars together",
        ),
        ({"hardClear": {"placeholder": ""}}, "hardClear.placeholder", "expected text"),
        ({"tools": {"allow": ["read", ""]}}, "tools.allow[1]", "expected text that is not empty"),
        ({"tools": {"deny": ["x"] * 101}}, "tools.deny", "expected at most 100 items"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_context_pruning_cannot_be_is_refused_with_its_key(
    tmp_path: Path, pruning: dict[str, Any], key: str, said: str
) -> None:
    assert refused(tmp_path, contextPruning=pruning).startswith(f"{PRUNING}.{key}: {said}")


def test_what_only_an_agent_and_the_defaults_together_say_is_refused_at_the_agent(
    tmp_path: Path,
) -> None:
    defaults = {"contextPruning": {"softTrim": {"maxChars": 9000, "headChars": 7000}}}
    clerk = {"contextPruning": {"softTrim": {"maxChars": 4000}}}
    for agents, place in (
        ({"Clerk": clerk}, "agents.Clerk"),
        ({"list": [{"id": "a"}, {"id": "Clerk", **clerk}]}, "agents.list[1]"),
    ):
        file = tmp_path / "strandline.json"
        file.write_text(json.dumps({"agents": {"defaults": defaults, **agents}}))
        with pytest.raises(ConfigError) as caught:
            load(tmp_path, {})
        assert f": {place}.contextPruning.softTrim.maxChars: expected" in str(caught.value)


def test_cache_retention_is_one_of_three_words(tmp_path: Path) -> None:
    said = refused(tmp_path, cacheRetention="forever")
    assert said.startswith("agents.defaults.cacheRetention: expected 'none', 'short' or 'long'")


# -- what is doubtful


@pytest.mark.parametrize(
    ("context", "warnings"),
    [
        ({"ttl": rules(("5m", "all"), ("inf", "none"))}, []),
        (
            {"ttl": rules(("1h", 2), ("5m", "all"), ("inf", "none"))},
            [f"{TTL} is not in the order of maxAge: it is taken in that order"],
        ),
        (
            {"ttl": rules(("1h", 2), ("60m", 3), ("INF", 1))},
            [f"{TTL}[1].maxAge is that of a rule before: the first one holds"],
        ),
        (
            {"ttl": rules(("1h", 2))},
            [f'{TTL} has no rule up to "inf": what is older than the last is left out'],
        ),
        ({"ttl": {}}, [f"{TTL} is empty: nothing is left out by age"]),
        ({"ttl": {"enabled": False, **rules(("1h", 2), ("5m", 1))}}, []),
        (
            {"ttl": rules(("inf", "summary")), "compaction": {"enabled": False}},
            [f"{TTL}[0].keep {UNTOLD}"],
        ),
    ],
)
def test_a_doubtful_rule_is_a_warning_that_tells_what_it_means(
    tmp_path: Path, context: dict[str, Any], warnings: list[str]
) -> None:
    file = tmp_path / "strandline.json"
    assert [*loaded(tmp_path, context=context).warnings] == [f"{file}: {each}" for each in warnings]


def test_what_an_agent_takes_from_the_defaults_is_warned_of_once(tmp_path: Path) -> None:
    agents = {
        "defaults": {"context": {"ttl": rules(("1h", "summary"))}},
        "one": {},
        "two": {"context": {"compaction": {"enabled": False}}},
    }
    (tmp_path / "strandline.json").write_text(json.dumps({"agents": agents}))
    first, second = load(tmp_path, {}).warnings
    assert f"{TTL} has no rule" in first
    assert "agents.two.context.ttl.rules[0].keep is" in second


# -- any JSON


def keys_below(*prefixes: str) -> list[str]:
    parts = [each.key for each in setting_keys() if each.key.startswith(prefixes)]
    return sorted({step.removesuffix("[]") for key in parts for step in key.split(".")} | {"dm"})


def json_below(*prefixes: str) -> st.SearchStrategy[Any]:
    """JSON whose keys are mostly those that the settings have there."""
    words = st.sampled_from(
        ["all", "summary", "inf", "5m", "redis", "redis://h", "${A}", "tiktoken"]
    )
    plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | words
    huge = st.sampled_from([10**400, -(10**400), 1e300])
    names = st.sampled_from(keys_below(*prefixes)) | st.text(max_size=4)
    return st.recursive(
        plain | huge,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=5),
        max_leaves=15,
    )


@settings(max_examples=200)
@given(
    value=json_below("agents.defaults.context", "agents.defaults.contextPruning"),
    key=st.sampled_from(["context", "contextPruning", "cacheRetention"]),
    where=st.sampled_from(["bare", "whole"]),
)
def test_any_json_below_context_is_settings_or_an_error_that_names_a_key(
    tmp_path_factory: pytest.TempPathFactory, value: object, key: str, where: str
) -> None:
    path = tmp_path_factory.mktemp("any") / "any.json"
    data = {key: value} if where == "bare" else {"agents": {"defaults": {key: value}}}
    path.write_text(json.dumps(data), encoding="utf-8")
    try:
        result = load_context_file(path, {})
    except ConfigError as error:
        assert error.remedy  # noqa: PT017 - either outcome is right
        assert f": {key}" in str(error) or f": agents.defaults.{key}" in str(error)  # noqa: PT017
    else:
        assert isinstance(result.settings.agent("main"), type(Settings().agents.defaults))


@settings(max_examples=200)
@given(value=json_below("plugins"))
def test_any_json_below_plugins_is_settings_or_an_error_that_names_a_key(
    tmp_path_factory: pytest.TempPathFactory, value: object
) -> None:
    path = tmp_path_factory.mktemp("any") / "any.json"
    path.write_text(json.dumps({"plugins": value}), encoding="utf-8")
    try:
        load_context_file(path, {})
    except ConfigError as error:
        assert ": plugins" in str(error)  # noqa: PT017 - either outcome is right
