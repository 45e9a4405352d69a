"""What every context engine has to keep, as tests that its author runs.

Subclass `ContextEngineContract` in a test module and give it the fixture `make_engine`::

    class TestMyEngine(ContextEngineContract):
        @pytest.fixture
        def make_engine(self, tmp_path):
            return lambda: MyEngine(EngineContext(agent_dir=str(tmp_path)))

Each call of what the fixture returns gives (or awaits to) a new engine; the second one within
a test is the same engine after a restart, with what the first one stored. The seam is
`strandline.context.engine`. Nothing here imports pytest: it only has the shape of tests.
"""

# ruff: noqa: S101 - these are tests

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import get_args

from strandline.context.engine import (
    HOST_ABILITIES,
    THREADS,
    AfterTurn,
    AssembleResult,
    CompactResult,
    EngineContext,
    Maintain,
    SubagentEnd,
    SubagentEnded,
    SubagentSpawn,
)
from strandline.context.pairing import pair
from strandline.context.sanitize import sanitize
from strandline.context.tokens import MessageTokens
from strandline.models.tokenizer import O200kCounter
from strandline.plugins.engines import create
from strandline.testing.engine_talk import (
    CHILD,
    LARGE,
    ONE,
    SMALL,
    TWO,
    Driver,
    MakeEngine,
    answer,
    asking,
    new_engine,
    shown,
    shown_ids,
    shown_text,
    talk,
    user,
)
from strandline.transcript.context import PathMessage

ESTIMATE_TOLERANCE = 0.25
"""How far an engine's estimate may be from the truth, as a share of it."""

TOLERANCE_TOKENS = 64
"""And by how much in any case."""


def running(test: Callable[[Driver], Awaitable[None]], make_engine: MakeEngine) -> None:
    """Run a test on a new engine, which is disposed of afterwards."""

    async def run() -> None:
        engine = await new_engine(make_engine)
        await test(Driver(engine))
        await engine.dispose()

    asyncio.run(run())


def tokens_of(result: AssembleResult) -> int:
    """What an assembled context really takes."""
    tokens = MessageTokens(O200kCounter())
    return sum(tokens.count(message) for message in shown(result))


def each_once(result: AssembleResult, path: Sequence[PathMessage]) -> None:
    """Assert that a path which fits is shown in its order, no message twice."""
    ids = shown_ids(result)
    assert len(ids) == len(set(ids)), "an entry is shown twice"
    known = [item.entry_id for item in path]
    assert ids == [each for each in known if each in set(ids)], "entries are out of order"
    texts = shown_text(result)
    for item in path:
        if item.message["role"] == "user":
            said = json.dumps(item.message["content"])
            copies = sum(said in text for text in texts)
            assert copies == 1, f"{item.entry_id} is shown {copies} times"


