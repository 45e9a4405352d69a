"""The headers of requests to models, and what those of their answers say of waiting."""

from __future__ import annotations

import contextlib
import email.utils
import math
from collections.abc import Mapping

from strandline.errors import ConfigError


def request_headers(own: Mapping[str, str], extra: Mapping[str, str]) -> dict[str, str]:
    """The headers of every request. Raises `ConfigError` for what cannot be one."""
    headers = {
        "accept": "text/event-stream, application/json",
        "accept-encoding": "identity",  # compression holds back the first words
        "content-type": "application/json",
        "user-agent": "strandline",
        **own,
    }
    headers |= {name.lower(): value for name, value in extra.items()}
    for name, value in headers.items():
        if not (name.isascii() and value.isascii() and value.isprintable()):
            raise ConfigError(
                f"the header {name!a} of a model provider has characters that cannot be sent",
                remedy="look for a line break or a typographic quote in the API key or header",
            )
    return headers


def retry_after_s(headers: Mapping[str, str], now_ms: int) -> float | None:
    """How long the server asks to wait: in milliseconds, in seconds or until a date."""
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        with contextlib.suppress(KeyError, ValueError):
            wait_s = float(headers[name]) * scale
            if math.isfinite(wait_s):
                return max(wait_s, 0.0)
    with contextlib.suppress(KeyError, ValueError, TypeError, OverflowError):
        until = email.utils.parsedate_to_datetime(headers["retry-after"])
        return max(until.timestamp() - now_ms / 1000, 0.0)
    return None
