"""Files of others hold all kinds of messages: whatever is in one, the session goes on."""

from __future__ import annotations

import json
from typing import Any

import pytest

from strandline.context.clean_path import CleanPath
from strandline.context.tokens import HeuristicCounter, MessageTokens
from strandline.runtime.answers import text_of
from strandline.runtime.child_sessions import fork_point, last_reply
from strandline.runtime.inbound import is_answered
from strandline.runtime.path_news import prompt
from strandline.stores.memory import MemoryStore
from strandline.testing import CountingIds, SimulatedClock
from strandline.transcript.session import Session

ANYTHING: list[Any] = [
    None,
    5,
    "x",
    [],
    {},
    [[]],
    [None],
    ["x"],
    [{"type": []}],
    [{"type": "text", "text": 5}],
]
CALL = {"type": "toolCall", "id": "c", "name": "look", "arguments": {}}
MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "content": "hi", "timestamp": 1},
    {"role": "assistant", "content": [CALL], "stopReason": "toolUse", "timestamp": 2},
    {"role": "toolResult", "toolCallId": "c", "content": [], "isError": False, "timestamp": 3},
    {"role": "assistant", "content": "so", "stopReason": "stop", "timestamp": 4},
]


def session_of(messages: list[dict[str, Any]]) -> Session:
    lines: list[dict[str, Any]] = [{"type": "session", "version": 3, "id": "s", "cwd": "/"}]
    for number, message in enumerate(messages):
        parent = f"0000000{number - 1}" if number else None
        lines.append(
            {"type": "message", "id": f"0000000{number}", "parentId": parent, "message": message}
        )
    image = "".join(json.dumps(line) + "\n" for line in lines)
    log = MemoryStore().create("s.jsonl", image.encode())
    return Session(log, clock=SimulatedClock(), ids=CountingIds())


@pytest.mark.parametrize("odd", ANYTHING, ids=repr)
@pytest.mark.parametrize("key", ["content", "stopReason", "toolCallId", "timestamp"])
@pytest.mark.parametrize("place", range(len(MESSAGES)))
def test_odd_parts_of_a_message_stop_nobody_who_looks(place: int, key: str, odd: object) -> None:
    """A message with something else in one of its keys is looked at by all who look at paths."""
    messages = [*MESSAGES]
    messages[place] = {**messages[place], key: odd}
    for newest in range(1, len(messages) + 1):
        session = session_of(messages[:newest])
        items = session.build_context().items
        CleanPath(MessageTokens(HeuristicCounter())).follow(items, 100)
        assert is_answered(session) in {True, False}
        assert isinstance(prompt(items), str)
        assert all(isinstance(text_of(item.message), str) for item in items)
        fork_point(session)
        last_reply(session, None)
