"""What Chat Completions refuse: calls without results, results without calls, ids, empty text.

Source: cases/faults, A. The wordings are OpenAI's; it bears an empty text part itself, but
servers that speak alike do not.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from strandline.testing.wire import (
    Problem,
    dicts,
    openai_cache_problems,
    openai_empty,
    openai_too_long,
)
from strandline.transcript.messages import JsonObject

MAX_ID_CHARS = 40


def problems(body: JsonObject) -> Iterator[Problem]:
    """What is wrong, the first first."""
    messages = dicts(body, "messages")
    if not messages:
        yield Problem(
            message="Invalid 'messages': empty array. Expected an array with minimum length 1, "
            "but got an empty array instead.",
            code="empty_array",
            param="messages",
        )
    yield from openai_cache_problems(body)
    for place, message in enumerate(messages):
        yield from _in_message(f"messages[{place}]", message)
    yield from _in_pairs(messages)


def _in_message(place: str, message: JsonObject) -> Iterator[Problem]:
    calls = dicts(message, "tool_calls")
    for index, call in enumerate(calls):
        yield from openai_too_long(f"{place}.tool_calls[{index}].id", call.get("id"), MAX_ID_CHARS)
    if message.get("role") == "tool":
        named = message.get("tool_call_id")
        yield from openai_too_long(f"{place}.tool_call_id", named, MAX_ID_CHARS)
    if message.get("content") is None and not calls:
        yield Problem(
            message="Invalid value for 'content': expected a string, got null.",
            param=f"{place}.content",
        )
    if message.get("content") == []:
        yield Problem(
            message=f"Invalid '{place}.content': empty array. Expected an array with minimum "
            "length 1, but got an empty array instead.",
            code="empty_array",
            param=f"{place}.content",
        )
    for index, part in enumerate(dicts(message, "content")):
        yield from openai_empty(f"{place}.content[{index}].text", part.get("text"))


def _in_pairs(messages: Sequence[JsonObject]) -> Iterator[Problem]:
    open_calls: set[object] | None = None
    for place, message in enumerate(messages):
        if message.get("role") == "tool":
            yield from _result(place, message, open_calls)
            continue
        open_calls = None
        if calls := dicts(message, "tool_calls"):
            open_calls = {call.get("id") for call in calls}
            yield from _unanswered(place, calls, messages[place + 1 :])


def _result(place: int, message: JsonObject, open_calls: set[object] | None) -> Iterator[Problem]:
    if open_calls is None:
        yield Problem(
            message="Invalid parameter: messages with role 'tool' must be a response to a "
            "preceeding message with 'tool_calls'.",
            param=f"messages.[{place}].role",
        )
    elif message.get("tool_call_id") not in open_calls:
        yield Problem(
            message="Invalid parameter: 'tool_call_id' of "
            f"'{message.get('tool_call_id')}' not found in 'tool_calls' of previous message.",
            param=f"messages.[{place}].tool_call_id",
        )


def _unanswered(
    place: int, calls: Sequence[JsonObject], after: Sequence[JsonObject]
) -> Iterator[Problem]:
    results = itertools.takewhile(lambda message: message.get("role") == "tool", after)
    answered = {result.get("tool_call_id") for result in results}
    open_ids = [str(call.get("id")) for call in calls if call.get("id") not in answered]
    if open_ids:
        yield Problem(
            message="An assistant message with 'tool_calls' must be followed by tool messages "
            "responding to each 'tool_call_id'. The following tool_call_ids did not have "
            f"response messages: {', '.join(open_ids)}",
            param=f"messages.[{place}].role",
        )
