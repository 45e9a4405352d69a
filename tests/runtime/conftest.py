"""An agent that talks to a scripted server on loopback, and a session in a folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from strandline.context.budget import CompactionSettings
from strandline.context.tokens import MessageTokens
from strandline.manager import SessionManager
from strandline.models.openai_chat import OpenAIChatModel
from strandline.models.tokenizer import counter
from strandline.runtime.agent import Agent
from strandline.runtime.model import ModelInfo, Prices
from strandline.runtime.offline import OfflineSummarizer
from strandline.runtime.retrying import RetrySettings
from strandline.testing import ScriptedModelServer, SimulatedClock

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
