"""Compaction with a context engine: its own, delegated, declined, in its own store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from strandline.context.budget import CompactionSettings
from strandline.context.engine import (
    AssembleResult,
    CompactionOutcome,
    CompactResult,
    delegate_compaction_to_runtime,
)
from strandline.errors import CompactionRefused, EngineError
from strandline.runtime.events import CompactionReceipt, CompactionStarted, Notice
from strandline.runtime.hooks import Cancel, Hooks
from strandline.testing import Reply, ScriptedModelServer

LONG = "lantern harbour " * 400
SMALL = CompactionSettings(keep_recent_tokens=200)
DECLINES = CompactResult(ok=True, compacted=False, reason="I am under my target already")


def summary_of(path: list[str], keep: int, text: str = "Lanterns were talked of.") -> CompactResult:
    """An engine's own compaction, which keeps the newest messages."""
    outcome = CompactionOutcome(text, path[-keep], details={"mine": [1]})
    return CompactResult(ok=True, compacted=True, result=outcome)


def transcript(conversation: Any) -> Path:
    return Path(conversation.session.log_name)


async def talk(conversation: Any, turns: int = 3) -> None:
    for n in range(turns):
        await conversation.say(f"{n} {LONG}")


async def test_a_summary_of_the_engine_is_appended_by_the_host(home: Any) -> None:
    with ScriptedModelServer() as server:
        conversation = home.open(server)
        await talk(conversation)
        home.engine.does["compact"] = summary_of(home.path(conversation), 2)
        before = transcript(conversation).read_bytes()
        receipt = await conversation.compact("keep the names")
        assert receipt is not None
        assert (receipt.summarizer, receipt.trigger) == ("notebook", "manual")
        assert receipt.tokens_after < receipt.tokens_before
        entry = conversation.session.entry(receipt.entry_id)
        assert (entry.type, entry.data["summary"]) == ("compaction", "Lanterns were talked of.")
        assert entry.data["details"]["mine"] == [1]
        assert transcript(conversation).read_bytes().startswith(before)
        await conversation.say("and now?")
        sent = [str(m["content"]) for m in server.requests[-1].body["messages"]]
        await conversation.close()
    assert "Lanterns were talked of." in sent[1]
    assert "0 lantern" not in "".join(sent)
    (asked,) = home.engine.asked("compact")
    assert (asked.trigger, asked.force, asked.custom_instructions) == (
        "manual",
        True,
        "keep the names",
    )
    assert [r.reason for r in home.engine.asked("bootstrap")] == ["new", "compaction"]


@pytest.mark.parametrize(
    ("keep", "text", "said"),
    [(1, LONG * 9, "would leave"), (0, "short", "keeps an entry that is not on the path")],
)
async def test_a_summary_that_would_not_help_is_not_written(
    home: Any, keep: int, text: str, said: str
) -> None:
    with ScriptedModelServer() as server:
        conversation = home.open(server)
        await talk(conversation, 2)
        path = home.path(conversation) if keep else ["no-such-entry"]
        home.engine.does["compact"] = summary_of(path, 1, text)
        before = transcript(conversation).read_bytes()
        with pytest.raises(CompactionRefused, match=said):
            await conversation.compact()
        assert transcript(conversation).read_bytes() == before
        assert (await conversation.say("go on")).reply
        await conversation.close()


async def test_a_delegated_compaction_is_the_built_in_one(home: Any) -> None:
    home.engine.does["compact"] = delegate_compaction_to_runtime
    with ScriptedModelServer() as server:
        conversation = home.open(server, compaction=SMALL)
        await talk(conversation)
        receipt = await conversation.compact()
        assert receipt is not None
        assert receipt.summarizer == "extractive"
        assert conversation.session.entry(receipt.entry_id).type == "compaction"
        await conversation.close()


