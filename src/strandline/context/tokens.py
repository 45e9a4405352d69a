"""Counting tokens: the seam, and counting each message once.

A `TokenCounter` counts text with a real vocabulary. `MessageTokens` counts messages with
it and remembers: a message is counted once in its life (spec 3, Budget and compaction).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Protocol

from strandline.transcript.messages import Message

MESSAGE_OVERHEAD_TOKENS = 4
"""What providers spend on the frame around a message (role and separators)."""

IMAGE_TOKENS = 1600
"""What one image costs; providers scale images to about this."""


class TokenCounter(Protocol):
    """Counts text."""

    name: str

    def count(self, text: str) -> int:
        """Tokens of `text`; lone surrogates count as one replacement character each."""
        ...


class HeuristicCounter:
    """Four bytes of UTF-8 a token: for where no vocabulary is installed.

    Bytes, not characters: Japanese and Chinese then come out near the truth.
    """

    name = "heuristic"

    def count(self, text: str) -> int:
        return -(-len(text.encode("utf-8", "replace")) // 4)


class MessageTokens:
    """Counts messages, each once. Keyed by the entry that holds the message."""

    def __init__(self, counter: TokenCounter) -> None:
        self.counter = counter
        self._by_entry: dict[str, int] = {}

    def of(self, entry_id: str | None, message: Message) -> int:
        """Tokens of `message`, from memory when `entry_id` was counted before."""
        if entry_id is None:
            return self.count(message)
        known = self._by_entry.get(entry_id)
        if known is None:
            known = self._by_entry[entry_id] = self.count(message)
        return known

    def forget(self) -> None:
        """Remember nothing: the entries are another transcript's from here on."""
        self._by_entry.clear()

    def count(self, message: Message) -> int:
        """Tokens of a message as it stands, without remembering."""
        texts, images = [], 0
        for part in _parts(message):
            if part is None:
                images += 1
            else:
                texts.append(part)
        return (
            MESSAGE_OVERHEAD_TOKENS + images * IMAGE_TOKENS + self.counter.count("\n".join(texts))
        )


def _parts(message: Message) -> Iterable[str | None]:
    """The texts of a message that reach a model; None stands for an image."""
    for key in ("summary", "command", "output"):
        if isinstance(message.get(key), str):
            yield message[key]
    content = message.get("content")
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for block in content:
            yield _block_text(block)


def _block_text(block: Any) -> str | None:
    if not isinstance(block, dict):
        return json.dumps(block, default=str)
    match block.get("type"):
        case "text":
            return str(block.get("text", ""))
        case "thinking":
            return str(block.get("thinking", ""))
        case "image":
            return None
        case "toolCall":
            return f"{block.get('name', '')} {json.dumps(block.get('arguments'), default=str)}"
        case _:
            return json.dumps(block, default=str)
