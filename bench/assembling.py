"""One more message in a long session: what the next request's context costs, rules and all."""

from __future__ import annotations

import asyncio
import shutil
import statistics
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bench.measure import once_s
from bench.peers import pi
from bench.table import Row, duration
from strandline import SessionManager
from strandline.context.assemble import within
from strandline.context.clean_path import CleanPath
from strandline.context.engine import LEGACY
from strandline.context.explain import explain, whole_path
from strandline.context.policy import CacheAware, ContextPolicy, ToolResultPruning
from strandline.context.prune import Moment, PruneMemo, SummaryWanted, prune
from strandline.context.tokens import HeuristicCounter, MessageTokens
from strandline.context.view import View
from strandline.replay.policies import EXAMPLES
from strandline.runtime.agent import Agent
from strandline.runtime.assembling import PIN, Assembling
from strandline.runtime.compacting import Compactor
from strandline.runtime.engine_session import EngineSession
from strandline.runtime.events import nobody
from strandline.runtime.layer_summaries import LayerSummarizing, MemorySummaryMemo
from strandline.runtime.model import ModelEvent, ModelInfo, ModelRequest
from strandline.runtime.offline import OfflineSummarizer
from strandline.testing import SimulatedClock
from strandline.transcript.context import SessionContext

TITLE = "Assembling a request after one more message"
REBUILD_MS = 0.5
ENTRIES = 100_000
APPENDED = 200
FEW = 10
"""As many where everything is kept, and all of it costs."""

WINDOW = 100_000_000
START_MS = 1_750_000_000_000
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
SITTING = 60
"""So many messages, a minute apart, before a pause of `PAUSE_MS`."""

PAUSE_MS = 6 * HOUR_MS


_TRIMS = ToolResultPruning(mode="cache-ttl")
_KEEPS = CacheAware(enabled=True)

POLICIES = {
    **EXAMPLES,  # those of docs/context.md
    "assistant, cacheAware": replace(EXAMPLES["assistant"], cache_aware=_KEEPS),
    "assistant, contextPruning": replace(EXAMPLES["assistant"], tool_results=_TRIMS),
    "assistant, both": replace(EXAMPLES["assistant"], cache_aware=_KEEPS, tool_results=_TRIMS),
    "contextPruning alone": ContextPolicy(tool_results=_TRIMS),
    "no rules": ContextPolicy(),
}


def rows(folder: Path, *, quick: bool) -> Iterator[Row]:
    """Every row; `quick` is a tenth of the entries."""
    entries = ENTRIES // 10 if quick else ENTRIES
    written, copy = _write(folder, entries), folder / "copy.jsonl"
    shutil.copyfile(written, copy)
    theirs_ms = pi("rebuild", copy)  # it appends to its file, as we do
    for name, policy in POLICIES.items():
        shutil.copyfile(written, copy)
        with SessionManager.open(copy, durability="none") as session:
            named = f"{entries:,} entries, {name}"
            yield from asyncio.run(_measured(_Bench(session, policy), named, theirs_ms))


# -- the session -----------------------------------------------------------------------------


