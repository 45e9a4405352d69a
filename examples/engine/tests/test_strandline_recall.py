"""The engine keeps the contract of engines: ``pip install strandline pytest``, then ``pytest``."""

# ruff: noqa: S101 - these are tests

from __future__ import annotations

import pytest
from strandline_recall import RecallEngine, chosen

from strandline.context.engine import EngineContext
from strandline.testing import ContextEngineContract
from strandline.testing.engine_talk import MakeEngine


class TestRecall(ContextEngineContract):
    """All tests of the contract, on this engine."""

    @pytest.fixture
    def make_engine(self) -> MakeEngine:
        """Gives new engines."""
        return lambda: RecallEngine(EngineContext(config={"share": 0.3}))


def test_the_newest_turns_come_first_and_then_those_with_the_words_of_the_question() -> None:
    """Of five turns of 10 tokens, 30 tokens take the newest two and one that has to do with it."""
    assert chosen([10] * 5, [0, 2, 0, 0, 3], 30, 0.3) == [1, 3, 4]
    assert chosen([10] * 5, [0, 0, 0, 0, 3], 30, 0.3) == [3, 4]
    assert list(chosen([10] * 5, [0, 0, 0, 0, 3], 50, 0.3)) == [0, 1, 2, 3, 4]
    assert chosen([10, 40], [1, 2], 30, 0.3) == [1]
