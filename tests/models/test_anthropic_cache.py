"""What Anthropic's cache saves, as the adapter asks for it and the server counts it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest

from strandline.models.anthropic import API, AnthropicModel
from strandline.runtime.model import CacheMarks, Finished, ModelInfo, ModelRequest, Prices
from strandline.testing import ScriptedModelServer, SimulatedClock

INFO = ModelInfo("anthropic", "one", API, 200_000, 64_000, Prices(3, 15, 0.3, 3.75, 6))
TOOLS = ({"name": "read", "description": "Reads. " * 800, "parameters": {"type": "object"}},)
LASTING = "Be kind. " * 800
MINUTE_MS = 60_000

Ask = Callable[..., ModelRequest]
Collect = Callable[[Any, ModelRequest], Any]
Usage = dict[str, Any]


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()


@pytest.fixture
async def used(
    clock: SimulatedClock, events_of: Collect
) -> AsyncIterator[Callable[[ModelRequest], Any]]:
    """The usage of a call of one server, whose cache lives by the clock."""
    with ScriptedModelServer(now_ms=clock.now_ms) as server:
        async with contextlib.aclosing(AnthropicModel(server.root_url, clock=clock)) as model:

            async def usage_of(request: ModelRequest) -> Usage:
                last = (await events_of(model, request))[-1]
                assert isinstance(last, Finished), last
                return dict(last.message["usage"])

            yield usage_of
        assert server.refused == []


Used = Callable[[ModelRequest], Any]


async def test_a_second_session_of_the_agent_reads_what_the_first_one_wrote(
    used: Used, ask: Ask
) -> None:
    """Faults K9: tools and system prompt have marks of their own, before all of a session."""
    common = {"model": INFO, "tools": TOOLS, "system_prompt": LASTING}
    one = await used(ask("I am Ann. " * 500, cache=CacheMarks(messages=(0,)), **common))
    two = await used(ask("I am Bob. " * 500, cache=CacheMarks(messages=(0,)), **common))
    assert one["cacheRead"] == 0
    assert two["cacheRead"] == pytest.approx(one["cacheWrite"] - two["cacheWrite"], abs=2)
    own = {**common, "system_prompt": f"You talk to Bob. {LASTING}"}
    three = await used(ask("hi", cache=CacheMarks(messages=(0,)), **own))
    assert 1024 < three["cacheRead"] < two["cacheRead"], "the tools, at least"


async def test_a_conversation_that_grows_reads_all_that_was_there_before(
    used: Used, ask: Ask
) -> None:
    messages: list[Any] = []
    before = 0
    for number in range(8):
        messages += ask(f"{number} " * 400).messages
        cache = CacheMarks(messages=(len(messages) - 1,))
        request = ask(*messages, model=INFO, tools=TOOLS, system_prompt=LASTING, cache=cache)
        usage = await used(request)
        assert usage["cacheRead"] == before
        assert usage["input"] == 0
        before = usage["cacheRead"] + usage["cacheWrite"]


async def test_without_marks_nothing_is_read_or_written(used: Used, ask: Ask) -> None:
    for cache in (None, CacheMarks("none", messages=(0,))):
        for _ in range(2):
            usage = await used(ask("hi", model=INFO, system_prompt=LASTING, cache=cache))
            assert (usage["cacheRead"], usage["cacheWrite"]) == (0, 0)


@pytest.mark.parametrize(
    ("retention", "minutes", "alive"),
    [("short", 4, True), ("short", 5, False), ("long", 59, True), ("long", 60, False)],
)
async def test_long_lives_an_hour_at_its_own_price(
    retention: Any,
    minutes: int,
    alive: bool,  # noqa: FBT001 - a parameter
    used: Used,
    ask: Ask,
    clock: SimulatedClock,
) -> None:
    request = ask("hi", model=INFO, system_prompt=LASTING, cache=CacheMarks(retention))
    first = await used(request)
    price = 6 if retention == "long" else 3.75
    assert first["cost"]["cacheWrite"] == pytest.approx(first["cacheWrite"] * price / 1e6)
    clock.advance(minutes * MINUTE_MS)
    second = await used(replace(request))
    assert bool(second["cacheRead"]) is alive
