"""A summary request in portions, for a summariser whose window is smaller than the history.

Sizes are those of the text that the summariser reads, who said it on every line included.
Source: spec 3, Budget and compaction (Summaries).
"""

from __future__ import annotations

from dataclasses import replace

from strandline.context.blocks import json_text
from strandline.context.dialogue import calls_of, conversation_text, spoken_texts
from strandline.context.shorten import shorten_text
from strandline.context.summarize import SummaryRequest
from strandline.context.tokens import MESSAGE_OVERHEAD_TOKENS, MessageTokens, TokenCounter
from strandline.transcript.messages import Message


def first_part(
    request: SummaryRequest, max_input_tokens: int, tokens: MessageTokens
) -> tuple[SummaryRequest, SummaryRequest | None]:
    """As many of the messages as fit, at least one, and a request for the others.

    A message that does not fit alone is shortened. The parts are summarised in order; the
    others have no `previous_summary` yet: it is the summary of the part before.
    """
    counter = tokens.counter
    part: list[Message] = []
    left = max_input_tokens
    for message in request.messages:
        size = told_size(message, counter)
        if size > max_input_tokens and not part:
            part.append(_told_within(message, max_input_tokens, counter))
            break
        if size > left:
            break
        part.append(message)
        left -= size
    others = request.messages[len(part) :]
    if not others:
        return replace(request, messages=tuple(part)), None
    rest = replace(request, messages=others, previous_summary=None)
    return replace(request, messages=tuple(part), split_turn=True), rest


def told_size(message: Message, counter: TokenCounter) -> int:
    """Tokens of a message in the text for a summariser (`conversation_text`), about."""
    return counter.count(conversation_text([message])) + MESSAGE_OVERHEAD_TOKENS


def _told_within(message: Message, max_tokens: int, counter: TokenCounter) -> Message:
    """The message with one shortened text in place of all that it holds."""
    calls = [f"{call.get('name')} {json_text(call.get('arguments'))}" for call in calls_of(message)]
    text = "\n".join([*spoken_texts(message), *calls])
    kept = {key: value for key, value in message.items() if key in _WHO}
    room = max_tokens
    while True:
        shorter = {**kept, "content": shorten_text(text, room, counter)}
        size = told_size(shorter, counter)
        if size <= max_tokens or room <= 0:
            return shorter
        # Who said it stands on every line: short lines weigh more than they count.
        room = min(room * max_tokens // size, room - 1 - room // 16)


_WHO = frozenset({"role", "toolName", "isError", "customType", "stopReason"})
