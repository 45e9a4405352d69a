"""An agent that talks to a scripted server on loopback, and a session in a folder."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from strandline.context.budget import CompactionSettings
from strandline.context.engine import (
    AfterTurn,
    Assemble,
    AssembleResult,
    Bootstrap,
    Compact,
    CompactResult,
    EngineInfo,
    Ingest,
    IngestBatch,
    Ingested,
    LegacyEngine,
    Maintain,
)
from strandline.context.tokens import MessageTokens
from strandline.manager import SessionManager
from strandline.models.openai_chat import OpenAIChatModel
from strandline.models.tokenizer import counter
from strandline.runtime.agent import Agent
from strandline.runtime.conversation import Conversation
from strandline.runtime.engine_health import MemoryHealthRecords, RecordedEngineHealth
from strandline.runtime.engine_host import EngineHost
from strandline.runtime.model import ModelInfo, Prices
from strandline.runtime.offline import OfflineSummarizer
from strandline.runtime.registry import SessionRegistry
from strandline.runtime.retrying import RetrySettings
from strandline.stores.jsonl import JsonlStore
from strandline.stores.rows_file import RowsFile
from strandline.testing import CountingIds, ScriptedModelServer, SimulatedClock

AgentFor = Callable[..., Agent]


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()


@pytest.fixture
def agent_for(clock: SimulatedClock) -> AgentFor:
    """Makes an agent for a server; `window` is what we believe its window to be."""

    def make(
        server: ScriptedModelServer,
        window: int = 16_000,
        compaction: CompactionSettings | None = None,
        system_prompt: str = "Be brief.",
        **more: Any,
    ) -> Agent:
        tokens = MessageTokens(counter("tiktoken"))
        return Agent(
            "main",
            OpenAIChatModel(server.base_url, clock=clock),
            ModelInfo("test", "scripted", "openai-completions", window, 500, Prices(1.0, 2.0)),
            OfflineSummarizer(tokens.counter),
            tokens,
            clock,
            compaction or CompactionSettings(),
            system_prompt,
            **{"retry": RetrySettings(attempts=1), **more},
        )

    return make


@pytest.fixture
def session(tmp_path: Path, clock: SimulatedClock) -> Iterator[SessionManager]:
    with SessionManager.create(session_dir=tmp_path, cwd="/", clock=clock) as opened:
        yield opened


@dataclass
class Notebook(LegacyEngine):
    """An engine that notes what it is asked; `does` has other answers, by phase.

    An answer is a value or a function of the request, which may be one to await.
    """

    info: EngineInfo = field(default_factory=lambda: EngineInfo("notebook", "Notebook"))
    does: dict[str, Any] = field(default_factory=dict)
    calls: list[tuple[str, Any]] = field(default_factory=list)

    async def _asked(self, phase: str, request: Any) -> Any:
        self.calls.append((phase, request))
        answer = self.does.get(phase, ...)
        if callable(answer):
            answer = answer(request)
        return await answer if inspect.isawaitable(answer) else answer

    async def bootstrap(self, request: Bootstrap) -> None:
        await self._asked("bootstrap", request)

    async def ingest(self, request: Ingest) -> Ingested:
        answer = await self._asked("ingest", request)
        return Ingested(ingested=True) if answer is ... else answer

    async def ingest_batch(self, request: IngestBatch) -> Ingested:
        answer = await self._asked("ingest_batch", request)
        return Ingested(ingested=True) if answer is ... else answer

    async def assemble(self, request: Assemble) -> AssembleResult:
        answer = await self._asked("assemble", request)
        return await super().assemble(request) if answer is ... else answer

    async def compact(self, request: Compact) -> CompactResult:
        answer = await self._asked("compact", request)
        return await super().compact(request) if answer is ... else answer

    async def after_turn(self, request: AfterTurn) -> None:
        await self._asked("after_turn", request)

    async def maintain(self, request: Maintain) -> None:
        await self._asked("maintain", request)

    async def dispose(self) -> None:
        await self._asked("dispose", None)

    def asked(self, phase: str) -> list[Any]:
        """The requests of a phase, in order."""
        return [request for name, request in self.calls if name == phase]

    @property
    def heard(self) -> list[str]:
        """The entries it was told of since its newest bootstrap, those of that included."""
        told: list[str] = []
        for phase, request in self.calls:
            if phase == "bootstrap":
                told = [item.entry_id for item in request.messages]
            elif phase == "ingest":
                told.append(request.message.entry_id)
            elif phase == "ingest_batch":
                told += [item.entry_id for item in request.messages]
        return told


@dataclass
class EngineHome:
    """A folder with conversations of an agent, whose context `engine` chooses."""

    folder: Path
    clock: SimulatedClock
    agent_for: AgentFor
    engine: Notebook = field(default_factory=Notebook)
    ids: CountingIds = field(default_factory=CountingIds)

    def __post_init__(self) -> None:
        self.health = RecordedEngineHealth(MemoryHealthRecords(), self.clock)
        self.restart()

    def restart(self) -> None:
        """From here on it is another process: nothing but the folder is left."""
        self.engine = Notebook(self.engine.info, self.engine.does)
        self.host = EngineHost(self.engine, self.health)
        rows = RowsFile(self.folder / "sessions.json", clock=self.clock)
        store = JsonlStore(self.folder)
        self.registry = SessionRegistry(
            "main", rows, store, cwd="/", clock=self.clock, ids=self.ids
        )

    def be(self, **info: Any) -> Notebook:
        """The engine, which says this of itself."""
        self.engine.info = replace(self.engine.info, **info)
        return self.engine

    def open(
        self,
        server: ScriptedModelServer,
        key: str = "agent:main:main",
        lock_timeout_ms: int = 10_000,
        **more: Any,
    ) -> Conversation:
        """The conversation of a key."""
        agent, timeout_ms = self.agent_for(server, engine=self.host, **more), lock_timeout_ms
        return Conversation(self.registry, agent, key, holder="a test", lock_timeout_ms=timeout_ms)

    def path(self, conversation: Conversation) -> list[str]:
        """The entries of the messages of its path."""
        return [item.entry_id for item in conversation.session.build_context().items]


@pytest.fixture
def home(tmp_path: Path, clock: SimulatedClock, agent_for: AgentFor) -> EngineHome:
    """Conversations with an engine that notes everything."""
    return EngineHome(tmp_path, clock, agent_for)
