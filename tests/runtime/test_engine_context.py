"""What an engine assembles: what of it is sent, counted, cut, and what it may use for it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from strandline.context.budget import CompactionSettings
from strandline.context.engine import AssembleResult, Rewrite
from strandline.errors import EngineError
from strandline.runtime.events import CompactionStarted, MemoryFlushed
from strandline.runtime.flush_settings import FlushSettings
from strandline.runtime.tools import Tool, Toolbox
from strandline.testing import Reply, ScriptedModelServer
from strandline.testing.reply import ToolCall
from strandline.transcript.context import PathMessage

LONG = "lantern harbour " * 400
OFF = CompactionSettings(mode="off")


def tools(*names: str) -> Toolbox:
    return Toolbox([Tool(n, "It does.", {"type": "object"}, lambda _: "done") for n in names])


def sent_texts(server: ScriptedModelServer) -> list[str]:
    return [str(m["content"]) for m in server.requests[-1].body["messages"]]


async def test_an_engine_is_told_what_the_request_is_about(home: Any) -> None:
    with ScriptedModelServer() as server:
        conversation = home.open(server, toolbox=tools("write", "Look", "ask"))
        await conversation.say("what is it?")
        await conversation.close()
    request = home.engine.asked("assemble")[0]
    assert request.available_tools == ("Look", "ask", "write"), "sorted by code point"
    assert (request.prompt, request.model) == ("what is it?", "test/scripted")
    assert request.session.session_key == "agent:main:main"
    lent = request.runtime
    assert request.token_budget == lent.token_budget > 5_000
    counted = sum(lent.count_tokens(item.message) for item in request.messages)
    assert lent.current_token_count == counted > 0


async def test_what_it_knows_of_the_providers_cache_is_the_last_call(home: Any) -> None:
    with ScriptedModelServer() as server:
        conversation = home.open(server)
        first = await conversation.say("one")
        home.clock.advance(60_000)
        await conversation.say("two")
        await conversation.close()
    asked = home.engine.asked("assemble")
    assert asked[0].runtime.prompt_cache.last_usage is None
    facts = next(r.runtime.prompt_cache for r in asked if r.prompt == "two")
    assert facts.last_usage == first.message["usage"]
    assert facts.retention == "short"
    assert facts.expires_at_ms == first.message["timestamp"] + 300_000


async def test_its_own_messages_other_words_and_what_it_leaves_out_are_what_is_sent(
    home: Any,
) -> None:
    def choose(request: Any) -> Any:
        if len(request.messages) < 3:
            return ...
        *_, answer, newest = request.messages
        said = {**answer.message, "content": [{"type": "text", "text": "in short: hi"}]}
        own = {"role": "user", "content": "A note of mine.", "timestamp": 1}
        return AssembleResult([own, PathMessage(answer.entry_id, said), newest], 40)

    home.engine.does["assemble"] = choose
    with ScriptedModelServer([Reply("Hello to you.")]) as server:
        conversation = home.open(server)
        await conversation.say("one")
        before = home.path(conversation)
        await conversation.say("two")
        assert home.path(conversation)[:2] == before
        await conversation.close()
    assert sent_texts(server)[1:] == ["A note of mine.", "in short: hi", "two"]


async def test_an_addition_stands_before_the_system_prompt_and_counts(home: Any) -> None:
    """Its tokens are taken from what the messages may have."""
    addition = "Think of the lanterns. " * 300
    home.engine.does["assemble"] = lambda r: AssembleResult(
        r.messages, 10, system_prompt_addition=addition if r.prompt != "one" else None
    )
    with ScriptedModelServer() as server:
        conversation = home.open(server)
        await conversation.say("one")
        assert sent_texts(server)[0] == "Be brief."
        await conversation.say("two")
        assert sent_texts(server)[0] == f"{addition}\n\nBe brief."
        await conversation.say("three")
        size, _ = await conversation.context_size()
        await conversation.close()
    budgets = [r.token_budget for r in home.engine.asked("assemble")]
    assert budgets[0] - budgets[-1] == home.agent_for(server).tokens.counter.count(addition)
    assert size > 1_000


async def test_an_addition_that_leaves_no_room_is_refused_and_not_for_ever(home: Any) -> None:
    additions = ["lantern harbour " * 9_000]
    home.engine.does["assemble"] = lambda r: AssembleResult(
        r.messages, 10, system_prompt_addition=additions[0]
    )
    with ScriptedModelServer() as server:
        conversation = home.open(server)
        with pytest.raises(
            EngineError, match=r"notebook failed in assemble \(its system_prompt_add"
        ):
            await conversation.say("one")
        additions[0] = "Short."
        await conversation.retry()
        assert sent_texts(server)[0] == "Short.\n\nBe brief."
        await conversation.close()


@pytest.mark.parametrize(
    ("authority", "compacts"), [("assembled", 0), ("preassembly_may_overflow", 1)]
)
async def test_the_check_before_sending_looks_at_what_the_engine_says_it_should(
    home: Any, authority: Any, compacts: int
) -> None:
    """What it assembled fits; the whole history does not."""
    home.engine.does["assemble"] = lambda r: AssembleResult(
        r.messages[-1:], 10, prompt_authority=authority
    )
    told: list[Any] = []
    with ScriptedModelServer() as server:
        conversation = home.open(server, compaction=OFF, window=6_000)
        for n in range(9):
            await conversation.say(f"{n} {LONG}")
        await conversation.set_compaction_mode("auto")
        await conversation.say("and now?", listener=told.append)
        await conversation.settle()
        await conversation.close()
    started = [event for event in told if isinstance(event, CompactionStarted)]
    assert len(started) == compacts
    assert len(sent_texts(server)) == 2


async def test_what_its_own_questions_use_is_counted_in_the_row(home: Any) -> None:
    async def ask(request: Any) -> Any:
        assert await request.runtime.llm.complete("What matters?", system_prompt="Say.") == "This."

    home.engine.does["after_turn"] = ask
    with ScriptedModelServer([Reply("Hello."), Reply("This.")]) as server:
        conversation = home.open(server)
        result = await conversation.say("one")
        await conversation.settle()
        row = conversation.row
        await conversation.close()
    own = server.requests[1].body["messages"]
    assert [m["content"] for m in own] == ["Say.", "What matters?"]
    assert result.usage is not None
    assert row.input_tokens > result.usage["input"]
    assert row.output_tokens > result.usage["output"]


async def test_what_it_rewrites_grows_a_branch_and_the_turn_goes_on_there(home: Any) -> None:
    """A tool of another process sees the same file with more lines, none of them changed."""
    done: list[Any] = []

    async def trim(request: Any) -> Any:
        if request.reason != "turn" or done:
            return
        conversation = opened[0]
        before = conversation.session.build_context().items
        said = {**before[0].message, "content": "(trimmed)"}
        rewrites = [Rewrite(before[0].entry_id, said)]
        done.append(await request.runtime.rewrite_transcript_entries(rewrites))

    home.engine.does["maintain"] = trim
    with ScriptedModelServer() as server:
        conversation = home.open(server)
        opened = [conversation]
        first = await conversation.say(LONG)
        await asyncio.gather(conversation.settle(), conversation.say("two"))
        await conversation.settle()
        result = await conversation.say("three")
        assert home.engine.heard == home.path(conversation)
        await conversation.close()
    texts = sent_texts(server)
    assert (texts[1], texts[-1], len(texts)) == ("(trimmed)", "three", 6)
    assert result.context_tokens < first.context_tokens
    (rewritten,) = done
    assert first.user_entry_id in rewritten.new_ids


async def test_a_rewrite_while_it_is_told_of_the_path_shows_in_the_same_request(home: Any) -> None:
    async def mask(request: Any) -> None:
        secret = [i for i in request.messages if "SECRET" in str(i.message.get("content"))]
        await request.runtime.rewrite_transcript_entries(
            [Rewrite(i.entry_id, {**i.message, "content": "***"}) for i in secret]
        )

    home.engine.does["bootstrap"] = mask
    with ScriptedModelServer() as server:
        conversation = home.open(server)
        await conversation.say("the SECRET word")
        assert sent_texts(server)[1] == "***"
        assert home.engine.heard == home.path(conversation)
        await conversation.close()
    assert [r.reason for r in home.engine.asked("bootstrap")] == ["new", "branch"]


async def test_the_memory_flush_sees_what_the_engine_chose(home: Any) -> None:
    home.engine.does["assemble"] = lambda r: AssembleResult(
        r.messages[-2:], 10, system_prompt_addition="Lanterns.", prompt_authority="assembled"
    )

    def reply(request: Any) -> Reply:
        return Reply("NO_REPLY" if "Write it down" in str(request.body) else LONG)

    told: list[Any] = []
    with ScriptedModelServer(reply) as server:
        agent = home.agent_for(server, window=7_000, engine=home.host)
        flush = replace(FlushSettings(), prompt="Write it down", system_prompt="Quietly.")
        box = Toolbox([Tool("memory_write", "It notes.", {"type": "object"}, lambda _: "ok")])
        conversation = home.open(server, window=7_000, flush=flush, toolbox=box)
        for n in range(5):
            await conversation.say(f"{n} {LONG}", listener=told.append)
            await conversation.settle()
        await conversation.close()
        await agent.aclose()
    flushed = [r.body["messages"] for r in server.requests if "Write it down" in str(r.body)]
    assert any(isinstance(event, MemoryFlushed) for event in told)
    assert flushed[0][0]["content"].startswith("Lanterns.\n\nBe brief.\n\nQuietly.")
    assert len(flushed[0]) <= 1 + 2 + 1


@pytest.mark.parametrize(
    "answer",
    [
        "no result",
        AssembleResult([], 0),
        AssembleResult(iter([]), 0),  # type: ignore[arg-type]
        AssembleResult(["a text"], 0),  # type: ignore[list-item]
        AssembleResult([{"role": "user", "content": "x"}], -1),
        AssembleResult([{"role": "user", "content": "x"}], 0, "anything"),  # type: ignore[arg-type]
        AssembleResult([PathMessage("twice", {}), PathMessage("twice", {})], 0),
        AssembleResult([PathMessage(["id"], {})], 0),  # type: ignore[arg-type]
        AssembleResult([{}], 0, system_prompt_addition=7),  # type: ignore[arg-type]
        AssembleResult([{}], 0, context_projection="thread"),  # type: ignore[arg-type]
    ],
)
async def test_an_answer_that_is_no_context_is_an_error_of_the_engine(
    home: Any, answer: Any
) -> None:
    home.engine.does["assemble"] = lambda _: answer
    with ScriptedModelServer() as server:
        conversation = home.open(server)
        with pytest.raises(EngineError, match="notebook failed in assemble") as failed:
            await conversation.say("hello")
        assert "legacy" in failed.value.remedy
        assert server.requests == []
        assert len(home.path(conversation)) == 1, "what was said is there"
        await conversation.close()


async def test_messages_that_are_none_never_reach_the_model(home: Any) -> None:
    """An engine's garbage is left out like that of a file."""
    odd: list[Any] = [{}, {"role": "user"}, {"role": 7, "content": []}, PathMessage("x", {"a": 1})]
    home.engine.does["assemble"] = lambda r: AssembleResult([*odd, *r.messages], 5)
    with ScriptedModelServer() as server:
        conversation = home.open(server)
        assert (await conversation.say("hello")).reply
        assert sent_texts(server)[-1] == "hello"
        await conversation.close()


async def test_a_result_that_stands_in_for_one_is_for_the_model_alone(home: Any) -> None:
    """cases/faults L7: an engine lost the result of a call; people never see the note of that."""
    home.engine.does["assemble"] = lambda r: AssembleResult(
        [each for each in r.messages if each.message["role"] != "toolResult"], 10
    )
    told: list[Any] = []
    with ScriptedModelServer([Reply(tool_calls=[ToolCall("look", {})]), Reply("Done.")]) as server:
        conversation = home.open(server, toolbox=tools("look"))
        result = await conversation.say("look", listener=told.append)
        roles = [m["role"] for m in conversation.session.build_context().messages]
        await conversation.close()
    standing_in = server.requests[-1].body["messages"][-1]
    assert standing_in["role"] == "tool"
    assert result.reply == "Done."
    assert str(standing_in["content"]) not in str([result, *told])
    assert roles == ["user", "assistant", "toolResult", "assistant"]
    assert len(home.engine.heard) == 4
