"""A conversation under one session key: turns in its lane, noted in its row.

This is what a face holds on to: it says something, compacts, resets, changes the model.
Source: spec 4, A turn; spec 2, Looking.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from strandline.errors import StrandlineError
from strandline.runtime.agent import Agent
from strandline.runtime.events import CompactionReceipt, Listener, nobody
from strandline.runtime.lanes import DEFAULT_TIMEOUT_MS, lane
from strandline.runtime.registry import OpenSession, SessionRegistry
from strandline.runtime.turn import (
    TurnResult,
    compact_now,
    context_size,
    run_turn,
    user_message,
)
from strandline.sessions.rows import SessionRow
from strandline.transcript.session import Session


class Conversation:
    """An agent and the session that a key writes to now.

    `holder` is what others are told while a turn runs. Close it when done.
    """

    def __init__(
        self,
        registry: SessionRegistry,
        agent: Agent,
        key: str,
        *,
        holder: str,
        lock_timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> None:
        self._registry = registry
        self.agent = agent
        self._holder = holder
        self._lock_timeout_ms = lock_timeout_ms
        self._open: OpenSession = registry.open(key)

    @property
    def key(self) -> str:
        """The session key."""
        return self._open.key

    @property
    def session(self) -> Session:
        """The transcript that the key writes to now."""
        return self._open.session

    @property
    def session_id(self) -> str:
        """The id of that transcript."""
        return self._open.row.session_id

    @property
    def row(self) -> SessionRow:
        """The row of the key, as it is now."""
        return self._registry.find(self.key)

    # -- turns -----------------------------------------------------------------------------

    async def say(self, text: str, *, listener: Listener = nobody) -> TurnResult:
        """One turn. Raises what `run_turn` raises, and `SessionBusy`."""
        async with self._lane():
            await asyncio.to_thread(self._note_model_of_session)
            message = user_message(text, self.agent.clock.now_ms())
            try:
                result = await run_turn(self.session, self.agent, message, listener=listener)
            except BaseException:
                with suppress(StrandlineError):  # the first error is the one to tell
                    self._registry.note_interruption(self.key)
                raise
            note = self._registry.note_turn
            await asyncio.to_thread(note, self.key, self.agent.info, result)
            return result

    async def compact(
        self, instructions: str | None = None, *, listener: Listener = nobody
    ) -> CompactionReceipt:
        """Compact now. Raises `CompactionRefused` where it would not help."""
        async with self._lane():
            return await compact_now(
                self.session, self.agent, instructions=instructions, listener=listener
            )

    async def context_size(self) -> tuple[int, int]:
        """What the context takes, in the provider's tokens, and the window it has."""
        return await context_size(self.session, self.agent)

    def _note_model_of_session(self) -> None:
        """Say in the transcript which model answers from here on, where that changes."""
        info = self.agent.info
        current = self.session.build_context().model
        if current != {"provider": info.provider, "modelId": info.id}:
            self.session.append_model_change(info.provider, info.id)

    @asynccontextmanager
    async def _lane(self) -> AsyncIterator[None]:
        async with lane(self.session, holder=self._holder, timeout_ms=self._lock_timeout_ms):
            yield

    # -- changes ---------------------------------------------------------------------------

    async def reset(self) -> None:
        """Go on under the same key with a new session; the old one becomes an archive.

        Raises `SessionBusy` while a turn runs on the old one.
        """
        async with self._lane():
            old = self._open
            self._open = await asyncio.to_thread(self._registry.reset, self.key)
        old.session.close()

    async def move_to(self, key: str | None) -> None:
        """Go on under another key; None is a new one of its own."""
        fresh = await asyncio.to_thread(self._registry.open, key or self._registry.new_key())
        self._open.session.close()
        self._open = fresh

    async def use(self, agent: Agent) -> None:
        """Let another model answer from here on; the row remembers the choice."""
        old, self.agent = self.agent, agent
        await asyncio.to_thread(self._registry.note_model, self.key, agent.info)
        await old.model.aclose()

    async def close(self) -> None:
        """Give back the model and the files."""
        self.session.close()
        await self.agent.model.aclose()
