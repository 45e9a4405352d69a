"""Conversations for the contract of engines, and driving an engine through one."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from strandline.context.engine import (
    Assemble,
    AssembleResult,
    Bootstrap,
    BootstrapReason,
    Compact,
    CompactResult,
    ContextEngine,
    Ingest,
    IngestBatch,
    RuntimeContext,
    SessionRef,
)
from strandline.testing.engine_host import engine_runtime
from strandline.transcript.context import PathMessage
from strandline.transcript.messages import JsonObject, Message

MakeEngine = Callable[[], ContextEngine | Awaitable[ContextEngine]]
START_MS = 1_700_000_000_000
LARGE, SMALL = 100_000, 600
"""Token budgets: one that no talk of these tests reaches, and one that a long talk exceeds."""

NO_USAGE = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 0}


async def new_engine(make_engine: MakeEngine) -> ContextEngine:
    """A new engine, whether it is made at once or awaited."""
    made = make_engine()
    return await made if inspect.isawaitable(made) else made


# -- conversations -----------------------------------------------------------------------


def user(entry_id: str, text: str, at: int = 0) -> PathMessage:
    """What a person says; `at` is the minute."""
    stamp = START_MS + at * 60_000
    return PathMessage(entry_id, {"role": "user", "content": text, "timestamp": stamp})


def answer(entry_id: str, text: str, at: int = 0, *calls: str) -> PathMessage:
    """What a model answers, with calls of these ids."""
    called = [
        {"type": "toolCall", "id": each, "name": "read", "arguments": {"path": f"{each}.txt"}}
        for each in calls
    ]
    said: list[JsonObject] = [{"type": "text", "text": text}, *called]
    return PathMessage(
        entry_id,
        {
            "role": "assistant",
            "content": said,
            "api": "openai-completions",
            "provider": "test",
            "model": "test",
            "usage": NO_USAGE,
            "stopReason": "toolUse" if calls else "stop",
            "timestamp": START_MS + at * 60_000 + 1000,
        },
    )


def result(entry_id: str, call_id: str, text: str, at: int = 0) -> PathMessage:
    """What a tool gave back."""
    return PathMessage(
        entry_id,
        {
            "role": "toolResult",
            "toolCallId": call_id,
            "toolName": "read",
            "content": [{"type": "text", "text": text}],
            "isError": False,
            "timestamp": START_MS + at * 60_000 + 2000,
        },
    )


def talk(turns: int, name: str = "talk", words: str = "about the harbour") -> list[PathMessage]:
    """A conversation of so many turns, every other with a tool; its texts hold `name`."""
    path: list[PathMessage] = []
    for n in range(turns):
        path.append(user(f"{name}-u{n}", f"{name}: question {n} {words}", n))
        if n % 2:
            call = f"{name}-c{n}"
            path.append(answer(f"{name}-a{n}", f"{name}: I look at file {n}", n, call))
            path.append(result(f"{name}-r{n}", call, f"{name}: line {n} {words} " * 6, n))
        path.append(answer(f"{name}-z{n}", f"{name}: answer {n} {words}", n))
    return path


def asking(turns: int, name: str = "talk") -> list[PathMessage]:
    """The same with one more question, which the model has to answer."""
    return [*talk(turns, name), user(f"{name}-now", f"{name}: and what now?", turns)]


# -- driving an engine ---------------------------------------------------------------------

ONE = SessionRef("s-one", "agent:main:one")
TWO = SessionRef("s-two", "agent:main:two")
CHILD = SessionRef("s-child", "agent:main:subagent:child")


@dataclass(frozen=True)
class Driver:
    """Calls an engine about one session as the host does."""

    engine: ContextEngine
    session: SessionRef = ONE

    def runtime(self, path: Sequence[PathMessage], budget: int = LARGE) -> RuntimeContext:
        """What the host lends for a call about `path`."""
        return engine_runtime(path, token_budget=budget)

    async def bootstrap(
        self, path: Sequence[PathMessage], reason: BootstrapReason = "opened"
    ) -> None:
        """Begin with a path."""
        await self.engine.bootstrap(Bootstrap(self.session, path, reason, self.runtime(path)))

    async def ingest(self, message: PathMessage, *, is_heartbeat: bool = False) -> bool:
        """Append a message; whether the engine took it."""
        return (await self.engine.ingest(Ingest(self.session, message, is_heartbeat))).ingested

    async def ingest_all(self, messages: Sequence[PathMessage]) -> bool:
        """Append several at once."""
        return (await self.engine.ingest_batch(IngestBatch(self.session, messages))).ingested

    async def assemble(self, path: Sequence[PathMessage], budget: int = LARGE) -> AssembleResult:
        """What the model is to see of a path."""
        newest = next((i for i in reversed(path) if i.message["role"] == "user"), None)
        return await self.engine.assemble(
            Assemble(
                self.session,
                path,
                budget,
                self.runtime(path, budget),
                available_tools=("read",),
                model="test/test",
                prompt=None if newest is None else str(newest.message["content"]),
            )
        )

    async def compact(
        self, path: Sequence[PathMessage], budget: int = LARGE, *, force: bool = False
    ) -> CompactResult:
        """Make it smaller."""
        runtime = self.runtime(path, budget)
        count = runtime.current_token_count
        return await self.engine.compact(
            Compact(self.session, budget, runtime, force=force, current_token_count=count)
        )


def shown(result_: AssembleResult) -> list[Message]:
    """The messages that the model sees."""
    return [each.message if isinstance(each, PathMessage) else each for each in result_.messages]


def shown_text(result_: AssembleResult) -> list[str]:
    """The bytes of each message that the model sees."""
    return [json.dumps(each, sort_keys=True) for each in shown(result_)]


def shown_ids(result_: AssembleResult) -> list[str]:
    """The ids of the entries that the model sees, in order."""
    return [each.entry_id for each in result_.messages if isinstance(each, PathMessage)]
