"""``sessions.json`` as bytes and back.

Written as OpenClaw writes it: two spaces of indent, no escapes but those of lone surrogates,
no line end behind the last bracket. The order of keys is kept.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

from strandline.errors import StoreWriteFailed


def decoded_rows(content: bytes) -> dict[str, Any] | None:
    """The map that a file holds, or None for what is no JSON map."""
    try:
        value = strict_decoder.decode(content.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits} is out of range")
    return number


strict_decoder = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite)
"""Refuses the numbers that Python reads and JSON does not have."""

_SURROGATE = re.compile("[\ud800-\udfff]")


def encoded_rows(entries: dict[str, Any]) -> bytes:
    """The file for these entries, as OpenClaw writes it.

    Raises `StoreWriteFailed` for values that JSON cannot hold.
    """
    try:
        text = json.dumps(entries, indent=2, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreWriteFailed(
            f"a session row holds what JSON cannot ({error})",
            remedy="use text, finite numbers, true, false, null, lists and objects only",
        ) from error
    return _SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", text).encode()