class ContextEngineContract:
    """Tests of a `ContextEngine`."""

    # -- what it is ------------------------------------------------------------------------

    def test_it_says_what_it_is_and_needs_only_what_a_host_can_give(
        self, make_engine: MakeEngine
    ) -> None:
        async def run() -> None:
            engine = await new_engine(make_engine)
            abilities = HOST_ABILITIES | {THREADS}
            assert create(engine.info.id, lambda _: engine, _CONTEXT, abilities) is engine
            await engine.dispose()

        asyncio.run(run())

    def test_a_whole_life_goes_well(self, make_engine: MakeEngine) -> None:
        async def life(drive: Driver) -> None:
            path = talk(3)
            await drive.bootstrap(path)
            await drive.engine.maintain(Maintain(ONE, "bootstrap", drive.runtime(path)))
            path = [*path, user("next", "talk: one more thing", 9)]
            await drive.ingest(path[-1])
            each_once(await drive.assemble(path), path)
            added = [answer("next-a", "talk: done", 9)]
            await drive.ingest_all(added)
            path = [*path, *added]
            runtime = drive.runtime(path)
            await drive.engine.after_turn(AfterTurn(ONE, path, path[-2:], runtime))
            await drive.engine.maintain(Maintain(ONE, "turn", runtime))
            assert isinstance(await drive.compact(path), CompactResult)
            await drive.engine.maintain(Maintain(ONE, "compaction", runtime))

        running(life, make_engine)

    def test_it_can_be_disposed_of_twice_and_before_it_did_anything(
        self, make_engine: MakeEngine
    ) -> None:
        async def dispose(drive: Driver) -> None:
            await drive.engine.dispose()

        running(dispose, make_engine)

    # -- a message is known by its entry ------------------------------------------------------

    def test_nothing_is_taken_twice_however_often_it_is_told(self, make_engine: MakeEngine) -> None:
        async def tell(drive: Driver) -> None:
            path = asking(4)
            await drive.bootstrap(path[:5])
            await drive.bootstrap(path[:5])
            await drive.ingest_all(path)
            assert not await drive.ingest(path[-1]), "a known message was taken as new"
            assert not await drive.ingest_all(path), "known messages were taken as new"
            await drive.engine.after_turn(AfterTurn(ONE, path, path, drive.runtime(path)))
            each_once(await drive.assemble(path), path)

        running(tell, make_engine)

    def test_after_a_restart_with_the_same_path_everything_is_there_once(
        self, make_engine: MakeEngine
    ) -> None:
        path = asking(4)
        seen: list[list[str]] = []

        async def first(drive: Driver) -> None:
            await drive.bootstrap(path[:5], "new")
            await drive.ingest_all(path[5:])
            seen.append(shown_text(await drive.assemble(path)))

        async def second(drive: Driver) -> None:
            await drive.bootstrap(path)
            await drive.engine.after_turn(AfterTurn(ONE, path, path[-1:], drive.runtime(path)))
            result = await drive.assemble(path)
            each_once(result, path)
            assert shown_text(result) == seen[0], "a restart changed what the model sees"

        running(first, make_engine)
        running(second, make_engine)

    def test_of_a_path_that_overlaps_only_the_rest_is_new(self, make_engine: MakeEngine) -> None:
        async def overlap(drive: Driver) -> None:
            path = asking(5)
            await drive.bootstrap(path[:6])
            await drive.ingest_all(path[3:9])
            await drive.bootstrap(path[2:])
            await drive.bootstrap(path)
            each_once(await drive.assemble(path), path)

        running(overlap, make_engine)

    def test_two_entries_with_the_same_words_are_two(self, make_engine: MakeEngine) -> None:
        async def same_words(drive: Driver) -> None:
            path = [user("one", "yes"), answer("two", "Sure?"), user("three", "yes")]
            await drive.bootstrap(path[:2])
            await drive.ingest(path[2])
            assert shown_ids(await drive.assemble(path)) == ["one", "two", "three"]

        running(same_words, make_engine)

    def test_an_entry_whose_words_were_masked_is_still_one(self, make_engine: MakeEngine) -> None:
        async def mask(drive: Driver) -> None:
            told = [user("one", "the word is ORCHID"), answer("two", "Noted.")]
            masked = [user("one", "the word is ***"), told[1], user("three", "go on", 1)]
            await drive.bootstrap(told[:1])
            await drive.ingest_all([*told, *masked])
            result = await drive.assemble(masked)
            assert shown_ids(result) == ["one", "two", "three"]
            copies = sum("the word is" in text for text in shown_text(result))
            assert copies == 1, f"the masked message is shown {copies} times"

        running(mask, make_engine)

    # -- what the model sees ------------------------------------------------------------------

    def test_what_it_shows_fits_and_is_estimated_honestly(self, make_engine: MakeEngine) -> None:
        """An engine that does not own compaction may leave it to the host to make room."""

        async def fit(drive: Driver) -> None:
            cases = ((ONE, asking(3), LARGE), (TWO, asking(40), SMALL))
            for session, path, budget in cases:
                drive = Driver(drive.engine, session)
                await drive.bootstrap(path)
                result = await drive.assemble(path, budget)
                real = tokens_of(result)
                off = abs(result.estimated_tokens - real)
                allowed = max(TOLERANCE_TOKENS, real * ESTIMATE_TOLERANCE)
                assert off <= allowed, f"{result.estimated_tokens} tokens were said, {real} it is"
                most = budget
                if not drive.engine.info.owns_compaction:
                    most = max(budget, drive.runtime(path).current_token_count or 0)
                assert real <= most, f"{real} tokens do not fit in {most}"

        running(fit, make_engine)

    def test_the_newest_question_is_always_there(self, make_engine: MakeEngine) -> None:
        async def newest(drive: Driver) -> None:
            path = asking(40)
            await drive.bootstrap(path[:-1])
            await drive.ingest(path[-1])
            for budget in (LARGE, SMALL):
                result = await drive.assemble(path, budget)
                assert shown_ids(result)[-1:] == [path[-1].entry_id]
                assert shown(result)[-1]["content"] == path[-1].message["content"]

        running(newest, make_engine)

    def test_no_call_is_shown_without_the_result_that_it_has(self, make_engine: MakeEngine) -> None:
        """The host would have to tell the model that the call was never answered."""

        async def pairs(drive: Driver) -> None:
            path = asking(40)
            await drive.bootstrap(path)
            tokens = MessageTokens(O200kCounter())
            for budget in (LARGE, SMALL, SMALL + 77, SMALL * 2):
                result = await drive.assemble(path, budget)
                items = [PathMessage(f"{n}", each) for n, each in enumerate(shown(result))]
                paired = pair(sanitize(items, tokens), tokens)
                torn = [each for each in paired.messages if each.outcome == "added"]
                assert not torn, f"{len(torn)} calls lost their results"

        running(pairs, make_engine)

    def test_the_same_request_shows_the_same(self, make_engine: MakeEngine) -> None:
        async def twice(drive: Driver) -> None:
            path = asking(40)
            await drive.bootstrap(path)
            for budget in (LARGE, SMALL):
                one = await drive.assemble(path, budget)
                two = await drive.assemble(path, budget)
                assert shown_text(one) == shown_text(two)
                assert one.system_prompt_addition == two.system_prompt_addition

        running(twice, make_engine)

    def test_while_there_is_room_the_beginning_keeps_its_bytes(
        self, make_engine: MakeEngine
    ) -> None:
        """A provider's cache knows a prompt by its beginning."""

        async def grow(drive: Driver) -> None:
            path: list[PathMessage] = []
            before: list[str] = []
            await drive.bootstrap(path, "new")
            for item in asking(6):
                path = [*path, item]
                await drive.ingest(item)
                if item.message["role"] == "user":
                    now = shown_text(await drive.assemble(path))
                    assert now[: len(before)] == before, f"{item.entry_id} changed what was before"
                    before = now

        running(grow, make_engine)

    def test_a_heartbeat_is_taken_and_answered_like_any_message(
        self, make_engine: MakeEngine
    ) -> None:
        async def beat(drive: Driver) -> None:
            path = [*talk(2), user("beat", "HEARTBEAT: anything to do?", 5)]
            await drive.bootstrap(path[:-1])
            await drive.ingest(path[-1], is_heartbeat=True)
            result = await drive.assemble(path)
            each_once(result, path)
            quiet = [*path, answer("beat-a", "NO_REPLY", 5)]
            runtime = drive.runtime(quiet)
            await drive.engine.after_turn(
                AfterTurn(ONE, quiet, quiet[-2:], runtime, is_heartbeat=True)
            )
            await drive.ingest(path[-1], is_heartbeat=True)
            each_once(await drive.assemble(path), path)

        running(beat, make_engine)

    def test_an_empty_session_is_no_trouble(self, make_engine: MakeEngine) -> None:
        async def empty(drive: Driver) -> None:
            await drive.bootstrap([], "new")
            assert shown(await drive.assemble([])) == []
            runtime = drive.runtime([])
            await drive.engine.after_turn(AfterTurn(ONE, [], [], runtime))
            await drive.engine.maintain(Maintain(ONE, "turn", runtime))

        running(empty, make_engine)

    # -- making it smaller ------------------------------------------------------------------------

    def test_compacting_is_answered_and_can_be_asked_for_again(
        self, make_engine: MakeEngine
    ) -> None:
        async def compact(drive: Driver) -> None:
            path = asking(40)
            await drive.bootstrap([], "new")
            _check_compacted(await drive.compact([]), [])
            await drive.bootstrap(path)
            for _ in range(2):
                _check_compacted(await drive.compact(path, SMALL, force=True), path)
            result = await drive.assemble(path, SMALL)
            assert shown_ids(result)[-1:] == [path[-1].entry_id]

        running(compact, make_engine)

    # -- sessions and sub-agents -------------------------------------------------------------

    def test_two_sessions_at_once_do_not_mix(self, make_engine: MakeEngine) -> None:
        async def both(drive: Driver) -> None:
            async def one(driver: Driver, name: str, other: str) -> None:
                path = asking(12, name)
                await driver.bootstrap(path[:3], "new")
                for end in range(4, len(path) + 1):
                    await driver.ingest(path[end - 1])
                    await asyncio.sleep(0)
                for budget in (LARGE, SMALL):
                    result = await driver.assemble(path, budget)
                    added = result.system_prompt_addition or ""
                    assert not any(other in text for text in [*shown_text(result), added])
                compacted = await driver.compact(path, SMALL, force=True)
                assert compacted.result is None or other not in compacted.result.summary

            await asyncio.gather(
                one(Driver(drive.engine, ONE), "CANARY", "MAGPIE"),
                one(Driver(drive.engine, TWO), "MAGPIE", "CANARY"),
            )

        running(both, make_engine)

    def test_a_sub_agent_that_could_not_begin_leaves_nothing(self, make_engine: MakeEngine) -> None:
        async def spawn(drive: Driver) -> None:
            path = asking(4)
            await drive.bootstrap(path)
            before = shown_text(await drive.assemble(path))
            for kind in ("isolated", "fork"):
                spawned = SubagentSpawn(ONE, CHILD, kind, "look it up")
                rollback = await drive.engine.prepare_subagent_spawn(spawned)
                if rollback is not None:
                    await rollback()
            assert shown_text(await drive.assemble(path)) == before
            child = Driver(drive.engine, CHILD)
            await child.bootstrap([], "new")
            assert shown(await child.assemble([])) == []

        running(spawn, make_engine)

    def test_sessions_that_are_gone_hold_up_no_other(self, make_engine: MakeEngine) -> None:
        async def gone(drive: Driver) -> None:
            child, task = Driver(drive.engine, CHILD), asking(3, "task")
            for reason in get_args(SubagentEnd):
                await drive.engine.prepare_subagent_spawn(
                    SubagentSpawn(ONE, CHILD, "isolated", "task")
                )
                await child.bootstrap(task[:2], "new")
                await child.ingest_all(task)
                await drive.engine.on_subagent_ended(SubagentEnded(ONE, CHILD, reason))
                await drive.engine.on_subagent_ended(SubagentEnded(ONE, CHILD, reason))
            path = asking(3)
            await drive.bootstrap(path)
            each_once(await drive.assemble(path), path)
            await drive.engine.maintain(Maintain(ONE, "turn", drive.runtime(path)))

        running(gone, make_engine)

    def test_a_session_that_begins_anew_shows_nothing_of_before(
        self, make_engine: MakeEngine
    ) -> None:
        async def reset(drive: Driver) -> None:
            await drive.bootstrap(asking(3, "CANARY"), "new")
            path = asking(2, "fresh")
            await drive.bootstrap(path, "reset")
            result = await drive.assemble(path)
            each_once(result, path)
            assert not any("CANARY" in text for text in shown_text(result))

        running(reset, make_engine)


_CONTEXT = EngineContext()


def _check_compacted(result: CompactResult, path: Sequence[PathMessage]) -> None:
    """Assert that the answer of `compact` is one that a host can act on."""
    assert isinstance(result, CompactResult)
    if not result.compacted:
        return
    assert path, "an empty session was compacted"
    done = result.result
    assert result.ok
    assert done is not None, "it says that it compacted, and not what"
    if done.first_kept_entry_id is not None:
        assert done.first_kept_entry_id in {item.entry_id for item in path}
    assert done.tokens_after <= done.tokens_before
