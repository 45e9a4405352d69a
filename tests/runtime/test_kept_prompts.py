"""System prompts that outlive the process, and when they hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.errors import StoreError
from strandline.manager import SessionManager
from strandline.runtime.agent import Agent
from strandline.runtime.conversation import Conversation
from strandline.runtime.kept_prompts import (
    MOST_MODELS,
    KeptPrompt,
    KeptPrompts,
    RecordedPrompts,
    is_compacted,
    is_warm,
    last_call_ms,
)
from strandline.runtime.registry import SessionRegistry
from strandline.stores.jsonl import JsonlStore
from strandline.stores.rows_file import RowsFile
from strandline.stores.session_records import SessionRecords
from strandline.testing import CountingIds, Reply, ScriptedModelServer, SimulatedClock
from strandline.transcript.context import PathMessage
from strandline.transcript.messages import Message

AgentFor = Callable[..., Agent]
KEY = "agent:main:main"
ONE, TWO = "mine/one", "mine/two"


@pytest.fixture
def prompts(tmp_path: Path, clock: SimulatedClock) -> RecordedPrompts:
    return RecordedPrompts(SessionRecords(tmp_path / "prompts", clock))


def test_the_newest_prompt_of_each_model_of_a_session_is_kept(prompts: RecordedPrompts) -> None:
    for session, model, text in [
        ("a", ONE, "old"),
        ("a", TWO, "other"),
        ("a", ONE, "new"),
        ("b", ONE, "elsewhere"),
    ]:
        prompts.keep(session, KeptPrompt(model, text))
    assert prompts.read("a", ONE) == KeptPrompt(ONE, "new")
    assert prompts.read("a", TWO) == KeptPrompt(TWO, "other")
    assert prompts.read("b", ONE) == KeptPrompt(ONE, "elsewhere")
    assert prompts.read("b", TWO) is None
    assert prompts.read("c", ONE) is None


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.text(max_size=3)), max_size=12))
def test_the_models_that_were_told_something_last_are_known(kept: list[tuple[str, str]]) -> None:
    records: dict[str, Any] = {}

    class Memory:
        """Records without a disk."""

        def read(self, session_id: str) -> Any:
            return records.get(session_id, [])

        def update(self, session_id: str, change: Any) -> None:
            records[session_id] = change(self.read(session_id))

    memory = RecordedPrompts(Memory())
    expected: dict[str, str] = {}
    for model, text in kept:
        memory.keep("a", KeptPrompt(model, text))
        expected.pop(model, None)
        expected[model] = text
    known = dict([*expected.items()][-MOST_MODELS:])
    found = {model: memory.read("a", model) for model in "abcdef"}
    assert {model: each.text for model, each in found.items() if each} == known


def test_records_that_make_no_sense_are_no_prompt(prompts: RecordedPrompts) -> None:
    def spoil(_: Any) -> list[dict[str, Any]]:
        return [{"model": ONE}, {"model": ONE, "text": 7}, {"text": "x"}, {}]

    prompts._records.update("a", spoil)
    assert prompts.read("a", ONE) is None
    prompts.keep("a", KeptPrompt(ONE, "well"))
    assert prompts.read("a", ONE) == KeptPrompt(ONE, "well")


# -- when they hold ---------------------------------------------------------------------------


def said(role: str, ref: str = ONE, at_ms: Any = None, entry_ms: int | None = None) -> PathMessage:
    provider, _, model = ref.partition("/")
    message: Message = {"role": role, "provider": provider, "model": model}
    return PathMessage("e", message if at_ms is None else {**message, "timestamp": at_ms}, entry_ms)


@pytest.mark.parametrize(
    ("items", "last_ms"),
    [
        ([], None),
        ([said("user", at_ms=5)], None),
        ([said("assistant", at_ms=5), said("user", at_ms=9)], 5),
        ([said("assistant", at_ms=5), said("assistant", TWO, at_ms=9)], 5),
        ([said("assistant", TWO, at_ms=9)], None),
        ([said("assistant", at_ms="noon", entry_ms=7)], 7),
    ],
)
def test_the_last_call_is_the_newest_answer_of_the_model(
    items: list[PathMessage], last_ms: float | None
) -> None:
    assert last_call_ms(items, {ONE}) == last_ms


def test_a_cache_is_warm_for_its_lifetime_after_the_last_call() -> None:
    items = [said("assistant", at_ms=1_000), said("assistant", TWO, at_ms=9_000)]
    assert is_warm(items, {ONE}, 1_500, 500)
    assert not is_warm(items, {ONE}, 1_501, 500)
    assert is_warm(items, {ONE, TWO}, 9_500, 500), "a fallback's cache counts too"
    assert not is_warm([], {ONE}, 0, 500)


def test_a_compaction_is_the_newest_until_a_model_was_called() -> None:
    session = SessionManager.in_memory()
    assert not is_compacted(session.newest_entries(10))
    first = session.append_message({"role": "user", "content": "hello"})
    session.append_message({"role": "assistant", "content": []})
    assert not is_compacted(session.newest_entries(10))
    session.append_compaction("They spoke.", first, 10)
    assert is_compacted(session.newest_entries(10))
    session.append_model_change("mine", "one")
    session.append_message({"role": "user", "content": "more"})
    assert is_compacted(session.newest_entries(10))
    session.append_message({"role": "assistant", "content": []})
    assert not is_compacted(session.newest_entries(10))


# -- on a session -----------------------------------------------------------------------------


class Shaky:
    """Prompts on a disk that fails when it is told to."""

    def __init__(self, prompts: KeptPrompts) -> None:
        self.prompts = prompts
        self.fails = False
        self.writes = 0

    def _may_fail(self) -> None:
        if self.fails:
            raise StoreError("the disk is gone", remedy="plug it in")

    def read(self, session_id: str, model: str) -> KeptPrompt | None:
        self._may_fail()
        return self.prompts.read(session_id, model)

    def keep(self, session_id: str, prompt: KeptPrompt) -> None:
        self._may_fail()
        self.writes += 1
        self.prompts.keep(session_id, prompt)


Open = Callable[..., Conversation]


@pytest.fixture
def shaky(prompts: RecordedPrompts) -> Shaky:
    return Shaky(prompts)


@pytest.fixture
def open_talk(tmp_path: Path, agent_for: AgentFor, clock: SimulatedClock, shaky: Shaky) -> Open:
    """Opens the conversation as a process does whose agent is told `told`."""
    ids = CountingIds()

    def make(server: ScriptedModelServer, told: str, **more: Any) -> Conversation:
        rows = RowsFile(tmp_path / "sessions.json", clock=clock)
        registry = SessionRegistry(
            "main", rows, JsonlStore(tmp_path), cwd="/", clock=clock, ids=ids
        )
        agent = agent_for(server, system_prompt=told, prompts=shaky, **more)
        return Conversation(registry, agent, KEY, holder="a test")

    return make


def told(server: ScriptedModelServer) -> list[str]:
    return [request.body["messages"][0]["content"] for request in server.requests]


async def test_a_prompt_is_written_where_it_is_another_and_only_then(
    open_talk: Open, shaky: Shaky
) -> None:
    with ScriptedModelServer() as server:
        for number in range(3):
            talk = open_talk(server, f"Told {number}.")
            await talk.say("Hello")
            await talk.say("Hello again")
            await talk.close()
        assert told(server) == ["Told 0."] * 6
        assert shaky.writes == 1


async def test_a_disk_that_fails_costs_the_cache_and_nothing_else(
    open_talk: Open, shaky: Shaky
) -> None:
    with ScriptedModelServer() as server:
        for number, fails in enumerate([False, True, False]):
            shaky.fails = fails
            talk = open_talk(server, f"Told {number}.")
            await talk.say("Hello")
            await talk.close()
        assert told(server) == ["Told 0.", "Told 1.", "Told 0."]


async def test_a_new_session_begins_with_the_prompt_of_now(open_talk: Open) -> None:
    with ScriptedModelServer() as server:
        talk = open_talk(server, "Told 0.")
        await talk.say("Hello")
        await talk.close()
        talk = open_talk(server, "Told 1.")
        await talk.reset()
        await talk.say("Hello")
        await talk.close()
        assert told(server) == ["Told 0.", "Told 1."]


async def test_what_a_fallback_keeps_warm_is_kept(
    open_talk: Open, agent_for: AgentFor, clock: SimulatedClock
) -> None:
    """The first model fails each time: the cache that counts is the second one's."""
    with (
        ScriptedModelServer(lambda _: Reply(status=401)) as broken,
        ScriptedModelServer() as server,
    ):
        for number in range(2):
            there = agent_for(server)
            second = replace(there.backends[0], info=replace(there.info, id="second"))
            talk = open_talk(broken, f"Told {number}.", fallbacks=(second,))
            await talk.say("Hello")
            await talk.close()
            clock.advance(60_000)
        assert told(server) == ["Told 0."] * 2
