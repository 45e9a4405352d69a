"""Watching the beginning of requests: a provider's cache holds what stays the same.

Each request is compared with the last one that was answered. Where it does not begin with the
same bytes, the first that changed is named, and why. Where it does and the provider read little
from its cache all the same, that is told too. Source: spec 3, Caches (a drop of cache reads is
explained).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeGuard

from strandline.context.turns import is_summary, is_summary_of_any_kind
from strandline.context.view import View, ViewMessage
from strandline.runtime.events import CacheUsed, PrefixChange
from strandline.runtime.model import ModelRequest
from strandline.transcript.messages import JsonObject, Message, Usage

SMALLEST_EXPECTED = 1024
"""Below this no provider caches anything."""

ENOUGH_READ = 0.5
"""The share of what was expected that has to be read for it to be no drop."""


@dataclass(frozen=True, slots=True)
class _Sent:
    request: ModelRequest
    said: tuple[ViewMessage, ...]
    addition: str


class PrefixWatch:
    """Watches the requests of one session; `used` is what was found of the last answer."""

    def __init__(self) -> None:
        self.used: CacheUsed | None = None
        self._before: _Sent | None = None
        self._elsewhere: tuple[str, Sequence[JsonObject]] | None = None
        self._now: _Sent | None = None
        self._change: PrefixChange | None = None

    def resumed(self, system_prompt: str, tools: Sequence[JsonObject]) -> None:
        """Another process sent these last: the beginning of what comes is compared with that."""
        self._elsewhere = (system_prompt, tools)

    def sends(self, request: ModelRequest, view: View, addition: str = "") -> PrefixChange | None:
        """Compare a request with the last answered one; None where it begins with its bytes.

        `addition` is what an engine put before the system prompt.
        """
        before, self._now = self._before, _Sent(request, view.messages, addition)
        if before is None and self._elsewhere is not None:
            prompt, tools = self._elsewhere
            before = _Sent(ModelRequest(request.model, prompt, [], 0, tools), (), "")
        self._change = None if before is None else _first_change(before, self._now, view)
        return self._change

    def answered(
        self, answer: Message, before: Message | None, lifetime_ms: int
    ) -> CacheUsed | None:
        """What the cache did for an answer; None where the provider says nothing of it.

        `before` is the answer that the session had before this one, by whatever model.
        """
        was, self._before, self._now = self._before, self._now, None
        usage, sent = answer.get("usage"), self._before
        if not _is_whole(usage):
            return None
        usage_before = (before or {}).get("usage")
        expected = _prompt_tokens(usage_before) if _is_whole(usage_before) else 0
        if sent is None or before is None:  # a thread, whose prompts are the provider's own affair
            expected = 0
        change, why = self._change, ""
        if sent is not None and before is not None and change is None:
            change = _other_model(before, answer, sent)
        if expected >= SMALLEST_EXPECTED and usage["cacheRead"] < expected * ENOUGH_READ:
            why = _why(change, was, sent, _idle_ms(before, answer), lifetime_ms)
        self._change = None
        self.used = CacheUsed(
            usage["cacheRead"], usage["cacheWrite"], usage["input"], expected, why, change
        )
        return self.used


def _why(
    change: PrefixChange | None,
    was: _Sent | None,
    sent: _Sent | None,
    idle_ms: float | None,
    lifetime_ms: int,
) -> str:
    """Why little was read from the cache."""
    if change is not None:
        return f"{change.part} changed at byte {change.byte:,}: {change.why}"
    if idle_ms is not None and idle_ms > lifetime_ms:
        return f"the last call was {idle_ms / 60_000:.0f} min ago: the provider has forgotten it"
    if was is None or sent is None:
        return "what was sent before is not known: this process did not send it"
    old, new = was.request.thinking, sent.request.thinking
    if old != new:
        return f"thinking is {new} instead of {old}, and the provider keeps the two apart"
    return "the request began with the same bytes; the provider did not have them (any more)"


def _other_model(before: Message, answer: Message, sent: _Sent) -> PrefixChange | None:
    """Another model gave the answer before: its provider's cache is of no use to this one."""
    old, new = _model_of(before), _model_of(answer)
    if old == new:
        return None
    tokens = sum(said.tokens for said in sent.said)
    return PrefixChange("model", 0, None, f"{new} answers instead of {old}", tokens)


