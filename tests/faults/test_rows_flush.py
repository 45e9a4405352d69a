"""The memory flush (faults I), with the real memory tools in a real folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from strandline.clock import SystemClock
from strandline.context.budget import CompactionSettings
from strandline.runtime.agent import Backend
from strandline.runtime.conversation import Conversation
from strandline.runtime.events import CompactionStarted, MemoryFlushed, Notice, TurnEvent
from strandline.runtime.flush_settings import FlushSettings
from strandline.runtime.tools import Tool
from strandline.testing import RecordedRequest, Reply, ToolCall
from strandline.tools.builtin import builtin_tools
from strandline.transcript.messages import JsonObject

BackendFor = Callable[..., Backend]
CHAT = "openai-completions"
PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5"
    "ErkJggg=="
)
IMAGE: JsonObject = {"type": "image", "data": PIXEL, "mimeType": "image/png"}
PROMPT = "Write down what lasts."
FLUSH = FlushSettings(True, 1_000, PROMPT, "Silent turn: only memory.")


class Model:
    """Answers people with `says`; flushes with a note, then silence."""

    def __init__(self, says: str = "Yes.") -> None:
        self.says = says
        self.flushes: list[RecordedRequest] = []

    def __call__(self, request: RecordedRequest) -> Reply:
        text = json.dumps(request.body)
        if PROMPT not in text:
            return Reply(self.says, chunk_chars=8_000)
        self.flushes.append(request)
        if "memory_write was here" in text:
            return Reply("NO_REPLY")
        note = f"- memory_write was here, number {len(self.flushes)}"
        return Reply(tool_calls=[ToolCall("memory_write", {"note": note}, f"n{len(self.flushes)}")])


def memory_tools(folder: Path) -> list[Tool]:
    (folder / "workspace").mkdir(exist_ok=True)
    return builtin_tools(folder / "workspace", "rw", SystemClock(), timezone=UTC)


def notes(folder: Path) -> str:
    return "".join(path.read_text() for path in (folder / "workspace").glob("memory/*.md"))


async def fill(talk: Conversation, times: int) -> None:
    for number in range(times):
        await talk.say(f"message {number}")
        await talk.settle()


async def test_a_refusal_for_size_is_flushed_for_before_it_is_compacted(
    serve: Any, agent_of: Any, talk_of: Any, backend_for: BackendFor, tmp_path: Path, api: str
) -> None:
    """I3: the window is smaller than believed; the flush knows that as well as the turn."""
    model, heard = Model("The lantern is lit. " * 60), list[TurnEvent]()
    server = serve(model, context_window=6_000)
    talk = talk_of(agent_of(backend_for(api, server, 32_000), *memory_tools(tmp_path), flush=FLUSH))
    result = None
    for number in range(30):
        result = await talk.say(f"{number}: " + "berth " * 100, listener=heard.append)
        if result.compactions:
            break
    assert result is not None
    assert [each.trigger for each in result.compactions] == ["overflow"]
    told = [e.text for e in heard if isinstance(e, Notice)]
    assert "memory_write was here" in notes(tmp_path), told
    kinds = [type(event) for event in heard]
    assert kinds.index(MemoryFlushed) < kinds.index(CompactionStarted)


async def test_flush_and_compaction_go_by_the_same_reserve(
    serve: Any, agent_of: Any, talk_of: Any, backend_for: BackendFor, tmp_path: Path
) -> None:
    """I4, a tenth of its numbers: window 272k, reserve 62.5k, floor 20k, soft threshold 4k."""
    sizes: dict[type, int] = {}
    model = Model("The lantern is lit. " * 4)
    server = serve(model)
    settings = CompactionSettings(reserve_tokens=6_250, reserve_tokens_floor=2_000)
    flush = FlushSettings(True, 400, PROMPT, "Silent turn: only memory.")
    backend = backend_for(CHAT, server, 27_200)
    talk = talk_of(agent_of(backend, *memory_tools(tmp_path), flush=flush, compaction=settings))
    number = before = 0

    def hear(event: TurnEvent) -> None:
        sizes.setdefault(type(event), before)

    while CompactionStarted not in sizes:
        number += 1
        result = await talk.say(f"{number}: " + "berth " * 100, listener=hear)
        before = result.context_tokens
        await talk.settle()
    assert 27_200 - 6_250 - 400 - 400 < sizes[MemoryFlushed] <= 27_200 - 6_250
    assert 27_200 - 6_250 - 400 < sizes[CompactionStarted] <= 27_200 - 6_250
    assert sizes[MemoryFlushed] < sizes[CompactionStarted]


async def test_a_context_that_crosses_the_band_again_and_again_is_flushed_once(
    serve: Any, agent_of: Any, talk_of: Any, backend_for: BackendFor, tmp_path: Path
) -> None:
    """I5: back below it by `/branch`, over it by the next message, five times; one compaction
    makes another flush possible.
    """
    model = Model("The lantern is lit. " * 60)
    server = serve(model)
    talk = talk_of(
        agent_of(backend_for(CHAT, server, 16_000), *memory_tools(tmp_path), flush=FLUSH)
    )
    await fill(talk, 12)
    below = talk.session.leaf_id
    assert model.flushes == []
    for number in range(5):
        await talk.branch(below)
        await talk.say(f"{number}: " + "berth " * 1_800)
        await talk.settle()
    asked = len(model.flushes)
    assert asked == 2, "the note and the silence of one flush"
    await talk.compact()
    while len(model.flushes) == asked:
        await fill(talk, 1)
    assert len(model.flushes) == 2 * asked


async def test_a_note_that_two_flushes_write_is_one_line(
    serve: Any, agent_of: Any, talk_of: Any, backend_for: BackendFor, tmp_path: Path
) -> None:
    """I9: the second is told that it stands there already; what is too long is not written."""
    same = ToolCall("memory_write", {"note": "- berth 7 is taken"}, "n1")
    long = ToolCall("memory_write", {"note": "- " + "seven " * 5_000}, "n2")
    said: list[str] = []

    def script(request: RecordedRequest) -> Reply:
        text = json.dumps(request.body)
        if PROMPT not in text:
            return Reply("The lantern is lit. " * 60, chunk_chars=8_000)
        said.append(text)
        return Reply(tool_calls=[same, long]) if len(said) % 2 else Reply("NO_REPLY")

    talk = talk_of(
        agent_of(backend_for(CHAT, serve(script), 16_000), *memory_tools(tmp_path), flush=FLUSH)
    )
    while len(said) < 4:
        await fill(talk, 1)
    assert notes(tmp_path) == "- berth 7 is taken\n"


class Picture(NamedTuple):
    """How the flush cannot be made."""

    flush_fails: bool = False
    tools: bool = True


@pytest.mark.parametrize("how", [Picture(tools=False), Picture(flush_fails=True)])
async def test_a_turn_whose_flush_cannot_be_made_is_answered_with_its_image(
    serve: Any,
    agent_of: Any,
    talk_of: Any,
    backend_for: BackendFor,
    tmp_path: Path,
    api: str,
    how: Picture,
) -> None:
    """I10: no tool to write with, or a model that fails in the flush; the message is whole."""
    asked: list[RecordedRequest] = []

    def script(request: RecordedRequest) -> Reply:
        if PROMPT in json.dumps(request.body):
            return Reply(status=500)
        asked.append(request)
        return Reply("The lantern is lit. " * 60, chunk_chars=8_000)

    denied = {"memory_write"} if not how.tools else set()
    tools = [tool for tool in memory_tools(tmp_path) if tool.name not in denied]
    server = serve(script)
    talk = talk_of(agent_of(backend_for(api, server, 16_000), *tools, flush=FLUSH))
    await fill(talk, 12)
    heard = list[TurnEvent]()
    text = {"type": "text", "text": "What is on it? " + "berth " * 2_400}
    result = await talk.say(
        {"role": "user", "content": [text, IMAGE], "timestamp": 1}, listener=heard.append
    )
    assert result.reply.startswith("The lantern")
    assert len(result.compactions) == 1, "the flush would have come before it"
    last = json.dumps(asked[-1].body)
    assert PIXEL in last
    assert "What is on it?" in last
    told = [e.text for e in heard if isinstance(e, Notice)]
    assert any("memory was not flushed" in each for each in told) == how.flush_fails
    assert PIXEL in json.dumps(talk.session.build_context().messages)
