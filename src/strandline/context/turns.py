"""The parts of a view that stay or go together: units, and turns of units.

A unit is a message with the tool results that answer it. A turn begins where somebody
speaks to the model after it has answered: at a message in the user's role that follows
another role. Views here are paired (`strandline.context.pairing`).
"""

from __future__ import annotations

from collections.abc import Sequence

from strandline.context.frames import BRANCH_SUMMARY, LAYER_SUMMARY, REFERENCE, SUMMARY
from strandline.context.view import ViewMessage

_REFERENCES = frozenset({BRANCH_SUMMARY, LAYER_SUMMARY, REFERENCE, SUMMARY})


def unit_starts(messages: Sequence[ViewMessage]) -> list[int]:
    """Where units begin: every message that is not a tool result."""
    return [i for i, said in enumerate(messages) if said.message["role"] != "toolResult"]


def turn_starts(messages: Sequence[ViewMessage]) -> list[int]:
    """Where turns begin; the first message always begins one."""
    starts, before = [], ""
    for index, said in enumerate(messages):
        role = said.message["role"]
        if index == 0 or (role == "user" and before != "user"):
            starts.append(index)
        before = role
    return starts


def newest_request(messages: Sequence[ViewMessage]) -> int | None:
    """The newest message that a person wrote; else the newest in the user's role."""
    newest = None
    for index in range(len(messages) - 1, -1, -1):
        if messages[index].message["role"] == "user":
            if not is_reference(messages[index]):
                return index
            newest = index if newest is None else newest
    return newest


def is_reference(said: ViewMessage) -> bool:
    """Whether the message is in the user's role only for want of another."""
    return any(decision.rule in _REFERENCES for decision in said.decisions)


def is_summary(said: ViewMessage) -> bool:
    """Whether the message is the summary of a compaction."""
    return any(decision.rule == SUMMARY for decision in said.decisions)


def is_summary_of_any_kind(said: ViewMessage) -> bool:
    """Whether the message is the summary of a compaction or of a branch that was left."""
    return any(decision.rule in {SUMMARY, BRANCH_SUMMARY} for decision in said.decisions)
