"""What the provider's cache reads, and the system prompt that stays while it does.

The server keeps a cache by its provider's rules, on the clock of the conversation, so its counts
are earned. Source: spec 3, Caches; faults K1, K2, K4, K8, K9, K12, G9.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from strandline.testing import Reply, ToolCall

APIS = ["openai-completions", "openai-responses", "anthropic-messages", "google-generative-ai"]
ANTHROPIC = "anthropic-messages"
MINUTE_MS = 60_000
HOUSE = "# House rules\n" + "Keep the lanterns lit. " * 250
"""Enough that tools and system prompt alone are worth keeping."""


def share(calls: list[Any]) -> float:
    """How much of the prompts was read from the cache."""
    read = sum(call.used.read for call in calls)
    return float(read / sum(c.used.read + c.used.written + c.used.fresh for c in calls))


def marks_of(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Anthropic's marks in a body, wherever they are."""
    found = [body["cache_control"]] if "cache_control" in body else []
    for part in body.values():
        for each in part if isinstance(part, list) else [part]:
            found += marks_of(each) if isinstance(each, dict) else []
    return found


def blocks_of(body: dict[str, Any]) -> list[tuple[int, dict[str, Any]]]:
    """The blocks of the messages of an Anthropic body, each with the place of its message."""
    return [(place, b) for place, m in enumerate(body["messages"]) for b in m["content"]]


@pytest.mark.parametrize("api", APIS)
async def test_most_of_a_lively_conversation_is_read_from_the_cache(
    api: str, talk_for: Callable[..., Any]
) -> None:
    talk = talk_for(api)
    (talk.workspace / "AGENTS.md").write_text(HOUSE)
    await talk.restart()
    for number in range(50):
        note = ToolCall("memory_write", {"note": f"Lantern {number} is lit."}, f"call_{number}")
        calls = [Reply("I note it.", tool_calls=[note])] * (number % 5 == 0)
        await talk.say(f"Turn {number}?", *calls, Reply(f"Lantern {number} burns. " * 10))
        talk.clock.advance(30_000)
        if number == 25:
            await talk.restart()
    await talk.talk.close()
    assert talk.server.refused == []
    later = [call for call in talk.calls if "Turn 3?" in call.prompt.messages[-1]]
    assert share(talk.calls[talk.calls.index(later[0]) :]) > 0.8
    assert [call.used.why for call in talk.calls[1:]] == [""] * (len(talk.calls) - 1)
    if api == ANTHROPIC:
        assert all(1 <= len(marks_of(call.body)) <= 4 for call in talk.calls)
    else:
        assert not any(marks_of(call.body) for call in talk.calls)


async def test_marks_stand_on_tools_system_prompt_the_newest_message_and_ten_before_it(
    talk_for: Callable[..., Any],
) -> None:
    talk = talk_for(ANTHROPIC, context={"providerCache": {"cacheableMessageCount": 4}})
    for number in range(5):
        await talk.say(f"Turn {number}?", Reply(f"Lantern {number} burns."))
    await talk.talk.close()
    body = talk.calls[-1].body
    marked = [place for place, block in blocks_of(body) if "cache_control" in block]
    assert marked == [4, 8], "of nine messages the newest, and the fourth before it"
    assert [place for place, tool in enumerate(body["tools"]) if "cache_control" in tool] == [
        len(body["tools"]) - 1
    ]
    assert "cache_control" in body["system"][-1]
    assert marks_of(body) == [{"type": "ephemeral"}] * 4
    first = talk.calls[0].body
    assert [place for place, block in blocks_of(first) if "cache_control" in block] == [0]


async def test_a_prompt_is_not_marked_where_the_operator_does_not_want_it(
    talk_for: Callable[..., Any],
) -> None:
    cases: list[tuple[dict[str, Any], int]] = [
        ({"context": {"providerCache": {"cacheSystemPrompt": False}}}, 1),
        ({"context": {"providerCache": {"enabled": False}}}, 0),
        ({"cacheRetention": "none"}, 0),
    ]
    for own, count in cases:
        talk = talk_for(ANTHROPIC, **own)
        await talk.say("Hello")
        await talk.talk.close()
        assert len(marks_of(talk.calls[0].body)) == count
        assert (talk.calls[0].used.written > 0) == (count > 0)


