"""Where a conversation sits: under a key, on the session that the key writes to now.

One thing at a time is done on it, in the order in which it was asked for. A reset by another
process and a transcript that an engine moved are followed. Source: spec 4, A turn (lanes).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from strandline.context.engine import BootstrapReason, CompactionOutcome
from strandline.runtime.agent import Agent
from strandline.runtime.events import CompactionReceipt
from strandline.runtime.finishing import to_the_end
from strandline.runtime.lanes import lane
from strandline.runtime.registry import OpenSession, SessionRegistry
from strandline.runtime.standing import Standing, stand_on
from strandline.runtime.waiting_line import WaitingLine
from strandline.transcript.session import Session

MOST_RECEIPTS = 100
"""As many receipts wait for `settle`; the oldest go first."""


class Seat:
    """A key and what it stands on. `leaving` is awaited before the session becomes another.

    `reason`: why it is new to the context engine.
    """

    def __init__(
        self,
        registry: SessionRegistry,
        agent: Agent,
        key: str,
        *,
        holder: str,
        lock_timeout_ms: int,
        leaving: Callable[[], Awaitable[None]],
        reason: BootstrapReason = "opened",
    ) -> None:
        self._registry = registry
        self._holder = holder
        self._lock_timeout_ms = lock_timeout_ms
        self._leaving = leaving
        self._line = WaitingLine(holder, lock_timeout_ms)
        self._receipts: deque[CompactionReceipt] = deque(maxlen=MOST_RECEIPTS)
        self._locks = AsyncExitStack()  # of the lane that is held
        self._left: list[Session] = []
        self.standing: Standing = self._standing_on(registry.open(key), agent, reason)

    def stand_on(self, there: OpenSession, agent: Agent, reason: BootstrapReason) -> None:
        """Stand on another session, or with another agent."""
        self.standing = self._standing_on(there, agent, reason)

    def _standing_on(self, there: OpenSession, agent: Agent, reason: BootstrapReason) -> Standing:
        return stand_on(
            there,
            agent,
            self._registry,
            self.lane,
            self._receipts,
            reason="new" if there.began and reason == "opened" else reason,
            rotate=self._rotate,
        )

    async def leave(self, there: OpenSession, reason: BootstrapReason = "opened") -> None:
        """Go on with another session."""
        standing = self.standing
        try:
            try:
                await self._leaving()
            finally:
                await standing.stop()
        finally:
            standing.session.close()
            self.stand_on(there, standing.agent, reason)

    @asynccontextmanager
    async def in_line(self) -> AsyncIterator[None]:
        """Nothing else is done on this key meanwhile, in this process."""
        async with self._line.turn(self.standing.at.key):
            yield

    @asynccontextmanager
    async def lane(self, session: Session | None = None) -> AsyncIterator[None]:
        """Nobody else does anything on the session meanwhile, here or elsewhere.

        By default it is the session that the key writes to now; a reset by another process
        is followed. Raises `SessionBusy`.
        """
        async with self.in_line():
            if session is None:
                await self._follow()
            held = session or self.standing.session
            try:
                async with AsyncExitStack() as self._locks:
                    await self._lock(held)
                    yield
            finally:
                while self._left:  # their locks are given back by now
                    self._left.pop().close()

    async def _lock(self, session: Session) -> None:
        """Hold a session for as long as the lane is held."""
        taken = lane(session, holder=self._holder, timeout_ms=self._lock_timeout_ms)
        await self._locks.enter_async_context(taken)

    async def _follow(self) -> None:
        at = self.standing.at
        row = await asyncio.to_thread(self._registry.row, at.key)
        if row is not None and row.session_id != at.row.session_id:
            await self.leave(await asyncio.to_thread(self._registry.open, at.key))

    async def _rotate(self, outcome: CompactionOutcome) -> None:
        """Follow the transcript to the successor that an engine made of it, in this very turn.

        The lane is held. Raises what a `Rotate` raises; the old one goes on then.
        """
        standing, registry = self.standing, self._registry
        successor = await asyncio.to_thread(registry.successor, standing.at, outcome)
        try:
            await self._lock(successor.session)
            successor = await to_the_end(asyncio.to_thread(registry.go_on_in, successor))
        except BaseException:
            self._left.append(successor.session)
            raise
        self._left.append(standing.session)
        standing.move_to(successor)
