"""A recorded conversation: all that was said on its path, and the calls that were made for it.

Compactions of the recording count for nothing: what they summarised was said, and a replay
makes its own. Each answer of a model is one call, made when the answer says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from strandline.context.sanitize import moment_ms
from strandline.transcript.context import PathMessage
from strandline.transcript.messages import Message
from strandline.transcript.session import Session

PIN = "pin"
"""The label of entries that survive all layers."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call: the entry of its answer, when it was made (Unix ms), who answered, what it took.

    `model` is ``provider/model``, None where it is not recorded. `output_tokens` is what the
    provider reported, None where it reported nothing.
    """

    entry_id: str
    at_ms: float
    model: str | None = None
    output_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Recording:
    """`items` are the messages of the whole path; `calls` rise in place and in time."""

    items: Sequence[PathMessage]
    calls: Sequence[Call]
    pins: frozenset[str] = frozenset()


def recorded(session: Session, spacing_ms: int | None, otherwise_ms: int) -> Recording:
    """What is recorded of the active path.

    With `spacing_ms` call k is made at k times that, whatever was recorded, and everything is
    said at the time of the call that it was said for. Where an answer has no time,
    `otherwise_ms` is the spacing.
    """
    items = whole_path(session)
    labels = session.labels()
    pins = frozenset(entry_id for entry_id, label in labels.items() if label == PIN)
    if spacing_ms is None and not _has_times(items):
        spacing_ms = otherwise_ms
    if spacing_ms is not None:
        items = list(_spaced(items, spacing_ms))
    return Recording(items, list(_calls(items)), pins)


def whole_path(session: Session) -> list[PathMessage]:
    """All messages from the root to the leaf, as if nothing had been compacted."""
    path = session.path()
    contexts = []
    end = len(path)
    while end > 0:
        items = session.build_context(path[end - 1]).items
        contexts.append(items)
        summary = next((i.entry_id for i in items if _role(i) == "compactionSummary"), None)
        end = path.index(summary) if summary is not None else 0
    said = {item.entry_id: item for items in reversed(contexts) for item in items}
    return [item for item in said.values() if _role(item) != "compactionSummary"]


def _role(item: PathMessage) -> Any:
    return item.message.get("role") if isinstance(item.message, dict) else None


def _time(item: PathMessage) -> float | None:
    return moment_ms(item.message, item.entry_ms)


def _has_times(items: Sequence[PathMessage]) -> bool:
    """Whether every answer says when it was given, and not all say the same."""
    times = [_time(item) for item in items if _role(item) == "assistant"]
    return None not in times and (len(times) < 2 or len(set(times)) > 1)


def _spaced(items: Sequence[PathMessage], spacing_ms: int) -> Iterator[PathMessage]:
    now_ms = 0
    for item in items:
        timed = isinstance(item.message, dict)
        message = {**item.message, "timestamp": now_ms} if timed else item.message
        yield PathMessage(item.entry_id, message, now_ms)
        if _role(item) == "assistant":
            now_ms += spacing_ms


def _calls(items: Sequence[PathMessage]) -> Iterator[Call]:
    now_ms = 0.0
    for item in items:
        if _role(item) == "assistant":
            now_ms = max(now_ms, _time(item) or 0.0)
            output = _output_tokens(item.message.get("usage"))
            yield Call(item.entry_id, now_ms, _model(item.message), output)


def _output_tokens(usage: object) -> int | None:
    output = usage.get("output") if isinstance(usage, dict) else None
    return output if isinstance(output, int) and output > 0 else None


def _model(message: Message) -> str | None:
    provider, model = message.get("provider"), message.get("model")
    return f"{provider}/{model}" if isinstance(provider, str) and isinstance(model, str) else None
