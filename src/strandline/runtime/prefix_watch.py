"""Watching the beginning of requests: a provider's cache holds what stays the same.

Each request is compared with the one before. Where it does not begin with the same bytes, the
first that changed is named, and why. Where it does and the provider read little from its cache
all the same, that is told too. Source: spec 3, Caches (a drop of cache reads is explained).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from strandline.context.view import View, ViewMessage
from strandline.runtime.events import CacheUsed, PrefixChange
from strandline.runtime.model import ModelRequest
from strandline.transcript.messages import Message, Usage

SMALLEST_EXPECTED = 1024
"""Below this no provider caches anything."""

ENOUGH_READ = 0.5
"""The share of what was expected that has to be read for it to be no drop."""


@dataclass(frozen=True, slots=True)
class _Sent:
    request: ModelRequest
    said: tuple[ViewMessage, ...]


class PrefixWatch:
    """Watches the requests of one session; `used` is what was found of the last answer."""

    def __init__(self) -> None:
        self.used: CacheUsed | None = None
        self._before: _Sent | None = None
        self._change: PrefixChange | None = None

    def sends(self, request: ModelRequest, view: View) -> PrefixChange | None:
        """Compare a request with the one before; None where it begins with its bytes."""
        before, self._before = self._before, _Sent(request, view.messages)
        self._change = None if before is None else _first_change(before, request, view)
        return self._change

    def answered(
        self, usage: Usage | None, before: Usage | None, idle_ms: float | None, lifetime_ms: int
    ) -> CacheUsed | None:
        """What the cache did for an answer with that `usage`; None where nothing is known.

        `before` is what the call before used, `idle_ms` how long ago that was.
        """
        if not _is_whole(usage):
            return None
        read, written, fresh = usage["cacheRead"], usage["cacheWrite"], usage["input"]
        expected = _prompt_tokens(before) if _is_whole(before) else 0
        why = ""
        if expected >= SMALLEST_EXPECTED and read < expected * ENOUGH_READ:
            why = self._why(idle_ms, lifetime_ms)
        change = self._change if why else None
        self.used = CacheUsed(read, written, fresh, expected, why, change)
        return self.used

    def _why(self, idle_ms: float | None, lifetime_ms: int) -> str:
        change = self._change
        if change is not None:
            return f"{change.part} changed at byte {change.byte:,}: {change.why}"
        if idle_ms is not None and idle_ms > lifetime_ms:
            return (
                f"the last call was {idle_ms / 60_000:.0f} min ago: the provider has forgotten it"
            )
        return "the request began with the same bytes; the provider did not have them (any more)"


def _is_whole(usage: Usage | None) -> TypeGuard[Usage]:
    """Whether it has all counts; files of others hold all kinds of things."""
    keys = ("input", "cacheRead", "cacheWrite")
    return isinstance(usage, dict) and all(isinstance(usage.get(key), int) for key in keys)


def _prompt_tokens(usage: Usage) -> int:
    return usage["input"] + usage["cacheRead"] + usage["cacheWrite"]


def _first_change(before: _Sent, request: ModelRequest, view: View) -> PrefixChange | None:
    old = before.request
    whole = view.tokens
    if old.model.ref != request.model.ref:
        why = f"{request.model.ref} answers instead of {old.model.ref}"
        return PrefixChange("model", 0, None, why, whole)
    at = 0
    for part, was, now in (
        ("tools", list(old.tools), list(request.tools)),
        ("system prompt", old.system_prompt, request.system_prompt),
    ):
        if was != now:
            why = f"the {part} changed"
            return PrefixChange(part, at + _common(_bytes(was), _bytes(now)), None, why, whole)
        at += len(_bytes(now))
    place = _common_messages(old.messages, request.messages)
    if place == len(old.messages):
        return None
    at += sum(len(_bytes(message)) for message in request.messages[:place])
    return _message_change(before, request, view, place, at)


def _message_change(
    before: _Sent, request: ModelRequest, view: View, place: int, at: int
) -> PrefixChange:
    was = before.said[place]
    now = view.messages[place] if place < len(view.messages) else None
    new = _bytes(request.messages[place]) if now is not None else b""
    byte = at + _common(_bytes(before.request.messages[place]), new)
    lost = sum(said.tokens for said in view.messages[place:])
    return PrefixChange("message", byte, was.entry_id, _reason(was, now, view), lost)


def _reason(was: ViewMessage, now: ViewMessage | None, view: View) -> str:
    if now is not None and was.entry_id is not None and was.entry_id == now.entry_id:
        told = next((d.reason for d in reversed(now.decisions)), "it is said otherwise")
        return told
    gone = (s for s in view.left_out if s.entry_id == was.entry_id and was.entry_id is not None)
    left_out = next(gone, None)
    if left_out is not None and left_out.decisions:
        return left_out.decisions[-1].reason
    if now is not None and now.decisions:
        return now.decisions[-1].reason
    return "the conversation goes on from another place"


def _common_messages(one: Sequence[Message], other: Sequence[Message]) -> int:
    """How many messages both begin with."""
    for place, (was, now) in enumerate(zip(one, other, strict=False)):
        if was is not now and was != now:
            return place
    return min(len(one), len(other))


def _bytes(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, default=str).encode("utf-8", "replace")


def _common(one: bytes, other: bytes) -> int:
    for place, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return place
    return min(len(one), len(other))
