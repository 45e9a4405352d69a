"""What every transcript store has to keep, as tests that its author runs.

Subclass `TranscriptStoreContract` in a test module and give it the fixture `make_store`::

    class TestMyStore(TranscriptStoreContract):
        @pytest.fixture
        def make_store(self):
            return MyStore

Each call of what the fixture returns gives a new store without transcripts. The seam is
`strandline.transcript.store`. Nothing here imports pytest: it only has the shape of tests.
"""

# ruff: noqa: S101 - these are tests

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from strandline.errors import (
    SessionBusy,
    TranscriptExists,
    TranscriptMoved,
    TranscriptNotFound,
)
from strandline.transcript.store import TranscriptLog, TranscriptStore

MakeStore = Callable[[], TranscriptStore]
E = TypeVar("E", bound=Exception)

FIRST = b'{"type":"session"}\n'
EVERY_BYTE = bytes(byte for byte in range(256) if byte != 0x0A)
WRITERS, LINES_EACH = 6, 15


def content(log: TranscriptLog) -> bytes:
    """All bytes of a log."""
    return log.read(0, log.end())


def error_of(kind: type[E], call: Callable[[], object]) -> E:
    """The error that a call raises, which is to be of this kind."""
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was not raised")


def append_whenever_possible(log: TranscriptLog, line: bytes) -> int:
    """Append, however often somebody else is first; returns where the line starts."""
    while True:
        try:
            return log.append(line, log.end())
        except TranscriptMoved:
            continue


