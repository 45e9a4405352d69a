"""What a request asks the provider's cache to keep."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.context.engine import Assemble, AssembleResult
from strandline.context.policy import ProviderCache
from strandline.runtime.cache_marks import cache_marks
from strandline.runtime.events import CacheUsed, TurnEvent
from strandline.runtime.tools import Tool, Toolbox, ToolCall, ToolOutput
from strandline.testing import ScriptedModelServer


@pytest.mark.parametrize(
    ("messages", "count", "places"),
    [
        (20, 10, (9, 19)),
        (11, 10, (0, 10)),
        (10, 10, (9,)),
        (1, 10, (0,)),
        (0, 10, ()),
        (5, 0, (4,)),
        (5, 1, (3, 4)),
    ],
)
def test_the_newest_message_is_marked_and_the_one_so_many_before_it(
    messages: int, count: int, places: tuple[int, ...]
) -> None:
    marks = cache_marks(ProviderCache(message_count=count), "a session", messages)
    assert marks is not None
    assert marks.messages == places
    assert (marks.tools, marks.system, marks.retention) == (True, True, "short")


@settings(deadline=None)
@given(st.integers(0, 200), st.integers(0, 50))
def test_with_tools_and_system_prompt_there_are_never_more_than_four(
    messages: int, count: int
) -> None:
    marks = cache_marks(ProviderCache(message_count=count), "a session", messages)
    assert marks is not None
    assert marks.tools + marks.system + len(marks.messages) <= 4
    assert list(marks.messages) == sorted(set(marks.messages))
    assert all(0 <= place < messages for place in marks.messages)


def test_nothing_is_asked_for_where_nothing_is_to_be_kept() -> None:
    assert cache_marks(ProviderCache(enabled=False), "a session", 3) is None
    assert cache_marks(ProviderCache(retention="none"), "a session", 3) is None
    without = cache_marks(ProviderCache(system=False, retention="long"), "a session", 3)
    assert without is not None
    assert (without.tools, without.system, without.messages) == (False, False, (2,))
    assert without.retention == "long"


def test_the_key_is_the_sessions_and_tells_nothing_of_it() -> None:
    keys = set()
    for session, messages in itertools.product(["agent:main:alice", "agent:main:bob"], [1, 9]):
        marks = cache_marks(ProviderCache(), session, messages)
        assert marks is not None
        assert re.fullmatch(r"[0-9a-f]{32}", marks.key)
        assert "alice" not in marks.key
        keys.add(marks.key)
    assert len(keys) == 2


def test_tools_are_described_in_one_order_however_they_were_found() -> None:
    """K4; by code point, whatever the locale says."""

    async def nothing(_: ToolCall) -> ToolOutput:
        return ToolOutput([])

    tools = [Tool(name, "", {"type": "object"}, nothing) for name in ("zeta", "alpha", "mu", "Mu")]
    orders = [Toolbox(order).described() for order in itertools.permutations(tools)]
    orders += [
        Toolbox(order[:2]).plus(order[2:]).described() for order in itertools.permutations(tools)
    ]
    assert all(order == orders[0] for order in orders)
    assert [tool["name"] for tool in orders[0]] == ["Mu", "alpha", "mu", "zeta"]


async def test_an_addition_of_an_engine_that_changes_costs_the_cache_and_that_is_told(
    home: Any,
) -> None:
    told = ["Mind the bells."]

    def assemble(request: Assemble) -> AssembleResult:
        return AssembleResult(request.messages, 0, system_prompt_addition=told[-1])

    home.engine.does["assemble"] = assemble
    heard: list[TurnEvent] = []
    with ScriptedModelServer() as server:
        conversation = home.open(server, window=32_000)
        await conversation.say("lantern harbour " * 800)
        for addition in ("Mind the bells.", "Mind the ropes.", "Mind the ropes."):
            told.append(addition)
            await conversation.say("And now?", listener=heard.append)
        await conversation.close()
    whys = [event.why for event in heard if isinstance(event, CacheUsed)]
    assert [bool(why) for why in whys] == [False, True, False]
    assert whys[1].startswith("system prompt changed at byte ")
    assert whys[1].endswith("what the engine puts before the system prompt changed")
