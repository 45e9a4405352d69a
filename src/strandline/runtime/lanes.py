"""Lanes: one turn at a time on a session, across tasks and processes.

The lock is the transcript's own run lock; taking it, or waiting for it, does not block the
event loop.
Source: spec 1, Durability, writers, speed; spec 4, A turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager

from strandline.errors import SessionBusy
from strandline.runtime.finishing import to_the_end
from strandline.transcript.session import Session

Lane = Callable[[], AbstractAsyncContextManager[None]]
"""Takes the lane of a session; `nullcontext` where the caller holds it already."""

DEFAULT_TIMEOUT_MS = 60_000
POLL_S = 0.02


@asynccontextmanager
async def lane(
    session: Session, *, holder: str, timeout_ms: int = DEFAULT_TIMEOUT_MS
) -> AsyncIterator[None]:
    """Hold the session's lane for one turn; what others said meanwhile is read first.

    Raises `SessionBusy`, which names the holder, after `timeout_ms`.
    """
    with ExitStack() as held:
        await _take(session, held, holder, timeout_ms)
        await asyncio.to_thread(session.refresh)
        yield


async def _take(session: Session, held: ExitStack, holder: str, timeout_ms: int) -> None:
    deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
    while True:
        try:
            lock = session.run_lock(timeout_ms=0, holder=holder)
            await to_the_end(asyncio.to_thread(held.enter_context, lock))
        except SessionBusy as busy:
            if asyncio.get_running_loop().time() >= deadline:
                raise SessionBusy(
                    busy.what,
                    holder=busy.holder,
                    remedy=f"wait for that turn to end, or stop it (waited {timeout_ms} ms)",
                ) from busy
            await asyncio.sleep(POLL_S)
        else:
            return
