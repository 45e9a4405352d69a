"""What no single key of the settings shows: keys that exclude each other, and likely slips.

Both are looked for where an agent's settings are complete, its own over the defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from strandline.settings.context import ContextSettings, TtlRule
from strandline.settings.model import AgentSettings, Settings

KeyPath = tuple[str | int, ...]


class Remark(NamedTuple):
    """Something about what stands at `path`, as the rest of a sentence."""

    path: KeyPath
    said: str


def impossible(settings: Settings) -> list[Remark]:
    """What cannot hold."""
    return list(_of_all(settings, _impossible))


def doubtful(settings: Settings) -> list[Remark]:
    """What has a meaning, which the remark tells, and is hardly what was meant."""
    return list(_of_all(settings, _doubtful))


def _of_all(
    settings: Settings, look: Callable[[AgentSettings], Iterator[Remark]]
) -> Iterator[Remark]:
    """Remarks about the defaults, and about each agent those that do not hold for them too."""
    general = list(look(settings.agents.defaults))
    for path, said in general:
        yield Remark(("agents", "defaults", *path), said)
    for agent_id, place in settings.agents.places().items():
        for remark in look(settings.agent(agent_id)):
            if remark not in general:
                yield Remark(("agents", *place, *remark.path), remark.said)


def _impossible(own: AgentSettings) -> Iterator[Remark]:
    trim = own.context_pruning.soft_trim
    if trim.head_chars + trim.tail_chars > trim.max_chars:
        path = ("contextPruning", "softTrim", "maxChars")
        yield Remark(path, "expected at least headChars and tailChars together")
    cache = own.context.cache
    if cache and cache.enabled and cache.storage == "redis" and cache.redis_url is None:
        yield Remark(("context", "cache", "redisUrl"), "missing where storage is redis")


def _doubtful(own: AgentSettings) -> Iterator[Remark]:
    ttl = own.context.ttl
    if ttl is None or not ttl.enabled:
        return
    path = ("context", "ttl", "rules")
    if not ttl.rules:
        yield Remark(path, "is empty: nothing is left out by age")
        return
    ages = [_order(rule) for rule in ttl.rules]
    if ages != sorted(ages):
        yield Remark(path, "is not in the order of maxAge: it is taken in that order")
    if max(ages) < _ENDLESS:
        yield Remark(path, 'has no rule up to "inf": what is older than the last is left out')
    for at, age in enumerate(ages):
        if age in ages[:at]:
            yield Remark((*path, at, "maxAge"), "is that of a rule before: the first one holds")
    yield from _untold_summaries(own.context, ttl.rules, path)


def _untold_summaries(
    context: ContextSettings, rules: list[TtlRule], path: KeyPath
) -> Iterator[Remark]:
    if context.compaction.enabled:
        return
    for at, rule in enumerate(rules):
        if rule.keep == "summary":
            said = 'is "summary" while context.compaction.enabled is false: it is taken as "none"'
            yield Remark((*path, at, "keep"), said)


_ENDLESS = float("inf")


def _order(rule: TtlRule) -> float:
    return _ENDLESS if rule.max_age == "inf" else rule.max_age
