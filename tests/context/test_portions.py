"""Portions of a history for a summariser's own window."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.context.dialogue import conversation_text
from strandline.context.portions import first_part
from strandline.context.summarize import SummaryRequest
from strandline.context.tokens import HeuristicCounter, MessageTokens
from strandline.transcript.messages import Message

COUNTER = HeuristicCounter()
TOKENS = MessageTokens(COUNTER)


def user(text: str) -> Message:
    return {"role": "user", "content": [{"type": "text", "text": text}]}


def calls(count: int) -> Message:
    block = {"type": "toolCall", "id": "a", "name": "read", "arguments": {"path": "/srv/x"}}
    return {"role": "assistant", "content": [block] * count}


def split_request(
    request: SummaryRequest, room: int, tokens: MessageTokens
) -> tuple[SummaryRequest, ...]:
    """All parts of a request."""
    parts = []
    rest: SummaryRequest | None = request
    while rest is not None:
        part, rest = first_part(rest, room, tokens)
        parts.append(part)
    return tuple(parts)


MESSAGES = st.one_of(
    st.text(max_size=4_000).map(user),
    st.integers(1, 400).map(lambda lines: user("a\n" * lines)),
    st.integers(1, 200).map(calls),
    st.text(max_size=2_000).map(
        lambda text: {"role": "toolResult", "toolName": "read", "content": text}
    ),
    st.text(max_size=2_000).map(lambda text: {"role": "bashExecution", "command": text}),
    st.text(max_size=2_000).map(lambda text: {"role": "branchSummary", "summary": text}),
)


@settings(max_examples=150)
@given(messages=st.lists(MESSAGES, max_size=12), room=st.integers(64, 2_000))
def test_h1_the_text_of_every_part_fits_and_no_message_is_left_out(
    messages: list[dict[str, Any]], room: int
) -> None:
    parts = split_request(SummaryRequest(messages, 100), room, TOKENS)
    assert sum(len(part.messages) for part in parts) == len(messages)
    for part in parts:
        assert COUNTER.count(conversation_text(part.messages)) <= room
    roles = [message["role"] for part in parts for message in part.messages]
    assert roles == [message["role"] for message in messages]


def test_only_the_last_part_ends_where_the_request_ends() -> None:
    request = SummaryRequest([user("word " * 300)] * 3, 100, "before", "be brief")
    parts = split_request(request, 500, TOKENS)
    assert [part.split_turn for part in parts] == [True, True, False]
    assert [part.previous_summary for part in parts] == ["before", None, None]
    assert {part.instructions for part in parts} == {"be brief"}


def test_a_message_shortened_for_its_size_still_says_who_said_it() -> None:
    long = {
        "role": "toolResult",
        "toolName": "grep",
        "isError": True,
        "content": [{"type": "text", "text": "line\n" * 9_000}],
    }
    part, rest = first_part(SummaryRequest([long], 100), 300, TOKENS)
    assert rest is None
    text = conversation_text(part.messages)
    assert all(line.startswith("[error of grep] | ") for line in text.splitlines())
    assert "characters left out" in text


def test_nothing_to_tell_is_one_empty_part() -> None:
    """A summary that is only to be brought to another length."""
    assert split_request(SummaryRequest([], 100, "before"), 500, TOKENS) == (
        SummaryRequest((), 100, "before"),
    )
