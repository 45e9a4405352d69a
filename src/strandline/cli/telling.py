"""What a turn tells, in the words in which people are shown it.

What is done beside a turn (a compaction, a memory flush) may tell of itself in the middle
of an answer: that is shown behind the answer. Source: spec 3, Budget and compaction
(Surfaces); spec 4, Faces.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from strandline.cli.conversation import brief
from strandline.cli.notices import warn
from strandline.cli.output import columns
from strandline.cli.receipts import receipt_line
from strandline.cli.words import amount, cut, one_line
from strandline.runtime.answers import text_of
from strandline.runtime.events import (
    AnswerKept,
    AskedAgain,
    CacheUsed,
    CompactionReceipt,
    CompactionStarted,
    LayerSummarised,
    MemoryFlushed,
    Notice,
    ReplyDiscarded,
    ReplyText,
    ToolFinished,
    ToolStarted,
    TurnEvent,
)

MOST_TOOL_COLUMNS = 120
MOST_ARGUMENT_CHARS = 2000
"""Of an argument, before it is brought onto one line: it may be a whole file."""


class Shown(Protocol):
    """Where a turn is shown; see `strandline.cli.screen.TerminalScreen`."""

    def reply(self, text: str) -> None:
        """More of the answer."""
        ...

    def end_reply(self) -> None:
        """The answer is over."""
        ...

    def discard_reply(self) -> None:
        """The answer is void."""
        ...

    def status(self, text: str) -> None:
        """A line about what goes on."""
        ...


class Telling:
    """The listener of a conversation that shows it on a screen.

    `compactions_so_far` is how many automatic ones the conversation had, as far as that is
    noted: its id and the number. `verbose` tells of tools and upkeep too.
    """

    def __init__(
        self,
        screen: Shown,
        compactions_so_far: Callable[[], tuple[str, int]],
        *,
        verbose: bool = True,
    ) -> None:
        self._screen = screen
        self._so_far = compactions_so_far
        self.verbose = verbose
        self._in_reply = False
        self._later: list[str] = []
        self._last = ("", 0)
        self._compacting = 0
        self._over = False
        self._heard: TurnEvent | None = None

    def hear(self, event: TurnEvent) -> None:
        """Show it."""
        match event:
            case _ if self._over:
                pass
            case ReplyText(text):
                self._in_reply = True
                self._screen.reply(text)
            case ReplyDiscarded():
                self._screen.discard_reply()
                self._end()
            case AnswerKept():
                self.end()
            case AskedAgain():
                self.end()
                self._screen.status(asked_again_line(event))
            case _ if not self._heard_before(event):
                self._tell(self._line(event))

    def no_more(self) -> None:
        """Nothing is told from now on: nobody waits for it."""
        self._over = True

    def end(self) -> None:
        """The answer is over, however it ended."""
        self._screen.end_reply()
        self._end()

    def _end(self) -> None:
        self._in_reply = False
        later, self._later = self._later, []
        for line in later:
            self._screen.status(line)

    def _heard_before(self, event: TurnEvent) -> bool:
        """Whether it is another's word on the same thing.

        A turn that waits for a compaction which was begun after the last one tells of it too.
        """
        match event:
            case CompactionStarted():
                self._compacting += 1
                return self._compacting > 1
            case CompactionReceipt() | Notice():  # a notice may say that it was not made
                self._compacting = 0
        before, self._heard = self._heard, event
        return event == before and isinstance(event, CompactionReceipt | Notice)

    def _tell(self, line: str) -> None:
        if line and self._in_reply:
            self._later.append(line)
        elif line:
            self._screen.status(line)

    def _line(self, event: TurnEvent) -> str:
        """An event in a line; empty for what need not be told."""
        if isinstance(event, CompactionReceipt):
            counted = self._counted(event)  # also where nobody hears of it
            return receipt_line(event, counted) if self.verbose else ""
        if isinstance(event, Notice):
            return event.text
        return detail_line(event) if self.verbose else ""

    def _counted(self, receipt: CompactionReceipt) -> int | None:
        """The number of an automatic compaction; several of one turn are noted at its end."""
        if receipt.trigger == "manual":
            return None
        conversation, noted = self._so_far()
        told = self._last[1] if self._last[0] == conversation else 0
        self._last = (conversation, max(noted, told) + 1)
        return self._last[1]


def tell_notices(event: TurnEvent) -> None:
    """The listener that tells what a person should know, where nothing else is shown."""
    if isinstance(event, Notice):
        warn(event.text)


def detail_line(event: TurnEvent) -> str:  # noqa: PLR0911 - one for each kind of event
    """What is told unless a person does not want it: tools and upkeep."""
    match event:
        case ToolStarted(_, name, arguments):
            return _tool_line(f"· {name}", brief(arguments))
        case ToolFinished(_, name, True, message):
            return _tool_line(f"· {name} failed:", text_of(message))
        case CompactionStarted(trigger):
            return f"🧹 Compacting ({trigger}) …"
        case MemoryFlushed(notes, _) if notes:
            return f"· memory: {amount(notes, 'note')} written"
        case LayerSummarised():
            return (
                f"· {amount(event.messages, 'message')} summarised for the context: "
                f"{event.tokens_before:,} → {event.tokens_after:,} tokens, by {event.summarizer}"
            )
        case CacheUsed(why=why) if why:
            return f"· {cache_line(event)}"
        case _:
            return ""


def cache_line(used: CacheUsed) -> str:
    """What the provider's cache did for an answer, and why it did no more."""
    whole = used.read + used.written + used.fresh
    share = f"{used.read / whole:.0%}" if whole else "none"
    told = f"cache: {used.read:,} of {whole:,} prompt tokens read from it ({share})"
    return f"{told}; {used.why}" if used.why else told


def asked_again_line(event: AskedAgain) -> str:
    """That a call failed, and who is asked next."""
    again = f" again in {max(event.wait_ms / 1000, 0.1):.1f} s" if event.wait_ms else ""
    return f"{event.reason}; asking {event.model}{again}"


def _tool_line(what: str, text: str) -> str:
    shown = f"{what} {one_line(text[:MOST_ARGUMENT_CHARS])}".rstrip()
    return cut(one_line(shown), min(MOST_TOOL_COLUMNS, columns()))