@pytest.mark.parametrize(("retention", "is_read"), [("long", True), ("short", False)])
async def test_a_long_retention_survives_half_an_hour(
    *,
    retention: str,
    is_read: bool,
    talk_for: Callable[..., Any],
) -> None:
    talk = talk_for(ANTHROPIC, cacheRetention=retention)
    (talk.workspace / "AGENTS.md").write_text(HOUSE)
    await talk.restart()
    await talk.say("Hello", Reply("Good morning."))
    talk.clock.advance(30 * MINUTE_MS)
    (talk.workspace / "AGENTS.md").write_text(HOUSE + "And the bells.")
    await talk.restart()
    await talk.say("And now?", Reply("Good morning still."))
    await talk.talk.close()
    first, second = talk.calls
    ttl = {"ttl": "1h"} if retention == "long" else {}
    assert marks_of(first.body) == [{"type": "ephemeral", **ttl}] * 3
    assert (second.used.read > 0.9 * second.used.expected) == is_read
    assert (first.prompt.system == second.prompt.system) == is_read
    if not is_read:
        assert "min ago" in second.used.why


# -- the system prompt -----------------------------------------------------------------------


@pytest.mark.parametrize("api", APIS)
async def test_the_system_prompt_outlives_the_process_as_long_as_the_cache_does(
    api: str, talk_for: Callable[..., Any]
) -> None:
    """K1, K2: what changed in the workspace meanwhile, and a midnight, cost nothing."""
    talk = talk_for(api)
    talk.clock.advance(24 * 60 * MINUTE_MS - 10 * MINUTE_MS)
    agents = talk.workspace / "AGENTS.md"
    agents.write_text(HOUSE)
    await talk.restart()
    for number in range(8):
        note = ToolCall("memory_write", {"note": f"Lantern {number} is lit."}, f"call_{number}")
        await talk.say(f"Turn {number}?", Reply("I note it.", tool_calls=[note]), Reply("Done."))
        agents.write_text(f"{HOUSE} Version {number}.")
        talk.clock.advance(4 * MINUTE_MS)
        await talk.restart()
    assert len({call.prompt.system for call in talk.calls}) == 1
    assert len([*talk.workspace.glob("memory/*.md")]) == 2, "a midnight has passed"
    kept = [*(talk.folder / "cache" / "prompts").glob("*.json")]
    assert [path.stat().st_mode & 0o777 for path in kept] == [0o600]
    talk.clock.advance(6 * MINUTE_MS)
    await talk.restart()
    await talk.say("Good morning?")
    await talk.talk.close()
    renewed = talk.calls[-1].prompt.system
    assert "Version 7." in renewed, "the cache was lost anyway"
    assert "Lantern 7 is lit." in renewed


@pytest.mark.parametrize("restarts", [True, False])
async def test_the_system_prompt_is_made_anew_after_a_compaction(
    *,
    restarts: bool,
    talk_for: Callable[..., Any],
) -> None:
    talk = talk_for(ANTHROPIC)
    for number in range(4):
        await talk.say(f"{number} " + "lantern harbour " * 400)
    (talk.workspace / "AGENTS.md").write_text(HOUSE)
    await talk.talk.compact(listener=talk.hear)
    if restarts:
        await talk.restart()
    await talk.say("Go on")
    (talk.workspace / "AGENTS.md").write_text("# Other rules")
    if restarts:
        await talk.restart()
    await talk.say("Go on again")
    await talk.talk.close()
    assert len(talk.receipts) == 1
    systems = [call.prompt.system for call in talk.calls]
    assert ["House rules" in system for system in systems] == [False] * 4 + [True] * 2


async def test_a_turn_that_compacts_goes_on_with_the_system_prompt_of_now_and_keeps_it(
    talk_for: Callable[..., Any],
) -> None:
    """The cache is lost once, not once more with the next turn."""
    talk = talk_for(ANTHROPIC, 24_000, compaction={"memoryFlush": {"enabled": False}})
    await talk.say("lantern harbour " * 2_400)
    (talk.workspace / "AGENTS.md").write_text("# House rules")
    await talk.say("bells and ropes " * 2_400)
    assert [receipt.trigger for receipt in talk.receipts] == ["pre-send"]
    (talk.workspace / "AGENTS.md").write_text("# Other rules")
    await talk.say("Go on")
    await talk.restart()
    await talk.say("Go on again")
    await talk.talk.close()
    systems = [call.prompt.system for call in talk.calls]
    assert ["# House rules" in system for system in systems] == [False, True, True, True]
    changes = [call.used.change is not None for call in talk.calls[1:3]]
    assert changes == [True, False]


async def test_each_model_of_a_session_has_its_own_prompt_kept(
    talk_for: Callable[..., Any],
) -> None:
    """K8: what another model was told meanwhile costs the first one nothing, in any process."""
    talk = talk_for(ANTHROPIC)
    agents = talk.workspace / "AGENTS.md"
    for number, model in enumerate([0, 0, 1, 1, 0, 1]):
        agents.write_text(f"{HOUSE} Version {number}.")
        await (talk.use(model) if number % 2 else talk.restart())
        if talk.talk.agent.info.id != ["claude-sonnet-4-5", "claude-haiku-4-5"][model]:
            await talk.use(model)
        await talk.say(f"Turn {number}?", Reply(f"Lantern {number} burns. " * 20))
        talk.clock.advance(MINUTE_MS)
    await talk.talk.close()
    systems = [call.prompt.system for call in talk.calls]
    assert "Version 0." in systems[0]
    assert "Version 2." in systems[2]
    assert systems == [systems[0]] * 2 + [systems[2]] * 2 + [systems[0], systems[2]]
    assert "answers instead of mine/claude-sonnet-4-5" in talk.calls[2].used.why
    back = talk.calls[4].used
    assert back.read > 0.8 * back.expected
    assert back.why == ""