def _write(folder: Path, entries: int) -> Path:
    with SessionManager.create(session_dir=folder, durability="none") as session:
        for number in range(entries):
            session.append_message(message(number))
        session.append_label(session.path()[entries // 2], PIN)
        assert session.path_name
        return Path(session.path_name)


def message(number: int) -> dict[str, Any]:
    """A question, a call, its result, an answer; every other time without the call."""
    at_ms = START_MS + number * MINUTE_MS + number // SITTING * PAUSE_MS
    text: list[dict[str, Any]] = [{"type": "text", "text": f"word {number} to you"}]
    call_id = f"c{number - number % 6}"
    match number % 6:
        case 0 | 4:
            return {"role": "user", "content": text, "timestamp": at_ms}
        case 1:
            arguments = {"path": f"notes/{number}.md"}
            text.append({"type": "toolCall", "id": call_id, "name": "read", "arguments": arguments})
            return _answer(text, "toolUse", at_ms)
        case 2:
            result = {"toolCallId": call_id, "toolName": "read", "isError": False}
            return {"role": "toolResult", "content": text, **result, "timestamp": at_ms}
        case _:
            return _answer(text, "stop", at_ms)


def _answer(content: list[dict[str, Any]], stop: str, at_ms: int) -> dict[str, Any]:
    model = {"api": "openai-completions", "provider": "fake", "model": "small"}
    return {
        "role": "assistant",
        "content": content,
        **model,
        "stopReason": stop,
        "timestamp": at_ms,
    }


# -- one request -----------------------------------------------------------------------------


class _Unasked:
    """A model that nobody asks."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        raise AssertionError(request)
        yield

    async def aclose(self) -> None:
        return


@dataclass
class _Bench:
    """A session, and the ways to the context of its next request."""

    session: SessionManager
    policy: ContextPolicy
    clock: SimulatedClock = field(default_factory=SimulatedClock)
    tokens: MessageTokens = field(default_factory=lambda: MessageTokens(HeuristicCounter()))

    def __post_init__(self) -> None:
        self.number = self.session.entry_count - 1  # one of them is a label
        summarizer = OfflineSummarizer(self.tokens.counter)
        self._layers = LayerSummarizing(
            summarizer,
            self.tokens.counter,
            MemorySummaryMemo(),
            self.clock,
            self.policy.summaries,
        )
        self.agent = Agent(
            "main",
            _Unasked(),
            ModelInfo("fake", "small", "openai-completions", WINDOW, 8_000),
            summarizer,
            self.tokens,
            self.clock,
            policy=self.policy,
            layer_summaries=self._layers,
        )
        self.budget = self.agent.budget()
        self._path, self._memo = CleanPath(self.tokens), PruneMemo()
        self._wanted: SummaryWanted | None = None
        compactor = Compactor(self.session, self.agent)
        engine = EngineSession(self.session, self.agent, compactor)
        self._assembling = Assembling(engine)

    @property
    def is_bounded(self) -> bool:
        """Whether the rules leave a request as small as they say, however long the path."""
        return self.policy.max_messages is not None

    async def summarise(self) -> None:
        """Make the summary that the last request wanted, for those that follow."""
        if self._wanted is not None:
            await self._layers.make(self.session.session_id, self._wanted)

    def append(self) -> None:
        """One more message of the conversation, and the time at which it is answered."""
        said = message(self.number)
        self.session.append_message(said)
        self.clock.set(said["timestamp"] + 1)
        self.number += 1

    def decided(self) -> View:
        """The request by the decisions alone."""
        return self._decided(self._path, self._memo)

    def anew(self) -> View:
        """The same without what is remembered of the path."""
        return self._decided(CleanPath(self.tokens), PruneMemo())

    async def assembled(self) -> View:
        """The request as the runtime makes it, off the event loop."""
        looked = await self._assembling.look(self.budget, self.agent.info, nobody)
        context = self.session.build_context()
        return await asyncio.to_thread(self._finished, looked.view, context)

    def _decided(self, path: CleanPath, memo: PruneMemo) -> View:
        pins = frozenset(i for i, label in self.session.labels().items() if label == PIN)
        known = self._layers.known(self.session.session_id)
        moment = Moment(self.clock.now_ms(), self.budget.view_limit, pins, known)
        context = self.session.build_context()
        with path.lock:
            clean = path.follow(context.items, self.budget.message_cap)
            pruned = prune(clean, self.policy, moment, self.tokens, memo=memo)
        self._wanted = pruned.wanted
        return self._finished(pruned.view, context)

    def _finished(self, view: View, context: SessionContext) -> View:
        """Within the limits, and explained."""
        view = within(view, budget=self.budget, tokens=self.tokens, limit="oldest_turns")
        explanation = explain(
            view,
            context,
            budget=self.budget,
            system_tokens=0,
            engine=LEGACY,
            tokens=self.tokens,
            find_whole=lambda: whole_path(self.session, context),
        )
        assert explanation.in_context.all.messages >= len(context.items)
        return view


async def _measured(bench: _Bench, named: str, theirs_ms: float | None) -> Sequence[Row]:
    first_s = once_s(bench.decided)
    bounded, appended = (True, APPENDED) if bench.is_bounded else (False, FEW)
    decided_s = statistics.median([await _decided_s(bench) for _ in range(appended)])
    anew_s = once_s(bench.anew)
    await bench.assembled()
    hopped_s = statistics.median([await _assembled_s(bench) for _ in range(appended)])
    theirs = f"pi, without rules: {duration(theirs_ms / 1000)}; " if theirs_ms else ""
    control_s = theirs_ms / 1000 if theirs_ms else anew_s
    against = f"{theirs}all of it anew: {duration(anew_s)}"
    what = f"the request after one message, {named}"
    return [
        Row(
            what,
            duration(decided_s),
            against,
            control_s / decided_s,
            f"≤ {REBUILD_MS} ms" if bounded else "",
            decided_s * 1000 <= REBUILD_MS if bounded else None,
        ),
        Row(f"{what}, off the event loop", duration(hopped_s), against, control_s / hopped_s),
        Row(f"the first request, {named}", duration(first_s), "", None),
    ]


async def _decided_s(bench: _Bench) -> float:
    bench.append()
    taken_s = once_s(bench.decided)
    await bench.summarise()
    return taken_s


async def _assembled_s(bench: _Bench) -> float:
    bench.append()
    start = time.perf_counter()
    await bench.assembled()
    return time.perf_counter() - start
