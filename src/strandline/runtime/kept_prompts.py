"""System prompts that outlive the process, so that a resumed session begins with the same bytes.

A system prompt holds files of the workspace, which change. While the provider's cache still
knows the old one, a session goes on with that; once the cache is lost anyway the new one costs
nothing. Source: spec 3, Caches (byte-stable prefixes across restarts).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Protocol

from strandline.transcript.context import PathMessage
from strandline.transcript.entries import AnyEntry, CompactionEntry, MessageEntry
from strandline.transcript.messages import JsonObject

MOST_MODELS = 4
"""The prompts of so many models are kept of a session, so that switching back finds its own."""


@dataclass(frozen=True, slots=True)
class KeptPrompt:
    """What a session told a model last, which is ``provider/model``.

    `settings` stands for what an operator set that the prompt is made of: it holds no longer
    than they do. `tools` are those that went with it.
    """

    model: str
    text: str
    settings: str = ""
    tools: tuple[JsonObject, ...] = ()


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
            text, settings = record.get("text"), record.get("settings")
            if record.get("model") == model and isinstance(text, str):
                told = settings if isinstance(settings, str) else ""
                tools = record.get("tools")
                return KeptPrompt(
                    model, text, told, tuple(tools) if isinstance(tools, list) else ()
                )
        return None

    def keep(self, session_id: str, prompt: KeptPrompt) -> None:
        def changed(records: Sequence[JsonObject]) -> Sequence[JsonObject]:
            others = [each for each in records if each.get("model") != prompt.model]
            return [*others, asdict(prompt)][-MOST_MODELS:]

        self._records.update(session_id, changed)


def last_call_ms(items: Sequence[PathMessage], models: Collection[str]) -> float | None:
    """When the session called one of the `models` last (Unix ms), None where it never did."""
    for item in reversed(items):
        message = item.message
        if message.get("role") != "assistant":
            continue
        if f"{message.get('provider')}/{message.get('model')}" in models:
            said_ms = message.get("timestamp")
            return said_ms if isinstance(said_ms, int | float) else item.entry_ms
    return None


def is_warm(
    items: Sequence[PathMessage], models: Collection[str], now_ms: int, lifetime_ms: int
) -> bool:
    """Whether a provider of the `models` still knows what the session sent them last."""
    last_ms = last_call_ms(items, models)
    return last_ms is not None and now_ms - last_ms <= lifetime_ms


def is_compacted(newest_first: Iterable[AnyEntry]) -> bool:
    """Whether no model has been called since the last compaction: the cache is lost then."""
    for entry in newest_first:
        if isinstance(entry, CompactionEntry):
            return True
        if isinstance(entry, MessageEntry) and entry.message.get("role") == "assistant":
            return False
    return False
