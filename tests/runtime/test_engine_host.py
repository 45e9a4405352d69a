"""Whatever an engine does when it is called becomes one error that says who, where and what now."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from strandline.context.engine import EngineInfo, LegacyEngine
from strandline.errors import EngineError, EngineUnavailable, StoreWriteFailed
from strandline.runtime import engine_host
from strandline.runtime.engine_health import (
    EngineHealth,
    MemoryHealthRecords,
    NoHealth,
    RecordedEngineHealth,
)
from strandline.runtime.engine_host import EngineHost, nothing_wrong
from strandline.runtime.model import ModelInfo
from strandline.testing import SimulatedClock


class Odd(LegacyEngine):
    """An engine of somebody."""

    info = EngineInfo("odd", "Odd")
    disposed = 0

    async def dispose(self) -> None:
        self.disposed += 1


class FullDisk(NoHealth):
    """Health that cannot be kept."""

    def note(self, engine: str, phase: str, what: str, session_key: str | None) -> None:
        raise StoreWriteFailed(f"no room for {engine}, {phase}, {what}, {session_key}")


@dataclass
class Hosted:
    """A host, and what its health knows."""

    host: EngineHost
    health: RecordedEngineHealth

    async def ask(self, call: Callable[[Any], Any], phase: str = "assemble") -> Any:
        return await self.host.ask(phase, "agent:main:main", call, nothing_wrong)

    async def fails(self, call: Callable[[Any], Any], phase: str = "assemble") -> EngineError:
        with pytest.raises(EngineError) as failed:
            await self.ask(call, phase)
        return failed.value


@pytest.fixture
def hosted(clock: SimulatedClock) -> Hosted:
    health = RecordedEngineHealth(MemoryHealthRecords(), clock)
    return Hosted(EngineHost(Odd(), health), health)


async def raising(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("no such table"), "ValueError: no such table"),
        (KeyError(), "KeyError"),
        (SystemExit(3), "SystemExit: 3"),
        (TimeoutError("the database"), "TimeoutError: the database"),
        (asyncio.CancelledError(), "what it waited for was cancelled"),
        (RecursionError("deep"), "RecursionError: deep"),
    ],
)
async def test_what_it_raises_is_told_with_engine_phase_and_ways_out(
    hosted: Hosted, error: BaseException, said: str
) -> None:
    failed = await hosted.fails(lambda _: raising(error), "ingest")
    assert failed.what == f"the context engine odd failed in ingest ({said})"
    assert (failed.engine, failed.phase) == ("odd", "ingest")
    assert "plugins.slots.contextEngine to 'legacy'" in failed.remedy
    (noted,) = hosted.health.recent()
    assert (noted.engine, noted.phase, noted.what) == ("odd", "ingest", said)
    assert noted.session_key == "agent:main:main"


@pytest.mark.parametrize("call", [lambda _: None, lambda _: 1 / 0, lambda _: "text"])
async def test_a_method_that_is_no_coroutine_is_told_like_any_failure(
    hosted: Hosted, call: Callable[[Any], Any]
) -> None:
    assert "Error: " in (await hosted.fails(call)).what
    assert [noted.phase for noted in hosted.health.recent()] == ["assemble"]


async def test_who_never_answers_is_not_waited_for(
    hosted: Hosted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_host, "MOST_S", 0.01)
    failed = await hosted.fails(lambda _: asyncio.Event().wait())
    assert "it did not answer within 0.01 s" in failed.what


async def test_a_compaction_may_take_longer_and_not_for_ever(
    hosted: Hosted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_host, "MOST_S", 0.01)
    assert await hosted.ask(lambda _: asyncio.sleep(0.05, "done"), "compact") == "done"
    monkeypatch.setattr(engine_host, "MOST_COMPACTING_S", 0.01)
    failed = await hosted.fails(lambda _: asyncio.Event().wait(), "compact")
    assert "within 0.01 s" in failed.what


async def test_who_asked_can_be_stopped_and_the_engine_is_not_blamed(hosted: Hosted) -> None:
    task = asyncio.create_task(hosted.ask(lambda _: asyncio.Event().wait()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert hosted.health.recent() == []


async def test_a_person_who_stops_the_program_stops_it(hosted: Hosted) -> None:
    with pytest.raises(KeyboardInterrupt):
        await hosted.ask(lambda _: raising(KeyboardInterrupt()))


async def test_a_page_of_words_is_told_in_part(hosted: Hosted) -> None:
    failed = await hosted.fails(lambda _: raising(ValueError("x" * 10_000)))
    assert len(failed.what) < 700
    assert len(hosted.health.recent()[0].what) <= 500


async def test_where_the_failure_cannot_be_kept_it_is_told_all_the_same(
    clock: SimulatedClock,
) -> None:
    health: EngineHealth = FullDisk()
    full = Hosted(EngineHost(Odd(), health), RecordedEngineHealth(MemoryHealthRecords(), clock))
    assert "failed in assemble (KeyError)" in (await full.fails(lambda _: raising(KeyError()))).what


async def test_an_engine_is_disposed_of_once_when_the_last_gives_it_back(
    clock: SimulatedClock,
) -> None:
    engine = Odd()
    host = EngineHost(engine)
    host.take()
    host.take()
    await host.release()
    assert (engine.disposed, host.is_closed) == (0, False)
    await host.release()
    await host.release()
    assert (engine.disposed, host.is_closed) == (1, True)


async def test_an_engine_that_cannot_be_disposed_of_is_told_and_let_go(hosted: Hosted) -> None:
    hosted.host.engine.dispose = lambda: raising(OSError("locked"))  # type: ignore[method-assign]
    hosted.host.take()
    failed = await hosted.host.release()
    assert failed is not None
    assert failed.what == "the context engine odd failed in dispose (OSError: locked)"
    assert hosted.host.is_closed
    noted = [(each.phase, each.session_key) for each in hosted.health.recent()]
    assert noted == [("dispose", None)]
    assert await hosted.host.release() is None


def test_an_engine_that_needs_threads_is_not_used_with_a_model_without(
    clock: SimulatedClock,
) -> None:
    class Threaded(Odd):
        info = EngineInfo("odd", "Odd", host_requirements=("thread_bootstrap",))

    def model(api: str) -> ModelInfo:
        return ModelInfo("test", "one", api, 16_000, 500)

    host = EngineHost(Threaded())
    host.check(model("openai-responses"))
    with pytest.raises(EngineUnavailable, match="needs a model with threads") as refused:
        host.check(model("anthropic-messages"))
    assert (refused.value.phase, refused.value.exit_code) == ("requirements", 2)
    assert "openai-responses" in refused.value.remedy
    assert "'legacy'" in refused.value.remedy
