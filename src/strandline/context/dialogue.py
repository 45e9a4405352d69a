"""A conversation written down as text, for summarisers.

Every line says who said it, whatever the text does, and what tools gave back is quoted
line by line: no text can step out of its quotation and pass for a person's request.
Source: spec 3, Budget and compaction (Summaries).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from strandline.context.blocks import json_text, well_formed
from strandline.context.sanitize import FAILED_REASONS
from strandline.transcript.messages import Message

QUOTE = "| "
"""Begins each quoted text, after who said it."""

READ_CHARS = 20_000
"""As much of one message is read in search of what matters."""

LINE_CHARS = 280
"""A line of a summary is condensed to about this; an argument longer than it is no name."""

UNFINISHED = (*FAILED_REASONS, "toolUse")
"""Stop reasons of an answer that answers nothing yet."""

_TITLES = {
    "bashExecution": "command by the user",
    "branchSummary": "summary of another branch",
    "compactionSummary": "earlier summary",
}


def conversation_text(messages: Iterable[Message]) -> str:
    """The messages, oldest first, one ``[who] text`` a line."""
    return "\n".join(line for message in messages for line in message_lines(message))


def message_lines(message: Message) -> Iterator[str]:
    """The lines of one message of any role. Thinking and images are not told."""
    who, quote = _speaker(message)
    for text in spoken_texts(message):
        yield from (f"[{who}] {quote}{line}" for line in text.splitlines() if line.strip())
    for call in calls_of(message):
        name, arguments = _one_line(call.get("name")), json_text(call.get("arguments"))
        yield f"[assistant calls {name}] {QUOTE}{' '.join(arguments.splitlines())}"


def _speaker(message: Message) -> tuple[str, str]:
    role = message.get("role")
    match role:
        case "user" | "assistant":
            return role, ""
        case "toolResult":
            failed = "error" if message.get("isError") else "result"
            return f"{failed} of {_one_line(message.get('toolName'))}", QUOTE
        case "custom":
            return f"note from {_one_line(message.get('customType'))}", QUOTE
        case _:
            return _TITLES.get(str(role), _one_line(role)), QUOTE


def spoken_texts(message: Message) -> Iterator[str]:
    """The texts of a message of any role, in order, ready to be sent."""
    for key in ("summary", "command", "output"):
        if isinstance(text := message.get(key), str):
            yield well_formed(text)
    content = message.get("content")
    if isinstance(content, str):
        yield well_formed(content)
    for block in content if isinstance(content, list) else ():
        text = block.get("text") if isinstance(block, dict) else block
        if isinstance(text, str):
            yield well_formed(text)


def told_text(message: Message) -> str:
    """The texts of a message in one, its first `READ_CHARS`."""
    return "\n".join(spoken_texts(message))[:READ_CHARS]


def calls_of(message: Message) -> Iterator[dict[str, Any]]:
    """The tool calls of an assistant message."""
    if not isinstance(message, dict) or message.get("role") != "assistant":
        return
    content = message.get("content")
    if isinstance(content, list):
        for block in content:
            if isinstance(block, dict) and block.get("type") == "toolCall":
                yield block


def short_arguments(message: Message) -> Iterator[str]:
    """What the calls of an assistant message are about: paths, queries, commands; no bodies."""
    for call in calls_of(message):
        arguments = call.get("arguments")
        for value in arguments.values() if isinstance(arguments, dict) else ():
            if isinstance(value, str) and len(value) <= LINE_CHARS:
                yield well_formed(value)


def requests_and_answers(messages: Iterable[Message]) -> list[tuple[int, int | None]]:
    """Each request and the answer that finished it (None: not finished), as places."""
    turns: list[tuple[int, int | None]] = []
    for place, message in enumerate(messages):
        if message.get("role") == "user":
            turns.append((place, None))
        elif turns and is_answer(message):
            turns[-1] = (turns[-1][0], place)
    return turns


def is_answer(message: Message) -> bool:
    """Whether an assistant message finishes what was asked: it says something, and neither
    goes on with tools nor failed.
    """
    return (
        message.get("role") == "assistant"
        and message.get("stopReason") not in UNFINISHED
        and any(text.strip() for text in spoken_texts(message))
    )


def _one_line(value: object) -> str:
    text = value if isinstance(value, str) else json_text(value)
    return " ".join(well_formed(text).replace("]", ")").split())
