"""What is left out of a session that is never quiet (cases/faults K7), with every provider."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

from strandline.context.policy import AgeRule, ContextPolicy, ToolResultPruning
from strandline.runtime.agent import Agent, Backend
from strandline.runtime.conversation import Conversation
from strandline.runtime.tools import Tool
from strandline.testing import Reply, ScriptedModelServer, SimulatedClock, ToolCall

BackendFor = Callable[..., Backend]
HALF_A_MINUTE_MS = 30_000
TEN_MINUTES_MS = 600_000
TURNS = 60
BOOK = "lantern harbour " * 400


async def test_k7_a_session_that_is_never_quiet_is_pruned_by_age(
    api: str,
    serve: Callable[..., ScriptedModelServer],
    backend_for: BackendFor,
    agent_of: Callable[..., Agent],
    talk_of: Callable[..., Conversation],
) -> None:
    """Somebody speaks every half minute: a cut comes when it is due, not when there is a rest."""
    server, clock = serve(lambda _: Reply("Yes.")), SimulatedClock()
    policy = ContextPolicy(ttl=(AgeRule(TEN_MINUTES_MS, "all"),))
    agent = agent_of(backend_for(api, server, 200_000), policy=policy)
    talk = talk_of(replace(agent, clock=clock))
    for number in range(TURNS):
        await talk.say(f"turn {number}?")
        clock.advance(HALF_A_MINUTE_MS)
    for number, request in enumerate(server.requests):
        text = json.dumps(request.body)
        seen = [turn for turn in range(TURNS) if f"turn {turn}?" in text]
        assert seen == [*range(max(0, number - 20), number + 1)], "ten minutes of it"
    said = [m for m in talk.session.build_context().messages if m["role"] == "user"]
    assert len(said) == TURNS, "the transcript keeps all"


async def test_k7_old_results_are_trimmed_once_the_cache_is_lost_whoever_the_provider_is(
    api: str,
    serve: Callable[..., ScriptedModelServer],
    backend_for: BackendFor,
    agent_of: Callable[..., Agent],
    talk_of: Callable[..., Conversation],
) -> None:
    """While calls come more often than that it would cost the cache: there the layers help."""
    replies = [Reply(tool_calls=[ToolCall("read", {})], thinking="hm"), *[Reply("Yes.")] * 9]
    server, clock = serve(replies), SimulatedClock()
    trims = ToolResultPruning("cache-ttl", keep_last_assistants=1, soft_trim_ratio=0.0)
    tool = Tool("read", "It reads.", {"type": "object"}, lambda _: BOOK)
    backend = backend_for(api, server, 200_000)
    agent = agent_of(backend, tool, policy=ContextPolicy(tool_results=trims))
    talk = talk_of(replace(agent, clock=clock))
    for wait_ms in [HALF_A_MINUTE_MS] * 4 + [TEN_MINUTES_MS, HALF_A_MINUTE_MS, 0]:
        await talk.say("And?")
        clock.advance(wait_ms)
    whole = [BOOK in json.dumps(request.body) for request in server.requests]
    assert whole == [False, *[True] * 5, False, False], "and what was trimmed stays so"
