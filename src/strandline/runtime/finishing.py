"""What has begun and must not be half done: it is finished, and then the cancelling goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

Got = TypeVar("Got")


async def to_the_end(work: Coroutine[Any, Any, Got]) -> Got:
    """What `work` gives, or raises.

    Where this is cancelled meanwhile, however often, `work` comes to its end first and
    `CancelledError` is raised then. So whoever is told of the cancelling knows that
    nothing goes on behind its back. For work that is short, such as an append.
    """
    task = asyncio.ensure_future(work)
    stopped: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            stopped = error
    if stopped is None:
        return task.result()
    if not task.cancelled():
        task.exception()  # looked at, so that the event loop does not complain of it
    raise stopped


def cancellings() -> int:
    """How often the current task was asked to stop, without having taken it back.

    Whoever calls code of others compares it before and after: that code may have caught
    `CancelledError` and gone on, and a task may have been asked long ago.
    """
    task = asyncio.current_task()
    return task.cancelling() if task is not None else 0
