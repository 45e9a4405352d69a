"""Replaying under policies: contexts, compactions, layer summaries, and what is counted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from strandline.context.budget import CompactionSettings
from strandline.context.policy import AgeRule, ContextPolicy, LayerSummaries
from strandline.context.tokens import HeuristicCounter, MessageTokens
from strandline.errors import ContextOverflow
from strandline.replay.outcome import added_up
from strandline.replay.policies import EXAMPLES, Policy, named
from strandline.replay.recording import Recording
from strandline.replay.walk import Replays
from strandline.runtime.model import Prices

SECOND, MINUTE = 1000, 60_000


def test_full_history_sees_everything_and_writes_only_what_is_new(talk: Any, replay: Any) -> None:
    for _ in range(3):
        talk.ask(100).answer(50).wait(MINUTE)
    full = replay(talk.recording, ContextPolicy())["full"]
    assert full.contexts == (1600, 1750, 1900)
    assert (full.use.written, full.use.read) == (1900, 1600 + 1750)
    assert (full.output_tokens, full.left_out, full.cuts_moved) == (150, 0, 0)
    assert full.cost.input == pytest.approx((1900 * 1.25 + 3350 * 0.1) / 1e6)
    assert full.cost.output == pytest.approx(150 * 5.0 / 1e6)
    assert full.cached_share == pytest.approx(3350 / 5250)


def test_a_limit_moves_the_cut_at_each_call_and_with_cache_aware_seldom(
    talk: Any, replay: Any
) -> None:
    for _ in range(20):
        talk.ask(100).answer(50).wait(MINUTE)
    found = replay(talk.recording, ContextPolicy(max_messages=10))
    plain, aware = found["plain"], found["cache-aware"]
    assert (plain.cuts_moved, plain.cuts_moved_warm) == (15, 15)
    assert aware.cuts_moved < plain.cuts_moved
    assert aware.cost.total < plain.cost.total
    assert (plain.said, plain.left_out) == (39, 29)


def test_a_cut_that_moves_when_the_cache_has_expired_is_not_called_warm(
    talk: Any, replay: Any
) -> None:
    for _ in range(8):
        talk.ask(100).answer(50).wait(6 * MINUTE)
    found = replay(talk.recording, ContextPolicy(max_messages=4))
    for name in ("plain", "cache-aware"):
        assert (found[name].cuts_moved, found[name].cuts_moved_warm) == (6, 0)
    assert found["plain"].cost == found["cache-aware"].cost


def test_a_full_window_is_compacted_and_the_summary_is_paid(talk: Any, replay: Any) -> None:
    for _ in range(30):
        talk.ask(900).answer(100).wait(MINUTE)
    full = replay(talk.recording, ContextPolicy(), window=16_000)["full"]
    assert full.compactions.made > 1
    assert full.compactions.input_tokens > 0
    assert 0 < full.compactions.output_tokens <= 2000 * full.compactions.made
    asked = full.compactions.input_tokens * 1.0 + full.compactions.output_tokens * 5.0
    assert full.cost.summaries == pytest.approx(asked / 1e6)
    assert full.largest_context <= 16_000
    assert full.cuts_moved == full.compactions.made
    assert full.left_out > 0


def test_without_compaction_the_oldest_turns_give_way(talk: Any, new_scene: Any) -> None:
    for _ in range(30):
        talk.ask(900).answer(100).wait(MINUTE)
    replays = _replays(talk.recording, new_scene("anthropic", window=16_000))
    off = replays.under(Policy("off", ContextPolicy(), CompactionSettings(mode="off")))
    assert (off.compactions.made, off.cost.summaries) == (0, 0)
    assert off.largest_context <= 16_000
    assert off.left_out > 0
    with pytest.raises(ContextOverflow):
        replays.under(Policy("error", ContextPolicy(), CompactionSettings(mode="error")))


SUMMARISING = ContextPolicy(
    ttl=(AgeRule(10 * MINUTE, "all"), AgeRule(None, "summary")),
    summaries=LayerSummaries(max_tokens=100),
)


def test_layer_summaries_are_made_and_cost_only_what_a_model_takes(
    talk: Any, new_scene: Any
) -> None:
    for _ in range(10):
        talk.ask(500).answer(100).wait(4 * MINUTE)
    replays = _replays(talk.recording, new_scene("anthropic"))
    offline = replays.under(Policy("offline", SUMMARISING))
    assert offline.layer_summaries.made >= 1
    assert offline.layer_summaries.output_tokens <= 100 * offline.layer_summaries.made
    assert offline.cost.summaries == 0
    prices = Prices(input=2.0, output=4.0)
    asked = replays.under(Policy("model", SUMMARISING, summary_prices=prices))
    made = asked.layer_summaries
    assert made == offline.layer_summaries
    assert asked.cost.summaries == pytest.approx(
        (made.input_tokens * 2.0 + made.output_tokens * 4.0) / 1e6
    )


def test_summaries_that_are_not_kept_are_made_at_each_call(talk: Any, new_scene: Any) -> None:
    for _ in range(10):
        talk.ask(500).answer(100).wait(4 * MINUTE)
    anew = replace(SUMMARISING, summaries=replace(SUMMARISING.summaries, cached=False))
    replays = _replays(talk.recording, new_scene("anthropic"))
    kept = replays.under(Policy("kept", SUMMARISING)).layer_summaries.made
    assert replays.under(Policy("anew", anew)).layer_summaries.made > kept


def test_cache_ttl_trims_old_results_after_the_cache_has_expired(talk: Any, replay: Any) -> None:
    for _ in range(8):
        talk.ask(50).look(15_000).answer(50)
    talk.wait(6 * MINUTE).ask(50).answer(50)
    found = replay(talk.recording, ContextPolicy(max_messages=100))
    plain, trimmed = found["plain"], found["cache-ttl"]
    assert trimmed.contexts[:-1] == plain.contexts[:-1]
    assert trimmed.contexts[-1] < plain.contexts[-1]


def test_an_answer_that_never_said_anything_was_no_call(talk: Any, replay: Any) -> None:
    talk.ask(100).answer(50).ask(10)
    talk._add("assistant", [], stopReason="error")
    talk.answer(50)
    assert replay(talk.recording, ContextPolicy())["full"].calls == 2


def test_several_conversations_add_up(talk: Any, replay: Any) -> None:
    for _ in range(5):
        talk.ask(100).answer(50)
    one = replay(talk.recording, ContextPolicy(max_messages=4))["plain"]
    both = added_up([one, one])
    assert both.calls == 2 * one.calls
    assert both.cost.total == pytest.approx(2 * one.cost.total)
    assert both.largest_context == one.largest_context
    assert both.left_out == 2 * one.left_out
    assert both.left_out_share == pytest.approx(one.left_out_share)
    assert both.cached_share == pytest.approx(one.cached_share)
    assert added_up([]).cached_share == added_up([]).left_out_share == 0


def test_the_named_policies_add_one_thing_each_to_the_rules() -> None:
    rules = Policy("rules", EXAMPLES["support"])
    plain, ttl, aware = (named(n, rules, 1000).rules for n in ("plain", "cache-ttl", "cache-aware"))
    assert plain == EXAMPLES["support"]
    assert replace(ttl, tool_results=plain.tool_results) == plain
    assert (ttl.tool_results.mode, ttl.tool_results.ttl_ms) == ("cache-ttl", 1000)
    assert replace(aware, cache_aware=plain.cache_aware) == plain
    assert aware.cache_aware.enabled
    assert not named("full", rules, 1000).rules.prunes


def test_the_same_replay_comes_to_the_same(talk: Any, replay: Any) -> None:
    for size in (10, 2000, 30, 400):
        talk.ask(size).look(size, SECOND).answer(size).wait(MINUTE)
    assert replay(talk.recording, EXAMPLES["group"]) == replay(talk.recording, EXAMPLES["group"])


def _replays(recording: Recording, of_scene: Any) -> Replays:
    return Replays(recording, of_scene, MessageTokens(HeuristicCounter()))
