"""No sequence of messages makes a session that cannot take its next one.

Whatever was said, however large, whichever provider answers, whatever model and summariser
do: a turn gives an answer or one of our errors, and once the server is well again, the next
plain message is answered. What was in the file stays as it was.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from strandline.clock import SystemClock
from strandline.context.budget import CompactionSettings
from strandline.context.policy import ContextPolicy
from strandline.context.summarize import Summarizer, Summary, SummaryRequest
from strandline.context.tokens import HeuristicCounter, MessageTokens
from strandline.errors import ContextOverflow, ModelError, StrandlineError
from strandline.manager import SessionManager
from strandline.runtime.agent import Agent, Backend
from strandline.runtime.cooldowns import MemoryRecords, RecordedCooldowns
from strandline.runtime.events import CompactionReceipt, Listener, Notice, TurnEvent, nobody
from strandline.runtime.model_summarizer import ModelSummarizer
from strandline.runtime.offline import OfflineSummarizer
from strandline.runtime.retrying import RetrySettings
from strandline.runtime.summarizing import SummaryLadder
from strandline.runtime.tools import Tool, Toolbox, ToolOutput
from strandline.runtime.tools import ToolCall as RunningCall
from strandline.runtime.turn import run_turn, user_message
from strandline.runtime.turn_result import TurnResult
from strandline.testing import OverflowStyle, RecordedRequest, Reply, ScriptedModelServer, ToolCall
from strandline.transcript.messages import JsonObject

BackendFor = Callable[..., Backend]
CHAT = "openai-completions"
SUMMARISER = "the-summariser"
GOOD_SUMMARY = "## Goal\n- the lanterns of the harbour\n\n## Facts\n- there are 12 of them\n"
PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5"
    "ErkJggg=="
)
IMAGE: JsonObject = {"type": "image", "data": PIXEL, "mimeType": "image/png"}

WORDINGS: dict[str, list[OverflowStyle | None]] = {
    CHAT: [None, "openai-no-counts", "vllm", "llama.cpp", "lm-studio", "input-is-longer", "z.ai"],
    "openai-responses": [None, "openai", "openai-no-counts"],
    "anthropic-messages": [None, "bedrock", "out-of-room"],
    "google-generative-ai": [None],
}
"""Each format's own words for a prompt that is too long, and those of servers that speak it."""

FAILURES: dict[str, Callable[[], Reply]] = {
    "500": lambda: Reply(status=500),
    "429": lambda: Reply(status=429, retry_after_s=0),
    "401": lambda: Reply(status=401),
    "400": lambda: Reply(status=400),
    "disconnect": lambda: Reply("half an answer", chunk_chars=4, disconnect_after=2),
    "stall": lambda: Reply("half an answer", chunk_chars=4, stall_after=2, stall_s=0.4),
    "truncated": lambda: Reply("half an answer", chunk_chars=4, truncate_after=2),
    "overflow": lambda: Reply(finish_reason="model_context_window_exceeded"),
    "no words": lambda: Reply(""),
    "cut off": lambda: Reply("word " * 50, finish_reason="length"),
}
SUMMARIES: dict[str, Callable[[], Reply]] = {
    "good": lambda: Reply(GOOD_SUMMARY),
    "empty": lambda: Reply(""),
    "longer than all": lambda: Reply("## Goal\n" + "- lanterns here\n" * 4_000, chunk_chars=8_000),
    "500": lambda: Reply(status=500),
    "400": lambda: Reply(status=400),
    "disconnect": lambda: Reply(GOOD_SUMMARY, disconnect_after=2),
    "stall": lambda: Reply(GOOD_SUMMARY, stall_after=1, stall_s=0.3),
    "overflow": lambda: Reply(finish_reason="model_context_window_exceeded"),
}
DAMAGE = {
    "half a line": b'{"type":"message","id":"a1b2c3d4","parentId":nu\n',
    "no line end": b'{"type":"mess',
    "zeros": bytes(64) + b"\n",
    "nonsense": b"not JSON at all\n\n[1, 2]\n",
}
FINDINGS = {"malformed-line", "torn-line", "nul-bytes", "blank-line", "missing-id"}


