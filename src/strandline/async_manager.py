"""`AsyncSessionManager`: a session for code that must not block its event loop.

Each call runs the method of the same name of a `SessionManager` in a worker thread, so a
durable append waits for the disk without holding up anybody else. Calls on one session
run one after another, in the order in which they were made; calls on different sessions
run side by side.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from types import TracebackType
from typing import ParamSpec, Self, TypeVar

from strandline.manager import SessionManager
from strandline.transcript.context import SessionContext
from strandline.transcript.messages import Message

P = ParamSpec("P")
T = TypeVar("T")


class AsyncSessionManager:
    """The asynchronous twin of `SessionManager`; `session` is the other one.

    Everything that this class does not name is reached with `call`:
    ``await twin.call(twin.session.append_label, entry_id, "start")``.
    """

    def __init__(self, session: SessionManager, *, executor: Executor | None = None) -> None:
        self.session = session
        self._executor = executor
        self._turn = asyncio.Lock()  # first come, first served

    @classmethod
    async def open(cls, path: str, *, cache_dir: str | None = None) -> Self:
        """Open a transcript file; see `SessionManager.open`."""
        return cls(await asyncio.to_thread(SessionManager.open, path, cache_dir=cache_dir))

    @classmethod
    async def create(cls, *, session_dir: str, cwd: str | None = None) -> Self:
        """Start a new session; see `SessionManager.create`."""
        create = SessionManager.create
        return cls(await asyncio.to_thread(create, session_dir=session_dir, cwd=cwd))

    async def call(self, method: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a method of the session in a worker thread and return what it returns."""
        loop = asyncio.get_running_loop()
        async with self._turn:
            return await loop.run_in_executor(self._executor, lambda: method(*args, **kwargs))

    async def append_message(self, message: Message) -> str:
        """Append a message; returns its entry's id once it is acknowledged."""
        return await self.call(self.session.append_message, message)

    async def append_compaction(
        self, summary: str, first_kept_entry_id: str, tokens_before: int
    ) -> str:
        """Append a compaction; see `Session.append_compaction`."""
        append = self.session.append_compaction
        return await self.call(append, summary, first_kept_entry_id, tokens_before)

    async def branch(self, entry_id: str) -> str:
        """Stand at an earlier entry; see `Session.branch`."""
        return await self.call(self.session.branch, entry_id)

    async def build_context(self, leaf_id: str | None = None) -> SessionContext:
        """What a model would see of the path to the leaf; see `Session.build_context`."""
        return await self.call(self.session.build_context, leaf_id)

    async def close(self) -> None:
        """Give back open files."""
        await self.call(self.session.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
