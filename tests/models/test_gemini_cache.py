"""Beginnings that are to last go to Google once, and never cost a turn (cases/faults, K10)."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest
from google.genai import types

from strandline.errors import ModelError
from strandline.models.gemini import API, GeminiModel
from strandline.models.gemini_cache import (
    LIFETIME_S,
    MARGIN_S,
    MAX_PAGES,
    MAX_REMEMBERED,
    PAGE_SIZE,
    REFUSAL_S,
    beginning_of,
)
from strandline.runtime.model import CacheMarks, Failed, Finished, ModelInfo, ModelRequest, Prices
from strandline.testing import RecordedRequest, Reply, ScriptedModelServer, SimulatedClock

FLASH = ModelInfo("google", "gemini-2.5-flash", API, 1_048_576, 65_536, prices=Prices(input=1))
FOURTH = replace(FLASH, id="gemini-4-neon")
TOOLS = ({"name": "read", "description": "Reads.", "parameters": {"type": "object"}},)
LONG = CacheMarks("long", "s1", messages=(0,))
LASTING = "Be kind. " * 4000

Ask = Callable[..., ModelRequest]
Collect = Callable[[Any, ModelRequest], Any]
Json = dict[str, Any]


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()


@pytest.fixture
async def model_at(clock: SimulatedClock) -> AsyncIterator[Callable[..., GeminiModel]]:
    async with contextlib.AsyncExitStack() as stack:

        def make(server: ScriptedModelServer) -> GeminiModel:
            model = GeminiModel(f"{server.root_url}/v1beta", "AIza-test", clock=clock)
            stack.push_async_callback(model.aclose)
            return model

        yield make


Model = Callable[..., GeminiModel]


def finished(events: list[Any]) -> Json:
    assert isinstance(events[-1], Finished), events[-1]
    return dict(events[-1].message)


def named(request: RecordedRequest) -> str:
    """The cached content of a request; empty where it has its beginning itself."""
    name = str(request.body.get("cachedContent", ""))
    assert bool(name) != ("systemInstruction" in request.body)
    assert not (name and "tools" in request.body)
    return name


async def test_the_beginning_is_kept_once_and_named_from_then_on(
    model_at: Model, ask: Ask, events_of: Collect
) -> None:
    with ScriptedModelServer() as server:
        model = model_at(server)
        request = ask("hi", model=FLASH, system_prompt=LASTING, tools=TOOLS, cache=LONG)
        first = finished(await events_of(model, request))
        longer = [*request.messages, first, *ask("more").messages]
        second = finished(await events_of(model, replace(request, messages=longer)))
        assert server.refused == []
    (kept,) = server.to_cache
    assert kept.path == "/v1beta/cachedContents"
    assert kept.headers["x-goog-api-key"] == "AIza-test"
    assert (kept.body["model"], kept.body["ttl"]) == ("models/gemini-2.5-flash", "3600s")
    assert set(kept.body) == {"model", "displayName", "ttl", "systemInstruction", "tools"}
    assert len(server.looked_up) == 1
    content = {key: value for key, value in kept.body.items() if key != "model"}
    types.CreateCachedContentConfig.model_validate(content)
    assert [named(each) for each in server.requests] == ["cachedContents/000000000001"] * 2
    assert first["usage"]["cacheRead"] > 2048
    assert second["usage"]["cacheRead"] >= first["usage"]["cacheRead"]


@pytest.mark.parametrize(
    "changes",
    [
        {"cache": None},
        {"cache": CacheMarks("short", "s1")},
        {"cache": CacheMarks("none", "s1")},
        {"system_prompt": "", "tools": ()},
        {"system_prompt": "Be kind."},
    ],
    ids=["no-cache", "short", "none", "empty", "too-short"],
)
def test_what_is_not_to_last_or_too_little_is_not_sent(changes: Json, ask: Ask) -> None:
    usual = {"model": FLASH, "system_prompt": LASTING, "tools": TOOLS, "cache": LONG}
    assert beginning_of(ask("hi", **usual)) is not None
    assert beginning_of(ask("x" * 100_000, **{**usual, **changes})) is None


def test_the_least_is_that_of_the_generation_and_of_the_beginning_alone(ask: Ask) -> None:
    """Faults K10: a beginning of 3,900 tokens in a request of 9,000, where 4,096 are wanted."""
    middling = "word " * 3_900
    request = ask("word " * 5_100, system_prompt=middling, cache=LONG)
    assert beginning_of(replace(request, model=FOURTH)) is None
    assert beginning_of(replace(request, model=FLASH)) is not None


def test_what_is_kept_holds_for_its_model_and_its_bytes(ask: Ask) -> None:
    request = ask("hi", model=FLASH, system_prompt=LASTING, tools=TOOLS, cache=LONG)
    one = beginning_of(request)
    others = [
        replace(request, model=FOURTH),
        replace(request, system_prompt=LASTING + "!"),
        replace(request, tools=()),
    ]
    assert one is not None
    assert beginning_of(replace(request, messages=ask("other").messages)) == one
    keys = {found.key for each in others if (found := beginning_of(each)) is not None}
    assert len(keys - {one.key}) == 3


async def test_a_refusal_is_remembered_for_a_while_and_the_turn_goes_on(
    model_at: Model, ask: Ask, events_of: Collect, clock: SimulatedClock
) -> None:
    with ScriptedModelServer() as server:
        server.kept.least_tokens = 50_000
        model = model_at(server)
        request = ask("hi", model=FLASH, system_prompt=LASTING, cache=LONG)
        for _ in range(3):
            assert finished(await events_of(model, request))
        assert len(server.to_cache) == 1
        assert len(server.refused) == 1
        assert server.refused[0].startswith("Cached content is too small.")
        clock.advance(REFUSAL_S * 1000)
        server.kept.least_tokens = 1024
        assert finished(await events_of(model, request))
    assert [bool(named(each)) for each in server.requests] == [False, False, False, True]


async def test_it_is_made_anew_before_its_end(
    model_at: Model, ask: Ask, events_of: Collect, clock: SimulatedClock
) -> None:
    with ScriptedModelServer(now_ms=clock.now_ms) as server:
        model = model_at(server)
        request = ask("hi", model=FLASH, system_prompt=LASTING, cache=LONG)
        for minutes in (0, 50, 9, 50):
            clock.advance(minutes * 60_000)
            assert finished(await events_of(model, request))
        assert server.refused == [], "none is used beyond its end"
    assert LIFETIME_S == 3600
    assert [named(each)[-1] for each in server.requests] == ["1", "1", "2", "2"]


async def test_one_that_is_gone_costs_a_try_and_not_the_turn(
    model_at: Model, ask: Ask, events_of: Collect
) -> None:
    with ScriptedModelServer() as server:
        model = model_at(server)
        request = ask("hi", model=FLASH, system_prompt=LASTING, cache=LONG)
        finished(await events_of(model, request))
        server.forget()
        events = await events_of(model, request)
        assert finished(events)
        assert not any(isinstance(event, Failed) for event in events)
        finished(await events_of(model, request))
        assert server.refused == ["CachedContent not found (or permission denied)"]
    names = [named(each)[-1:] for each in server.requests]
    assert names == ["1", "1", "", "2"]


async def test_one_that_the_server_will_not_use_is_left_alone(
    model_at: Model, ask: Ask, events_of: Collect
) -> None:
    told = "CachedContent can not be used with this model."
    error = {"error": {"code": 400, "message": told, "status": "INVALID_ARGUMENT"}}
    with ScriptedModelServer([Reply(status=400, error=error)]) as server:
        model = model_at(server)
        request = ask("hi", model=FLASH, system_prompt=LASTING, cache=LONG)
        for _ in range(2):
            assert finished(await events_of(model, request))
    assert [bool(named(each)) for each in server.requests] == [True, False, False]
    assert len(server.to_cache) == 1


@pytest.mark.parametrize("status", [400, 403, 429, 500])
async def test_failures_that_have_nothing_to_do_with_it_are_told(
    status: int, model_at: Model, ask: Ask, events_of: Collect
) -> None:
    with ScriptedModelServer([Reply(status=status), Reply("yes")]) as server:
        model = model_at(server)
        request = ask("hi", model=FLASH, system_prompt=LASTING, cache=LONG)
        last = (await events_of(model, request))[-1]
        assert isinstance(last, Failed)
        assert isinstance(last.error, ModelError)
        assert finished(await events_of(model, request))
    assert len(server.requests) == 2
    assert len(server.to_cache) == 1


async def test_calls_at_once_make_one(model_at: Model, ask: Ask, events_of: Collect) -> None:
    with ScriptedModelServer() as server:
        model = model_at(server)
        request = ask("hi", model=FLASH, system_prompt=LASTING, cache=LONG)
        for events in await asyncio.gather(*(events_of(model, request) for _ in range(4))):
            assert finished(events)
    assert len(server.to_cache) == 1
    assert {named(each)[-1] for each in server.requests} == {"1"}


async def test_a_server_without_such_a_cache_is_borne(
    raw_server: Any, ask: Ask, events_of: Collect
) -> None:
    """Whatever it says instead of a name: the request is then asked as usual."""
    candidate = b'{"candidates":[{"content":{"parts":[{"text":"yes"}]},"finishReason":"STOP"}]}'
    for body in (candidate, b"[]", b"<html>", b'{"name":7}'):
        raw_server.whole("200 OK", body)
        model = GeminiModel(raw_server.base_url, clock=SimulatedClock())
        request = ask("hi", model=FLASH, system_prompt=LASTING, cache=LONG)
        await events_of(model, request)
        await model.aclose()
        asked = raw_server.requests[-1]
        assert b"systemInstruction" in asked
        assert b'"cachedContent"' not in asked


# -- those of other processes ----------------------------------------------------------------------


def known_as(request: ModelRequest) -> str:
    beginning = beginning_of(request)
    assert beginning is not None
    return beginning.key


def test_its_name_is_a_digest_that_every_process_gets_and_google_takes(ask: Ask) -> None:
    request = ask("hi", model=FLASH, system_prompt=LASTING, tools=TOOLS, cache=LONG)
    name = known_as(request)
    assert re.fullmatch(r"strandline-[0-9a-f]{64}", name)
    assert len(name) <= 128
    assert known_as(replace(request, tools=({**TOOLS[0]},))) == name


async def test_two_processes_share_one(
    model_at: Model, ask: Ask, events_of: Collect, clock: SimulatedClock
) -> None:
    """Three turns of one session, each in a process of its own, made three."""
    with ScriptedModelServer(now_ms=clock.now_ms) as server:
        request = ask("hi", model=FLASH, system_prompt=LASTING, tools=TOOLS, cache=LONG)
        for _ in range(3):
            assert finished(await events_of(model_at(server), request))
            clock.advance(60_000)
        assert server.refused == []
    assert len(server.to_cache) == 1
    assert [named(each)[-1] for each in server.requests] == ["1", "1", "1"]
    assert server.looked_up == [f"/v1beta/cachedContents?pageSize={PAGE_SIZE}"] * 3


async def test_one_that_was_found_is_used_until_its_own_end(
    model_at: Model, ask: Ask, events_of: Collect, clock: SimulatedClock
) -> None:
    with ScriptedModelServer(now_ms=clock.now_ms) as server:
        request = ask("hi", model=FLASH, system_prompt=LASTING, cache=LONG)
        assert finished(await events_of(model_at(server), request))
        clock.advance(40 * 60_000)
        model = model_at(server)
        for minutes in (0, 18, 1):
            clock.advance(minutes * 60_000)
            assert finished(await events_of(model, request))
        assert server.refused == []
    assert [named(each)[-1] for each in server.requests] == ["1", "1", "1", "2"]


@pytest.mark.parametrize("left_s", [MARGIN_S, 0, -1])
async def test_one_that_has_ended_or_is_about_to_is_not_used(
    left_s: int, model_at: Model, ask: Ask, events_of: Collect, clock: SimulatedClock
) -> None:
    with ScriptedModelServer(now_ms=clock.now_ms) as server:
        request = ask("hi", model=FLASH, system_prompt=LASTING, cache=LONG)
        assert finished(await events_of(model_at(server), request))
        clock.advance((LIFETIME_S - left_s) * 1000)
        assert finished(await events_of(model_at(server), request))
        clock.advance(60_000)
        assert finished(await events_of(model_at(server), request))
        assert server.refused == []
    assert [named(each)[-1] for each in server.requests] == ["1", "2", "2"]


@pytest.mark.parametrize(
    "changes",
    [{"model": FOURTH}, {"system_prompt": LASTING + "!"}, {"tools": ()}],
    ids=["model", "system-prompt", "tools"],
)
async def test_one_of_another_model_or_beginning_is_not_used(
    changes: Json, model_at: Model, ask: Ask, events_of: Collect, clock: SimulatedClock
) -> None:
    with ScriptedModelServer(now_ms=clock.now_ms) as server:
        request = ask("hi", model=FLASH, system_prompt=LASTING, tools=TOOLS, cache=LONG)
        for asked in (request, replace(request, **changes)):
            assert finished(await events_of(model_at(server), asked))
        assert server.refused == []
    assert [named(each)[-1] for each in server.requests] == ["1", "2"]


@pytest.mark.parametrize(("before", "name"), [(PAGE_SIZE, "1"), (2 * PAGE_SIZE, "2")])
async def test_two_pages_of_the_list_are_read_at_most(
    before: int, name: str, model_at: Model, ask: Ask, events_of: Collect, clock: SimulatedClock
) -> None:
    with ScriptedModelServer(now_ms=clock.now_ms) as server:
        request = ask("hi", model=FLASH, system_prompt=LASTING, cache=LONG)
        assert finished(await events_of(model_at(server), request))
        mine, kept = dict(server.kept.contents), server.kept.contents
        (content,) = mine.values()
        told = {**content.told, "displayName": "mine"}
        kept.clear()
        kept.update({f"x{number}": content._replace(told=told) for number in range(before)}, **mine)
        server.looked_up.clear()
        assert finished(await events_of(model_at(server), request))
    assert len(server.looked_up) == MAX_PAGES == 2
    assert "pageToken" in server.looked_up[1]
    assert named(server.requests[-1])[-1] == name


async def test_one_in_the_list_that_the_server_does_not_know_is_not_used_twice(
    model_at: Model, ask: Ask, events_of: Collect, clock: SimulatedClock
) -> None:
    with ScriptedModelServer(now_ms=clock.now_ms) as server:
        request = ask("hi", model=FLASH, system_prompt=LASTING, cache=LONG)
        assert finished(await events_of(model_at(server), request))
        (name,) = server.kept.contents
        server.kept.contents[name] = server.kept.contents[name]._replace(end_ms=0)
        model = model_at(server)
        for _ in range(3):
            assert finished(await events_of(model, request))
        assert server.refused == ["CachedContent not found (or permission denied)"]
    assert [named(each)[-1:] for each in server.requests] == ["1", "1", "", "2", "2"]


LIST_OF = '{"cachedContents":[{"name":"n","displayName":"%s","expireTime":"%s"}]}'


@pytest.mark.parametrize(
    "listed",
    [
        "",
        "[]",
        "<html>",
        '{"cachedContents":7,"nextPageToken":7}',
        '{"cachedContents":[7,{}],"nextPageToken":"\\ud800 &"}',
        LIST_OF % ("KEY", "soon"),
        LIST_OF.replace('"n"', "7") % ("KEY", "2999-01-01T00:00:00Z"),
    ],
)
async def test_a_list_that_makes_no_sense_costs_nothing(
    listed: str, raw_server: Any, ask: Ask, events_of: Collect
) -> None:
    """One is made as if the list were empty; here that fails as well."""
    request = ask("hi", model=FLASH, system_prompt=LASTING, cache=LONG)
    body = listed.replace("KEY", known_as(request)).encode()
    raw_server.whole("200 OK", body)
    model = GeminiModel(raw_server.base_url, clock=SimulatedClock())
    await events_of(model, request)
    await model.aclose()
    methods = [asked.partition(b" ")[0] for asked in raw_server.requests]
    assert methods[0] == b"GET"
    assert methods.count(b"GET") <= MAX_PAGES
    assert methods[-2:] == [b"POST", b"POST"]
    assert b'"cachedContent"' not in raw_server.requests[-1]


async def test_a_list_that_never_comes_costs_some_seconds_and_not_the_turn(
    raw_server: Any, ask: Ask, events_of: Collect, monkeypatch: pytest.MonkeyPatch
) -> None:
    for bound in ("LOOK_TIMEOUT_S", "CREATE_TIMEOUT_S"):
        monkeypatch.setattr(f"strandline.models.gemini_cache.{bound}", 0.5)
    model = GeminiModel(raw_server.base_url, clock=SimulatedClock(), idle_timeout_s=0.5)
    request = ask("hi", model=FLASH, system_prompt=LASTING, cache=LONG)
    raw_server.whole("200 OK", b"{}")
    await events_of(model, replace(request, cache=None))  # the first takes a while to connect
    raw_server.requests.clear()
    raw_server.pieces, raw_server.then = [], "wait"
    await events_of(model, request)
    await model.aclose()
    heads = [asked.split(b" HTTP", 1)[0] for asked in raw_server.requests]
    assert heads == [
        b"GET /v1/cachedContents?pageSize=%d" % PAGE_SIZE,
        b"POST /v1/cachedContents",
        b"POST /v1/models/gemini-2.5-flash:streamGenerateContent?alt=sse",
    ]


async def test_what_is_remembered_is_bounded_and_the_least_used_goes_first(
    model_at: Model, ask: Ask, events_of: Collect
) -> None:
    with ScriptedModelServer() as server:
        model = model_at(server)

        async def say(number: int) -> None:
            prompt = f"{number} {LASTING}"
            request = ask("hi", model=FLASH, system_prompt=prompt, cache=LONG)
            assert finished(await events_of(model, request))

        await say(0)
        for number in range(1, MAX_REMEMBERED):
            await say(number)
        await say(0)
        await say(MAX_REMEMBERED)
        assert len(server.to_cache) == MAX_REMEMBERED + 1
        await say(0)
        assert len(server.to_cache) == MAX_REMEMBERED + 1
        await say(1)
        assert len(server.to_cache) == MAX_REMEMBERED + 2
