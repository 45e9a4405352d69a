"""What a context engine hears of a conversation: everything once, in order, by entry."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from strandline.context.budget import CompactionSettings
from strandline.context.engine import AssembleResult
from strandline.errors import EngineError, ModelError
from strandline.runtime.silence import Occasion
from strandline.runtime.tools import Tool, Toolbox
from strandline.testing import Reply, ScriptedModelServer
from strandline.testing.reply import ToolCall
from strandline.transcript.context import PathMessage

LONG = "lantern harbour " * 400


def toolbox(*names: str) -> Toolbox:
    tools = [Tool(name, "It looks.", {"type": "object"}, lambda _: "seen") for name in names]
    return Toolbox(tools)


async def test_every_message_of_turns_with_tools_is_heard_once_in_order(home: Any) -> None:
    calls = Reply("I look.", tool_calls=[ToolCall("look", {}, "c1"), ToolCall("look", {}, "c2")])
    with ScriptedModelServer([Reply("Hello."), calls, Reply("Found.")]) as server:
        conversation = home.open(server, toolbox=toolbox("look"))
        await conversation.say("one")
        await conversation.say("two")
        path = home.path(conversation)
        await conversation.close()
    assert home.engine.heard == path
    assert len(path) == 7
    (first,) = home.engine.asked("bootstrap")
    assert first.reason == "new"
    assert [item.entry_id for item in first.messages] == path[:1]


async def test_a_try_that_failed_and_the_next_are_one_message(home: Any) -> None:
    with ScriptedModelServer([Reply(status=500), Reply("Now.")]) as server:
        conversation = home.open(server)
        with pytest.raises(ModelError):
            await conversation.say("one")
        await conversation.retry()
        assert home.engine.heard == home.path(conversation)
        await conversation.close()
    assert len(home.engine.heard) == 2


async def test_after_a_restart_the_path_is_told_and_after_turn_gets_only_what_is_new(
    home: Any,
) -> None:
    """cases/faults L1: the whole history came again as new."""
    with ScriptedModelServer() as server:
        conversation = home.open(server)
        for n in range(4):
            await conversation.say(f"message {n}")
        before = home.path(conversation)
        await conversation.close()
        home.restart()
        conversation = home.open(server)
        await conversation.say("and on")
        path = home.path(conversation)
        await conversation.close()
    (boot,) = home.engine.asked("bootstrap")
    assert boot.reason == "opened"
    assert [item.entry_id for item in boot.messages] == path[: len(before) + 1]
    (after,) = home.engine.asked("after_turn")
    assert [item.entry_id for item in after.new_messages] == path[-2:]
    assert home.engine.heard == path


async def test_a_session_in_which_nothing_was_said_is_still_new_after_a_restart(home: Any) -> None:
    with ScriptedModelServer() as server:
        await home.open(server).close()
        home.restart()
        conversation = home.open(server)
        await conversation.say("one")
        await conversation.close()
    (boot,) = home.engine.asked("bootstrap")
    assert boot.reason == "new"


async def test_after_turn_gets_only_what_is_new_whatever_entry_stands_before_it(home: Any) -> None:
    """A change of model, or a note of a plugin, is no message and no reason to tell it all."""
    with ScriptedModelServer() as server:
        conversation = home.open(server)
        await conversation.say("one")
        conversation.session.append_custom("a-note", {"n": 1})
        await conversation.say("two")
        agent = home.agent_for(server, engine=home.host)
        other = replace(agent, info=replace(agent.info, id="other"))
        await conversation.use(other)
        await conversation.say("three")
        path = home.path(conversation)
        await conversation.close()
    added = [[i.entry_id for i in each.new_messages] for each in home.engine.asked("after_turn")]
    assert added == [path[0:2], path[2:4], path[4:6]]
    assert len(home.engine.asked("bootstrap")) == 1, "another model is no other session"
    assert [phase for phase, _ in home.engine.calls].count("dispose") == 1


async def test_what_others_append_is_heard_before_what_follows(home: Any) -> None:
    with ScriptedModelServer() as server:
        ours = home.open(server)
        await ours.say("one")
        theirs = type(home)(home.folder, home.clock, home.agent_for, ids=home.ids).open(server)
        await theirs.say("from elsewhere")
        await theirs.close()
        await ours.say("two")
        assert home.engine.heard == home.path(ours)
        await ours.close()
    assert len(home.engine.asked("bootstrap")) == 1
    assert len(home.engine.heard) == 6


async def test_a_branch_an_undone_compaction_and_a_compaction_are_told_as_what_they_are(
    home: Any,
) -> None:
    reasons: list[str] = []
    with ScriptedModelServer() as server:
        conversation = home.open(server, compaction=CompactionSettings(keep_recent_tokens=100))

        async def told(n: int) -> None:
            await conversation.say(f"message {n}")
            reasons.append(home.engine.asked("bootstrap")[-1].reason)
            assert home.engine.heard == home.path(conversation)

        for n in range(2):
            await conversation.say(f"{n} {LONG}")
        start = home.path(conversation)[1]
        await told(2)
        assert await conversation.compact() is not None
        await told(3)
        await conversation.undo_compaction()
        await told(4)
        await conversation.branch(start)
        await told(5)
        await conversation.close()
    assert reasons == ["new", "compaction", "branch", "branch"]
    upkeep = [request.reason for request in home.engine.asked("maintain")]
    assert [each for each in upkeep if each != "turn"] == ["bootstrap", "compaction"]


async def test_going_back_behind_a_compaction_is_a_branch(home: Any) -> None:
    """The path begins with a summary then, which was there before."""
    with ScriptedModelServer() as server:
        conversation = home.open(server, compaction=CompactionSettings(keep_recent_tokens=100))
        await conversation.say(f"one {LONG}")
        await conversation.say("two")
        await conversation.compact()
        await conversation.say("three")
        point = home.path(conversation)[-1]
        await conversation.say("four")
        await conversation.branch(point)
        await conversation.say("five")
        await conversation.close()
    reasons = [request.reason for request in home.engine.asked("bootstrap")]
    assert reasons == ["new", "compaction", "branch"]


async def test_a_reset_begins_anew_and_says_so(home: Any) -> None:
    """cases/faults G10: an engine that is not told of a reset says the old things again."""
    with ScriptedModelServer() as server:
        conversation = home.open(server)
        await conversation.say("one")
        old = conversation.session_id
        await conversation.reset()
        await conversation.say("two")
        path = home.path(conversation)
        await conversation.close()
    first, second = home.engine.asked("bootstrap")
    assert (first.reason, second.reason) == ("new", "reset")
    assert first.session.session_id == old != second.session.session_id
    assert first.session.session_key == second.session.session_key == "agent:main:main"
    assert str(second.session.session_file).startswith(str(home.folder))
    assert [item.entry_id for item in second.messages] == path[:1]
    assert home.engine.heard == path


async def test_a_heartbeat_and_its_answer_are_marked_and_a_person_is_not(home: Any) -> None:
    """cases/faults L3: the host says what a message is; no engine has to guess it from words."""
    with ScriptedModelServer() as server:
        conversation = home.open(server)
        await conversation.say("hello")
        await conversation.say("anything to do?", occasion=Occasion(True, heartbeat=True))
        await conversation.say("I am back")
        await conversation.close()
    marks = [r.is_heartbeat for phase, r in home.engine.calls if phase == "ingest"]
    assert marks == [False, True, True, False, False]
    assert [r.is_heartbeat for r in home.engine.asked("after_turn")] == [False, True, False]


async def test_a_heartbeat_does_not_swallow_what_a_person_says_beside_it(home: Any) -> None:
    with ScriptedModelServer() as server:
        ours = home.open(server)
        await ours.say("hello")
        theirs = type(home)(home.folder, home.clock, home.agent_for, ids=home.ids).open(server)
        await theirs.say("beat", occasion=Occasion(True, heartbeat=True))
        await theirs.say("a person")
        await theirs.close()
        await ours.say("beat", occasion=Occasion(True, heartbeat=True))
        await ours.close()
    told = [
        (phase, len(getattr(request, "messages", [None])), request.is_heartbeat)
        for phase, request in home.engine.calls
        if phase.startswith("ingest")
    ]
    assert told[1:] == [
        ("ingest_batch", 2, True),
        ("ingest_batch", 2, False),
        ("ingest", 1, True),
        ("ingest", 1, True),
    ]


async def test_nothing_is_told_twice_by_what_goes_on_beside_the_turns(home: Any) -> None:
    """The upkeep after a turn, a look at the size and the next turns: all at the same time."""
    with ScriptedModelServer() as server:
        conversation = home.open(server, window=9_000)
        await asyncio.gather(*(conversation.say(f"{n} {LONG[:2_000]}") for n in range(6)))
        await asyncio.gather(
            conversation.say("more"), conversation.context_size(), conversation.settle()
        )
        await conversation.settle()
        assert home.engine.heard == home.path(conversation)
        await conversation.close()


async def test_what_an_engine_could_not_hear_it_is_told_again(home: Any) -> None:
    """cases/faults L4: it failed once; the next turn tells what is missing, and no more."""
    failures = [RuntimeError("busy")]

    def sometimes(request: Any) -> Any:
        if request.message.message["role"] == "user" and failures:
            raise failures.pop()
        return ...

    home.engine.does["ingest"] = sometimes
    with ScriptedModelServer() as server:
        conversation = home.open(server)
        await conversation.say("one")
        with pytest.raises(EngineError, match="notebook failed in ingest"):
            await conversation.say("two")
        assert len(server.requests) == 1, "the model was not asked without the engine"
        await conversation.say("three")
        path = home.path(conversation)
        assert sorted(set(home.engine.heard)) == sorted(path)
        await conversation.close()
    assert [failure.phase for failure in home.health.recent()] == ["ingest"]


async def test_the_same_words_twice_are_two_messages_and_other_words_are_the_same_one(
    home: Any,
) -> None:
    """cases/faults L2: who knows a message by its text stores a masked one twice."""
    masked: list[str] = []

    def mask(request: Any) -> Any:
        items = [
            PathMessage(each.entry_id, {**each.message, "content": "***"})
            if each.message["role"] == "user"
            else each
            for each in request.messages
        ]
        masked.extend(each.entry_id for each in items)
        return AssembleResult(items, 10)

    home.engine.does["assemble"] = mask
    with ScriptedModelServer() as server:
        conversation = home.open(server)
        for _ in range(2):
            await conversation.say("the word is ORCHID")
        path = home.path(conversation)
        sent = [str(m["content"]) for m in server.requests[-1].body["messages"]]
        await conversation.close()
    assert home.engine.heard == path
    assert len(set(path)) == 4
    assert set(masked) == set(path)
    assert [text for text in sent if "ORCHID" in text] == []
    assert sent.count("***") == 2
