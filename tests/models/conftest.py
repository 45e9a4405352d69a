"""A server that sends exactly the bytes it is told to, and requests to send to models."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from strandline.runtime.model import ModelEvent, ModelInfo, ModelRequest, Prices
from strandline.transcript.messages import Message

WAIT_S = 20.0

SSE_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)


@dataclass
class RawServer:
    """Answers every request with `pieces`, one write each, and does `then` what it is told.

    `requests` has the bytes of each request. `waiting` is set when the server waits for its
    client to leave, `hung_up` when it did.
    """

    pieces: Sequence[bytes] = ()
    then: Literal["close", "serve", "wait"] = "close"
    requests: list[bytes] = field(default_factory=list)
    connections: int = 0
    waiting: asyncio.Event = field(default_factory=asyncio.Event)
    hung_up: asyncio.Event = field(default_factory=asyncio.Event)
    port: int = 0

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def stream(self, *pieces: bytes, end: bytes = b"0\r\n\r\n") -> None:
        """Answer with an event stream, each piece a chunk of HTTP."""
        self.pieces = [SSE_HEAD, *(b"%x\r\n%s\r\n" % (len(p), p) for p in pieces if p), end]

    def whole(self, status: str, body: bytes, headers: str = "") -> None:
        """Answer with a body of known length."""
        head = f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n{headers}\r\n"
        self.pieces = [head.encode() + body]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while request := await _request(reader):
                self.requests.append(request)
                for piece in self.pieces:
                    writer.write(piece)
                    await writer.drain()
                if self.then == "wait":
                    self.waiting.set()
                    await reader.read(1)
                    self.hung_up.set()
                if self.then != "serve":
                    break
        except ConnectionError:
            self.hung_up.set()
        finally:
            writer.close()


async def _request(reader: asyncio.StreamReader) -> bytes:
    """One request, head and body; empty when the client left."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head.lower())
        return head + await reader.readexactly(int(length[1]) if length else 0)
    except asyncio.IncompleteReadError:
        return b""


@pytest.fixture
async def raw_server() -> AsyncIterator[RawServer]:
    raw = RawServer()
    server = await asyncio.start_server(raw.serve, "127.0.0.1", 0)
    raw.port = server.sockets[0].getsockname()[1]
    async with server:
        yield raw


MODEL = ModelInfo(
    "acme", "one", "openai-completions", 8192, 512, Prices(input=2, output=10, cache_read=0.5)
)


@pytest.fixture
def ask() -> Callable[..., ModelRequest]:
    """A request with these messages; a text stands for a user's message."""

    def make(*messages: str | Message, **changes: Any) -> ModelRequest:
        spoken = [
            {"role": "user", "content": m, "timestamp": 0} if isinstance(m, str) else m
            for m in messages
        ]
        wanted: dict[str, Any] = {"model": MODEL, "system_prompt": "", "max_output_tokens": 64}
        return ModelRequest(messages=spoken, **{**wanted, **changes})

    return make


@pytest.fixture
def events_of() -> Callable[..., Any]:
    """Collects the events of a call, within a bound of time."""

    async def collect(model: Any, request: ModelRequest) -> list[ModelEvent]:
        async with asyncio.timeout(WAIT_S):
            return [event async for event in model.stream(request)]

    return collect
