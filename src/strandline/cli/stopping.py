"""Ctrl-C: it stops what is going on, in order; whoever presses it again leaves at once.

A command runs its coroutine with `run`, which holds the signal from the first step to the
last, the closing of files and connections included. Within it, `stoppable` lets Ctrl-C stop
one piece of work and the program go on to the next. Code of others that lets nothing else run
(an engine that sleeps) cannot be stopped in order, and is left at the second press.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

Got = TypeVar("Got")

FINISHING = "finishing what follows the turn; Ctrl-C leaves at once"
GIVEN_UP = "given up; the next turn does what it needs"
"""What people are told of upkeep that is waited for, and of upkeep that they stopped."""

INTERRUPTED = 130
IMPATIENT_S = 0.5
"""A second Ctrl-C that comes sooner is the same press."""

_stops: list[Callable[[], object]] = []
"""What Ctrl-C does now: the last."""


def run(work: Coroutine[Any, Any, Got]) -> Got:
    """What `work` gives, like `asyncio.run`. Ctrl-C cancels it and raises `KeyboardInterrupt`.

    When it does not end after that, another Ctrl-C ends the process. Only for the main thread.
    """
    stopped_at: list[float] = []

    async def watched() -> Got:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None  # noqa: S101 - for mypy: this is a coroutine

        def stop() -> None:
            if not stopped_at:
                stopped_at.append(loop.time())
                task.cancel()
            elif loop.time() > stopped_at[0] + IMPATIENT_S:
                os._exit(INTERRUPTED)

        _stops.append(stop)
        return await work

    depth = len(_stops)
    try:
        with asyncio.Runner() as runner:
            if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
                _hear_presses(runner.get_loop())
            return runner.run(watched())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    finally:
        del _stops[depth:]


def _hear_presses(loop: asyncio.AbstractEventLoop) -> None:
    unheard: list[float] = []

    def pressed() -> None:
        unheard.clear()
        if _stops:
            _stops[-1]()

    def at_once(*_: object) -> None:
        """Runs even where the loop does not."""
        if unheard and time.monotonic() > unheard[0] + IMPATIENT_S:
            os._exit(INTERRUPTED)
        unheard[1:] = [time.monotonic()]

    loop.add_signal_handler(signal.SIGINT, pressed)
    signal.signal(signal.SIGINT, at_once)


async def stoppable(work: Coroutine[Any, Any, Got]) -> Got:
    """What `work` gives. Ctrl-C cancels it, which raises `asyncio.CancelledError` here."""
    task = asyncio.ensure_future(work)
    _stops.append(task.cancel)
    try:
        return await task
    finally:
        _stops.remove(task.cancel)
