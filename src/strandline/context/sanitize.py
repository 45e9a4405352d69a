"""Sanitising: from the messages of a path to messages that models take.

After it only the roles user, assistant and toolResult are left, nothing is empty, and
every text can be sent. A message that was fine is the same object as before, so that its
bytes are. Transcripts hold anything (spec 1, File): odd content is told in words or left
out with a decision, and never raises. Source: spec 3, The way of a message.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from strandline.context.blocks import (
    ASSISTANT_BLOCKS,
    LONE_SURROGATE,
    SPOKEN_BLOCKS,
    Notes,
    blocks_of,
    clean_blocks,
    text_block,
    well_formed,
    without_item_id,
)
from strandline.context.frames import EMPTY, framed
from strandline.context.restate import tokens_of_form
from strandline.context.tokens import MessageTokens
from strandline.context.view import Decision, LeftOut, View, ViewMessage
from strandline.transcript.context import PathMessage
from strandline.transcript.messages import Message

NO_OUTPUT = "(no output)"
"""What stands in for a tool's result that is empty."""

FAILED_REASONS = ("error", "aborted")
"""Stop reasons of an answer that failed. No set: what a file has in their place may be anything."""

_FAILED = Decision(
    "left_out", "sanitize", "failed_turn", "the answer failed before anything was said"
)
_ONLY_THINKING = Decision(
    "left_out", "sanitize", "only_thinking", "thinking without an answer is not replayed"
)
_NO_CALL_ID = Decision(
    "left_out", "sanitize", "no_call_id", "a tool result that does not say which call it answers"
)
_NOT_A_MESSAGE = Decision("left_out", "sanitize", "not_a_message", "not a JSON object")
_OLD_THINKING = Decision(
    "shortened",
    "sanitize",
    "thinking_before_summary",
    "thinking from before the summary is left out: its signature belongs to the old beginning",
)
_NO_OUTPUT = Decision(
    "kept", "sanitize", "empty_result", "an empty tool result gets a word in its place"
)


def sanitize(items: Iterable[PathMessage], tokens: MessageTokens) -> View:
    """The first view of a path: its messages, oldest first, as models take them.

    What is left out here is not counted: its tokens are 0.
    """
    sanitizer = Sanitizer(tokens)
    kept: list[ViewMessage] = []
    left_out: list[ViewMessage] = []
    for item in items:
        said = sanitizer.take(item)
        (left_out if said.outcome == "left_out" else kept).append(said)
    return View(tuple(kept), LeftOut([left_out]))


class Sanitizer:
    """Takes the messages of a path one by one, oldest first; what came before is all it needs."""

    def __init__(self, tokens: MessageTokens) -> None:
        self._tokens = tokens
        self._summarised_ms: float | None = None  # when the last compaction was, while it matters
        self._said_ms: float | None = None  # of the message before

    def take(self, item: PathMessage) -> ViewMessage:
        """The message as models take it; its outcome is "left_out" where they do not."""
        entry_id, message = item.entry_id, item.message
        if not isinstance(message, dict):
            return ViewMessage(entry_id, {}, 0, (_NOT_A_MESSAGE,), self._said_ms)
        # What does not say when it was said is as old as what was said before it.
        said_ms = self._said_ms = moment_ms(message, item.entry_ms, self._said_ms)
        if message.get("role") == "compactionSummary":
            self._summarised_ms = said_ms if said_ms is not None else math.inf
        elif self._summarised_ms is not None and (said_ms or -1) > self._summarised_ms:
            self._summarised_ms = None
        notes: Notes = []
        cleaned = _cleaned(message, notes, bare=self._summarised_ms is not None)
        if isinstance(cleaned, Decision):
            return ViewMessage(entry_id, message, 0, (*_distinct(notes), cleaned), said_ms)
        if cleaned is message:
            counted = self._tokens.of(entry_id, message)
            return ViewMessage(entry_id, message, counted, (), said_ms)
        decisions = _distinct(notes)
        counted = tokens_of_form(entry_id, cleaned, decisions, self._tokens)
        return ViewMessage(entry_id, cleaned, counted, decisions, said_ms)


def moment_ms(message: Message, *otherwise: float | None) -> float | None:
    """When the message was said, in Unix ms; where it does not say, the first that is known."""
    timestamp = message.get("timestamp")
    if isinstance(timestamp, int | float) and math.isfinite(timestamp):
        return timestamp
    return next((each for each in otherwise if each is not None), None)


def _distinct(notes: Notes) -> tuple[Decision, ...]:
    return tuple(dict.fromkeys(notes))


def _cleaned(message: Message, notes: Notes, *, bare: bool) -> Message | Decision:
    """The message as models take it, or why it is left out; `bare` = without thinking."""
    match message.get("role"):
        case "user":
            return _user(message, notes)
        case "assistant":
            return _assistant(message, notes, bare=bare)
        case "toolResult":
            return _tool_result(message, notes)
        case _:
            return framed(message, notes)


def _user(message: Message, notes: Notes) -> Message | Decision:
    content = message.get("content")
    if not isinstance(content, str):
        cleaned = clean_blocks(blocks_of(content, notes), SPOKEN_BLOCKS, notes)
        return _with(message, content, cleaned) if cleaned else EMPTY
    if not content or content.isspace():
        return EMPTY
    fixed = well_formed(content)
    if fixed is not content:
        notes.append(LONE_SURROGATE)
    return _with(message, content, fixed)


def _assistant(message: Message, notes: Notes, *, bare: bool) -> Message | Decision:
    content = message.get("content")
    blocks = blocks_of(content, notes)
    cleaned = clean_blocks(blocks, ASSISTANT_BLOCKS, notes)
    if bare and any(block["type"] == "thinking" for block in cleaned):
        notes.append(_OLD_THINKING)
        cleaned = [block for block in cleaned if block["type"] != "thinking"]
    if not cleaned:
        return _FAILED if message.get("stopReason") in FAILED_REASONS else EMPTY
    if all(block["type"] == "thinking" for block in cleaned):
        return _ONLY_THINKING
    lost = cleaned is not blocks and _thinking_count(cleaned) < _thinking_count(blocks)
    if lost and (bare or not _signs_texts(message)):
        cleaned = [without_item_id(block) for block in cleaned]
    return _with(message, content, cleaned)


def _signs_texts(message: Message) -> bool:
    """Whether the signature of a text is its own: Google signs no thoughts, but what follows."""
    return str(message.get("api")).startswith("google-")


def _thinking_count(blocks: list[Any]) -> int:
    return sum(isinstance(b, dict) and b.get("type") == "thinking" for b in blocks)


def _tool_result(message: Message, notes: Notes) -> Message | Decision:
    call_id = message.get("toolCallId")
    if not (isinstance(call_id, str) and call_id):
        return _NO_CALL_ID
    content = message.get("content")
    cleaned = clean_blocks(blocks_of(content, notes), SPOKEN_BLOCKS, notes)
    if not cleaned:
        notes.append(_NO_OUTPUT)
        cleaned = [text_block(NO_OUTPUT)]
    fixed_id = well_formed(call_id)
    if fixed_id is not call_id:
        notes.append(LONE_SURROGATE)
        message = {**message, "toolCallId": fixed_id}
    return _with(message, content, cleaned)


def _with(message: Message, old: object, new: object) -> Message:
    return message if new is old else {**message, "content": new}
