"""Turns: what one costs beside its call and its syncs, many at once, one while compacting."""

from __future__ import annotations

import asyncio
import itertools
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2

from bench.measure import once_s
from bench.table import Row, duration, rate
from bench.texts import texts
from strandline.clock import SystemClock
from strandline.context.extractive import extract_summary
from strandline.context.summarize import SummaryRequest
from strandline.models.tokenizer import counter
from strandline.runtime.conversation import Conversation
from strandline.runtime.offline import OfflineSummarizer
from strandline.wiring import State, open_state

TITLE = "Turns"
SYNCS_A_TURN = 4
"""Two messages and two changes of the row."""

BEYOND_MS = 10
SUMMARY_S = 3.0

_SERVER = """
import sys, time
from strandline.testing import Reply, ScriptedModelServer
def script(request):
    slow = b"keep the memory" in str(request.body).encode()
    return Reply("noted", delay_s=float(sys.argv[1]) if slow else 0.0)
with ScriptedModelServer(script) as server:
    print(server.base_url, flush=True)
    sys.stdin.read()
"""


def rows(folder: Path, *, quick: bool) -> Iterator[Row]:
    """Every row; `quick` is a tenth of the turns."""
    with _server() as url:
        yield asyncio.run(_one(folder / "one", url, turns=20 if quick else 200))
        yield asyncio.run(_many(folder / "many", url, sessions=20, turns=3))
        yield asyncio.run(_while_compacting(folder / "busy", url))
    yield _summary(200_000 if quick else 2_000_000)


@contextmanager
def _server() -> Iterator[str]:
    """A model server in a process of its own: it must not take turns with what is measured."""
    words = [sys.executable, "-c", _SERVER, str(SUMMARY_S / 2)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as done:
        assert done.stdin is not None
        assert done.stdout is not None
        try:
            yield done.stdout.readline().strip()
        finally:
            done.stdin.close()


def _state(folder: Path, url: str, **model: int) -> State:
    folder.mkdir()
    limits = {"contextWindow": 200_000, "maxTokens": 500, **model}
    listed = ", ".join(f"{name}: {value}" for name, value in limits.items())
    (folder / "strandline.json").write_text(
        f"{{ models: {{ providers: {{ b: {{ baseUrl: '{url}', models: [{{ id: 'm', {listed} }}] }}"
        " } }, agents: { defaults: { model: 'b/m', workspaceAccess: 'none' } } }",
        encoding="utf-8",
    )
    return open_state(folder, {})


async def _one(folder: Path, url: str, *, turns: int) -> Row:
    state = _state(folder, url)
    talk = state.conversation("main", "agent:main:main", holder="bench")
    control = _Control(folder / "raw", url)
    await _seconds(lambda: talk.say("hello"))
    await _seconds(control.turn)
    ours, raw = [], []
    for _ in range(turns):
        raw.append(await _seconds(control.turn))
        ours.append(await _seconds(lambda: talk.say("hello")))
    await talk.close()
    await control.close()
    mine, theirs = statistics.median(ours), statistics.median(raw)
    slow = statistics.quantiles(ours, n=100)[98]
    return Row(
        "one turn, the model answers at once",
        f"{duration(mine)} (p99 {duration(slow)})",
        f"the call and {SYNCS_A_TURN} write + fsync: {duration(theirs)}",
        theirs / mine,
        f"≤ {BEYOND_MS} ms beyond",
        (mine - theirs) * 1000 <= BEYOND_MS,
    )


async def _many(folder: Path, url: str, *, sessions: int, turns: int) -> Row:
    state = _state(folder, url)
    talks = [
        state.conversation("main", f"agent:main:explicit:b{number}", holder="bench")
        for number in range(sessions)
    ]
    control = _Control(folder / "raw", url)
    await control.turn()

    async def talking(talk: Conversation) -> None:
        for _ in range(turns):
            await talk.say("hello")

    mine = await _seconds(lambda: _together(talking(talk) for talk in talks))
    raw = await _seconds(lambda: _in_turn(control.turn, sessions * turns))
    for talk in talks:
        await talk.close()
    await control.close()
    count = sessions * turns
    return Row(
        f"{count} turns over {sessions} sessions at once",
        rate(count / mine, " turns/s"),
        f"calls and syncs one after the other: {rate(count / raw, '/s')}",
        raw / mine,
    )


async def _while_compacting(folder: Path, url: str) -> Row:
    state = _state(folder, url, contextWindow=64_000)
    talk = state.conversation("main", "agent:main:main", holder="bench")
    for text in itertools.islice(texts("English", 400), 40):
        talk.session.append_message(
            {"role": "user", "content": text * 3, "timestamp": SystemClock().now_ms()}
        )
    quiet = statistics.median([await _seconds(lambda: talk.say("hello")) for _ in range(5)])
    compacting = asyncio.create_task(talk.compact())
    await asyncio.sleep(0.3)
    busy = await _seconds(lambda: talk.say("hello"))
    took = await _seconds(lambda: compacting)
    await talk.close()
    return Row(
        f"a message while a summary is written, which takes {duration(took + busy + 0.3)}",
        duration(busy),
        f"without: {duration(quiet)}",
        quiet / busy,
    )


def _summary(chars: int) -> Row:
    counts = counter("tiktoken")
    said = [
        {"role": role, "content": text}
        for role, text in zip(
            itertools.cycle(["user", "assistant"]), texts("English", chars // 1000), strict=False
        )
    ]
    request = SummaryRequest(said, 8_000)
    ours = once_s(lambda: asyncio.run(OfflineSummarizer(counts).summarize(request)))
    bare = once_s(lambda: extract_summary(request, counts))
    return Row(
        f"an offline summary of {chars // 1_000_000 or chars / 1e6:g} MB, audited and repaired",
        duration(ours),
        f"without the audit: {duration(bare)}",
        bare / ours,
    )


class _Control:
    """What no turn can do without: the model's call, and what is said on the disk."""

    def __init__(self, path: Path, url: str) -> None:
        self._url = f"{url}/chat/completions"
        self._client = httpx2.AsyncClient()
        self._file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)

    async def turn(self) -> None:
        messages = [{"role": "user", "content": "hello"}]
        body = {"model": "m", "messages": messages, "stream": True}
        await asyncio.to_thread(self._syncs, SYNCS_A_TURN // 2)
        response = await self._client.post(self._url, json=body)
        response.raise_for_status()
        await asyncio.to_thread(self._syncs, SYNCS_A_TURN // 2)

    async def close(self) -> None:
        os.close(self._file)
        await self._client.aclose()

    def _syncs(self, count: int) -> None:
        for _ in range(count):
            os.write(self._file, b"x" * 400)
            os.fsync(self._file)


async def _seconds(work: Callable[[], Awaitable[object]]) -> float:
    start = time.perf_counter()
    await work()
    return time.perf_counter() - start


async def _together(works: Iterator[Awaitable[None]]) -> None:
    await asyncio.gather(*works)


async def _in_turn(work: Callable[[], Awaitable[None]], count: int) -> None:
    for _ in range(count):
        await work()
