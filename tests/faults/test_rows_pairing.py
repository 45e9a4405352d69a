"""Calls, results and shapes that providers refuse (faults A), in conversations on real files."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from strandline.clock import SystemClock
from strandline.context.assemble import assemble
from strandline.context.budget import CompactionSettings, resolve_budget
from strandline.context.pairing import NO_RESULT
from strandline.context.sanitize import NO_OUTPUT
from strandline.context.tokens import HeuristicCounter, MessageTokens
from strandline.errors import ModelError, StoreWriteFailed
from strandline.manager import SessionManager
from strandline.runtime.agent import Backend
from strandline.runtime.conversation import Conversation
from strandline.runtime.model_summarizer import ModelSummarizer
from strandline.runtime.retrying import RetrySettings
from strandline.runtime.tools import Tool
from strandline.runtime.tools import ToolCall as RunningCall
from strandline.runtime.turn import run_turn, user_message
from strandline.stores.jsonl import JsonlStore
from strandline.testing import Faults, FaultyDisk, RecordedRequest, Reply, ToolCall
from strandline.transcript.codec import encode_object
from strandline.transcript.context import PathMessage
from strandline.transcript.header import new_header
from strandline.transcript.messages import Message

BackendFor = Callable[..., Backend]
CHAT = "openai-completions"
KEEP = 1_000
"""Tokens of `keepRecentTokens` in these tests."""


def user(text: str, at: int = 1) -> Message:
    return user_message(text, at)


def answer(text: str, **more: Any) -> Message:
    content = [{"type": "text", "text": text}] if text else []
    return {"role": "assistant", "content": content, "stopReason": "stop", "timestamp": 1, **more}


def calling(*ids: str, said: str = "", **more: Any) -> Message:
    given = {"said": said} if said else {}
    calls = [{"type": "toolCall", "id": i, "name": "look", "arguments": given} for i in ids]
    return {**answer(""), "content": calls, "stopReason": "toolUse", **more}


def result(call_id: str, text: str = "seen", **more: Any) -> Message:
    content = [{"type": "text", "text": text}] if text else []
    named = {"toolCallId": call_id, "toolName": "look", "isError": False}
    return {"role": "toolResult", "content": content, "timestamp": 1, **named, **more}


def turns(count: int, words: int = 200) -> list[Message]:
    each = "lantern " * words
    return [m for n in range(count) for m in (user(f"q{n} {each}", n), answer(f"a{n} {each}"))]


def compacted(summary: str, first_kept: str) -> tuple[str, dict[str, Any]]:
    body = {"summary": summary, "firstKeptEntryId": first_kept, "tokensBefore": 9_000}
    return "compaction", body


def settings(**more: Any) -> CompactionSettings:
    return CompactionSettings(**{"keep_recent_tokens": KEEP, **more})


def fill(talk: Conversation, messages: list[Message]) -> None:
    for message in messages:
        talk.session.append_message(message)


def kept_roles(talk: Conversation) -> list[str]:
    return [m["role"] for m in talk.session.build_context().messages]


def compactions(talk: Conversation) -> int:
    return [entry.type for entry in talk.session.entries()].count("compaction")


def looking(gives: str = "seen") -> Tool:
    async def look(_: object) -> str:
        return gives

    return Tool("look", "It looks.", {"type": "object"}, look)


# -- A1 to A3: where a compaction cuts -----------------------------------------------------


async def test_a_cut_that_would_fall_between_a_call_and_its_result_goes_to_the_call(
    serve: Any, agent_of: Any, talk_of: Any, backend_for: BackendFor, api: str
) -> None:
    """A1: whatever the size of the result, the kept part never begins with one."""
    server = serve(context_window=64_000)
    begins = set()
    for words in range(100, 1_000, 60):
        talk = talk_of(
            agent_of(backend_for(api, server, 64_000), compaction=settings()),
            f"agent:main:explicit:{words}",
        )
        last = [user("and now? " + "berth " * 80), answer("so. " + "berth " * 80)]
        called = calling("b", said="berth " * 80)
        steps = [user("look"), calling("a"), result("a", "seen " * words), called]
        fill(talk, [*turns(8), *steps, result("b", "seen " * words), *last])
        await talk.compact()
        begins.add(kept_roles(talk)[1])
        assert (await talk.say("go on")).reply
        assert server.refused == []
    assert "toolResult" not in begins
    assert begins == {"assistant", "user"}, "some cuts fell between a call and its result"


def test_a_refused_shape_holds_nothing_against_the_model_or_its_key(
    serve: Any, run: Any, setup: Any, state: Path
) -> None:
    """A1: the same model answers the next message; no cool-down is noted."""
    asked: list[str] = []

    def script(request: RecordedRequest) -> Reply:
        asked.append(request.body["model"])
        return Reply(status=400) if len(asked) <= 2 else Reply("Fine.")

    setup(serve(script), model={"primary": "mine/one", "fallbacks": ["mine/two"]})
    assert run("agent", "-m", "Hello").code == 1
    assert run("agent", "-m", "Are you there?").out == "Fine.\n"
    assert asked == ["one", "two", "one"]
    assert not (state / "cooldowns.json").exists()


async def test_a_compaction_of_others_that_kept_the_result_of_an_aborted_call_is_gone_on_from(
    serve: Any,
    agent_of: Any,
    talk_of: Any,
    file_of: Any,
    write_chain: Any,
    backend_for: BackendFor,
    api: str,
) -> None:
    """A2: first kept is a made-up result, its call is aborted and summarised, 30 turns follow."""
    server = serve()
    talk = talk_of(agent_of(backend_for(api, server, 64_000), compaction=settings()))
    gone = result("a", "(no result)", isError=True)
    before = [user("look"), calling("a", stopReason="aborted"), gone, *turns(15, 5)]
    write_chain(file_of(talk), [*before, compacted("They looked.", "e00002"), *turns(15, 5)])
    assert (await talk.say("and?")).reply
    await talk.compact()
    assert (await talk.say("and now?")).reply
    assert server.refused == []
    assert "(no result)" not in json.dumps([r.body for r in server.requests])


async def test_three_pending_calls_are_summarised_once_however_often_it_is_tried(
    serve: Any, agent_of: Any, talk_of: Any, file_of: Any, backend_for: BackendFor
) -> None:
    """A3: two summaries fail, nothing is written; the third is; the next turn is answered."""
    told: list[str] = []

    def script(request: RecordedRequest) -> Reply:
        text = json.dumps(request.body)
        if "You keep the memory" not in text:
            return Reply("Yes.")
        told.append(text)
        return Reply(status=400) if len(told) < 3 else Reply("## Done\n- three calls, no results")

    server = serve(script)
    backend = backend_for(CHAT, server, 64_000)
    tokens = MessageTokens(HeuristicCounter())
    once = RetrySettings(attempts=1)
    by = ModelSummarizer(backend.model, backend.info, tokens, SystemClock(), retry=once)
    talk = talk_of(agent_of(backend, summarizer=by, tokens=tokens, compaction=settings()))
    fill(talk, [user("look"), calling("a", "b", "c"), *turns(12)])
    before = file_of(talk).read_bytes()
    for _ in range(2):
        with pytest.raises(ModelError):
            await talk.compact()
        assert file_of(talk).read_bytes() == before
    await talk.compact()
    assert len(set(told)) == 1, "the same question each time"
    assert told[0].count("its outcome is unknown") == 3
    assert compactions(talk) == 1
    assert file_of(talk).read_bytes().startswith(before)
    assert (await talk.say("go on")).reply == "Yes."
    assert server.refused == []


# -- A6 to A11: results without calls, calls without results -------------------------------


async def test_an_orphan_result_behind_a_compaction_and_empty_failures_are_left_out(
    serve: Any,
    agent_of: Any,
    talk_of: Any,
    file_of: Any,
    write_chain: Any,
    backend_for: BackendFor,
    api: str,
) -> None:
    """A6: the transcript keeps all of it, and each that is left out has its reason."""
    server = serve()
    agent = agent_of(backend_for(api, server, 64_000))
    talk = talk_of(agent)
    failed = answer("", stopReason="error", errorMessage="400 unexpected tool_use_id")
    orphan = result("r", "the orphan speaks")
    write_chain(
        file_of(talk),
        [user("hello"), answer("hi"), compacted("They met.", "e00001"), orphan, *[failed] * 30],
    )
    before = file_of(talk).read_bytes()
    for _ in range(2):
        assert (await talk.say("are you there?")).reply
    assert server.refused == []
    assert len(server.requests) == 2
    assert "the orphan speaks" not in json.dumps([r.body for r in server.requests])
    assert file_of(talk).read_bytes().startswith(before)
    items = talk.session.build_context().items
    view = assemble(items, budget=agent.budget(), tokens=agent.tokens)
    rules = [said.decisions[-1].rule for said in view.left_out]
    assert sorted(set(rules)) == ["failed_turn", "result_without_call"]
    assert (rules.count("failed_turn"), rules.count("result_without_call")) == (30, 1)


def group(number: int) -> list[Message]:
    ids = [f"{number}{letter}" for letter in "abc"]
    return [calling(*ids), *(result(each, f"{each} saw " + "x" * 300) for each in ids)]


@pytest.mark.parametrize("after", [[], [answer("so"), user("and now?")]])
def test_parallel_calls_have_all_their_results_in_a_view_or_are_not_in_it(
    after: list[Message],
) -> None:
    """A8: room for three of four messages, and every other room that there is; in the turn that
    runs and in an older one.
    """
    tokens = MessageTokens(HeuristicCounter())
    messages = [user("look"), *(m for n in range(4) for m in group(n)), *after]
    items = [PathMessage(f"e{n}", message) for n, message in enumerate(messages)]
    seen = set()
    for limit in range(30, 1_400, 7):
        budget = resolve_budget(64_000, CompactionSettings(), max_tokens=limit)
        view = assemble(items, budget=budget, tokens=tokens, limit="oldest_turns")
        told = [said.message for said in view.messages]
        assert NO_RESULT not in json.dumps(told), "no result was dropped without its call"
        answered = [message["toolCallId"] for message in told if "toolCallId" in message]
        called = [block["id"] for message in told for block in message["content"] if "id" in block]
        assert answered == called
        assert len(called) % 3 == 0
        seen.add(len(called))
    assert seen == ({0, 12} if after else {0, 3, 6, 9, 12})


async def test_parallel_calls_stay_whole_where_the_oldest_gives_way(
    serve: Any, agent_of: Any, talk_of: Any, backend_for: BackendFor, api: str
) -> None:
    """A8: as a provider sees it, with compaction off and a window that fills again and again."""

    def script(_: RecordedRequest) -> Reply:
        calls = [ToolCall("look", {}, f"c{len(server.requests)}_{n}") for n in range(3)]
        return Reply(tool_calls=calls) if len(server.requests) % 4 else Reply("Seen.")

    server = serve(script, context_window=8_000)
    agent = agent_of(
        backend_for(api, server, 8_000),
        looking("seen " * 400),
        compaction=settings(mode="off"),
    )
    talk = talk_of(agent)
    for number in range(6):
        assert (await talk.say(f"question {number}")).reply == "Seen."
    assert server.refused == []
    assert len(server.requests) == 24, "none was refused for its size either"


async def test_a_call_that_is_never_answered_does_not_freeze_compaction(
    serve: Any,
    agent_of: Any,
    talk_of: Any,
    file_of: Any,
    write_chain: Any,
    backend_for: BackendFor,
    api: str,
) -> None:
    """A10: a compaction, the dead call first behind it, 200 good messages over the threshold."""
    server = serve(context_window=16_000)
    talk = talk_of(agent_of(backend_for(api, server, 16_000), compaction=settings()))
    head = [user("hello"), compacted("They met.", "e00000"), calling("dead"), *turns(100, 40)]
    write_chain(file_of(talk), head)
    made = []
    for number in range(40):
        made += (await talk.say(f"{number}: " + "berth " * 300)).compactions
        made += await talk.settle()
    assert len(made) > 1
    assert made[0].messages_summarised > 150
    assert all(each.tokens_freed > 0 for each in made)
    assert server.refused == []
    assert len(server.requests) == 40, "none was refused for its size"


async def test_an_answer_whose_call_was_summarised_is_left_out_and_the_session_goes_on(
    serve: Any, agent_of: Any, talk_of: Any, backend_for: BackendFor, api: str
) -> None:
    """A11: the call is summarised as unanswered; what comes late for it breaks nothing.

    Our own turns wait for every result; so it is another program that answers so late. Of two
    results of one call the first stands (spec 3).
    """
    server = serve()
    agent = agent_of(backend_for(api, server, 64_000), compaction=settings())
    talk = talk_of(agent)
    pending = result("c2", '{"status": "pending"}')
    fill(talk, [user("may I?"), calling("c1", "c2"), pending, *turns(12)])
    await talk.compact()
    fill(talk, [result("c1", "approved late"), result("c2", "approved later")])
    for _ in range(2):
        assert (await talk.say("go on")).reply
    await talk.compact()
    assert (await talk.say("go on")).reply
    assert server.refused == []


# -- A13: nothing that is empty ------------------------------------------------------------

BLANKS: list[Any] = [
    "",
    "   \n",
    [],
    [{"type": "text", "text": ""}],
    [{"type": "text", "text": " \n"}],
]


async def test_nothing_empty_of_any_role_reaches_a_provider(
    serve: Any, agent_of: Any, talk_of: Any, backend_for: BackendFor, api: str
) -> None:
    """A13: said by people, models and tools, by a command without output; from the first on."""
    server = serve()
    talk = talk_of(agent_of(backend_for(api, server, 64_000)))
    silent = {"command": "true", "output": "", "exitCode": 0, "cancelled": False}
    for number, blank in enumerate(BLANKS):
        empty: dict[str, Any] = {"content": blank}
        fill(
            talk,
            [
                {**user(""), **empty},
                {**answer(""), **empty, "stopReason": "error", "errorMessage": "400"},
                {**answer(""), **empty},
                calling(f"c{number}"),
                {**result(f"c{number}"), **empty},
                {"role": "bashExecution", **silent, "timestamp": 1},
            ],
        )
        assert (await talk.say(f"question {number}")).reply
    assert server.refused == []
    said = json.dumps(server.requests[-1].body)
    assert said.count(NO_OUTPUT) >= len(BLANKS)


async def test_failures_in_a_row_leave_no_empty_answers(
    serve: Any, agent_of: Any, talk_of: Any, backend_for: BackendFor, api: str
) -> None:
    """A13: each failed turn leaves what the person said, and nothing else."""
    script = [Reply(status=500), Reply(status=400), Reply(disconnect_after=0), Reply(status=529)]
    server = serve([*script, Reply("Back.")])
    talk = talk_of(agent_of(backend_for(api, server)))
    for number in range(len(script)):
        with pytest.raises(ModelError):
            await talk.say(f"question {number}")
    assert (await talk.say("and now?")).reply == "Back."
    assert kept_roles(talk) == ["user"] * 5 + ["assistant"]


@pytest.mark.parametrize("blank", ["", "   \n"])
async def test_a_blank_message_is_no_request_that_a_provider_refuses(
    serve: Any, agent_of: Any, talk_of: Any, backend_for: BackendFor, api: str, blank: str
) -> None:
    """A13: neither as the first one nor behind an answer."""
    server = serve()
    talk = talk_of(agent_of(backend_for(api, server)))
    for text in (blank, "hello", blank, "are you there?"):
        await talk.say(text)
    assert server.refused == []


# -- A18 to A20 ----------------------------------------------------------------------------


async def test_a_call_that_could_not_be_stored_is_not_run_and_leaves_no_result(
    serve: Any, agent_of: Any, backend_for: BackendFor, api: str
) -> None:
    """A18: the call is in the file before its result, or neither is; a result that is there stays.

    Nothing here parks a call or takes back an answer, so a failing disk is what can part them.
    """
    ran: list[str] = []

    async def wipe(call: RunningCall) -> str:
        ran.append(call.id)
        faults.free_bytes = 0
        return "wiped"

    def script(_: RecordedRequest) -> Reply:
        if len(server.requests) == 1:
            faults.free_bytes = 0
        called = Reply(tool_calls=[ToolCall("wipe", {}, f"w{len(server.requests)}")])
        return called if len(server.requests) < 3 else Reply("Gone.")

    faults, server = Faults(), serve(script)
    store = JsonlStore(Path("/talks"), disk=FaultyDisk(faults))
    header = encode_object(new_header("talk", SystemClock(), "/", None)) + b"\n"
    session = SessionManager(store.create("talk.jsonl", header), store)
    tool = Tool("wipe", "It wipes.", {"type": "object"}, wipe)
    agent = agent_of(backend_for(api, server), tool)
    stored = []
    for text in ("wipe it", "again", "and now?"):
        with suppress(StoreWriteFailed):
            await run_turn(session, agent, user(text))
        faults.free_bytes = None
        stored.append([message["role"] for message in session.build_context().messages])
    await agent.aclose()
    assert stored == [
        ["user"],
        ["user", "user", "assistant"],
        ["user", "user", "assistant", "user", "assistant"],
    ]
    assert len(ran) == 1, "of the first call nothing was stored, so it was not run"
    assert server.refused == []


async def test_after_a_compaction_only_those_ids_go_whose_thought_is_gone(
    serve: Any, agent_of: Any, talk_of: Any, backend_for: BackendFor
) -> None:
    """A19: what was kept has lost its thoughts, and its ids with them; what follows has both."""
    script = [Reply(f"Answer {n}. " + "berth " * 100, thinking=f"Thought {n}.") for n in range(8)]
    server = serve(script)
    backend = backend_for(
        "openai-responses", server, 64_000, reasoning=True, max_output_tokens=4_000
    )
    talk = talk_of(agent_of(backend, compaction=settings(keep_recent_tokens=500)))
    await talk.set_thinking("low")
    for number in range(5):
        await talk.say(f"question {number}")
    await talk.compact()
    for number in range(5, 8):
        await talk.say(f"question {number}")
    assert server.refused == []
    items = server.requests[-1].body["input"]
    thoughts = [item for item in items if item.get("type") == "reasoning"]
    messages = [i for i in items if i.get("type") == "message" and i.get("role") == "assistant"]
    assert len(thoughts) == 2
    assert [bool(item.get("id")) for item in messages[-3:]] == [False, True, True]


async def test_one_request_with_seventy_steps_is_compacted_at_a_step(
    serve: Any, agent_of: Any, talk_of: Any, backend_for: BackendFor, api: str
) -> None:
    """A20: there is no user message to cut at; the request stays in the person's words."""

    def script(_: RecordedRequest) -> Reply:
        number = len(server.requests)
        called = Reply(tool_calls=[ToolCall("look", {"n": number}, f"c{number}")])
        return called if number <= 70 else Reply("All seen.")

    server = serve(script, context_window=8_000)
    agent = agent_of(backend_for(api, server, 8_000), looking("seen " * 200), compaction=settings())
    talk = talk_of(agent)
    done = await talk.say("Look at every lantern of the harbour.")
    assert done.reply == "All seen."
    assert len(done.compactions) > 1
    assert all(each.tokens_freed > 0 for each in done.compactions)
    assert len(server.requests) == 71, "none was refused for its size"
    assert server.refused == []
    last = json.dumps(server.requests[-1].body)
    assert "> Look at every lantern of the harbour." in last
