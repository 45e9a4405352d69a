"""A conversation to which anything may happen, opened as the command line opens it.

Real files, a strict server for all four formats, and a clock that tests move. What happens is
named; what a name leaves open is decided by dice. After each happening nothing may be gone,
nothing may have been sent that a provider refuses, and what was sent has had its room.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from strandline.errors import EngineError, StrandlineError
from strandline.manager import SessionManager
from strandline.runtime import fitting
from strandline.runtime.assembling import Assembled
from strandline.runtime.conversation import Conversation
from strandline.runtime.silence import Occasion
from strandline.runtime.subagents import Subagents
from strandline.runtime.tools import Tool
from strandline.runtime.tools import ToolCall as RunningCall
from strandline.testing import RecordedRequest, Reply, ScriptedModelServer, SimulatedClock, ToolCall
from strandline.testing.wires import find_wire
from strandline.transcript.messages import JsonObject
from strandline.wiring import State, open_state

KEY = "agent:main:main"
WINDOW = 8_000
PATHS = {
    "openai-completions": "/v1",
    "openai-responses": "/v1",
    "anthropic-messages": "",
    "google-generative-ai": "/v1beta",
}
MODELS = {
    "openai-completions": "chat",
    "openai-responses": "responses",
    "anthropic-messages": "claude-sonnet-4-5",
    "google-generative-ai": "gemini-3",
}
APIS = [*PATHS]
ENGINES = ["legacy", "recall", "chance"]
SMALLEST = 16
"""With less than so many tokens for all messages there need be no room for the newest."""

NOBODY_WAITS_S = 60
"""What takes longer waits for itself."""

Engine = Literal["legacy", "recall", "chance"]


def calls(number: int) -> list[ToolCall]:
    """Calls as no other answer has them, with ids that other providers do not take."""
    return [
        ToolCall("fetch", {"number": number}, "c1"),
        ToolCall("list", {"path": "." + "/" * number}, "functions.x:0"),
        ToolCall("memory_write", {"note": f"lamp {number} is lit"}, "call:é"),
        ToolCall("spawn", {"task": f"count to {number}"}, "c4"),
    ]


ANSWERS: list[Callable[[int], Reply]] = [
    lambda _: Reply("Yes. " * 40, chunk_chars=400),
    lambda _: Reply("The lantern is lit. " * 120, chunk_chars=4_000),
    lambda n: Reply("I look.", tool_calls=calls(n)[:1], thinking="hm"),
    lambda n: Reply("", tool_calls=calls(n)[1:3]),
    lambda n: Reply("", tool_calls=calls(n)[:3], thinking="all of it"),
    lambda n: Reply("Somebody else.", tool_calls=calls(n)[3:]),
    lambda _: Reply("NO_REPLY"),
    lambda _: Reply("half", disconnect_after=1),
    lambda _: Reply(status=503),
    lambda _: Reply(status=400),
    lambda _: Reply("It is said slowly.", chunk_chars=4, delay_s=0.003),
]
SUMMARIES: list[Callable[[], Reply]] = [
    lambda: Reply("## Facts\n- the lanterns of the harbour are lit\n"),
    lambda: Reply(""),
    lambda: Reply("!" * 40_000, chunk_chars=40_000),
    lambda: Reply(status=500),
    lambda: Reply("## Facts\n- lit\n", stall_after=1, stall_s=0.05),
]
DAY_MS = 86_400_000
JUMPS_MS = [1_000, 61_000, 400_000, 4_000_000, 3 * DAY_MS, -61_000, -DAY_MS]
ODD_TIMES: list[Any] = [None, 1, -5, 4_102_444_800_000, "2026-01-01T00:00:00Z", 1e300, True]
FOREIGN: list[JsonObject] = [
    {"role": "user", "content": "from elsewhere"},
    {"role": "user", "content": [{"type": "text", "text": "lamp " * 800}]},
    {"role": "user", "content": []},
    {"role": "assistant", "content": [{"type": "text", "text": "I said so."}]},
    {"role": "toolResult", "toolCallId": "nowhere", "toolName": "fetch", "content": []},
    {
        "role": "assistant",
        "content": [{"type": "toolCall", "id": "left open", "name": "fetch", "arguments": {}}],
        "stopReason": "toolUse",
    },
]


@dataclass
class Life:
    """One conversation, the server that answers for it, and what is decided by dice.

    `rules` are the agent's, one set after the other; `engine` is the one that is selected and
    `chance` what that of chance is like.
    """

    folder: Path
    server: ScriptedModelServer
    clock: SimulatedClock
    api: str
    dice: Iterator[int]
    rules: Iterator[JsonObject]
    well: bool = False
    engine: str = "legacy"
    chance: JsonObject = field(default_factory=lambda: {"seed": 1, "owns": False, "fails": False})
    rounds: int = 0
    said: int = 0
    key: str = KEY
    room: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.server.script = self.script
        (self.folder / "workspace").mkdir()
        here = Path(__file__)
        recall = here.parents[3] / "examples" / "engine" / "strandline_recall.py"
        self._link("chance", here.with_name("engine_of_chance.py"))
        self._link("recall", recall)
        self.own: JsonObject = {}
        self.write()
        self.open()

    def _link(self, name: str, code: Path) -> None:
        folder = self.folder / name
        folder.mkdir()
        shutil.copy(code, folder / f"{name}_engine.py")
        manifest = {"id": name, "module": f"{name}_engine"}
        (folder / "strandline-plugin.json").write_text(json.dumps(manifest))

    def write(self) -> None:
        """The settings, as they are to be."""
        (self.folder / "chance" / "chance.json").write_text(json.dumps(self.chance))
        common = {"contextWindow": WINDOW, "maxTokens": 500, "reasoning": True}
        providers = {
            api: {
                "baseUrl": self.server.root_url + path,
                "apiKey": "a key",
                "api": api,
                "models": [
                    {"id": f"{MODELS[api]}-{name}", **common} for name in ("one", "two", "sum")
                ],
            }
            for api, path in PATHS.items()
        }
        compaction = {"reserveTokens": 1_500, "reserveTokensFloor": 0, "keepRecentTokens": 1_500}
        defaults = {
            "model": {"primary": _model(self.api, "one"), "fallbacks": [_model(self.api, "two")]},
            "compaction": compaction,
            **self.own,
        }
        settings = {
            "models": {"providers": providers, "retry": {"attempts": 2, "minDelayMs": 1}},
            "agents": {"defaults": defaults},
            "tokenCounter": "heuristic",
            "plugins": {
                "load": {"paths": ["recall", "chance"]},
                "entries": {"recall": {"enabled": True}, "chance": {"enabled": True}},
                "slots": {"contextEngine": self.engine},
            },
        }
        (self.folder / "strandline.json").write_text(json.dumps(settings))

    def state(self) -> State:
        """As a process does that begins."""
        state = open_state(self.folder, {}, clock=self.clock)
        state.register_tool(Tool("fetch", "It fetches.", {"type": "object"}, self._fetch))
        return state

    async def _fetch(self, _: RunningCall) -> str:
        return "lantern harbour " * (10, 400, 4_000)[next(self.dice) % 3]

    def open(self) -> None:
        """Open the conversation of the key."""
        self.talk: Conversation = self.state().conversation("main", self.key, holder="a test")

    def throw(self, most: int) -> int:
        """A number below `most`."""
        return next(self.dice) % most

    def script(self, request: RecordedRequest) -> Reply:
        """What the server says: something for good or bad, until all is to be well."""
        text = json.dumps(request.body)
        if "keep the memory of an assistant" in text:
            return (SUMMARIES[0] if self.well else SUMMARIES[self.throw(len(SUMMARIES))])()
        self.rounds += 1
        if self.well or self.rounds > 3:
            return Reply("Fine.")
        return ANSWERS[self.throw(len(ANSWERS))](len(self.server.requests))

    # -- what may happen ---------------------------------------------------------------------

    async def say(self) -> None:
        self.rounds = 0
        await self.talk.say("Is it lit?")

    async def say_much(self) -> None:
        self.rounds = 0
        await self.talk.say("lantern " * (900, 3_000, 20_000)[self.throw(3)])

    async def heartbeat(self) -> None:
        self.rounds = 0
        occasion = Occasion(background=True, heartbeat=True)
        await self.talk.say("tick", occasion=occasion, inbound_id=f"tick-{self.throw(2)}")

    async def say_well(self) -> None:
        """While the server is well a message is answered, and stands in what was sent."""
        await self.is_answered()

    async def retry(self) -> None:
        await self.talk.retry()

    async def stop(self) -> None:
        turn = asyncio.create_task(self.talk.say("Wait, no."))
        await asyncio.sleep(self.throw(100) / 3_000)
        turn.cancel()
        with suppress(asyncio.CancelledError):
            await turn

    async def two_at_once(self) -> None:
        what = (self.talk.compact, self.talk.undo_compaction, self.talk.retry)[self.throw(3)]
        await _both(self.talk.say("one"), what())

    async def two_conversations(self) -> None:
        """Another process, which may already know of other rules."""
        own = self.own
        if self.throw(2):
            self.own = next(self.rules)
        self.write()
        other = self.state().conversation("main", self.key, holder="another")
        self.own = own
        self.write()
        try:
            await _both(self.talk.say("here"), other.say("there"))
            await other.settle()
        finally:
            await other.close()

    async def compact(self) -> None:
        await self.talk.compact((None, "keep the lanterns")[self.throw(2)])

    async def undo(self) -> None:
        await self.talk.undo_compaction()

    async def branch(self) -> None:
        path = self.talk.session.path()
        entry = path[self.throw(len(path))] if path else None
        await self.talk.branch(entry, summarize=self.throw(2) == 0)

    async def another_model(self) -> None:
        name = _model(APIS[self.throw(4)], ("one", "two")[self.throw(2)])
        await self.talk.use(self.state().agent("main", name))

    async def another_mode(self) -> None:
        modes: list[Any] = ["auto", "off", "error", None]
        await self.talk.set_compaction_mode(modes[self.throw(4)])

    async def think(self) -> None:
        levels: list[Any] = ["off", "low", "high"]
        await self.talk.set_thinking(levels[self.throw(3)])

    async def reset(self) -> None:
        await self.talk.reset()

    async def another_key(self) -> None:
        self.key = KEY if self.key != KEY else "agent:main:main:thread:2"
        await self.talk.move_to(self.key)

    async def settle(self) -> None:
        await self.talk.settle()

    async def restart(self) -> None:
        await self.talk.close()
        self.open()

    async def pin(self) -> None:
        """Pin a message, or take a pin away."""
        session = self.talk.session
        pinned, path = [*session.labels()], session.path()
        if pinned and self.throw(2):
            session.append_label(pinned[self.throw(len(pinned))], None)
        elif path:
            session.append_label(path[self.throw(len(path))], "pin")

    async def other_rules(self) -> None:
        self.own = next(self.rules)
        self.write()
        await self.restart()

    async def other_prompt(self) -> None:
        """Other words in the workspace, which the system prompt is made of."""
        words = "The harbour has lanterns. " * self.throw(120)
        (self.folder / "workspace" / "AGENTS.md").write_text(words)
        await self.restart()

    async def forgets(self) -> None:
        """The provider loses its threads and all that it kept."""
        self.server.forget()

    async def jump(self) -> None:
        self.clock.advance(JUMPS_MS[self.throw(len(JUMPS_MS))])

    async def import_messages(self) -> None:
        """Something else writes messages, of no time or an odd one."""
        with SessionManager.open(str(self.talk.session.log_name)) as session:
            for _ in range(1 + self.throw(4)):
                message = {**FOREIGN[self.throw(len(FOREIGN))]}
                stamp = ODD_TIMES[self.throw(len(ODD_TIMES))]
                session.append_message(
                    message if stamp is None else {**message, "timestamp": stamp}
                )

    async def spawn(self) -> None:
        await self._subagents().spawn("count", context=("isolated", "fork")[self.throw(2)])

    async def spawn_and_stop(self) -> None:
        spawned = await self._subagents().spawn("count", context="fork")
        await asyncio.sleep(self.throw(100) / 3_000)
        await self._subagents().stop(spawned.key)

    def _subagents(self) -> Subagents:
        assert self.talk.subagents is not None
        return self.talk.subagents

    async def another_engine(self) -> None:
        self.engine = ENGINES[self.throw(3)]
        self.chance = {
            "seed": self.throw(1_000),
            "owns": self.throw(2) == 0,
            "fails": self.throw(3) == 0,
        }
        self.write()
        await self.restart()

    # -- what has to hold --------------------------------------------------------------------

    async def is_answered(self) -> None:
        """A plain message is answered now; an engine of chance may fail, and tells it."""
        was_well, self.well = self.well, True
        self.said += 1
        marker, before = f"Number {self.said}?", len(self.server.requests)
        try:
            result = await self.talk.say(marker)
        except StrandlineError as error:
            allowed = self.engine == "chance" or self.mode == "error"
            if allowed or (self.max_tokens < SMALLEST and "maxTokens" in str(error)):
                return
            raise AssertionError(f"it was not answered: {error!r}") from error
        finally:
            self.well = was_well
        assert result.reply == "Fine."
        if self.engine != "chance":
            sent = [_last_words(request) for request in self.server.requests[before:]]
            assert any(self.is_in(marker, text) for text in sent), "the newest request was sent"

    @property
    def mode(self) -> str:
        """What is done when the context is too large."""
        return self.talk.compaction_mode

    @property
    def max_tokens(self) -> int:
        """The setting, where there is one."""
        return int(self.own.get("context", {}).get("maxTokens", WINDOW))

    def is_in(self, marker: str, text: str) -> bool:
        """Whether it was said; where there is room for a note alone, the note stands for it."""
        return marker in text or (self.max_tokens < SMALLEST and bool(text.strip()))

    def lines(self) -> dict[str, list[bytes]]:
        """What is in each transcript, archives included, by session id."""
        files = self.folder.glob("agents/*/sessions/*.jsonl*")
        there = [path for path in files if ".lock" not in path.name and ".run" not in path.name]
        return {path.name.split(".")[0]: path.read_bytes().split(b"\n")[:-1] for path in there}

    async def happens(self, name: str) -> None:
        """Let it happen; nothing is lost by it, and nothing is sent that is refused."""
        before = self.lines()
        async with asyncio.timeout(NOBODY_WAITS_S):
            with suppress(StrandlineError):
                await getattr(self, name)()
        self.nothing_is_gone(before)
        self.nothing_was_refused()
        assert all(tokens <= most for tokens, most in self.room), f"tokens, budget: {self.room}"
        self.room.clear()

    def nothing_was_refused(self) -> None:
        """Nothing is sent that a provider refuses; what one has lost is another matter."""
        refused = [words for words in self.server.refused if "not found" not in words]
        assert refused == []

    def nothing_is_gone(self, before: dict[str, list[bytes]]) -> None:
        after = self.lines()
        for session_id, lines in before.items():
            assert after[session_id][: len(lines)] == lines, "a transcript only ever grows"

    async def ends_well(self) -> None:
        """With the built-in engine, and room for a word, the next message is answered."""
        self.engine = "legacy"
        if self.max_tokens < SMALLEST:
            self.own = {}
        self.write()
        await self.restart()
        await self.talk.set_compaction_mode("auto")
        for _ in range(2):
            await self.is_answered()
            await self.talk.settle()
        assert {each.kind for each in self.talk.session.verify()} == set()


def _model(api: str, which: str) -> str:
    return f"{api}/{MODELS[api]}-{which}"


async def _both(*doings: Any) -> None:
    for outcome in await asyncio.gather(*doings, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome


def _last_words(request: RecordedRequest) -> str:
    wire = find_wire(request.path)
    assert wire is not None
    return wire.last_user_text(request.body)


Live = Callable[..., None]


async def _live(life: Life, names: Sequence[str]) -> None:
    try:
        for name in names:
            await life.happens(name)
        await life.ends_well()
        life.nothing_was_refused()
    finally:
        with suppress(EngineError):
            await life.talk.close()


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> Live:
    """Lets `names` happen to a new conversation, and looks whether all went as it has to."""

    def run(names: Sequence[str], dice: list[int], api: str, rules: Sequence[JsonObject]) -> None:
        clock = SimulatedClock()
        made = ScriptedModelServer(context_window=WINDOW * 2, now_ms=clock.now_ms)
        with (
            tempfile.TemporaryDirectory() as folder,
            made as server,
            monkeypatch.context() as patch,
        ):
            life = Life(
                Path(folder), server, clock, api, itertools.cycle(dice), itertools.cycle(rules)
            )
            patch.setattr(fitting.Fitting, "to_send", _noting(life.room))
            asyncio.run(_live(life, names))

    return run


def _noting(room: list[tuple[int, int]]) -> Any:
    """`Fitting.to_send`, which notes what was to be sent and what it may take."""
    to_send = fitting.Fitting.to_send

    async def noting(self: fitting.Fitting) -> Assembled:
        looked = await to_send(self)
        budget = self.budget
        most = budget.view_limit + budget.reserve * self.memory.compactor.is_summarising
        if not looked.is_final:
            room.append((looked.view.tokens, most))
        return looked

    return noting
