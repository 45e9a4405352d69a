"""Whether a failed call is tried again, and when.

Pure: the same failure, attempt and draw give the same wait. Source: spec 4, A turn (Retries
with back-off).
"""

from __future__ import annotations

from dataclasses import dataclass

from strandline.errors import ModelError

RETRIED = frozenset({"rate", "network"})
"""The kinds of failure that may pass by themselves."""


@dataclass(frozen=True, slots=True)
class RetrySettings:
    """`models.retry`: calls in all, and the bounds of the wait between two.

    A server that asks for more patience than `max_delay_ms` is not waited for.
    """

    attempts: int = 3
    min_delay_ms: int = 500
    max_delay_ms: int = 30_000


def wait_ms(
    error: ModelError, attempt: int, settings: RetrySettings, draw: float = 0.5
) -> int | None:
    """Milliseconds until attempt number `attempt` + 1 (from 1); None for no other.

    `draw`, from 0 to 1, spreads the calls of many sessions by a quarter in both directions.
    """
    if error.kind not in RETRIED or attempt >= settings.attempts:
        return None
    if error.retry_after_s is not None:
        asked_ms = max(0.0, error.retry_after_s * 1000)
        return int(asked_ms) if asked_ms <= settings.max_delay_ms else None
    doubled = settings.min_delay_ms * 2 ** min(attempt - 1, 20)
    return int(min(doubled, settings.max_delay_ms) * (0.75 + draw / 2))