async def test_a_model_that_was_away_for_long_gets_the_prompt_of_now(
    talk_for: Callable[..., Any],
) -> None:
    """The other model's calls keep only the other model's cache alive."""
    talk = talk_for(ANTHROPIC)
    agents = talk.workspace / "AGENTS.md"
    agents.write_text("# Rules 0")
    await talk.restart()
    await talk.say("Hello")
    await talk.use(1)
    agents.write_text("# Rules 1")
    for _ in range(3):
        await talk.say("Go on")
        talk.clock.advance(4 * MINUTE_MS)
    await talk.use(0)
    await talk.say("Here again?")
    await talk.talk.close()
    rules = ["# Rules 0" in call.prompt.system for call in talk.calls]
    assert rules == [True, True, True, True, False]


@pytest.mark.parametrize(
    "own", [{"systemPrompt": "You guard the harbour."}, {"sandbox": {"workspaceAccess": "none"}}]
)
async def test_what_the_operator_sets_holds_at_once(
    own: dict[str, Any], talk_for: Callable[..., Any]
) -> None:
    talk = talk_for(ANTHROPIC)
    (talk.workspace / "AGENTS.md").write_text(HOUSE)
    await talk.restart()
    await talk.say("Hello")
    talk.settings["agents"]["defaults"] |= own
    (talk.folder / "strandline.json").write_text(json.dumps(talk.settings))
    await talk.restart()
    await talk.say("Hello again")
    await talk.talk.close()
    assert talk.calls[0].prompt.system != talk.calls[1].prompt.system
    change = talk.calls[1].used.change
    assert change is not None, "what another process sent is known"
    assert change.part in {"system prompt", "tools"}
    assert change.byte > 0


async def test_sessions_of_one_agent_share_the_beginning(talk_for: Callable[..., Any]) -> None:
    """K9: tools and system prompt have breakpoints of their own, before what is a session's."""
    talk = talk_for(ANTHROPIC)
    (talk.workspace / "AGENTS.md").write_text(HOUSE)
    await talk.restart()
    await talk.say("Hello from here")
    await talk.talk.move_to("agent:main:group:harbour")
    await talk.say("Hello from there")
    await talk.talk.close()
    here, there = talk.calls
    assert here.prompt[:2] == there.prompt[:2]
    assert there.used.read > 0.9 * here.used.written


async def test_heartbeats_keep_the_prefix_of_the_chat_warm(talk_for: Callable[..., Any]) -> None:
    """K12, G9: the same tools and system prompt, and what a heartbeat is stands nowhere else."""
    talk = talk_for(ANTHROPIC)
    (talk.workspace / "AGENTS.md").write_text(HOUSE)
    await talk.restart()
    await talk.say("Hello", Reply("Good morning."))
    for _ in range(4):
        talk.clock.advance(4 * MINUTE_MS)
        await talk.say("[heartbeat]", Reply("NO_REPLY"), heartbeat=True)
    talk.clock.advance(4 * MINUTE_MS)
    await talk.say("And now?")
    await talk.talk.close()
    assert len({call.prompt[:2] for call in talk.calls}) == 1
    assert [call.heartbeat for call in talk.calls] == [False, *[True] * 4, False]
    last = talk.calls[-1]
    assert last.used.read >= last.used.expected * 0.95
    shape = {key: value for key, value in last.body.items() if key != "messages"}
    for call in talk.calls:
        assert {k: v for k, v in call.body.items() if k != "messages"} == shape


async def test_an_agent_that_is_made_twice_is_told_the_same(talk_for: Callable[..., Any]) -> None:
    """K1, K2, K4: 61 seconds and a turn later, and in whatever order its tools were found."""
    talk = talk_for(ANTHROPIC, tools={"deny": ["search"]})
    (talk.workspace / "AGENTS.md").write_text(HOUSE)
    made = []
    for _ in range(2):
        agent = talk.state().agent("main")
        made.append(json.dumps([agent.system_prompt, agent.described_tools]))
        names = [tool["name"] for tool in agent.described_tools]
        assert names == sorted(names)
        await agent.aclose()
        await talk.say("Hello")
        talk.clock.advance(61_000)
    await talk.talk.close()
    assert made[0] == made[1]