class TranscriptStoreContract:
    """Tests of a `TranscriptStore` and its logs."""

    # -- names ---------------------------------------------------------------------------

    def test_a_new_transcript_holds_its_first_line_and_is_listed(
        self, make_store: MakeStore
    ) -> None:
        store = make_store()
        assert list(store.names()) == []
        for name in ("b.jsonl", "a.jsonl"):
            log = store.create(name, FIRST)
            assert content(log) == FIRST
            assert log.name.endswith(name)
            log.close()
        assert list(store.names()) == ["a.jsonl", "b.jsonl"]

    def test_a_name_that_is_taken_is_refused_and_the_transcript_stays(
        self, make_store: MakeStore
    ) -> None:
        store = make_store()
        store.create("a.jsonl", FIRST).close()
        error_of(TranscriptExists, lambda: store.create("a.jsonl", b"other\n"))
        log = store.open("a.jsonl")
        assert content(log) == FIRST
        log.close()

    def test_a_transcript_that_is_missing_cannot_be_opened(self, make_store: MakeStore) -> None:
        store = make_store()
        error = error_of(TranscriptNotFound, lambda: store.open("a.jsonl"))
        assert "a.jsonl" in str(error)
        assert list(store.names()) == []

    def test_an_archived_transcript_is_there_under_its_new_name_only(
        self, make_store: MakeStore
    ) -> None:
        store = make_store()
        store.create("a.jsonl", FIRST).close()
        assert store.archive("a.jsonl", ".reset.1") == "a.jsonl.reset.1"
        assert store.archive("a.jsonl", ".reset.1") is None
        error_of(TranscriptNotFound, lambda: store.open("a.jsonl"))
        assert list(store.names()) == []
        log = store.open("a.jsonl.reset.1")
        assert content(log) == FIRST
        log.close()

    def test_an_archive_is_never_overwritten(self, make_store: MakeStore) -> None:
        store = make_store()
        for first in (FIRST, b"other\n"):
            store.create("a.jsonl", first).close()
            if first == FIRST:
                store.archive("a.jsonl", ".old")
        error_of(TranscriptExists, lambda: store.archive("a.jsonl", ".old"))
        for name, expected in (("a.jsonl.old", FIRST), ("a.jsonl", b"other\n")):
            log = store.open(name)
            assert content(log) == expected
            log.close()

    # -- reading and appending -----------------------------------------------------------

    def test_any_stretch_can_be_read_and_is_shorter_only_at_the_end(
        self, make_store: MakeStore
    ) -> None:
        log = make_store().create("a.jsonl", FIRST)
        size = len(FIRST)
        assert log.read(3, 7) == FIRST[3:7]
        assert log.read(size - 2, size + 50) == FIRST[-2:]
        assert log.read(size, size + 5) == log.read(5, 5) == b""
        log.close()

    def test_an_append_says_where_it_starts_and_keeps_every_byte(
        self, make_store: MakeStore
    ) -> None:
        log = make_store().create("a.jsonl", FIRST)
        lines = [EVERY_BYTE + b"\n", b"two\nlines\n", b"x" * 3_000_000 + b"\n"]
        for line in lines:
            end = log.end()
            assert log.append(line, end) == end
            log.sync(end)
            assert log.end() == end + len(line)
        assert content(log) == FIRST + b"".join(lines)
        log.close()

    def test_who_does_not_know_the_end_is_told_it_and_writes_nothing(
        self, make_store: MakeStore
    ) -> None:
        log = make_store().create("a.jsonl", FIRST)
        for guess in (0, len(FIRST) - 1, len(FIRST) + 1):
            error = error_of(TranscriptMoved, lambda end=guess: log.append(b"x\n", end))  # type: ignore[misc]
            assert error.end == len(FIRST)
        assert content(log) == FIRST
        log.close()

    def test_a_line_that_lacks_its_end_is_ended_before_the_next(
        self, make_store: MakeStore
    ) -> None:
        log = make_store().create("a.jsonl", FIRST)
        log.append(b'{"torn', log.end())
        start = log.append(b"next\n", log.end())
        assert start == len(FIRST) + len(b'{"torn\n')
        assert content(log) == FIRST + b'{"torn\nnext\n'
        log.close()

    def test_two_who_opened_it_see_each_other_and_never_write_over_each_other(
        self, make_store: MakeStore
    ) -> None:
        store = make_store()
        one, two = store.create("a.jsonl", FIRST), store.open("a.jsonl")
        end = two.end()
        one.append(b"one\n", end)
        assert error_of(TranscriptMoved, lambda: two.append(b"two\n", end)).end == one.end()
        two.append(b"two\n", two.end())
        assert content(one) == content(two) == FIRST + b"one\ntwo\n"
        one.close()
        two.close()

    def test_closing_twice_is_harmless(self, make_store: MakeStore) -> None:
        store = make_store()
        log = store.create("a.jsonl", FIRST)
        log.append(b"x\n", log.end())
        log.close()
        log.close()
        again = store.open("a.jsonl")
        assert content(again) == FIRST + b"x\n"
        again.close()

    def test_lines_of_many_writers_are_whole_each_there_once_and_synced(
        self, make_store: MakeStore
    ) -> None:
        store = make_store()
        store.create("a.jsonl", FIRST).close()

        def write(writer: int) -> list[int]:
            log = store.open("a.jsonl")
            starts = []
            for number in range(LINES_EACH):
                start = append_whenever_possible(log, b"%d %d\n" % (writer, number))
                log.sync(start)
                starts.append(start)
            log.close()
            return starts

        with ThreadPoolExecutor(WRITERS) as pool:
            starts = list(pool.map(write, range(WRITERS)))
        log = store.open("a.jsonl")
        for writer, own in enumerate(starts):
            assert own == sorted(own)
            for number, start in enumerate(own):
                line = b"%d %d\n" % (writer, number)
                assert log.read(start, start + len(line)) == line
        assert content(log).count(b"\n") == 1 + WRITERS * LINES_EACH
        log.close()

    def test_threads_that_share_a_log_share_it_safely(self, make_store: MakeStore) -> None:
        log = make_store().create("a.jsonl", FIRST)

        def write(number: int) -> None:
            log.sync(append_whenever_possible(log, b"%d\n" % number))

        with ThreadPoolExecutor(WRITERS) as pool:
            list(pool.map(write, range(60)))
        lines = content(log).split(b"\n")
        assert sorted(int(line) for line in lines[1:-1]) == list(range(60))
        log.close()

    # -- replacing -----------------------------------------------------------------------

    def test_a_replaced_transcript_goes_on_from_its_new_end(self, make_store: MakeStore) -> None:
        store = make_store()
        log, other = store.create("a.jsonl", FIRST), store.open("a.jsonl")
        image = b"new first line\nand second\n"
        log.replace(image, len(FIRST), ".v1.bak")
        assert log.append(b"third\n", len(image)) == len(image)
        assert error_of(TranscriptMoved, lambda: other.append(b"x\n", len(FIRST))).end == log.end()
        other.append(b"fourth\n", other.end())
        assert content(log) == content(other) == image + b"third\nfourth\n"
        assert list(store.names()) == ["a.jsonl"]
        log.close()
        other.close()

    def test_a_transcript_that_moved_is_not_replaced(self, make_store: MakeStore) -> None:
        log = make_store().create("a.jsonl", FIRST)
        error_of(TranscriptMoved, lambda: log.replace(b"new\n", 3, ".v1.bak"))
        assert content(log) == FIRST
        log.close()

    # -- holding it for a turn -----------------------------------------------------------

    def test_who_comes_second_is_told_who_holds_it(self, make_store: MakeStore) -> None:
        store = make_store()
        one, two = store.create("a.jsonl", FIRST), store.open("a.jsonl")
        with one.run_lock(1000, "the first turn"):
            error = error_of(SessionBusy, lambda: two.run_lock(30, "the second").__enter__())
            assert "the first turn" in error.holder
            assert "the first turn" in str(error)
        with two.run_lock(1000, "the second"):
            pass
        one.close()
        two.close()

    def test_who_waits_gets_it_as_soon_as_it_is_free(self, make_store: MakeStore) -> None:
        store = make_store()
        one, two = store.create("a.jsonl", FIRST), store.open("a.jsonl")
        order: list[str] = []
        waiting = threading.Event()

        def second() -> None:
            waiting.set()
            with two.run_lock(20_000, "second"):
                order.append("second")

        thread = threading.Thread(target=second)
        with one.run_lock(1000, "first"):
            thread.start()
            waiting.wait()
            time.sleep(0.05)
            order.append("first")
        thread.join()
        assert order == ["first", "second"]
        one.close()
        two.close()

    def test_a_turn_that_fails_gives_it_back(self, make_store: MakeStore) -> None:
        log = make_store().create("a.jsonl", FIRST)

        def failing_turn() -> None:
            with log.run_lock(1000, "a turn"):
                raise ZeroDivisionError

        error_of(ZeroDivisionError, failing_turn)
        with log.run_lock(0, "the next"):
            assert log.append(b"x\n", log.end()) == len(FIRST)
        log.close()

    def test_the_holder_of_one_transcript_holds_no_other(self, make_store: MakeStore) -> None:
        store = make_store()
        one, two = store.create("a.jsonl", FIRST), store.create("b.jsonl", FIRST)
        with one.run_lock(0, "a turn"), two.run_lock(0, "another"):
            assert list(store.names()) == ["a.jsonl", "b.jsonl"]
        one.close()
        two.close()
