"""The context cache: the seam, and what an entry is kept under.

A cache is only ever a shortcut. What is not there, is damaged or cannot be had is computed,
and what was computed is the same bytes. The key names everything that determines a view but
the time, which the value itself bounds (`strandline.context.cached_view`): so no entry can
serve another session, leaf, configuration or age window. Source: spec 3, Caches.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Protocol

LARGEST_VALUE_BYTES = 4 << 20
"""A larger value is not kept, nor read."""

Digest = str
"""Hex digits that stand for a value; equal for equal values, in every process."""


class ContextCache(Protocol):
    """Keeps values for a while. Safe to call from several threads; it raises nothing.

    A store that is away keeps nothing and finds nothing. It may wait for a network: call it
    off the event loop.
    """

    def get(self, key: str) -> bytes | None:
        """What was put under the key, None where nothing is (any more)."""
        ...

    def put(self, session: str, key: str, value: bytes, lifetime_ms: int) -> None:
        """Keep the value for at most `lifetime_ms`; the least recently used make room."""
        ...

    def drop(self, session: str) -> None:
        """Forget what was put for the session (`invalidateOn`: a new message)."""
        ...

    def close(self) -> None:
        """Give back connections and memory."""
        ...


@dataclass(frozen=True, slots=True)
class ContextKey:
    """Everything besides the time that determines the view of a session.

    `policy` (the engine's id included), `pins` and `summaries` are digests (`digest_of`);
    `model` is ``provider/model``, `limit` and `cap` are tokens, `counter` is who counted them.
    `program` is the version of the program: another one may choose otherwise.
    """

    session_id: str
    leaf_id: str | None
    policy: Digest
    model: str
    limit: int
    cap: int
    counter: str
    pins: Digest
    summaries: Digest
    program: str = ""

    @property
    def text(self) -> Digest:
        """The key for a `ContextCache`; it tells nothing of the session."""
        return digest_of(self)


def digest_of(*values: Any) -> Digest:
    """The digest of values that JSON can hold, and of dataclasses and sets of them.

    Sets have no order, sequences and mappings do not differ by their kind.

    >>> digest_of({"a", "b"}) == digest_of({"b", "a"})
    True
    >>> digest_of("ab", "c") == digest_of("a", "bc")
    False
    """
    text = json.dumps(values, default=_plain, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, set | frozenset):
        return sorted(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    raise TypeError(f"{type(value).__name__} has no digest")
