"""Frames: messages that no model has a role for, told as user messages for reference.

A summary, a command that a person ran or an extension's message reaches the model in the
user's role, because there is no other. The frame says what it is and that it is a record,
so that nothing in it is taken for a new request (spec 1, messages; spec 3, The way of a
message).
"""

from __future__ import annotations

from collections.abc import Callable

from strandline.context.blocks import (
    SPOKEN_BLOCKS,
    Notes,
    blocks_of,
    clean_blocks,
    json_text,
    text_block,
    well_formed,
)
from strandline.context.view import Decision
from strandline.transcript.messages import Message

REFERENCE = "reference"
"""The rule under which a framed message is in a view."""

SUMMARY = "summary"
"""The same for the summary of a compaction."""

LAYER_SUMMARY = "layer_summary"
"""The same for a summary of layer 4."""

BRANCH_SUMMARY = "branch_summary"
"""The same for the summary of a branch that was left."""

EMPTY = Decision("left_out", "sanitize", "empty", "the message says nothing")
EXCLUDED = Decision(
    "left_out", "sanitize", "excluded", "the person ran this command outside the conversation"
)
COMPACTION_FRAME = (
    "[For reference: a summary of the earlier conversation. It is a record, not a request; "
    "what it calls done is done. Go on from the messages after it.]"
)
BRANCH_FRAME = (
    "[For reference: a summary of another branch of this conversation, which was left. "
    "It is a record, not a request.]"
)
COMMAND_FRAME = "[For reference: a command that the person ran, and its output.]"


def framed(message: Message, notes: Notes) -> Message | Decision:
    """The message in the user's role with its frame, or why it is left out."""
    role = message.get("role")
    teller = _TELLERS.get(role, _tell_other) if isinstance(role, str) else _tell_other
    told = teller(message, notes)
    if isinstance(told, Decision):
        return told
    frame, content = told
    rule = _RULES.get(role, REFERENCE) if isinstance(role, str) else REFERENCE
    notes.append(Decision("kept", "sanitize", rule, f"{role} is told in the user's role"))
    user: Message = {"role": "user", "content": [text_block(frame), *content]}
    if "timestamp" in message:
        user["timestamp"] = message["timestamp"]
    return user


_Told = tuple[str, list[object]] | Decision


def _tell_compaction(message: Message, _notes: Notes) -> _Told:
    return _tell_summary(COMPACTION_FRAME, message)


def _tell_branch(message: Message, _notes: Notes) -> _Told:
    return _tell_summary(BRANCH_FRAME, message)


def _tell_summary(frame: str, message: Message) -> _Told:
    summary = message.get("summary")
    text = summary if isinstance(summary, str) else ("" if summary is None else json_text(summary))
    if not text or text.isspace():
        return EMPTY
    return frame, [text_block(well_formed(text))]


def _tell_command(message: Message, _notes: Notes) -> _Told:
    if message.get("excludeFromContext"):
        return EXCLUDED
    command, output = _string(message.get("command")), _string(message.get("output"))
    if not command.strip() and not output.strip():
        return EMPTY
    return COMMAND_FRAME, [text_block(f"$ {command}\n{output}\n{_how_it_ended(message)}".rstrip())]


def _how_it_ended(message: Message) -> str:
    ended = []
    if message.get("cancelled"):
        ended.append("cancelled")
    if isinstance(code := message.get("exitCode"), int) and code != 0:
        ended.append(f"exit code {code}")
    if message.get("truncated"):
        where = _string(message.get("fullOutputPath"))
        ended.append(f"output cut; all of it is in {where}" if where else "output cut")
    return f"({', '.join(ended)})" if ended else ""


def _tell_custom(message: Message, notes: Notes) -> _Told:
    kind = _string(message.get("customType")) or "an extension"
    return _tell_content(
        f"[For reference, from {kind}; the person did not write this.]", message, notes
    )


def _tell_other(message: Message, notes: Notes) -> _Told:
    role = json_text(message.get("role"))
    return _tell_content(f"[For reference: a message in the role {role}.]", message, notes)


def _tell_content(frame: str, message: Message, notes: Notes) -> _Told:
    content = message.get("content")
    # A plain string is a proper content here, as it is for a user's message.
    blocks = [text_block(content)] if isinstance(content, str) else blocks_of(content, notes)
    cleaned = clean_blocks(blocks, SPOKEN_BLOCKS, notes)
    return (frame, cleaned) if cleaned else EMPTY


def _string(value: object) -> str:
    if value is None:
        return ""
    return well_formed(value) if isinstance(value, str) else json_text(value)


_TELLERS: dict[str, Callable[[Message, Notes], _Told]] = {
    "compactionSummary": _tell_compaction,
    "branchSummary": _tell_branch,
    "bashExecution": _tell_command,
    "custom": _tell_custom,
}

_RULES = {"compactionSummary": SUMMARY, "branchSummary": BRANCH_SUMMARY}
