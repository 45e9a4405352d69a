"""The built-in engine, the example and two more keep the contract of engines; bad ones do not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from strandline.context.engine import (
    HOST_ABILITIES,
    Assemble,
    AssembleResult,
    Bootstrap,
    Compact,
    CompactionOutcome,
    CompactResult,
    ContextEngine,
    EngineContext,
    EngineInfo,
    Ingest,
    Ingested,
    LegacyEngine,
)
from strandline.plugins.registry import PluginRegistry
from strandline.plugins.reports import PluginChoices, PluginEntry
from strandline.testing import ContextEngineContract, ScriptedLlm, engine_runtime
from strandline.testing.engine_talk import ONE, MakeEngine, asking
from strandline.transcript.context import PathMessage

EXAMPLE = Path(__file__).parents[2] / "examples" / "engine"


def the_example(**config: Any) -> ContextEngine:
    """The example's engine, as a linked folder gives it."""
    choices = PluginChoices(
        entries={"strandline-recall": PluginEntry(enabled=True, config=config)},
        folders=[(str(EXAMPLE), EXAMPLE)],
    )
    registry = PluginRegistry(choices, find_installed=list)
    return registry.make_engine("recall", EngineContext(), HOST_ABILITIES)


class TestLegacy(ContextEngineContract):
    @pytest.fixture
    def make_engine(self) -> MakeEngine:
        return LegacyEngine


class TestTheExample(ContextEngineContract):
    @pytest.fixture
    def make_engine(self) -> MakeEngine:
        return the_example


class OwnEngine(LegacyEngine):
    """Owns compaction: shows the newest messages that fit, from a message of a person on."""

    info = EngineInfo("own", "Own", "1", owns_compaction=True)

    async def assemble(self, request: Assemble) -> AssembleResult:
        count, used, start = request.runtime.count_tokens, 0, len(request.messages)
        for place in range(len(request.messages) - 1, -1, -1):
            used += count(request.messages[place].message)
            if used > request.token_budget:
                break
            start = place if request.messages[place].message["role"] == "user" else start
        seen = request.messages[start:]
        return AssembleResult(seen, sum(count(item.message) for item in seen))

    async def compact(self, request: Compact) -> CompactResult:
        del request
        return CompactResult(ok=True, compacted=False, reason="nothing is ever compacted")


class TestAnEngineThatOwnsCompactionAndIsAwaited(ContextEngineContract):
    @pytest.fixture
    def make_engine(self) -> MakeEngine:
        async def make() -> ContextEngine:
            await asyncio.sleep(0)
            return OwnEngine()

        return make


# -- the contract finds what is wrong -----------------------------------------------------------


class KeepsByWords(OwnEngine):
    """Knows messages by what they say, and shows all it ever heard."""

    def __init__(self) -> None:
        self.heard: list[PathMessage] = []

    async def bootstrap(self, request: Bootstrap) -> None:
        for each in request.messages:
            await self.ingest(Ingest(request.session, each))

    async def ingest(self, request: Ingest) -> Ingested:
        said = [each.message["content"] for each in self.heard]
        if request.message.message["content"] in said:
            return Ingested(ingested=False)
        self.heard.append(request.message)
        return Ingested(ingested=True)

    async def assemble(self, request: Assemble) -> AssembleResult:
        return AssembleResult(self.heard, request.runtime.current_token_count or 0)


class TakesEverything(KeepsByWords):
    """Knows nothing again."""

    async def ingest(self, request: Ingest) -> Ingested:
        self.heard.append(request.message)
        return Ingested(ingested=True)


class TearsPairs(OwnEngine):
    async def assemble(self, request: Assemble) -> AssembleResult:
        seen = [each for each in request.messages if each.message["role"] != "toolResult"]
        return AssembleResult(seen, request.runtime.current_token_count or 0)


class ForgetsTheQuestion(OwnEngine):
    async def assemble(self, request: Assemble) -> AssembleResult:
        return AssembleResult(request.messages[:-1], request.runtime.current_token_count or 0)


class NeverFits(OwnEngine):
    async def assemble(self, request: Assemble) -> AssembleResult:
        return AssembleResult(request.messages, request.runtime.current_token_count or 0)


class Guesses(OwnEngine):
    async def assemble(self, request: Assemble) -> AssembleResult:
        return AssembleResult(request.messages, 7)


class Numbers(OwnEngine):
    """Puts a number that rises before what it shows."""

    calls = 0

    async def assemble(self, request: Assemble) -> AssembleResult:
        self.calls += 1
        number = {"role": "user", "content": f"call {self.calls}"}
        return AssembleResult([number, *request.messages], request.token_budget)


