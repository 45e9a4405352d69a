"""The model changes in the middle of a conversation, from each provider to each other and back."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from strandline.clock import SystemClock
from strandline.context.tokens import HeuristicCounter, MessageTokens
from strandline.errors import ModelError
from strandline.manager import SessionManager
from strandline.runtime.agent import Agent, Backend
from strandline.runtime.offline import OfflineSummarizer
from strandline.runtime.retrying import RetrySettings
from strandline.runtime.tools import Tool, Toolbox, ToolOutput
from strandline.runtime.tools import ToolCall as RunningCall
from strandline.runtime.turn import run_turn
from strandline.testing import Reply, Script, ScriptedModelServer, ToolCall
from strandline.transcript.messages import JsonObject, Message

BackendFor = Callable[..., Backend]
APIS = ("openai-completions", "openai-responses", "anthropic-messages", "google-generative-ai")
PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5"
    "ErkJggg=="
)
IMAGE: JsonObject = {"type": "image", "data": PIXEL, "mimeType": "image/png"}
ODD_IDS = [
    "call_" + "x" * 120 + "|" + "y" * 120,
    "functions.read:0",
    "functions.read:1",
    "z" * 438,
    "z" * 437 + "!",
    "réad ☃ 1",
]


def agent_of(backend: Backend) -> Agent:
    async def read(call: RunningCall) -> ToolOutput:
        return ToolOutput([{"type": "text", "text": f"read {len(call.id)}"}, IMAGE])

    tokens = MessageTokens(HeuristicCounter())
    return Agent(
        "main",
        backend.model,
        backend.info,
        OfflineSummarizer(tokens.counter),
        tokens,
        SystemClock(),
        system_prompt="Be brief.",
        toolbox=Toolbox([Tool("read", "It reads.", {"type": "object"}, read)]),
        retry=RetrySettings(attempts=1),
    )


async def say(session: SessionManager, backend: Backend, text: str) -> str:
    content = [{"type": "text", "text": text}, IMAGE]
    agent = agent_of(backend)
    try:
        message: Message = {"role": "user", "content": content, "timestamp": 1}
        return (await run_turn(session, agent, message)).reply
    finally:
        await agent.aclose()


def turn(ids: list[str], number: int) -> Script:
    """A turn that thinks, calls tools with these ids, and thinks again."""
    called = [ToolCall("read", {"n": number, "place": n}, each) for n, each in enumerate(ids)]
    replies = [
        Reply("Let me look.", thinking=f"First {number}.", tool_calls=called),
        Reply(f"It is {number}.", thinking=f"Then {number}."),
    ]
    return lambda _: replies.pop(0)


def accident(backend: Backend, **more: Any) -> Message:
    info = backend.info
    written = {"api": info.api, "provider": info.provider, "model": info.id}
    return {"role": "assistant", "content": [], "timestamp": 1, **written, **more}


def have_accidents(session: SessionManager, backend: Backend) -> None:
    """What crashes and stops leave, and what older versions wrote (A2, A13, B2, B3)."""
    call = {"type": "toolCall", "id": "functions.read:0", "name": "read", "arguments": {}}
    text = {"type": "text", "text": "I was about t"}
    unsigned = {"type": "thinking", "thinking": "hm"}
    for more in (
        {"stopReason": "error", "errorMessage": "503"},
        {"stopReason": "error", "content": [text], "errorMessage": "it broke off"},
        {"stopReason": "aborted", "content": [unsigned, text, call]},
        {"stopReason": "aborted", "content": [unsigned]},
        {"stopReason": "stop", "content": [{"type": "text", "text": " \n"}]},
        {"stopReason": "toolUse", "content": [{**call, "arguments": {"unparsedArguments": "{"}}]},
    ):
        session.append_message({"role": "user", "content": "and?", "timestamp": 1})
        session.append_message(accident(backend, **more))


@pytest.mark.parametrize(("first", "second"), [*itertools.permutations(APIS, 2)])
async def test_a_conversation_goes_from_one_provider_to_another_and_back(
    tmp_path: Path, backend_for: BackendFor, first: str, second: str
) -> None:
    """With thinking, odd ids (A15), images, errors and stopped answers in what was said."""
    with (
        ScriptedModelServer() as one,
        ScriptedModelServer() as two,
        SessionManager.create(session_dir=tmp_path, cwd="/") as session,
    ):
        options = {"window": 64_000, "reasoning": True, "max_output_tokens": 8_000}
        here = backend_for(first, one, **options)
        there = backend_for(second, two, **options)
        path = Path(str(session.path_name))
        session.append_thinking_level_change("low")
        for number, (backend, server) in enumerate([(here, one), (there, two)] * 2):
            session.append_model_change(backend.info.provider, backend.info.id)
            before = path.read_bytes()
            server.script = turn(ODD_IDS, number)
            assert await say(session, backend, f"question {number}") == f"It is {number}."
            assert path.read_bytes().startswith(before)
            have_accidents(session, backend)
        assert (one.refused, two.refused) == ([], [])
        assert session.verify() == []
        kept = json.dumps([entry.data for entry in session.entries()])
        assert all(each in kept for each in ODD_IDS[:4]), "the transcript keeps ids as they came"


@pytest.mark.parametrize("second", APIS)
async def test_a_conversation_that_failed_with_one_provider_goes_on_with_the_next(
    tmp_path: Path, api: str, backend_for: BackendFor, second: str
) -> None:
    """The stream breaks off in the middle of an answer that thought and was to call tools."""
    broken = Reply(
        "Half of it", thinking="Hm.", tool_calls=[ToolCall("read", {})], disconnect_after=2
    )
    with (
        ScriptedModelServer([broken, Reply("Whole.")]) as server,
        SessionManager.create(session_dir=tmp_path, cwd="/") as session,
    ):
        with pytest.raises(ModelError):
            await say(session, backend_for(api, server, reasoning=True), "go")
        assert await say(session, backend_for(second, server), "go on") == "Whole."
        assert server.refused == []
