"""The clock and the ids that tests pass in."""

from __future__ import annotations

import re
import uuid

from strandline.clock import Clock, IdSource
from strandline.testing import CountingIds, SimulatedClock


def test_the_clock_stands_still_until_it_is_moved() -> None:
    simulated = SimulatedClock(5_000)
    clock: Clock = simulated
    assert [clock.now_ms(), clock.now_ms()] == [5_000, 5_000]
    simulated.advance(61_000)
    assert clock.now_ms() == 66_000
    simulated.advance(-1_000)
    assert clock.now_ms() == 65_000
    simulated.set(7)
    assert clock.now_ms() == 7


def test_ids_have_the_shape_that_transcripts_want_and_count_apart() -> None:
    ids: IdSource = CountingIds()
    entries = [ids.entry_id() for _ in range(17)]
    assert entries[:2] == ["00000001", "00000002"]
    assert entries[-1] == "00000011"
    assert all(re.fullmatch("[0-9a-f]{8}", entry) for entry in entries)
    session = ids.session_id()
    assert session == "00000000-0000-4000-8000-000000000001"
    assert str(uuid.UUID(session)) == session
    assert ids.session_id() != session


def test_two_sources_give_the_same_ids_so_that_runs_can_be_compared() -> None:
    one, other = CountingIds(start=40), CountingIds(start=40)
    assert [one.entry_id(), one.session_id()] == [other.entry_id(), other.session_id()]
