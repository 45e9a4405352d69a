"""Whatever people do to a conversation, in whatever order, it takes its next message.

The whole of a conversation, as a face holds on to it: turns with tools in each of the four
formats, compactions with all kinds of summarisers, undo, branches, resets, other models,
other modes, stops in the middle, two at once. After every doing the transcript is clean and
nothing that was in it is gone; at the end a plain message is answered.
"""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strandline.clock import RandomIds, SystemClock
from strandline.context.budget import CompactionSettings
from strandline.context.tokens import HeuristicCounter, MessageTokens
from strandline.errors import StrandlineError
from strandline.runtime.agent import Agent, Backend
from strandline.runtime.conversation import Conversation
from strandline.runtime.cooldowns import MemoryRecords, RecordedCooldowns
from strandline.runtime.model_summarizer import ModelSummarizer
from strandline.runtime.offline import OfflineSummarizer
from strandline.runtime.registry import SessionRegistry
from strandline.runtime.retrying import RetrySettings
from strandline.runtime.silence import Occasion
from strandline.runtime.summarizing import SummaryLadder
from strandline.runtime.tools import Toolbox
from strandline.stores.jsonl import JsonlStore
from strandline.stores.rows_file import RowsFile
from strandline.testing import RecordedRequest, Reply, ScriptedModelServer, ToolCall
from strandline.tools.builtin import builtin_tools

BackendFor = Callable[..., Backend]
KEY = "agent:main:main"
WINDOW = 8_000
APIS = ["openai-completions", "openai-responses", "anthropic-messages", "google-generative-ai"]
GOOD = "## Facts\n- the lanterns of the harbour are lit\n"
ANSWERS = [
    lambda: Reply("Yes. " * 40),
    lambda: Reply("The lantern of the harbour is lit. " * 80, chunk_chars=4_000),
    lambda: Reply("A look.", tool_calls=[ToolCall("list", {"path": "."}, "c1")], thinking="hm"),
    lambda: Reply("", tool_calls=[ToolCall("memory_write", {"note": "lit"}, "functions.x:0")]),
    lambda: Reply("NO_REPLY"),
    lambda: Reply("half", disconnect_after=1),
    lambda: Reply(status=503),
    lambda: Reply(status=400),
]
SUMMARIES = [lambda: Reply(GOOD), lambda: Reply(""), lambda: Reply(status=500)]


@dataclass
class World:
    """One conversation, and the server that answers for it as `dice` fall."""

    talk: Conversation
    server: ScriptedModelServer
    agent_of: Callable[[str], Agent]
    folder: Path
    dice: Iterator[int]
    well: bool = False
    asked: dict[str, int] = field(default_factory=dict)

    def script(self, request: RecordedRequest) -> Reply:
        """What the server says: something for good or bad, until all is to be well."""
        if "keep the memory of an assistant" in str(request.body):
            return Reply(GOOD) if self.well else SUMMARIES[next(self.dice) % len(SUMMARIES)]()
        return Reply("Fine.") if self.well else ANSWERS[next(self.dice) % len(ANSWERS)]()

    def lines(self) -> dict[str, list[bytes]]:
        """What is in each transcript, archives included, by session id."""
        files = [path for path in self.folder.glob("*.jsonl*") if ".lock" not in path.name]
        return {path.name.split(".")[0]: path.read_bytes().splitlines() for path in files}


async def say(world: World) -> None:
    await world.talk.say("Is it lit?")


async def say_much(world: World) -> None:
    await world.talk.say("lantern " * 900)


async def say_in_the_background(world: World) -> None:
    await world.talk.say("tick", occasion=Occasion(background=True), inbound_id="tick-1")


async def retry(world: World) -> None:
    await world.talk.retry()


async def stop_a_turn(world: World) -> None:
    turn = asyncio.create_task(world.talk.say("Wait, no."))
    await asyncio.sleep(next(world.dice) / 4_000)
    turn.cancel()
    with suppress(asyncio.CancelledError):
        await turn


