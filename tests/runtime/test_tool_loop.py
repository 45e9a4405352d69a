"""The tool loop, with every provider: what is in the file between the steps, and after a stop."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from strandline.clock import SystemClock
from strandline.context.tokens import HeuristicCounter, MessageTokens
from strandline.manager import SessionManager
from strandline.runtime.agent import Agent, Backend
from strandline.runtime.events import Notice, ToolFinished, ToolStarted, TurnEvent
from strandline.runtime.offline import OfflineSummarizer
from strandline.runtime.tool_loop import CUT_OFF, NOT_RUN, STOPPED
from strandline.runtime.tools import Tool, Toolbox, ToolOutput
from strandline.runtime.tools import ToolCall as RunningCall
from strandline.runtime.turn import MOST_ROUNDS, run_turn, user_message
from strandline.runtime.turn_result import TurnResult
from strandline.testing import Reply, ScriptedModelServer, ToolCall
from strandline.transcript.messages import Message

BackendFor = Callable[..., Backend]
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5"
    "ErkJggg=="
)


def tool(name: str, run: Callable[[RunningCall], Any], parameters: Any = None) -> Tool:
    async def answer(call: RunningCall) -> Any:
        given = run(call)
        return await given if asyncio.iscoroutine(given) else given

    return Tool(name, f"It does {name}.", parameters or {"type": "object"}, answer)


def agent_of(backend: Backend, *tools: Tool) -> Agent:
    tokens = MessageTokens(HeuristicCounter())
    return Agent(
        "main",
        backend.model,
        backend.info,
        OfflineSummarizer(tokens.counter),
        tokens,
        SystemClock(),
        system_prompt="Be brief.",
        toolbox=Toolbox(tools),
    )


def calls(*names: str, **arguments: Any) -> list[ToolCall]:
    return [ToolCall(name, arguments, f"call_{place}") for place, name in enumerate(names)]


async def say(session: SessionManager, agent: Agent, text: str, **options: Any) -> TurnResult:
    try:
        return await run_turn(session, agent, user_message(text, 1), **options)
    finally:
        await agent.model.aclose()


def messages(session: SessionManager) -> list[Message]:
    return session.build_context().messages


def roles(session: SessionManager) -> list[str]:
    return [message["role"] for message in messages(session)]


def results(session: SessionManager) -> dict[str, str]:
    """What every call got; fails where one got two results, or none."""
    asked = [b["id"] for m in messages(session) for b in m["content"] if b["type"] == "toolCall"]
    told = [m for m in messages(session) if m["role"] == "toolResult"]
    assert sorted(m["toolCallId"] for m in told) == sorted(asked), "one result for every call"
    return {m["toolCallId"]: m["content"][0].get("text", "(image)") for m in told}


@pytest.fixture
def path(tmp_path: Path) -> str:
    with SessionManager.create(session_dir=tmp_path, cwd="/") as made:
        return str(made.path_name)


@pytest.fixture
def session(path: str) -> Iterator[SessionManager]:
    with SessionManager.open(path) as opened:
        yield opened


async def test_every_message_is_in_the_file_before_the_next_step_begins(
    session: SessionManager, path: str, api: str, backend_for: BackendFor
) -> None:
    in_file: list[str] = []

    def look(step: str) -> str:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
        found = [json.loads(line).get("message", {}).get("role", "") for line in lines]
        in_file.append(f"{step}: {' '.join(filter(None, found))}")
        return "ok"

    def script(_: object) -> Reply:
        look("asked")
        return Reply(tool_calls=calls("look", "look")) if len(in_file) == 1 else Reply("Done.")

    with ScriptedModelServer(script) as server:
        agent = agent_of(backend_for(api, server), tool("look", lambda _: look("ran")))
        await say(session, agent, "go")
    assert in_file == [
        "asked: user",
        "ran: user assistant",
        "ran: user assistant toolResult",
        "asked: user assistant toolResult toolResult",
    ]
    assert roles(session)[-1] == "assistant"


async def test_what_goes_wrong_in_a_call_is_told_to_the_model_and_the_turn_goes_on(
    session: SessionManager, api: str, backend_for: BackendFor
) -> None:
    """An unknown tool, bad arguments, a tool that raises, one that gives back nonsense (A17)."""

    def fail(_: object) -> str:
        raise RuntimeError("the roof is on fire")

    wanted = [
        ToolCall("nowhere", {}, "call_0"),
        ToolCall("say", {"text": 7}, "call_1"),
        ToolCall("fail", {}, "call_2"),
        ToolCall("odd", {}, "call_3"),
        ToolCall("say", {"text": "hello"}, "call_4"),
    ]
    with ScriptedModelServer([Reply(tool_calls=wanted), Reply("Well.")]) as server:
        agent = agent_of(
            backend_for(api, server),
            tool("say", lambda call: call.arguments["text"], TEXT),
            tool("fail", fail),
            tool("odd", lambda _: {"not": "an output"}),
        )
        result = await say(session, agent, "go")
        assert server.refused == []
    assert result.reply == "Well."
    told = list(results(session).values())
    assert "there is no tool 'nowhere'" in told[0]
    assert "is not of type 'string'" in told[1]
    assert "the roof is on fire" in told[2]
    assert "not a text or a ToolOutput" in told[3]
    assert told[4] == "hello"
    errors = [m["isError"] for m in messages(session) if m["role"] == "toolResult"]
    assert errors == [True, True, True, True, False]


@pytest.mark.parametrize("raw", ['{"text": "cut', "[1]", "no JSON"])
async def test_arguments_that_are_no_json_object_never_reach_a_tool(
    session: SessionManager, api: str, backend_for: BackendFor, raw: str
) -> None:
    ran: list[object] = []
    script = [Reply(tool_calls=[ToolCall("anything", raw)]), Reply("I will write it again.")]
    with ScriptedModelServer(script) as server:
        agent = agent_of(backend_for(api, server), tool("anything", ran.append))
        assert (await say(session, agent, "go")).reply == "I will write it again."
        if api == "google-generative-ai":  # it notices itself, calls nothing, and is asked again
            assert results(session) == {}
        else:
            assert ["not a JSON object" in told for told in results(session).values()] == [True]
        assert (await say(session, agent, "and now?")).reply
        assert server.refused == []
    assert ran == []


async def test_a_model_that_never_stops_calling_is_stopped_and_the_next_turn_works(
    backend_for: BackendFor, api: str
) -> None:
    session, heard = SessionManager.in_memory(), list[TurnEvent]()
    with ScriptedModelServer(lambda _: Reply(tool_calls=calls("again"))) as server:
        agent = agent_of(backend_for(api, server, 200_000), tool("again", lambda _: "ok"))
        await say(session, agent, "go", listener=heard.append)
        assert len(server.requests) == MOST_ROUNDS
        assert any(isinstance(e, Notice) and "100 rounds" in e.text for e in heard)
        assert len([r for r in roles(session) if r == "toolResult"]) == MOST_ROUNDS
        server.script = [Reply("Enough.")]
        assert (await say(session, agent, "stop that")).reply == "Enough."
        assert server.refused == []


async def test_calls_of_an_answer_that_reached_its_limit_are_answered_and_not_run(
    session: SessionManager, api: str, backend_for: BackendFor
) -> None:
    """The arguments may have been cut off before they began."""
    ran: list[object] = []
    script = [Reply("So,", tool_calls=calls("wipe"), finish_reason="length"), Reply("Sorry.")]
    with ScriptedModelServer(script) as server:
        agent = agent_of(backend_for(api, server), tool("wipe", ran.append))
        assert (await say(session, agent, "go")).stop_reason == "length"
        assert list(results(session).values()) in ([CUT_OFF], [])
        assert (await say(session, agent, "go on")).reply == "Sorry."
        assert server.refused == []
    assert ran == []


async def test_a_result_of_400_kb_is_kept_whole_and_shown_as_far_as_it_fits(
    session: SessionManager, api: str, backend_for: BackendFor
) -> None:
    huge = "lantern harbour " * 25_600
    script = [Reply(tool_calls=calls("read")), Reply("Long."), Reply("Still here.")]
    with ScriptedModelServer(script, context_window=16_000) as server:
        agent = agent_of(backend_for(api, server), tool("read", lambda _: huge))
        assert (await say(session, agent, "read it")).reply == "Long."
        assert (await say(session, agent, "and?")).reply == "Still here."
        assert len(server.requests) == 3, "it was never refused for its size"
    assert list(results(session).values()) == [huge]


async def test_an_image_that_a_tool_gives_back_reaches_the_model(
    session: SessionManager, api: str, backend_for: BackendFor
) -> None:
    shot = ToolOutput([{"type": "image", "data": PIXEL, "mimeType": "image/png"}])
    script = [Reply(tool_calls=calls("shoot", "shoot")), Reply("A pixel."), Reply("Yes.")]
    with ScriptedModelServer(script) as server:
        agent = agent_of(backend_for(api, server), tool("shoot", lambda _: shot))
        assert (await say(session, agent, "what is there?")).reply == "A pixel."
        assert PIXEL in json.dumps(server.requests[1].body)
        assert (await say(session, agent, "sure?")).reply == "Yes."
        assert server.refused == []
    assert len(results(session)) == 2


def stopped_at(point: int, task: list[asyncio.Task[Any]]) -> Callable[[object], None]:
    """Counts what happens, and cancels the turn when that much has happened."""
    seen = 0

    def count(_: object) -> None:
        nonlocal seen
        seen += 1
        if seen == point:
            task[0].get_loop().call_soon_threadsafe(task[0].cancel)

    return count


async def test_a_turn_stopped_at_any_point_leaves_one_result_for_every_call(
    api: str, backend_for: BackendFor
) -> None:
    """Before, in and after every step, also while an append is under way (A3, A4, A17)."""
    script = [Reply("Let me see.", tool_calls=calls("a", "b", "c")), Reply("So it is.")]
    point, ended = 0, False
    while not ended:
        point += 1
        with ScriptedModelServer(script) as server:
            session, task = SessionManager.in_memory(), list[asyncio.Task[Any]]()
            count = stopped_at(point, task)
            append = session.append_message

            def counted(message: Message, count: Any = count, append: Any = append) -> str:
                count(message)
                time.sleep(0.003)  # so that the cancelling comes while this goes on
                return str(append(message))

            object.__setattr__(session, "append_message", counted)
            tools = [tool(name, lambda _: asyncio.sleep(0, "ok")) for name in "abc"]
            agent = agent_of(backend_for(api, server), *tools)
            turn = run_turn(session, agent, user_message("go", 1), listener=count)
            task.append(asyncio.create_task(turn))
            await asyncio.wait(task)
            ended = not task[0].cancelled()
            results(session)
            server.script = [Reply("Here.")] * 9
            assert (await say(session, agent, "are you there?")).reply
            assert server.refused == []
            assert session.verify() == []
    assert point > 15, "there were that many moments to stop it"


async def test_a_tool_that_is_stopped_is_told_as_stopped_and_the_others_as_not_run(
    session: SessionManager, api: str, backend_for: BackendFor
) -> None:
    began = asyncio.Event()

    async def wait(_: RunningCall) -> str:
        began.set()
        await asyncio.sleep(3600)
        return "never"

    script = [Reply(tool_calls=calls("wait", "wait", "wait")), Reply("I see.")]
    with ScriptedModelServer(script) as server:
        agent = agent_of(backend_for(api, server), tool("wait", wait))
        turn = asyncio.create_task(say(session, agent, "go"))
        await began.wait()
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
        assert list(results(session).values()) == [STOPPED, NOT_RUN, NOT_RUN]
        assert (await say(session, agent, "what happened?")).reply == "I see."
        assert server.refused == []


async def test_a_tool_that_catches_the_cancelling_does_not_keep_the_turn_alive(
    session: SessionManager, backend_for: BackendFor
) -> None:
    began = asyncio.Event()

    async def stubborn(_: RunningCall) -> str:
        began.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            return "half done"
        return "never"

    with ScriptedModelServer([Reply(tool_calls=calls("go", "go"))]) as server:
        agent = agent_of(backend_for("openai-completions", server), tool("go", stubborn))
        turn = asyncio.create_task(say(session, agent, "go"))
        await began.wait()
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
        assert len(server.requests) == 1
    assert list(results(session).values()) == ["half done", NOT_RUN]


async def test_a_task_that_was_cancelled_long_ago_still_runs_tools(
    session: SessionManager, backend_for: BackendFor
) -> None:
    """A face catches the first Ctrl-C and goes on in the same task."""

    async def face() -> str:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            return (await say(session, agent, "go on")).reply
        return ""

    async def gives_up(_: RunningCall) -> str:
        raise asyncio.CancelledError

    script = [Reply(tool_calls=calls("ok", "quit")), Reply("Fine.")]
    with ScriptedModelServer(script) as server:
        tools = tool("ok", lambda _: "ok"), tool("quit", gives_up)
        agent = agent_of(backend_for("openai-completions", server), *tools)
        running = asyncio.create_task(face())
        await asyncio.sleep(0)
        running.cancel()
        assert await running == "Fine."
    assert "was cancelled" in results(session)["call_1"]


KILLED = """
import asyncio, sys
sys.path.insert(0, sys.argv[4])
from test_tool_loop import agent_of, run_turn, tool, user_message
from strandline import SessionManager
from strandline.clock import SystemClock
from strandline.runtime.agent import Backend
from strandline.runtime.model import ModelInfo
from strandline.wiring.providers import APIS

