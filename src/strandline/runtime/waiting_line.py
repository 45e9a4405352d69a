"""The order in which a conversation does what is asked of it at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from strandline.errors import SessionBusy


class WaitingLine:
    """First come, first served within this process, as locks of files are not.

    `holder` is what those who have waited `timeout_ms` are told.
    """

    def __init__(self, holder: str, timeout_ms: int) -> None:
        self._holder = holder
        self._timeout_ms = timeout_ms
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def turn(self, what: str) -> AsyncIterator[None]:
        """Be the only one. Raises `SessionBusy`, which says that `what` is held."""
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                await self._lock.acquire()
        except TimeoutError:
            raise SessionBusy(
                f"{what} is held by {self._holder}, in this process",
                holder=self._holder,
                remedy=f"wait for that turn to end, or stop it (waited {self._timeout_ms} ms)",
            ) from None
        try:
            yield
        finally:
            self._lock.release()