async def test_an_engine_that_delegates_is_not_blamed_for_what_there_was_not_to_compact(
    home: Any,
) -> None:
    home.engine.does["compact"] = delegate_compaction_to_runtime
    with ScriptedModelServer() as server:
        conversation = home.open(server)
        await conversation.say("hello")
        with pytest.raises(CompactionRefused) as refused:
            await conversation.compact()
        await conversation.close()
    assert str(refused.value).count("nothing was compacted") == 1
    assert home.health.recent() == []


async def test_who_declines_says_why_and_doctor_gets_to_know(home: Any) -> None:
    home.engine.does["compact"] = DECLINES
    with ScriptedModelServer() as server:
        conversation = home.open(server)
        await talk(conversation)
        with pytest.raises(CompactionRefused, match=r"notebook declined \(I am under my target"):
            await conversation.compact()
        await conversation.close()
    (noted,) = home.health.recent()
    assert (noted.engine, noted.phase, noted.declined) == ("notebook", "compact", True)
    assert noted.session_key == "agent:main:main"


async def test_where_it_declines_an_overflow_the_built_in_one_takes_over_and_says_so(
    home: Any,
) -> None:
    """cases/faults H20: the engine judged by another budget than the host's, and won."""
    home.engine.does["compact"] = DECLINES
    told: list[Any] = []
    with ScriptedModelServer() as server:
        conversation = home.open(server, window=20_000, compaction=SMALL)
        await talk(conversation)
        server.context_window = 4_000
        result = await conversation.say("and now?", listener=told.append)
        await conversation.close()
    assert result.reply
    (receipt,) = result.compactions
    assert (receipt.trigger, receipt.summarizer) == ("overflow", "extractive")
    (asked,) = home.engine.asked("compact")
    assert asked.trigger == "overflow"
    assert asked.token_budget == receipt.budget_tokens, "it was given the host's own target"
    notices = [event.text for event in told if isinstance(event, Notice)]
    assert any("notebook declined (I am under my target already)" in text for text in notices)


async def test_its_summary_serves_the_turn_that_overflowed(home: Any) -> None:
    home.engine.does["compact"] = lambda _: summary_of(
        [item.entry_id for item in home.engine.asked("assemble")[-1].messages], 1
    )
    with ScriptedModelServer() as server:
        conversation = home.open(server)
        await talk(conversation)
        server.context_window = 4_000
        result = await conversation.say("and now?")
        assert [receipt.summarizer for receipt in result.compactions] == ["notebook"]
        assert conversation.row.compaction_count == 1
        assert "Lanterns were talked of." in str(server.requests[-1].body["messages"])
        await conversation.close()
    assert home.engine.asked("after_turn")[-1].compacted is True
    added = home.engine.asked("after_turn")[-1].new_messages
    assert [item.message["role"] for item in added] == ["user", "assistant"]


async def test_what_it_compacts_in_its_own_store_leaves_the_transcript_alone(home: Any) -> None:
    home.engine.does["compact"] = CompactResult(ok=True, compacted=True)
    with ScriptedModelServer() as server:
        conversation = home.open(server)
        await talk(conversation)
        before = transcript(conversation).read_bytes()
        assert await conversation.compact() is None
        assert transcript(conversation).read_bytes() == before
        await conversation.close()
    assert home.engine.asked("maintain")[-1].reason == "compaction"


async def test_its_own_store_serves_the_turn_that_overflowed(home: Any) -> None:
    def small(request: Any) -> Any:
        last = request.messages[-1:]
        return AssembleResult(last, 10) if home.engine.asked("compact") else ...

    home.engine.does |= {"compact": CompactResult(ok=True, compacted=True), "assemble": small}
    with ScriptedModelServer() as server:
        conversation = home.open(server)
        await talk(conversation)
        server.context_window = 2_000
        assert (await conversation.say("and now?")).compactions == ()
        await conversation.close()
    assert [m["content"] for m in server.requests[-1].body["messages"]][1:] == ["and now?"]


