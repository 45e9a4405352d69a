"""What of a turn reaches people: the listener between a turn and a face.

Silent replies are held back (`strandline.runtime.silence`), and what was used is noted for
the row, whether the turn ends well or not. A turn that asks several times, because of its
tools, has several answers. In a direct chat each is shown as it comes. On a background turn,
in groups and in rooms nothing is shown before the last is there, and nothing at all where
that one is silent: what was said on the way to it ("let me look") is part of it.
Source: spec 3, Silent replies.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from strandline.runtime.answers import text_of
from strandline.runtime.events import (
    AnswerBroken,
    AnswerKept,
    CompactionReceipt,
    Listener,
    ReplyDiscarded,
    ReplyText,
    TurnEvent,
)
from strandline.runtime.silence import Occasion, SilenceFilter, deliverable
from strandline.runtime.spending import usages_of
from strandline.transcript.messages import Message, Usage


@dataclass
class Delivery:
    """Hears a turn, and tells `listener` what may be delivered on this occasion.

    `answers` and `compactions` are those of the turn so far, `usages` what all its calls used.
    """

    listener: Listener
    occasion: Occasion
    answers: list[Message] = field(default_factory=list)
    compactions: list[CompactionReceipt] = field(default_factory=list)
    usages: list[Usage] = field(default_factory=list)
    _filter: SilenceFilter = field(init=False)

    def __post_init__(self) -> None:
        self._filter = SilenceFilter(self.occasion)

    def hear(self, event: TurnEvent) -> None:
        """The listener that a turn is given."""
        match event:
            case ReplyText(text):
                self._stream(self._filter.add(text))
                return
            case ReplyDiscarded(usage):
                self.usages += [usage] if usage else []
                self._filter = SilenceFilter(self.occasion)
            case AnswerKept(message):
                self.answers.append(message)
                self.usages += usages_of([message])
                self._stream(self._filter.end())
                self._filter = SilenceFilter(self.occasion)
            case AnswerBroken(message):
                self.usages += usages_of([message])
            case CompactionReceipt():
                self.compactions.append(event)
        self.listener(event)

    def finish(self) -> None:
        """The turn ended well: deliver what is delivered only whole.

        Of a turn that failed this is nothing, and what a stream held back of an answer that
        broke off may be the beginning of the token.
        """
        if not self.occasion.only_whole:
            return
        texts = [text_of(answer) for answer in self.answers]
        if texts and texts[-1].strip() and not deliverable(texts[-1], self.occasion):
            return
        for text in texts:
            self._say(deliverable(text, self.occasion))

    def _stream(self, text: str) -> None:
        if not self.occasion.only_whole:
            self._say(text)

    def _say(self, text: str) -> None:
        if text:
            self.listener(ReplyText(text))
