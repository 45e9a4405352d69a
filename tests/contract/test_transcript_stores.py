"""Every transcript store keeps the contract, and files equal memory whatever is done."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from strandline.errors import StrandlineError, TranscriptMoved
from strandline.stores.jsonl import JsonlLog, JsonlStore
from strandline.stores.memory import MemoryLog, MemoryStore
from strandline.testing import Faults, FaultyDisk
from strandline.testing.transcript_contract import TranscriptStoreContract
from strandline.transcript.store import TranscriptStore


class TestMemoryStore(TranscriptStoreContract):
    @pytest.fixture
    def make_store(self) -> Callable[[], MemoryStore]:
        return MemoryStore


class TestJsonlStore(TranscriptStoreContract):
    @pytest.fixture
    def make_store(self, tmp_path: Path) -> Callable[[], JsonlStore]:
        return lambda: JsonlStore(Path(tempfile.mkdtemp(dir=tmp_path)), cache=tmp_path / "cache")


class TestJsonlStoreOnADiskInMemory(TranscriptStoreContract):
    @pytest.fixture
    def make_store(self) -> Callable[[], JsonlStore]:
        return lambda: JsonlStore(Path("/state"), disk=FaultyDisk())


class TestJsonlStoreOnADiskThatWritesAFewBytesAtATime(TranscriptStoreContract):
    @pytest.fixture
    def make_store(self) -> Callable[[], JsonlStore]:
        return lambda: JsonlStore(Path("/state"), disk=FaultyDisk(Faults(max_write=1 << 16)))


# -- files equal memory ---------------------------------------------------------------------

NAMES = st.sampled_from(["a.jsonl", "b.jsonl"])
LINES = st.sampled_from([b"one\n", b"\x00\xff\n", b'{"torn', b"two\nlines\n", b"", b"\n"])
LAG = st.sampled_from([0, 0, 0, 0, 1, 5])


class FilesEqualMemory(RuleBasedStateMachine):
    """The same calls on files and on the oracle in memory give the same, errors included."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.stores: list[TranscriptStore] = [JsonlStore(self.folder), MemoryStore()]
        self.logs: list[tuple[JsonlLog, MemoryLog]] = []

    def teardown(self) -> None:
        for pair in self.logs:
            pair[0].close()
        shutil.rmtree(self.folder)

    def both(self, call: Callable[[int], object]) -> list[object]:
        outcomes: list[object] = []
        for which in (0, 1):
            try:
                outcomes.append(call(which))
            except TranscriptMoved as error:
                outcomes.append(("moved", error.end))
            except StrandlineError as error:
                outcomes.append(type(error))
        assert outcomes[0] == outcomes[1] or all(hasattr(each, "append") for each in outcomes)
        return outcomes

    @rule(name=NAMES, line=LINES)
    def create(self, name: str, line: bytes) -> None:
        self.keep(self.both(lambda which: self.stores[which].create(name, line)))

    @rule(name=NAMES)
    def open(self, name: str) -> None:
        self.keep(self.both(lambda which: self.stores[which].open(name)))

    def keep(self, pair: list[object]) -> None:
        if isinstance(pair[0], JsonlLog) and isinstance(pair[1], MemoryLog):
            self.logs.append((pair[0], pair[1]))

    @precondition(lambda self: self.logs)
    @rule(data=st.data(), line=LINES, lag=LAG)
    def append(self, data: st.DataObject, line: bytes, lag: int) -> None:
        pair = data.draw(st.sampled_from(self.logs))
        end = max(0, pair[1].end() - lag)
        self.both(lambda which: pair[which].append(line, end))
        pair[0].sync(0)

    @precondition(lambda self: self.logs)
    @rule(data=st.data(), lag=LAG)
    def replace(self, data: st.DataObject, lag: int) -> None:
        pair = data.draw(st.sampled_from(self.logs))
        end = max(0, pair[1].end() - lag)
        self.both(lambda which: pair[which].replace(b"image\n", end, ".v1.bak"))

    @invariant()
    def everything_is_equal(self) -> None:
        assert self.stores[0].names() == self.stores[1].names()
        for file, memory in self.logs:
            assert file.end() == memory.end()
            for start, stop in ((0, file.end()), (2, 9), (file.end() - 3, file.end() + 9)):
                assert file.read(max(0, start), stop) == memory.read(max(0, start), stop)


TestFilesEqualMemory = FilesEqualMemory.TestCase
TestFilesEqualMemory.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