class CompactsNothingIntoSomething(OwnEngine):
    async def compact(self, request: Compact) -> CompactResult:
        del request
        return CompactResult(ok=True, compacted=True, result=CompactionOutcome("short", "nowhere"))


class NeedsTheMoon(OwnEngine):
    info = EngineInfo("moon", "Moon", host_requirements=("the moon",))


@pytest.mark.parametrize(
    ("engine", "test"),
    [
        (KeepsByWords, "test_two_entries_with_the_same_words_are_two"),
        (KeepsByWords, "test_an_entry_whose_words_were_masked_is_still_one"),
        (KeepsByWords, "test_two_sessions_at_once_do_not_mix"),
        (KeepsByWords, "test_a_session_that_begins_anew_shows_nothing_of_before"),
        (TakesEverything, "test_nothing_is_taken_twice_however_often_it_is_told"),
        (TakesEverything, "test_of_a_path_that_overlaps_only_the_rest_is_new"),
        (TearsPairs, "test_no_call_is_shown_without_the_result_that_it_has"),
        (ForgetsTheQuestion, "test_the_newest_question_is_always_there"),
        (NeverFits, "test_what_it_shows_fits_and_is_estimated_honestly"),
        (Guesses, "test_what_it_shows_fits_and_is_estimated_honestly"),
        (Numbers, "test_the_same_request_shows_the_same"),
        (Numbers, "test_while_there_is_room_the_beginning_keeps_its_bytes"),
        (CompactsNothingIntoSomething, "test_compacting_is_answered_and_can_be_asked_for_again"),
    ],
)
def test_an_engine_that_breaks_the_contract_fails_the_test_of_it(
    engine: type[ContextEngine], test: str
) -> None:
    check: Callable[[MakeEngine], None] = getattr(ContextEngineContract(), test)
    with pytest.raises(AssertionError):
        check(engine)


def test_what_no_host_can_give_fails_the_contract() -> None:
    check = ContextEngineContract().test_it_says_what_it_is_and_needs_only_what_a_host_can_give
    with pytest.raises(Exception, match="the moon"):
        check(NeedsTheMoon)


# -- what the kit lends ----------------------------------------------------------------------


async def test_the_runtime_of_the_kit_counts_answers_and_delegates() -> None:
    path = asking(2)
    llm = ScriptedLlm(["first", ValueError("no")])
    runtime = engine_runtime(path, token_budget=500, llm=llm)
    assert runtime.token_budget == 500
    assert runtime.current_token_count == sum(runtime.count_tokens(i.message) for i in path) > 50
    assert await runtime.llm.complete("a question") == "first"
    with pytest.raises(ValueError, match="no"):
        await runtime.llm.complete("another")
    assert "## Goal" in await runtime.llm.complete("a third")
    assert llm.asked == ["a question", "another", "a third"]
    done = await LegacyEngine().compact(Compact(ONE, 500, runtime))
    assert done == CompactResult(ok=True, compacted=False, reason="nothing to compact")


# -- the example does what it says ---------------------------------------------------------


async def test_the_example_brings_back_an_older_turn_that_has_the_words_of_the_question() -> None:
    engine = the_example()
    path = asking(40)
    path[0] = PathMessage("talk-u0", {"role": "user", "content": "The lighthouse keeper is Ada."})
    path[-1] = PathMessage("talk-now", {"role": "user", "content": "Who keeps the lighthouse?"})
    runtime = engine_runtime(path, token_budget=600)
    await engine.bootstrap(Bootstrap(ONE, path, "opened", runtime))
    result = await engine.assemble(Assemble(ONE, path, 600, runtime))
    shown = [each.entry_id for each in result.messages if isinstance(each, PathMessage)]
    assert shown[:2] == ["talk-u0", "talk-z0"]
    assert shown[-1] == "talk-now"
    assert "talk-u20" not in shown
    assert result.estimated_tokens <= 600


async def test_the_example_keeps_the_summary_of_a_compaction() -> None:
    engine = the_example(share=0.5)
    summary = PathMessage("sum", {"role": "compactionSummary", "summary": "Ada keeps it."})
    path = [summary, *asking(40)]
    runtime = engine_runtime(path, token_budget=600)
    await engine.bootstrap(Bootstrap(ONE, path, "opened", runtime))
    result = await engine.assemble(Assemble(ONE, path, 600, runtime))
    assert result.messages[0] == summary
    assert len(result.messages) < len(path)


@pytest.mark.parametrize("share", ["much", True, -1, 2])
def test_the_example_refuses_a_share_that_is_none(share: object) -> None:
    with pytest.raises(Exception, match=r"recall.*create.*share of the recall engine"):
        the_example(share=share)
