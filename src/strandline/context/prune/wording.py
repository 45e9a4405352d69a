"""How rules are named in decisions: in the words of the settings."""

from __future__ import annotations

from strandline.context.policy import AgeRule

_UNITS = ((3_600_000, "h"), (60_000, "m"), (1000, "s"))


def age(ms: float | None) -> str:
    """An age as a setting has it: ``90m``, ``24h``; None is ``inf``.

    >>> age(5_400_000), age(86_400_000), age(None)
    ('90m', '24h', 'inf')
    """
    if ms is None:
        return "inf"
    size, unit = next((each for each in _UNITS if ms and ms % each[0] == 0), (1, "ms"))
    return f"{ms // size:.0f}{unit}"


def rule_name(rule: AgeRule) -> str:
    """``maxAge 1h keep 20``."""
    return f"maxAge {age(rule.max_age_ms)} keep {rule.keep}"


def messages(count: int) -> str:
    """``1 message``, ``1,200 messages``."""
    return f"{count:,} message" if count == 1 else f"{count:,} messages"
