"""What `cacheAware` is for: it never costs more than the plain rules, where it cuts as they do.

With limits (layers 1 and 2) that holds for every conversation: its context is always an end of
theirs, and its cut moves only when theirs does. Age rules (layer 3) it lets messages outlive,
which pays where a conversation flows; so that is shown for conversations that flow, and for
recorded ones. Sizes count in OpenAI's cache in steps of 128 tokens, so that a smaller context
may cost up to one step more a call there.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from strandline.context.policy import AgeRule, ContextPolicy
from strandline.manager import SessionManager
from strandline.replay.outcome import Outcome
from strandline.replay.policies import EXAMPLES
from strandline.replay.pricing import CacheName
from strandline.replay.recording import Recording, recorded

CACHES: tuple[CacheName, ...] = ("anthropic", "anthropic-1h", "openai")
SECOND, MINUTE = 1000, 60_000
NOTHING = 1e-12
"""Dollars by which sums of the same numbers may differ."""

SIZES = st.sampled_from([5, 50, 300, 2000])
WAITS = st.sampled_from([0, SECOND, 20 * SECOND, 200 * SECOND, 299 * SECOND, 400 * SECOND])
LIMITS = st.builds(
    ContextPolicy,
    max_messages=st.none() | st.integers(2, 30),
    max_tokens=st.none() | st.integers(500, 20_000),
)


@st.composite
def recordings(draw: st.DrawFn, new_talk: Callable[[], Any]) -> Recording:
    """A conversation of any rhythm, with tools."""
    talk = new_talk()
    for _ in range(draw(st.integers(2, 25))):
        talk.wait(draw(WAITS)).ask(draw(SIZES))
        for _ in range(draw(st.integers(0, 2))):
            talk.look(draw(SIZES), draw(WAITS))
        talk.answer(draw(SIZES))
    recording: Recording = talk.recording
    return recording


def dearer_by(found: dict[str, Outcome], other: str = "plain") -> float:
    """By how many dollars `cache-aware` costs more than another policy."""
    return found["cache-aware"].cost.total - found[other].cost.total


def rounding(cache: CacheName, calls: int) -> float:
    """Dollars that counting in steps may cost: nine tenths of a step a call."""
    return calls * 128 * 0.9 / 1e6 if cache == "openai" else NOTHING


@pytest.mark.parametrize("cache", CACHES)
def test_limits_never_cost_more_with_it(cache: CacheName, replay: Any, new_talk: Any) -> None:
    @examples(max_examples=60)
    @given(data=st.data())
    def never(data: st.DataObject) -> None:
        recording = data.draw(recordings(new_talk))
        found = replay(recording, data.draw(LIMITS), cache, ["plain", "cache-aware"])
        assert dearer_by(found) <= rounding(cache, found["plain"].calls)

    never()


@pytest.mark.parametrize("cache", CACHES)
def test_a_conversation_that_flows_never_costs_more_with_it_and_less_for_each_cut_saved(
    cache: CacheName, replay: Any, new_talk: Any
) -> None:
    @examples(max_examples=60)
    @given(data=st.data())
    def never(data: st.DataObject) -> None:
        talk, every = new_talk(), data.draw(st.sampled_from([6, 30, 60, 120, 290])) * SECOND
        for _ in range(data.draw(st.integers(2, 50))):
            talk.wait(every).ask(data.draw(SIZES)).answer(data.draw(SIZES))
        age_ms = data.draw(st.sampled_from([1, 5, 10, 30])) * MINUTE
        rules = (AgeRule(age_ms, "all"), AgeRule(4 * age_ms, 5), AgeRule(None, "none"))
        policies = ["plain", "cache-aware"]
        found = replay(talk.recording, ContextPolicy(ttl=rules), cache, policies)
        assert dearer_by(found) <= rounding(cache, found["plain"].calls)
        if found["cache-aware"].cuts_moved_warm < found["plain"].cuts_moved_warm:
            assert cache == "openai" or dearer_by(found) < -NOTHING

    never()


# -- recorded conversations ----------------------------------------------------------------


def check(recording: Recording, cache: CacheName, replay: Any) -> None:
    """Never more than either, and less than the plain rules where it saved a cut."""
    for rules in EXAMPLES.values():
        found = replay(recording, rules, cache, ["plain", "cache-ttl", "cache-aware"])
        for other in ("plain", "cache-ttl"):
            assert dearer_by(found, other) <= NOTHING
            if found["cache-aware"].cuts_moved_warm < found[other].cuts_moved_warm:
                assert dearer_by(found, other) < -NOTHING


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("name", ["before-compaction", "large-session"])
def test_it_saves_on_sessions_of_pi(name: str, cache: CacheName, replay: Any, shared: Path) -> None:
    path = shared / "fixtures" / "pi" / f"{name}.jsonl"
    if not path.is_file():
        pytest.skip(f"{path} is not here")
    with SessionManager.open(path, cache_dir=None) as session:
        check(recorded(session, None, MINUTE), cache, replay)


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("name", ["26", "41", "43", "47", "49"])
def test_it_saves_on_conversations_between_people(
    name: str, cache: CacheName, replay: Any, shared: Path, new_talk: Any
) -> None:
    path = shared / "fixtures" / "locomo" / f"{name}.json"
    if not path.is_file():
        pytest.skip(f"{path} is not here")
    told, talk = json.loads(path.read_text(encoding="utf-8")), new_talk()
    for part in told["sessions"]:
        start = datetime.strptime(part["date_time"], "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
        for number, turn in enumerate(part["turns"]):
            talk.now_ms = int(start.timestamp() * 1000) + number * MINUTE
            say = talk.ask if turn["speaker"] == told["speaker_a"] else talk.answer
            say(4 + -(-len(turn["text"].encode()) // 4))
    check(talk.recording, cache, replay)
