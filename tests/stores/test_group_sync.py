"""Many appends, few syncs, and nobody is told that lost bytes are safe."""

from __future__ import annotations

import errno
import threading
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from strandline.stores.group_sync import GroupSync


class Platter:
    """A sync that waits until it is let go, and then works or fails as it is told."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.outcomes: list[BaseException | None] = []
        self.let_go = threading.Semaphore(0)
        self.count = 0

    def sync(self) -> None:
        self.count += 1
        self.begun.release()
        self.let_go.acquire()
        outcome = self.outcomes.pop(0) if self.outcomes else None
        if outcome is not None:
            raise outcome

    def end(self, outcome: BaseException | None = None) -> None:
        self.outcomes.append(outcome)
        self.let_go.release()


@pytest.fixture
def pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(8)


def lost() -> OSError:
    return OSError(errno.EIO, "lost")


def test_all_who_come_while_a_sync_is_under_way_share_the_next(pool: ThreadPoolExecutor) -> None:
    platter = Platter()
    group = GroupSync(platter.sync)
    group.wrote(10)
    first = pool.submit(group.sync, 0)
    platter.begun.acquire()
    group.wrote(80)
    others = [pool.submit(group.sync, start) for start in range(10, 80, 10)]
    platter.end()
    first.result()
    platter.end()
    for other in others:
        other.result()
    assert platter.count == 2


def test_what_a_sync_covered_needs_no_other() -> None:
    platter = Platter()
    group = GroupSync(platter.sync)
    group.wrote(100)
    platter.end()
    group.sync(0)
    group.sync(99)
    assert platter.count == 1


def test_a_failed_sync_is_the_failure_of_all_whose_bytes_it_covered(
    pool: ThreadPoolExecutor,
) -> None:
    platter = Platter()
    group = GroupSync(platter.sync)
    group.wrote(10)
    first = pool.submit(group.sync, 0)
    platter.begun.acquire()
    group.wrote(30)
    waiting = [pool.submit(group.sync, start) for start in (10, 20)]
    platter.end()
    first.result()
    platter.begun.acquire()
    platter.end(lost())
    for other in waiting:
        with pytest.raises(OSError, match="lost"):
            other.result()


def test_bytes_whose_sync_failed_are_not_called_synced_by_a_later_one() -> None:
    """Linux forgets that a page it could not write is dirty: the next sync says all is well."""
    platter = Platter()
    group = GroupSync(platter.sync)
    group.wrote(20)
    platter.end(lost())
    with pytest.raises(OSError, match="lost"):
        group.sync(10)
    group.wrote(30)
    platter.end()
    group.sync(20)
    for start in (0, 10, 19):
        with pytest.raises(OSError, match="lost"):
            group.sync(start)
    assert platter.count == 2


def test_a_sync_that_is_broken_off_leaves_nobody_waiting(pool: ThreadPoolExecutor) -> None:
    platter = Platter()
    group = GroupSync(platter.sync)
    group.wrote(10)
    first: Future[None] = pool.submit(group.sync, 0)
    platter.begun.acquire()
    second = pool.submit(group.sync, 5)
    platter.end(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        first.result()
    with pytest.raises(OSError, match="broken off"):
        second.result(timeout=10)
    group.wrote(20)
    platter.end()
    group.sync(10)


class InterruptedLock:
    """A lock whose owner presses Ctrl-C while it waits."""

    def __enter__(self) -> None:
        raise KeyboardInterrupt

    def __exit__(self, *_: object) -> None:
        raise AssertionError


def test_a_leader_that_is_interrupted_before_its_turn_holds_nobody_up() -> None:
    platter = Platter()
    group = GroupSync(platter.sync)
    group.wrote(10)
    turn, group._turn = group._turn, InterruptedLock()  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        group.sync(0)
    group._turn = turn
    platter.end()
    group.sync(0)
    assert platter.count == 1
