"""Adding up what calls of models used."""

from __future__ import annotations

from collections.abc import Iterable

from strandline.transcript.messages import Cost, Message, Usage


def usages_of(answers: Iterable[Message]) -> list[Usage]:
    """What answers used, as their providers counted it."""
    return [answer["usage"] for answer in answers if isinstance(answer.get("usage"), dict)]


def usage_sum(first: Usage | None, second: Usage | None) -> Usage | None:
    """The usage of both; None where neither says anything."""
    if not first or not second:
        return first or second
    total: Usage = {
        "input": first["input"] + second["input"],
        "output": first["output"] + second["output"],
        "cacheRead": first["cacheRead"] + second["cacheRead"],
        "cacheWrite": first["cacheWrite"] + second["cacheWrite"],
        "totalTokens": first["totalTokens"] + second["totalTokens"],
    }
    costs = [usage["cost"] for usage in (first, second) if "cost" in usage]
    if costs:
        total["cost"] = _cost_sum(costs)
    return total


def _cost_sum(costs: list[Cost]) -> Cost:
    return {
        "input": sum(cost["input"] for cost in costs),
        "output": sum(cost["output"] for cost in costs),
        "cacheRead": sum(cost["cacheRead"] for cost in costs),
        "cacheWrite": sum(cost["cacheWrite"] for cost in costs),
        "total": sum(cost["total"] for cost in costs),
    }