path, api, url = sys.argv[1:4]

async def forever(call):
    print("running", flush=True)
    await asyncio.sleep(3600)

async def main():
    model = APIS[api]()(url, "a key", clock=SystemClock())
    agent = agent_of(Backend(model, ModelInfo(api, "gemini-3-model", api, 16_000, 500)),
        tool("quick", lambda _: "done"), tool("forever", forever))
    with SessionManager.open(path) as session:
        await run_turn(session, agent, user_message("go", 1))

asyncio.run(main())
"""


async def test_a_process_killed_while_a_tool_runs_leaves_a_session_that_goes_on(
    path: str, api: str, backend_for: BackendFor, address_for: Callable[..., str]
) -> None:
    """A4: with the same provider, and then with each of the others."""
    script = [Reply("Two things.", tool_calls=calls("quick", "forever", "quick")), Reply("Back.")]
    with ScriptedModelServer(script) as server:
        backend = backend_for(api, server, name="gemini-3-model")
        url = address_for(api, server)
        command = [sys.executable, "-c", KILLED, path, api, url, str(Path(__file__).parent)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:  # noqa: ASYNC220 - it answers at once
            assert child.stdout is not None
            assert await asyncio.to_thread(child.stdout.readline) == "running\n"
            child.send_signal(signal.SIGKILL)
        before = Path(path).read_bytes()
        with SessionManager.open(path) as session:
            assert roles(session) == ["user", "assistant", "toolResult"]
            assert (await say(session, agent_of(backend), "are you there?")).reply == "Back."
            for other in ("openai-completions", "openai-responses", "anthropic-messages"):
                agent = agent_of(backend_for(other, server))
                assert (await say(session, agent, "and you?")).reply
            assert server.refused == []
            assert session.verify() == []
        assert Path(path).read_bytes().startswith(before), "nothing was changed, only appended"


def without_marks(part: Any) -> Any:
    """What a provider's cache compares: the marks are no part of it."""
    if isinstance(part, list):
        return [without_marks(each) for each in part]
    if isinstance(part, dict):
        return {k: without_marks(v) for k, v in part.items() if k != "cache_control"}
    return part


