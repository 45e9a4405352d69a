"""Context engines (cases/faults L6, P2): one compacts, and nothing waits for the dead."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from strandline.context.budget import CompactionSettings
from strandline.context.engine import Compact, CompactResult, EngineInfo, LegacyEngine
from strandline.runtime.agent import Agent, Backend
from strandline.runtime.announcing import SUBAGENT
from strandline.runtime.conversation import Conversation
from strandline.runtime.engine_host import EngineHost
from strandline.testing import RecordedRequest, Reply, ScriptedModelServer
from strandline.wiring import open_state

CHAT = "openai-completions"
KEY = "agent:main:main"
LONG = "lantern harbour " * 400


class Counting(LegacyEngine):
    """An engine that counts how often it is to compact, and has a threshold of its own."""

    def __init__(self, *, owns: bool) -> None:
        self.info = EngineInfo("counting", "Counting", owns_compaction=owns)
        self.asked = 0

    async def compact(self, request: Compact) -> CompactResult:
        self.asked += 1
        return await super().compact(request)


@pytest.mark.parametrize("owns", [True, False])
async def test_p2_there_is_one_owner_of_compaction(
    *,
    owns: bool,
    serve: Callable[..., ScriptedModelServer],
    backend_for: Callable[..., Backend],
    agent_of: Callable[..., Agent],
    talk_of: Callable[..., Conversation],
) -> None:
    """Far above the host's threshold its compaction works alone, or not at all."""
    server, engine = serve(lambda _: Reply("Yes.")), Counting(owns=owns)
    settings = CompactionSettings(reserve_tokens=1_000, keep_recent_tokens=2_000)
    host = EngineHost(engine)
    backend = backend_for(CHAT, server, 16_000)
    talk = talk_of(agent_of(backend, engine=host, compaction=settings))
    made = 0
    for number in range(12):
        result = await talk.say(f"{number} {LONG}")
        made += len([*result.compactions, *await talk.settle()])
    assert engine.asked == 0, "nobody asked for one, and no provider refused"
    compactions = [each for each in talk.session.entries() if each.type == "compaction"]
    assert len(compactions) == made
    assert (made == 0) == owns


class Children:
    """Sub-agents that never end while `hang`; everybody else is answered."""

    hang = True

    def __call__(self, request: RecordedRequest) -> Reply:
        is_child = "A task from another agent" in json.dumps(request.body)
        if is_child and self.hang:
            return Reply("never", stall_after=0, stall_s=30)
        return Reply("Forty-two." if is_child else "Fine.")


async def test_l6_what_waits_for_dead_sessions_is_passed_over(
    state: Path, setup: Callable[..., None], serve: Callable[..., ScriptedModelServer]
) -> None:
    """Three children are gone with rows and files: their parent goes on, and hears of a fourth."""
    script = Children()
    setup(serve(script))
    talk = open_state(state, {}).conversation("main", KEY, holder="a test")
    assert talk.subagents is not None
    gone = [await talk.subagents.spawn(f"count {number}") for number in range(3)]
    await talk.close()
    folder = state / "agents" / "main" / "sessions"
    rows = json.loads((folder / "sessions.json").read_text())
    for each in gone:
        del rows[each.key]
        (folder / f"{each.session_id}.jsonl").unlink()
    (folder / "sessions.json").write_text(json.dumps(rows))
    script.hang = False
    again = open_state(state, {}).conversation("main", KEY, holder="a test")
    try:
        assert (await again.say("Hello")).reply == "Fine."
        assert again.subagents is not None
        fourth = await again.subagents.spawn("count once more")
        await asyncio.wait_for(again.settle(), 30)
        told = [each for each in messages(again) if each.get("customType") == SUBAGENT]
        assert [each["details"]["origin"]["runId"] for each in told] == [fourth.run_id]
        assert (await again.say("And now?")).reply == "Fine."
    finally:
        await again.close()


def messages(talk: Conversation) -> list[dict[str, Any]]:
    return [*talk.session.build_context().messages]
