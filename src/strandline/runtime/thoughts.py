"""Thoughts that their model takes back no more.

A provider may refuse what its own model thought: after another key, after a change of what
stood before the thought, after a change of its own. It would refuse it for ever; without
its thoughts the same conversation is fine (cases/faults, B1). What was refused once is not
sent again in this process; thoughts that come later are. Where the conversation is refused
without them too, it was about something else, and they go back as before.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from strandline.runtime.model import ModelInfo
from strandline.transcript.messages import Message

_SIGNATURES = frozenset({"thoughtSignature", "textSignature"})
"""What providers put on a text or call that they thought about; it stands or falls with the
thought."""


@dataclass
class Thoughts:
    """Up to when, Unix ms, the thoughts of each model in one session are void."""

    _void_until_ms: dict[str, float] = field(default_factory=dict)
    _before: dict[str, float | None] = field(default_factory=dict)
    """The same before the last refusal, as long as no answer shows what that was about."""

    def refused(self, info: ModelInfo, messages: Iterable[Message]) -> bool:
        """Note that a request with these messages was refused; False where no thought of the
        model's own was in it, so that the refusal was about something else.
        """
        shown = [self.shown(info, message) for message in messages]
        own = [m for m in shown if _is_by(info, m) and _without_thoughts(m) is not m]
        if not own:
            self._take_back(info)
            return False
        self._before.setdefault(info.ref, self._void_until_ms.get(info.ref))
        self._void_until_ms[info.ref] = max(_said_ms(message) for message in own)
        return True

    def answered(self, info: ModelInfo) -> None:
        """The model answered: what it was not shown is what it had refused."""
        self._before.pop(info.ref, None)

    def _take_back(self, info: ModelInfo) -> None:
        before = self._before.pop(info.ref, self._void_until_ms.get(info.ref))
        if before is None:
            self._void_until_ms.pop(info.ref, None)
        else:
            self._void_until_ms[info.ref] = before

    def shown(self, info: ModelInfo, message: Message) -> Message:
        """The message as that model may see it."""
        until_ms = self._void_until_ms.get(info.ref)
        if until_ms is None or _said_ms(message) > until_ms:
            return message
        return _without_thoughts(message)


def _is_by(info: ModelInfo, message: Message) -> bool:
    said = (message.get("api"), message.get("provider"), message.get("model"))
    return said == (info.api, info.provider, info.id)


def _said_ms(message: Message) -> float:
    timestamp = message.get("timestamp")
    return timestamp if isinstance(timestamp, int | float) else 0


def _without_thoughts(message: Message) -> Message:
    content = message.get("content")
    if message.get("role") != "assistant" or not isinstance(content, list):
        return message
    spoken = [
        {key: value for key, value in block.items() if key not in _SIGNATURES}
        for block in content
        if block.get("type") != "thinking"
    ]
    return message if spoken == content else {**message, "content": spoken}