async def two_at_once(world: World) -> None:
    both = (world.talk.say("one"), world.talk.compact())
    for outcome in await asyncio.gather(*both, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome


async def compact(world: World) -> None:
    await world.talk.compact()


async def compact_by_wish(world: World) -> None:
    await world.talk.compact("keep the lanterns")


async def undo(world: World) -> None:
    await world.talk.undo_compaction()


async def branch(world: World) -> None:
    path = world.talk.session.path()
    entry = path[next(world.dice) % len(path)] if path else None
    await world.talk.branch(entry, summarize=next(world.dice) % 2 == 0)


async def another_model(world: World) -> None:
    await world.talk.use(world.agent_of(APIS[next(world.dice) % len(APIS)]))


async def another_mode(world: World) -> None:
    modes: list[Any] = ["auto", "off", "error", None]
    await world.talk.set_compaction_mode(modes[next(world.dice) % len(modes)])


async def think(world: World) -> None:
    await world.talk.set_thinking("high")


async def reset(world: World) -> None:
    await world.talk.reset()


async def settle(world: World) -> None:
    await world.talk.settle()


DOINGS: list[Callable[[World], Awaitable[None]]] = [
    *[say] * 4,
    *[say_much] * 4,
    say_in_the_background,
    retry,
    stop_a_turn,
    two_at_once,
    compact,
    compact_by_wish,
    undo,
    branch,
    another_model,
    another_mode,
    think,
    reset,
    settle,
]


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    doings=st.lists(st.sampled_from(DOINGS), min_size=4, max_size=14),
    dice=st.lists(st.integers(0, 99), min_size=8, max_size=40),
    api=st.sampled_from(APIS),
)
def test_it_takes_its_next_message_and_nothing_is_lost(
    doings: list[Callable[[World], Awaitable[None]]],
    dice: list[int],
    api: str,
    backend_for: BackendFor,
) -> None:
    with tempfile.TemporaryDirectory() as folder, ScriptedModelServer() as server:
        asyncio.run(_live(doings, dice, api, backend_for, Path(folder), server))
        assert not server.refused, "no request broke a rule of its provider"


async def _live(
    doings: list[Callable[[World], Awaitable[None]]],
    dice: list[int],
    api: str,
    backend_for: BackendFor,
    folder: Path,
    server: ScriptedModelServer,
) -> None:
    def agent_of(name: str) -> Agent:
        return _agent(backend_for(name, server, WINDOW, reasoning=True), folder / "workspace")

    rows = RowsFile(folder / "sessions.json")
    registry = SessionRegistry(
        "main", rows, JsonlStore(folder), cwd="/", clock=SystemClock(), ids=RandomIds()
    )
    talk = Conversation(registry, agent_of(api), KEY, holder="a test")
    world = World(talk, server, agent_of, folder, itertools.cycle(dice))
    server.script = world.script
    try:
        for doing in doings:
            before = world.lines()
            with suppress(StrandlineError):
                await doing(world)
            _nothing_is_gone(before, world.lines())
            assert talk.session.verify() == [], doing.__name__
        world.well = True
        await talk.set_compaction_mode("auto")
        assert (await talk.say("And now?")).reply == "Fine."
        await talk.settle()
        assert talk.session.verify() == []
    finally:
        await talk.close()


def _agent(backend: Backend, workspace: Path) -> Agent:
    tokens, clock = MessageTokens(HeuristicCounter()), SystemClock()
    retries = RetrySettings(attempts=2, min_delay_ms=1)
    model = ModelSummarizer(backend.model, backend.info, tokens, clock, retry=retries)
    cooldowns = RecordedCooldowns(MemoryRecords(), clock)
    return Agent(
        "main",
        backend.model,
        backend.info,
        SummaryLadder([model], OfflineSummarizer(tokens.counter), cooldowns),
        tokens,
        clock,
        CompactionSettings(reserve_tokens=1_500, reserve_tokens_floor=0, keep_recent_tokens=1_500),
        toolbox=Toolbox(builtin_tools(workspace, "rw", clock)),
        retry=retries,
    )


def _nothing_is_gone(before: dict[str, list[bytes]], after: dict[str, list[bytes]]) -> None:
    for session_id, lines in before.items():
        assert after[session_id][: len(lines)] == lines, "a transcript only ever grows"
