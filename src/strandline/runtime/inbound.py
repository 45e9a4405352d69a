"""Messages that are delivered more than once, and what was said last.

Whoever brings a message may bring it again, after an error or a lost reply; with an id of
its own it is one entry all the same. Source: cases/faults, A14.
"""

from __future__ import annotations

from strandline.context.dialogue import UNFINISHED
from strandline.runtime.announcing import waits_for_answer
from strandline.transcript.entries import MessageEntry
from strandline.transcript.session import Session

INBOUND_ID = "inboundId"
"""The key of a user's message that holds the id which its bringer gave it."""

HEARTBEAT = "heartbeat"
"""The key of a user's message that no person wrote: a heartbeat's. Its value is true."""

LOOKED_BACK = 1000
"""As many entries of the path are looked at, the newest, before all that come later."""

REMEMBERED = 1000
"""As many ids are remembered."""


class Heard:
    """The inbound ids of one session: of its newest messages, summarised by now or not."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._ids: dict[str, None] = {}
        self._newest: str | None = None

    def said_before(self, inbound_id: str) -> bool:
        """Whether a message with that id is in the session."""
        self._listen()
        return inbound_id in self._ids

    def _listen(self) -> None:
        """Take the ids of what came since the last look."""
        entries = self._session.newest_entries(LOOKED_BACK, until=self._newest)
        for entry in reversed(entries):
            self._newest = entry.id
            if isinstance(entry, MessageEntry):
                self._take(entry.message.get(INBOUND_ID))
        for oldest in [*self._ids][:-REMEMBERED]:
            del self._ids[oldest]

    def _take(self, inbound_id: object) -> None:
        if isinstance(inbound_id, str):
            self._ids.pop(inbound_id, None)
            self._ids[inbound_id] = None


def is_heartbeat(message: object) -> bool:
    """Whether no person wrote the message."""
    return isinstance(message, dict) and message.get(HEARTBEAT) is True


def is_answered(session: Session) -> bool:
    """Whether what was said last has its answer, or nothing was said.

    Notes of plugins, commands and summaries in between ask for no answer.
    """
    for item in reversed(session.build_context().items):
        match item.message.get("role"):
            case "assistant":
                # A failed answer is none, and one that calls tools is not finished.
                return item.message.get("stopReason") not in UNFINISHED
            case "user" | "toolResult":
                return False
            case "custom" if waits_for_answer(item.message):
                return False
    return True
