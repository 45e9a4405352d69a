"""Determinism: the same path, rules, clock, summaries and recorded calls give the same bytes.

Whatever is remembered on the way (by a clean path, by a memo of the recorded calls, by a
context cache), whoever reads the file, in which process. Source: spec 3, The way of a message.
"""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.clock import RandomIds, SystemClock
from strandline.context.clean_path import Clean, CleanPath
from strandline.context.pairing import pair
from strandline.context.sanitize import sanitize
from strandline.context.shorten import shorten_larger
from strandline.context.tokens import MessageTokens
from strandline.context.turns import is_summary_of_any_kind
from strandline.context.view import ViewMessage
from strandline.stores.context_cache_memory import MemoryContextCache
from strandline.stores.jsonl import JsonlStore
from strandline.transcript.context import PathMessage
from strandline.transcript.live_context import MessagesSoFar
from strandline.transcript.reading import Sizes
from strandline.transcript.session import Session

SMALL = Sizes(small=1, window=256, keep_raw=1)
"""Even a small file is read from its end, in pieces."""


def told(looked: Any) -> list[object]:
    """All that there is to a view, to the last decision."""
    return [*map(_told, looked.view.messages), *map(_told, looked.view.left_out), looked.overflow]


def _told(said: ViewMessage) -> object:
    return said, said.said_ms


@settings(max_examples=100)
@given(data=st.data())
def test_a_request_is_the_same_bytes_whatever_was_remembered_and_whoever_reads_the_file(
    ways: Any, data: st.DataObject
) -> None:
    setup = data.draw(ways.setups)
    recalibrated = ways.setups.map(lambda other: replace(other, policy=setup.policy))
    others = st.one_of(st.just(setup), recalibrated.filter(lambda it: it.has_room), ways.setups)
    with ways.begin() as grown:
        cache = data.draw(st.sampled_from([None, MemoryContextCache(grown.clock, 5)]))
        way, now_ms = ways.way(grown.session, setup, cache=cache), grown.clock.now_ms()
        for step in data.draw(ways.growth):
            grown.take(step)
            if data.draw(st.booleans()):
                now_ms = grown.clock.now_ms() + data.draw(ways.gaps)
                way.setup = data.draw(others)
                way.look(None, now_ms)
        way.setup = setup
        for tip in grown.tips:
            remembered = [way.look(tip, now_ms) for _ in range(2)][-1]
            anew = ways.way(grown.session, setup, made=[*way.made]).look(tip, now_ms)
            assert told(remembered) == told(anew)
            with _copied(grown.path) as copy:
                elsewhere = ways.way(copy, setup, made=[*way.made]).look(tip, now_ms)
                assert told(elsewhere) == told(anew)
                for api in ways.formats if anew.view.messages else ():
                    assert ways.body(api, elsewhere.view) == ways.body(api, remembered.view)


@contextmanager
def _copied(path: Path) -> Iterator[Session]:
    """The session read from a copy of its file, piece by piece from the end."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / path.name
        shutil.copyfile(path, copy)
        log = JsonlStore(copy.parent).open(copy.name)
        with closing(Session(log, clock=SystemClock(), ids=RandomIds(), sizes=SMALL)) as session:
            yield session


@settings(max_examples=100)
@given(data=st.data())
def test_a_path_followed_message_by_message_is_the_path_followed_at_once(
    ways: Any, data: st.DataObject
) -> None:
    with ways.begin() as grown:
        for step in data.draw(ways.growth):
            grown.take(step)
        items = [*grown.session.build_context().items]
    cap = data.draw(st.sampled_from([16, 64, 1 << 16]))
    growing, path = list[Any](), CleanPath(grown.tokens)
    for item in items:
        growing.append(item)
        followed = path.follow(MessagesSoFar(growing), cap)
        if item is items[-1] or data.draw(st.integers(0, 5)) == 0:
            _is_as_it_says(followed, growing, cap, grown.tokens)


def _is_as_it_says(
    clean: Clean, items: Sequence[PathMessage], cap: int, tokens: MessageTokens
) -> None:
    """It is the path, cleaned and paired in one go, and its sums and places are those of that."""
    view = shorten_larger(pair(sanitize(items, tokens), tokens), cap, tokens)
    said = view.messages
    times = [math.inf if each.said_ms is None else each.said_ms for each in said]
    assert clean.view == view
    assert clean.tokens_to == [0, *accumulate(each.tokens for each in said)]
    assert clean.newest_ms == [*accumulate(times, max)]
    assert clean.place_of == {m.entry_id: place for place, m in enumerate(said) if m.entry_id}
    assert clean.summaries == [p for p, each in enumerate(said) if is_summary_of_any_kind(each)]
    assert clean.calls == [p for p, m in enumerate(said) if m.message["role"] == "assistant"]


CHILD = """
import hashlib, runpy, sys, types
there = types.SimpleNamespace(**runpy.run_path(sys.argv[1]))
way = there.Way(there.SessionManager.open(sys.argv[2]), there.A_SETUP)
view = way.look(None, 1_700_000_900_000).view
assert len(view.messages) > 5
for api in there.BODIES:
    print(hashlib.sha256(there.body(api, view)).hexdigest())
"""


def test_a_process_with_other_hashes_makes_the_same_bytes(ways: Any) -> None:
    with ways.begin() as grown:
        for number in range(8):
            grown.turn(20, [5, 20])
            grown.label(number, "pin")
        said = {_child(grown.path, seed) for seed in "01"}
    assert len(said) == 1
    assert len(said.pop().split()) == len(ways.formats)


def _child(path: Path, seed: str) -> str:
    """What another process makes of the file: the digest of a request in each format."""
    command = [sys.executable, "-c", CHILD, str(Path(__file__).with_name("conftest.py")), str(path)]
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    return subprocess.run(
        command, env=environment, check=True, stdout=subprocess.PIPE, text=True
    ).stdout