class Fails:
    """A summariser that never manages."""

    name = "fails"

    async def summarize(self, request: SummaryRequest) -> Summary:
        raise ModelError(f"no summary of {len(request.messages)} messages", kind="network")


class Raises:
    """A summariser with a fault of its own."""

    name = "raises"

    async def summarize(self, request: SummaryRequest) -> Summary:
        raise KeyError(request.max_tokens)


@dataclass(frozen=True)
class Step:
    """One thing that happens: `kind` of message, its size, what fails, when it is stopped."""

    kind: str
    chars: int
    failures: tuple[str, ...] = ()
    summaries: tuple[str, ...] = ()
    stop_at: int = 0


@dataclass(frozen=True)
class World:
    """Who answers, and within which limits."""

    api: str
    window: int
    factor: float
    overflow: OverflowStyle | None
    prompt_share: float
    summariser: str
    fallback: str | None
    mode: Any
    thinks: bool = False


KINDS = ["user", "user", "tool", "tools", "image", "custom", "bash", "branch", "damage", "pile"]
SIZES = st.one_of(st.integers(0, 400), st.integers(400, 20_000), st.integers(20_000, 120_000))


def some(of: dict[str, Any]) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from([*of]), max_size=3).map(tuple)


STEPS = st.builds(
    Step,
    st.sampled_from(KINDS),
    SIZES,
    some(FAILURES),
    some(SUMMARIES),
    st.sampled_from([0, 0, 0, 0, 1, 3, 6]),
)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    api = draw(st.sampled_from([*WORDINGS]))
    return World(
        api,
        draw(st.one_of(st.integers(8_000, 64_000), st.integers(1_500, 8_000))),
        draw(st.floats(0.5, 2.5)),
        draw(st.sampled_from(WORDINGS[api])),
        draw(st.sampled_from([0.0, 0.0, 0.1, 0.25])),
        draw(st.sampled_from(["offline", "model", "bare model", "fails", "raises"])),
        draw(st.sampled_from([None, None, *WORDINGS])),
        draw(st.sampled_from(["auto", "auto", "auto", "off"])),
        draw(st.booleans()),
    )


class Script:
    """What the server answers: failures first, as long as there are any."""

    def __init__(self, *, thinks: bool = False) -> None:
        self.thinking = "I wonder." if thinks else ""
        self.failures: list[str] = []
        self.summaries: list[str] = []
        self.calls = 0

    def __call__(self, request: RecordedRequest) -> Reply:
        if request.body.get("model") == SUMMARISER:
            return SUMMARIES[self.summaries.pop(0) if self.summaries else "good"]()
        if self.failures:
            return FAILURES[self.failures.pop(0)]()
        if self.calls:
            wanted, self.calls = self.calls, 0
            calls = [ToolCall("fetch", {}, f"call:{n}") for n in range(wanted)]
            return Reply(thinking=self.thinking, tool_calls=calls)
        return Reply("It is so.", thinking=self.thinking)


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedModelServer]:
    with ScriptedModelServer() as opened:
        yield opened


