"""When an engine is called in and after a turn, and what of its upkeep a turn waits for."""

from __future__ import annotations

import asyncio
from typing import Any

from strandline.context.budget import CompactionSettings
from strandline.runtime.events import Notice
from strandline.testing import Reply, ScriptedModelServer

LONG = "lantern harbour " * 400
SMALL = CompactionSettings(keep_recent_tokens=200)


async def test_maintenance_in_the_background_lets_the_turn_end_first(home: Any) -> None:
    may_go_on = asyncio.Event()

    async def slow(request: Any) -> None:
        if request.reason == "turn":
            await may_go_on.wait()

    home.engine.does["maintain"] = slow
    with ScriptedModelServer() as server:
        conversation = home.open(server)
        await conversation.say("one")
        assert [r.reason for r in home.engine.asked("maintain")] == ["bootstrap"]
        may_go_on.set()
        await conversation.settle()
        assert [r.reason for r in home.engine.asked("maintain")] == ["bootstrap", "turn"]
        await conversation.close()


async def test_maintenance_in_the_foreground_is_waited_for(home: Any) -> None:
    home.be(turn_maintenance_mode="foreground")
    with ScriptedModelServer() as server:
        conversation = home.open(server)
        await conversation.say("one")
        assert [r.reason for r in home.engine.asked("maintain")] == ["bootstrap", "turn"]
        assert [phase for phase, _ in home.engine.calls][-2:] == ["after_turn", "maintain"]
        await conversation.close()


async def test_an_engine_is_used_from_its_first_turn_on(home: Any) -> None:
    """cases/faults L5: it was declared, and nothing ever called it."""
    with ScriptedModelServer() as server:
        conversation = home.open(server)
        await conversation.say("one")
        await conversation.settle()
        await conversation.close()
    assert [phase for phase, _ in home.engine.calls] == [
        "bootstrap",
        "maintain",
        "assemble",
        "ingest",
        "assemble",
        "after_turn",
        "maintain",
        "assemble",
        "dispose",
    ]


async def test_an_engine_whose_upkeep_fails_keeps_nobody_from_compacting(home: Any) -> None:
    home.engine.does["maintain"] = lambda r: 1 / 0 if r.reason == "turn" else None
    told: list[Any] = []
    with ScriptedModelServer(lambda _: Reply(LONG)) as server:
        conversation = home.open(server, window=5_000, compaction=SMALL)
        receipts: list[Any] = []
        for n in range(8):
            await conversation.say(f"message {n}", listener=told.append)
            receipts += await conversation.settle()
        await conversation.close()
    assert [receipt.trigger for receipt in receipts][:1] == ["threshold"]
    failed = [event.text for event in told if isinstance(event, Notice)]
    assert failed[0].startswith("the context engine notebook failed in maintain (ZeroDivision")


async def test_what_is_compacted_beside_the_turns_is_noted_without_the_engine(home: Any) -> None:
    """It is told in the next turn: who waits for the upkeep may hold the lane by then."""
    with ScriptedModelServer(lambda _: Reply(LONG)) as server:
        conversation = home.open(server, window=5_000, compaction=SMALL)
        receipts: tuple[Any, ...] = ()
        while not receipts:
            await conversation.say("go on")
            receipts = await conversation.settle()
        row = conversation.row
        assert [r.reason for r in home.engine.asked("bootstrap")] == ["new"]
        assert row.compaction_count == 1
        assert receipts[0].tokens_after <= row.total_tokens < receipts[0].tokens_before * 2
        await conversation.say("and now?")
        await conversation.close()
    assert [r.reason for r in home.engine.asked("bootstrap")][:2] == ["new", "compaction"]
