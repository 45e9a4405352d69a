"""Messages that are delivered more than once, and what was said last.

Whoever brings a message may bring it again, after an error or a lost reply; with an id of
its own it is one entry all the same. Source: cases/faults, A14.
"""

from __future__ import annotations

from collections.abc import Sequence

from strandline.transcript.context import PathMessage
from strandline.transcript.session import Session

INBOUND_ID = "inboundId"
"""The key of a user's message that holds the id which its bringer gave it."""

LOOKED_BACK = 200
"""As many of the newest messages are compared, at each look."""

REMEMBERED = 1000
"""As many ids are remembered."""


class Heard:
    """The inbound ids of one session: of its newest messages, summarised by now or not."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._ids: dict[str, None] = {}
        self._looked_behind: str | None = None

    def said_before(self, inbound_id: str) -> bool:
        """Whether a message with that id is in the session."""
        items = self._session.build_context().items
        if items and items[0].message.get("role") == "compactionSummary":
            self._look_behind(items[0].entry_id)
        self._take(items)
        return inbound_id in self._ids

    def _look_behind(self, compaction_id: str) -> None:
        """Take the ids of what a compaction summarised; once, as it costs a context."""
        if self._looked_behind == compaction_id:
            return
        self._looked_behind = compaction_id
        before = self._session.entry(compaction_id).parent_id
        if before is not None:
            self._take(self._session.build_context(before).items)

    def _take(self, items: Sequence[PathMessage]) -> None:
        for item in items[-LOOKED_BACK:]:
            inbound_id = item.message.get(INBOUND_ID)
            if isinstance(inbound_id, str):
                self._ids.pop(inbound_id, None)
                self._ids[inbound_id] = None
        for oldest in [*self._ids][:-REMEMBERED]:
            del self._ids[oldest]


def is_answered(session: Session) -> bool:
    """Whether what was said last has its answer, or nothing was said.

    Notes of plugins, commands and summaries in between ask for no answer.
    """
    for item in reversed(session.build_context().items):
        match item.message.get("role"):
            case "assistant":
                # A failed answer is none, and one that calls tools is not finished.
                return item.message.get("stopReason") not in {"error", "aborted", "toolUse"}
            case "user" | "toolResult":
                return False
    return True
