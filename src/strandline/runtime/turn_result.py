"""What came of a turn."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

from strandline.runtime.events import CompactionReceipt
from strandline.runtime.model import ModelInfo
from strandline.runtime.spending import usage_sum
from strandline.transcript.messages import Message, Usage


@dataclass(frozen=True, slots=True)
class TurnResult:
    """A turn that was answered.

    `message` is the last answer, `reply` its text; `answers` are all of them, in order, each
    with its usage. `info` is the model that gave the last. `context_tokens` is what the
    context takes now, in the provider's tokens, of `context_window`.
    """

    reply: str
    message: Message
    user_entry_id: str
    answers: tuple[Message, ...]
    info: ModelInfo
    compactions: tuple[CompactionReceipt, ...]
    context_tokens: int
    context_window: int
    duration_ms: int

    @property
    def usage(self) -> Usage | None:
        """What all answers of the turn used together."""
        return reduce(usage_sum, (answer.get("usage") for answer in self.answers), None)

    @property
    def stop_reason(self) -> str:
        """Why the answer ended."""
        return str(self.message.get("stopReason"))
