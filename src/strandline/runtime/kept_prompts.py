"""System prompts that outlive the process, so that a resumed session begins with the same bytes.

A system prompt holds files of the workspace, which change. While the provider's cache still
knows the old one, a session goes on with that; once the cache is lost anyway the new one costs
nothing. Source: spec 3, Caches (byte-stable prefixes across restarts).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from strandline.transcript.context import PathMessage
from strandline.transcript.messages import JsonObject

MOST_MODELS = 4
"""The prompts of so many models are kept of a session, so that switching back finds its own."""


@dataclass(frozen=True, slots=True)
class KeptPrompt:
    """What a session told a model last, which is ``provider/model``."""

    model: str
    text: str


class KeptPrompts(Protocol):
    """Where they are kept. Both may raise `StrandlineError`, and wait for a disk."""

    def read(self, session_id: str, model: str) -> KeptPrompt | None:
        """What a session told a model, None where none is kept."""
        ...

    def keep(self, session_id: str, prompt: KeptPrompt) -> None:
        """Keep it in place of an earlier one."""
        ...


class PromptRecords(Protocol):
    """Records of sessions, as files or elsewhere. They may be anything."""

    def read(self, session_id: str) -> Sequence[JsonObject]:
        """Those of a session."""
        ...

    def update(
        self,
        session_id: str,
        change: Callable[[Sequence[JsonObject]], Sequence[JsonObject]],
    ) -> None:
        """Put `change` of them in their place."""
        ...


class RecordedPrompts:
    """Prompts in records: the newest of each model; satisfies `KeptPrompts`."""

    def __init__(self, records: PromptRecords) -> None:
        self._records = records

    def read(self, session_id: str, model: str) -> KeptPrompt | None:
        for record in self._records.read(session_id):
            if record.get("model") == model and isinstance(record.get("text"), str):
                return KeptPrompt(model, record["text"])
        return None

    def keep(self, session_id: str, prompt: KeptPrompt) -> None:
        def changed(records: Sequence[JsonObject]) -> Sequence[JsonObject]:
            others = [each for each in records if each.get("model") != prompt.model]
            return [*others, {"model": prompt.model, "text": prompt.text}][-MOST_MODELS:]

        self._records.update(session_id, changed)


def last_call_ms(items: Sequence[PathMessage]) -> float | None:
    """When the session called a model last (Unix ms), None where it never did."""
    for item in reversed(items):
        message = item.message
        if isinstance(message, dict) and message.get("role") == "assistant":
            said_ms = message.get("timestamp")
            return said_ms if isinstance(said_ms, int | float) else item.entry_ms
    return None


def is_warm(items: Sequence[PathMessage], now_ms: int, lifetime_ms: int) -> bool:
    """Whether the provider still knows what the session sent last."""
    last_ms = last_call_ms(items)
    return last_ms is not None and now_ms - last_ms <= lifetime_ms
