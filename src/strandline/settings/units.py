"""Durations and sizes as people write them (spec 2, Maintenance)."""

from __future__ import annotations

import math
import re

from strandline.errors import ConfigError

DURATION_WORDS = 'a duration such as "30d", "12h", "90s" or "500ms", or a number of milliseconds'
SIZE_WORDS = 'a size such as "10mb" or "1.5GiB", or a number of bytes'

_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_BYTES = {
    "b": 1,
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", 1)},
    **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", 1)},
}
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z]+)\s*", re.ASCII)
_MAX = 2**53 - 1


def duration_ms(value: object, key: str) -> int:
    """Milliseconds of ``"30d"``, ``"1h30m"`` or a number. Raises `ConfigError` naming `key`.

    >>> duration_ms("1h30m", "session.reset.idle")
    5400000
    """
    return _amount(value, key, _MS, "ms", DURATION_WORDS)


def size_bytes(value: object, key: str) -> int:
    """Bytes of ``"10mb"`` (10,000,000), ``"1.5GiB"`` or a number. Raises `ConfigError`.

    >>> size_bytes("1.5GiB", "session.maintenance.maxDiskBytes")
    1610612736
    """
    return _amount(value, key, _BYTES, "b", SIZE_WORDS, parts=1)


def _amount(
    value: object, key: str, units: dict[str, int], bare: str, words: str, parts: int = 8
) -> int:
    """Any value in the smallest unit; `bare` is the unit of a number without one."""
    amount = None
    if isinstance(value, str):
        amount = _of_text(value.strip().lower(), units, bare, parts)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        amount = float(value)
    if amount is None or not math.isfinite(amount) or not 0 <= amount <= _MAX:
        raise ConfigError(f"{key}: expected {words}", remedy="correct the value")
    return round(amount)


def _of_text(text: str, units: dict[str, int], bare: str, parts: int) -> float | None:
    """The sum of up to `parts` quantities; a number alone is one in the unit `bare`."""
    if re.fullmatch(r"[0-9]+(?:\.[0-9]+)?", text):
        text += bare
    found = list(_QUANTITY.finditer(text))
    if not found or len(found) > parts or "".join(match[0] for match in found) != text:
        return None
    if any(match[2] not in units for match in found):
        return None
    return sum(float(match[1]) * units[match[2]] for match in found)