async def test_who_owns_compaction_is_not_compacted_nor_cut_by_anybody(home: Any) -> None:
    """Far above every line of ours: what it assembled is what is sent."""
    home.be(owns_compaction=True)
    with ScriptedModelServer() as server:
        conversation = home.open(server, window=5_000)
        await talk(conversation, 8)
        receipts = await conversation.settle()
        sent = server.requests[-1].body["messages"]
        await conversation.close()
    assert receipts == ()
    assert len(sent) == 1 + 15
    assert [str(m["content"]) for m in sent[1::2]] == [f"{n} {LONG}" for n in range(8)]
    assert home.engine.asked("compact") == []


async def test_who_owns_compaction_is_asked_when_the_provider_refuses(home: Any) -> None:
    home.be(owns_compaction=True)
    home.engine.does["compact"] = DECLINES
    with ScriptedModelServer() as server:
        conversation = home.open(server, compaction=CompactionSettings(mode="off"))
        await talk(conversation)
        home.engine.does["compact"] = summary_of(home.path(conversation), 1)
        server.context_window = 4_000
        assert (await conversation.say("and now?")).reply
        await conversation.close()
    assert [request.trigger for request in home.engine.asked("compact")] == ["overflow"]
    assert home.health.recent() == []


async def test_who_owns_compaction_may_decline_and_is_not_named_for_it(home: Any) -> None:
    home.be(owns_compaction=True)
    home.engine.does["compact"] = DECLINES
    with ScriptedModelServer() as server:
        conversation = home.open(server)
        await talk(conversation, 1)
        with pytest.raises(CompactionRefused, match="declined"):
            await conversation.compact()
        await conversation.close()
    assert home.health.recent() == []


@pytest.mark.parametrize(
    "answer",
    [
        None,
        CompactResult(ok=True, compacted=True, result={"summary": "x"}),  # type: ignore[arg-type]
        CompactResult(
            ok=True,
            compacted=True,
            result=CompactionOutcome("x", details=["no object"]),  # type: ignore[arg-type]
        ),
        CompactResult(ok=True, compacted=True, result=CompactionOutcome("x", session_file=7)),  # type: ignore[arg-type]
    ],
)
async def test_an_answer_that_is_none_is_an_error_of_the_engine(home: Any, answer: Any) -> None:
    home.engine.does["compact"] = lambda _: answer
    with ScriptedModelServer([Reply("Hello.")]) as server:
        conversation = home.open(server)
        await conversation.say("hello")
        before = transcript(conversation).read_bytes()
        with pytest.raises(EngineError, match="notebook failed in compact") as failed:
            await conversation.compact()
        assert failed.value.phase == "compact"
        assert transcript(conversation).read_bytes() == before
        await conversation.close()


@pytest.mark.parametrize("cancels", [False, True])
async def test_hooks_and_listeners_hear_of_a_delegated_compaction_once_each(
    home: Any, *, cancels: bool
) -> None:
    """cases/faults L8: hooks were there and never called; also where it fails."""
    home.engine.does["compact"] = delegate_compaction_to_runtime
    asked, told, hooks = list[Any](), list[Any](), Hooks()

    def hook(event: Any) -> Cancel | None:
        asked.append(event)
        return Cancel("not now") if cancels else None

    hooks.session_before_compact.append(hook)
    with ScriptedModelServer() as server:
        conversation = home.open(server, compaction=SMALL, hooks=hooks)
        await talk(conversation)
        if cancels:
            with pytest.raises(CompactionRefused, match="not now"):
                await conversation.compact(listener=told.append)
        else:
            assert await conversation.compact(listener=told.append) is not None
        await conversation.close()
    assert [event.trigger for event in asked] == ["manual"]
    ends = [e for e in told if isinstance(e, CompactionReceipt | Notice)]
    assert [len([e for e in told if isinstance(e, CompactionStarted)]), len(ends)] == [1, 1]