def _model_of(answer: Message) -> str:
    return f"{answer.get('provider')}/{answer.get('model')}"


def _idle_ms(before: Message | None, answer: Message) -> float | None:
    times = [(before or {}).get("timestamp"), answer.get("timestamp")]
    was, now = (each if isinstance(each, int | float) else None for each in times)
    return None if was is None or now is None else now - was


def _is_whole(usage: Usage | None) -> TypeGuard[Usage]:
    """Whether it has all counts; files of others hold all kinds of things."""
    keys = ("input", "cacheRead", "cacheWrite")
    return isinstance(usage, dict) and all(isinstance(usage.get(key), int) for key in keys)


def _prompt_tokens(usage: Usage) -> int:
    return usage["input"] + usage["cacheRead"] + usage["cacheWrite"]


def _first_change(before: _Sent, sent: _Sent, view: View) -> PrefixChange | None:
    old, request, whole = before.request, sent.request, view.tokens
    if old.model.ref != request.model.ref:
        why = f"{request.model.ref} answers instead of {old.model.ref}"
        return PrefixChange("model", 0, None, why, whole)
    old_tools, tools = list(old.tools), list(request.tools)
    if old_tools != tools:
        byte = _common(_bytes(old_tools), _bytes(tools))
        return PrefixChange("tools", byte, None, "the tools changed", whole)
    prompt = request.system_prompt
    if old.system_prompt != prompt:
        byte = len(_bytes(tools)) + _common(_bytes(old.system_prompt), _bytes(prompt))
        why = "the system prompt changed"
        if before.addition != sent.addition:
            why = "what the engine puts before the system prompt changed"
        return PrefixChange("system prompt", byte, None, why, whole)
    place = _common_messages(old.messages, request.messages)
    if place == len(old.messages):
        return None
    return _message_change(before, request, view, place)


def _message_change(before: _Sent, request: ModelRequest, view: View, place: int) -> PrefixChange:
    was = before.said[place]
    new = _bytes(request.messages[place]) if place < len(request.messages) else b""
    same = [list(request.tools), request.system_prompt, *request.messages[:place]]
    byte = sum(len(_bytes(each)) for each in same)
    byte += _common(_bytes(before.request.messages[place]), new)
    lost = sum(said.tokens for said in view.messages[place:])
    return PrefixChange("message", byte, was.entry_id, _reason(was, view, place), lost)


def _reason(was: ViewMessage, view: View, place: int) -> str:
    """Why the message `was` is not at its place in the view any more."""
    now = view.messages[place] if place < len(view.messages) else None
    if now is not None and was.entry_id is not None and was.entry_id == now.entry_id:
        return _why_otherwise(was, now)
    left_out = _left_out(view, was.entry_id)
    if left_out is not None and left_out.decisions:
        return left_out.decisions[-1].reason
    if now is not None and is_summary(now):
        return "a compaction took the place of what was said before"
    if now is not None and now.decisions and (now.entry_id is None or is_summary_of_any_kind(now)):
        return now.decisions[-1].reason
    if was.entry_id is not None and any(s.entry_id == was.entry_id for s in view.messages[place:]):
        return "what was left out before is in it again"
    return "the conversation goes on from another place"


def _why_otherwise(was: ViewMessage, now: ViewMessage) -> str:
    """Why the message of an entry is said otherwise than before."""
    if was.message == now.message:
        return "its model refused a thought of its own, which is not shown again"
    new = (each.reason for each in reversed(now.decisions) if each not in was.decisions)
    return next(new, "it is said otherwise")


def _left_out(view: View, entry_id: str | None) -> ViewMessage | None:
    """What was left out of an entry. A cut moves a little, so the newest are looked at first."""
    if entry_id is None:
        return None
    newest_first = chain.from_iterable(map(reversed, reversed(view.left_out.pieces)))
    return next((said for said in newest_first if said.entry_id == entry_id), None)


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
