"""A summary request in portions, for a summariser whose window is smaller than the history.

Source: spec 3, Budget and compaction (Summaries).
"""

from __future__ import annotations

from dataclasses import replace

from strandline.context.shorten import shorten_message
from strandline.context.summarize import SummaryRequest
from strandline.context.tokens import MessageTokens
from strandline.transcript.messages import Message


def split_request(
    request: SummaryRequest, max_input_tokens: int, tokens: MessageTokens
) -> tuple[SummaryRequest, ...]:
    """The request in parts whose messages fit a summariser's own window.

    The parts are summarised in order, each with the summary of the part before as its
    `previous_summary` (the first keeps the request's).
    """
    parts: list[list[Message]] = [[]]
    taken = 0
    for message in request.messages:
        size = tokens.count(message)
        if size > max_input_tokens:
            message = shorten_message(message, max_input_tokens, tokens)  # noqa: PLW2901 - the same message, shorter
            size = tokens.count(message)
        if taken + size > max_input_tokens and parts[-1]:
            parts.append([])
            taken = 0
        parts[-1].append(message)
        taken += size
    last = len(parts) - 1
    return tuple(
        replace(
            request,
            messages=tuple(part),
            previous_summary=request.previous_summary if index == 0 else None,
            split_turn=request.split_turn if index == last else True,
        )
        for index, part in enumerate(parts)
    )
