"""Long transcripts, made fast and the same every time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.texts import words

MB = 1_000_000
LIVE_ENTRIES = 100
"""Entries after the first one that a compaction keeps, to the end of the file."""

_FRAME_BYTES = 122
"""What stands around the message on its line."""

_WORDS = words("harbour signal maple 記録 quartz 港 ledger engine naïve ribbon kernel lantern 🦀")


@dataclass(frozen=True, slots=True)
class History:
    """A transcript on disk. `middle_id` is an entry half-way, just behind a compaction."""

    path: Path
    entries: int
    middle_id: str


def entry_id(number: int) -> str:
    """Scattered, as random ids are, and no two alike."""
    return f"{number * 2_654_435_761 % 2**32:08x}"


def entries_in(size: int) -> int:
    """How many entries make about `size` bytes."""
    sizes = [len(body.encode()) + _FRAME_BYTES for body in _bodies()]
    return size * len(sizes) // sum(sizes)


def write_history(path: Path, entries: int, *, compacted: bool) -> History:
    """A conversation of so many entries.

    `compacted`: compactions half-way and `LIVE_ENTRIES // 2` before the end, each keeping as
    many again. The thinking level, the name and a label are set at the beginning only.
    """
    marks = {entries // 2, entries - LIVE_ENTRIES // 2} if compacted else set()
    with path.open("w", encoding="utf-8", newline="\n", buffering=1 << 20) as file:
        file.writelines(line + "\n" for line in _lines(entries, _bodies(), marks))
    return History(path, entries, entry_id(entries // 2 + 8))


def _bodies() -> list[str]:
    return [json.dumps(body, ensure_ascii=False, separators=(",", ":")) for body in _messages()]


def _lines(total: int, bodies: list[str], marks: set[int]) -> Iterator[str]:
    header = {"type": "session", "version": 3, "id": "bench", "timestamp": _time(0), "cwd": "/w"}
    yield json.dumps(header)
    yield _entry(0, '"thinkingLevel":"high"', "thinking_level_change")
    yield _entry(1, '"name":"A long conversation"', "session_info")
    yield _entry(2, f'"targetId":"{entry_id(1)}","label":"beginning"', "label")
    for number in range(3, total):
        if number in marks:
            kept = entry_id(number - LIVE_ENTRIES // 2)
            fields = f'"summary":"What was.","firstKeptEntryId":"{kept}","tokensBefore":150000'
            yield _entry(number, fields, "compaction")
        else:
            yield _entry(number, f'"message":{bodies[number % len(bodies)]}', "message")


def _entry(number: int, fields: str, kind: str) -> str:
    parent = f'"{entry_id(number - 1)}"' if number else "null"
    return (
        f'{{"type":"{kind}","id":"{entry_id(number)}","parentId":{parent},'
        f'"timestamp":"{_time(number)}",{fields}}}'
    )


def _time(number: int) -> str:
    minute, second = divmod(number, 60)
    return f"2025-06-01T{minute // 60 % 24:02d}:{minute % 60:02d}:{second:02d}.000Z"


def text(number: int, count: int) -> str:
    """Some words, another order for each `number`."""
    return " ".join(_WORDS[(number * 7 + n * n) % len(_WORDS)] for n in range(count))


def user_message(number: int, length: int = 120) -> dict[str, Any]:
    content = [{"type": "text", "text": text(number, length)}]
    return {"role": "user", "content": content, "timestamp": 1_750_000_000_000 + number}


def assistant_message(number: int, length: int = 60, *, calls: bool = False) -> dict[str, Any]:
    content: list[dict[str, Any]] = [{"type": "text", "text": text(number, length)}]
    if calls:
        arguments = {"path": f"notes/{number}.md", "limit": 200}
        content.append({"type": "toolCall", "id": "c1", "name": "read", "arguments": arguments})
    counts = dict.fromkeys(("input", "output", "cacheRead", "cacheWrite", "totalTokens"), 100)
    costs = dict.fromkeys(("input", "output", "cacheRead", "cacheWrite", "total"), 0.001)
    return {
        "role": "assistant",
        "content": content,
        "api": "openai-completions",
        "provider": "fake",
        "model": "small",
        "usage": {**counts, "cost": costs},
        "stopReason": "toolUse" if calls else "stop",
        "timestamp": 1_750_000_000_000 + number,
    }


def _messages() -> Iterator[dict[str, Any]]:
    """A few dozen turns, repeated over and over in a history."""
    for number in range(0, 64, 4):
        yield user_message(number)
        yield assistant_message(number + 1, calls=True)
        result = {"toolCallId": "c1", "toolName": "read", "isError": False, "timestamp": 1}
        content = [{"type": "text", "text": text(number + 2, 320)}]
        yield {"role": "toolResult", "content": content, **result}
        yield assistant_message(number + 3, 150)
