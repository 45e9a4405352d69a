"""Messages that are delivered more than once, and what was said last.

Whoever brings a message may bring it again, after an error or a lost reply; with an id of
its own it is one entry all the same. Source: cases/faults, A14.
"""

from __future__ import annotations

from itertools import islice

from strandline.transcript.session import Session

INBOUND_ID = "inboundId"
"""The key of a user's message that holds the id which its bringer gave it."""

LOOKED_BACK = 200
"""As many of the newest messages are compared."""


def said_before(session: Session, inbound_id: str) -> bool:
    """Whether one of the newest messages has that id."""
    items = session.build_context().items
    newest = islice(reversed(items), LOOKED_BACK)
    return any(item.message.get(INBOUND_ID) == inbound_id for item in newest)


def is_answered(session: Session) -> bool:
    """Whether the conversation ends with an answer, or is empty."""
    for item in reversed(session.build_context().items):
        message = item.message
        if message.get("role") == "assistant":
            # A failed answer is none, and one that calls tools is not finished.
            return message.get("stopReason") not in {"error", "aborted", "toolUse"}
        return message.get("role") not in {"user", "toolResult"}
    return True
