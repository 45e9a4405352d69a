"""What of a turn reaches people: the listener between a turn and a face.

Silent replies are held back (`strandline.runtime.silence`), and what was used is noted for
the row, whether the turn ends well or not.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from strandline.runtime.events import (
    AnswerKept,
    Listener,
    ReplyDiscarded,
    ReplyText,
    TurnEvent,
)
from strandline.runtime.registry import usages_of
from strandline.runtime.silence import Occasion, SilenceFilter
from strandline.transcript.messages import Message, Usage


@dataclass
class Delivery:
    """Hears a turn, and tells `listener` what may be delivered on this occasion."""

    listener: Listener
    occasion: Occasion
    answers: list[Message] = field(default_factory=list)
    _filter: SilenceFilter = field(init=False)

    def __post_init__(self) -> None:
        self._filter = SilenceFilter(self.occasion)

    def hear(self, event: TurnEvent) -> None:
        """The listener that a turn is given."""
        match event:
            case ReplyText(text):
                self._say(self._filter.add(text))
                return
            case ReplyDiscarded():
                self._filter = SilenceFilter(self.occasion)
            case AnswerKept(message):
                self.end()
                self.answers.append(message)
        self.listener(event)

    def end(self) -> None:
        """Deliver what was held back of an answer that is over."""
        self._say(self._filter.end())
        self._filter = SilenceFilter(self.occasion)

    @property
    def usages(self) -> list[Usage]:
        """What the answers so far used."""
        return usages_of(self.answers)

    def _say(self, text: str) -> None:
        if text:
            self.listener(ReplyText(text))