async def test_an_engine_of_the_same_file_sees_the_unanswered_calls_the_same_way_every_time(
    session: SessionManager, api: str, backend_for: BackendFor
) -> None:
    """A4: the bytes that stand for the missing results are stable."""
    answer: Message = {
        "role": "assistant",
        "content": [{"type": "toolCall", "id": "x", "name": "read", "arguments": {}}],
        "stopReason": "toolUse",
        "timestamp": 2,
    }
    session.append_message(user_message("read", 1))
    session.append_message(answer)
    with ScriptedModelServer() as server:
        for text in ("one", "two"):
            await say(session, agent_of(backend_for(api, server)), text)
        asked = [
            next(without_marks(b[key]) for key in ("messages", "input", "contents") if key in b)
            for b in (request.body for request in server.requests)
        ]
        assert asked[1][: len(asked[0])] == asked[0]


def test_started_and_finished_are_told_for_every_call_that_ran(
    path: str, backend_for: BackendFor
) -> None:
    heard: list[TurnEvent] = []

    async def turn() -> None:
        with (
            SessionManager.open(path) as session,
            ScriptedModelServer([Reply(tool_calls=calls("a", "a")), Reply("ok")]) as server,
        ):
            agent = agent_of(backend_for("openai-completions", server), tool("a", lambda _: "b"))
            await say(session, agent, "go", listener=heard.append)

    asyncio.run(turn())
    told = [
        (type(e).__name__, e.call_id) for e in heard if isinstance(e, ToolStarted | ToolFinished)
    ]
    assert told == [
        ("ToolStarted", "call_0"),
        ("ToolFinished", "call_0"),
        ("ToolStarted", "call_1"),
        ("ToolFinished", "call_1"),
    ]
