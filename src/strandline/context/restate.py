"""Saying a message of a view differently, and counting each form of it once.

A step that changes a message makes the same change at every assembly, so the new form is
as countable as the old: it is remembered under the entry and the decisions that made it.
"""

from __future__ import annotations

from strandline.context.tokens import MessageTokens
from strandline.context.view import Decision, ViewMessage
from strandline.transcript.messages import Message


def tokens_of_form(
    entry_id: str | None, message: Message, decisions: tuple[Decision, ...], tokens: MessageTokens
) -> int:
    """Tokens of what `decisions` made of the entry's message.

    The reasons must tell forms apart: a decision that depends on a number names it.
    """
    if entry_id is None or not decisions:
        return tokens.of(entry_id, message)
    form = "; ".join(f"{decision.rule}: {decision.reason}" for decision in decisions)
    return tokens.of(f"{entry_id} {form}", message)


def restated(
    said: ViewMessage, message: Message, why: Decision, tokens: MessageTokens
) -> ViewMessage:
    """The view message with `message` in its place and `why` noted."""
    decisions = (*said.decisions, why)
    return said.changed(message, tokens_of_form(said.entry_id, message, decisions, tokens), why)