def words(chars: int) -> str:
    return ("lantern harbour " * (chars // 16 + 1))[:chars]


def agent_of(
    world: World,
    backend_for: BackendFor,
    server: ScriptedModelServer,
    fetched: list[int],
    *,
    timeout_s: float = 30.0,
) -> Agent:
    async def fetch(_: RunningCall) -> ToolOutput | str:
        chars = fetched[0]
        image = ToolOutput([{"type": "text", "text": words(chars)}, IMAGE])
        return image if chars % 2 else words(chars)

    more = {"reasoning": world.thinks, "max_output_tokens": 4_000 if world.thinks else 500}
    backend = backend_for(world.api, server, world.window, timeout_s=timeout_s, **more)
    others = [backend_for(world.fallback, server, world.window // 2)] if world.fallback else []
    asked = backend_for(CHAT, server, world.window, name=SUMMARISER)
    tokens = MessageTokens(HeuristicCounter())
    return Agent(
        "main",
        backend.model,
        backend.info,
        summariser_of(world.summariser, asked, tokens),
        tokens,
        SystemClock(),
        CompactionSettings(mode=world.mode),
        system_prompt=words(int(world.window / world.factor * 4 * world.prompt_share)),
        fallbacks=tuple(others),
        toolbox=Toolbox([Tool("fetch", "It fetches.", {"type": "object"}, fetch)]),
        retry=RetrySettings(attempts=2, min_delay_ms=1, max_delay_ms=2),
        only_for_summaries=(asked.model,),
    )


def summariser_of(kind: str, asked: Backend, tokens: MessageTokens) -> Summarizer:
    offline, quick = OfflineSummarizer(tokens.counter), RetrySettings(2, 1, 2)
    by = ModelSummarizer(
        asked.model, asked.info, tokens, SystemClock(), timeout_ms=100, retry=quick
    )
    cooldowns = RecordedCooldowns(MemoryRecords(), SystemClock())
    kinds: dict[str, Summarizer] = {
        "offline": offline,
        "model": SummaryLadder([by], offline, cooldowns),
        "bare model": by,
        "fails": Fails(),
        "raises": Raises(),
    }
    return kinds[kind]


async def turn(
    session: SessionManager, agent: Agent, message: Any, listener: Listener = nobody
) -> TurnResult:
    try:
        return await run_turn(session, agent, message, listener=listener)
    finally:
        await agent.aclose()


async def until_stopped(step: Step, run: Callable[[Listener], Any]) -> str:
    """What came of a turn, which is cancelled after `stop_at` events."""
    heard = 0

    def listen(_: TurnEvent) -> None:
        nonlocal heard
        heard += 1
        if heard == step.stop_at:
            asyncio.get_running_loop().call_soon(task.cancel)

    task = asyncio.ensure_future(run(listen))
    await asyncio.wait([task])
    if task.cancelled():
        return "stopped"
    failed = task.exception()
    assert failed is None or isinstance(failed, StrandlineError), repr(failed)
    return "answered" if failed is None else type(failed).__name__


def damage(path: Path, step: Step) -> SessionManager:
    """The session again, after something else wrote into its file."""
    with path.open("ab") as file:
        file.write([*DAMAGE.values()][step.chars % len(DAMAGE)])
    return SessionManager.open(path, durability="none")


def append(session: SessionManager, step: Step) -> None:
    """What stands in the transcript before a turn, and is not a turn's."""
    text = words(step.chars)
    match step.kind:
        case "custom":
            session.append_custom_message("note", text)
        case "bash":
            bash = {"command": "cat it", "output": text, "exitCode": 0, "cancelled": False}
            session.append_message({"role": "bashExecution", **bash, "timestamp": 1})
        case "branch" if path := session.path():
            session.branch_with_summary(path[len(path) // 2], words(step.chars // 8))
        case "pile":  # what an import leaves, and what a crash does
            call = {"type": "toolCall", "id": "x|y", "name": "fetch", "arguments": {"q": text}}
            answer = {"role": "assistant", "content": [call], "stopReason": "toolUse"}
            said = user_message(text, 1)
            for each in (said, {**answer, "timestamp": 2}, said):
                session.append_message(each)


def said(step: Step) -> JsonObject:
    message = user_message(f"now: {words(step.chars)}", 1)
    images = [IMAGE] * (1 + step.chars % 5 if step.kind == "image" else 0)
    return {**message, "content": [*message["content"], *images]}


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(world=worlds(), steps=st.lists(STEPS, min_size=1, max_size=6))
async def test_no_sequence_of_messages_makes_a_session_that_cannot_take_its_next_one(
    server: ScriptedModelServer, backend_for: BackendFor, world: World, steps: list[Step]
) -> None:
    script, fetched = Script(thinks=world.thinks), [0]
    server.script, server.overflow = script, world.overflow
    server.context_window, server.token_factor = world.window, world.factor
    refused = len(server.refused)
    agent = agent_of(world, backend_for, server, fetched, timeout_s=0.15)
    with tempfile.TemporaryDirectory() as folder:
        session = SessionManager.create(session_dir=folder, cwd="/", durability="none")
        path, damaged = Path(str(session.path_name)), False
        session.append_thinking_level_change("low")
        for step in steps:
            before = path.read_bytes()
            script.failures, script.summaries = [*step.failures], [*step.summaries]
            fetched[0] = step.chars
            if step.kind == "damage":
                damaged = True
                session.close()
                session = damage(path, step)
            script.calls = {"tool": 1, "tools": 4}.get(step.kind, 0)
            append(session, step)
            run = partial(turn, session, agent, said(step))
            event(await until_stopped(step, run))
            assert path.read_bytes().startswith(before), "what was there stays as it was"
        server.script = Script(thinks=world.thinks)
        patient = agent_of(world, backend_for, server, fetched)
        result = await turn(session, patient, user_message("Are you there?", 1))
        assert result.reply == "It is so."
        assert server.refused[refused:] == [], "nothing was sent that a provider refuses"
        if any(entry.type == "compaction" for entry in session.entries()):
            event("compacted")
        kinds = {finding.kind for finding in session.verify()}
        assert kinds <= FINDINGS if damaged else not kinds
        session.close()


# -- the single cases ----------------------------------------------------------------------

PLAIN = World(CHAT, 8_000, 1.0, None, 0.1, "offline", None, "auto")


async def talk(
    session: SessionManager, agent: Agent, turns: int, chars: int, listener: Listener = nobody
) -> list[CompactionReceipt]:
    """So many turns of that size, each answered."""
    made: list[CompactionReceipt] = []
    for number in range(turns):
        message = user_message(f"{number}: {words(chars)}", number)
        result = await turn(session, agent, message, listener)
        assert result.reply
        made += result.compactions
    return made


@pytest.fixture
def well(server: ScriptedModelServer) -> ScriptedModelServer:
    """The server with a window of 8,000, answering plainly."""
    server.script, server.context_window = Script(), 8_000
    server.overflow, server.token_factor = None, 1.0
    return server


async def test_a_message_and_a_result_of_400_kb_are_answered_in_a_window_of_8k(
    well: ScriptedModelServer, backend_for: BackendFor, api: str
) -> None:
    session, script = SessionManager.in_memory(), Script()
    well.script, script.calls = script, 2
    agent = agent_of(replace(PLAIN, api=api), backend_for, well, [400_000])
    assert (await turn(session, agent, user_message(words(400_000), 1))).reply
    await talk(session, agent, 3, 400)
    assert sum(len(line) for line in session.branch_lines()) > 1_200_000, "nothing is cut on disk"


async def test_a_summariser_that_always_fails_costs_the_summary_and_no_answer(
    well: ScriptedModelServer, backend_for: BackendFor, api: str
) -> None:
    session, heard = SessionManager.in_memory(), list[TurnEvent]()
    agent = agent_of(replace(PLAIN, api=api, summariser="fails"), backend_for, well, [0])
    assert await talk(session, agent, 8, 6_000, heard.append) == []
    why = {event.text for event in heard if isinstance(event, Notice)}
    assert any("no summary of" in text for text in why), "and that is told"


@pytest.mark.parametrize(("timeout_ms", "by"), [(1_800, SUMMARISER), (600, "extractive")])
async def test_a_summary_that_takes_75_of_180_seconds_is_waited_for_and_of_60_is_not(
    well: ScriptedModelServer, backend_for: BackendFor, timeout_ms: int, by: str
) -> None:
    """A hundred times faster (H9). What was not waited for is made offline, and that is told."""

    def slowly(request: RecordedRequest) -> Reply:
        is_summary = request.body.get("model") == SUMMARISER
        return Reply(GOOD_SUMMARY, stall_after=1, stall_s=0.75) if is_summary else Reply("Yes.")

    well.script = slowly
    session, heard = SessionManager.in_memory(), list[TurnEvent]()
    agent = agent_of(replace(PLAIN, summariser="offline"), backend_for, well, [0])
    asked = backend_for(CHAT, well, 8_000, name=SUMMARISER)
    patient = ModelSummarizer(
        asked.model, asked.info, agent.tokens, SystemClock(), timeout_ms=timeout_ms
    )
    cooldowns = RecordedCooldowns(MemoryRecords(), SystemClock())
    ladder = SummaryLadder([patient], OfflineSummarizer(agent.tokens.counter), cooldowns)
    agent = replace(agent, summarizer=ladder, only_for_summaries=(asked.model,))
    made = await talk(session, agent, 3, 6_000, heard.append)
    assert {by in receipt.summarizer for receipt in made} == {True}
    told = any(isinstance(e, Notice) and "did not finish within 0.6 s" in e.text for e in heard)
    assert told == (by == "extractive")


async def test_a_summary_longer_than_what_it_replaces_is_bounded_and_still_gains(
    well: ScriptedModelServer, backend_for: BackendFor
) -> None:
    script = Script()
    script.summaries = ["longer than all"] * 50
    well.script = script
    agent = agent_of(replace(PLAIN, summariser="bare model"), backend_for, well, [0])
    made = await talk(SessionManager.in_memory(), agent, 8, 4_000)
    assert made
    assert all(receipt.tokens_after < receipt.tokens_before for receipt in made)


async def test_a_system_prompt_that_leaves_almost_nothing_leaves_a_conversation(
    well: ScriptedModelServer, backend_for: BackendFor, api: str
) -> None:
    agent = agent_of(replace(PLAIN, api=api, prompt_share=0.8), backend_for, well, [0])
    assert agent.budget().limit < 1_000
    await talk(SessionManager.in_memory(), agent, 6, 3_000)


async def test_a_system_prompt_that_leaves_nothing_is_an_error_that_names_it_and_passes(
    well: ScriptedModelServer, backend_for: BackendFor
) -> None:
    session = SessionManager.in_memory()
    agent = agent_of(replace(PLAIN, prompt_share=1.2), backend_for, well, [0])
    with pytest.raises(ContextOverflow, match="the system prompt"):
        await turn(session, agent, user_message("hello", 1))
    await talk(session, replace(agent, system_prompt="Be brief."), 1, 10)


async def test_a_limit_that_leaves_nothing_is_an_error_that_names_the_setting_and_passes(
    well: ScriptedModelServer, backend_for: BackendFor
) -> None:
    session = SessionManager.in_memory()
    agent = agent_of(PLAIN, backend_for, well, [0])
    with pytest.raises(ContextOverflow, match=r"context\.maxTokens leaves no more room"):
        await turn(
            session, replace(agent, policy=ContextPolicy(max_tokens=1)), user_message("hello", 1)
        )
    await talk(session, replace(agent, policy=ContextPolicy(max_tokens=100)), 3, 4_000)


async def test_a_window_smaller_than_the_reserve_is_a_window_all_the_same(
    well: ScriptedModelServer, backend_for: BackendFor, api: str
) -> None:
    well.context_window = 4_000
    agent = agent_of(replace(PLAIN, api=api, window=4_000), backend_for, well, [0])
    greedy = CompactionSettings(reserve_tokens=200_000, keep_recent_tokens=100_000)
    refused = len(well.requests)
    made = await talk(SessionManager.in_memory(), replace(agent, compaction=greedy), 8, 3_000)
    assert made
    assert len(well.requests) == refused + 8, "never refused"
