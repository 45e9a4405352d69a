"""Sub-agents: an agent has a task done beside its conversation, in a session of its own.

A spawn is checked first and changes nothing where it is refused. Then the context engine
prepares, the child's session is begun, and its turn runs as a task of this process. When it is
over the engine is told, once, and what came of it is announced in the parent's transcript, in
the parent's lane; then the parent's agent is asked to go on, unless somebody's message was
quicker. Source: spec 3, Engine slot; cases/faults, M5, N2, N3, E1, L8.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial

from strandline.clock import Clock, IdSource
from strandline.context.engine import Rollback, SubagentEnd, SubagentEnded, SubagentSpawn
from strandline.errors import SessionNotFound, SpawnRefused
from strandline.runtime.agent import Agent
from strandline.runtime.announcer import Announcer
from strandline.runtime.announcing import Spawned, note_spawn
from strandline.runtime.child_sessions import Fork, NewChild
from strandline.runtime.engine_host import nothing_wrong
from strandline.runtime.events import Listener, Notice, nobody
from strandline.runtime.family import (
    Child,
    Household,
    Parent,
    SpawnContext,
    SubagentLimits,
    child_key,
    depth_of,
)
from strandline.runtime.finishing import to_the_end
from strandline.runtime.reporting import words
from strandline.runtime.spawn_checks import Wish, check, fork_of, may_spawn
from strandline.runtime.subagent_run import Subagent, SubagentRun
from strandline.runtime.turn_result import TurnResult
from strandline.sessions.keys import check_agent_id

MOST_LISTED = 100
"""As many sub-agents that are over are remembered."""


class Subagents:
    """The sub-agents of one conversation. Close it before the conversation's own files."""

    def __init__(
        self,
        parent: Parent,
        household: Household,
        *,
        clock: Clock,
        ids: IdSource,
        limits: SubagentLimits | None = None,
    ) -> None:
        self._parent = parent
        self._household = household
        self._clock = clock
        self._ids = ids
        self._limits = limits or SubagentLimits()
        self._runs: dict[str, SubagentRun] = {}
        self._announcer = Announcer(parent, household)
        self._unheard = 0
        self._closed = False
        self._gate = asyncio.Lock()

    # -- beginning -------------------------------------------------------------------------

    @property
    def allowed(self) -> bool:
        """Whether this conversation may have any: a child beyond the depth may not."""
        return may_spawn(self._parent.ref().session_key, self._limits)

    def attend(self, listener: Listener | None = None) -> None:
        """A person said something; `listener` hears from now on what announcements lead to."""
        self._announcer.listener = listener or self._announcer.listener
        self._unheard = 0

    async def spawn(
        self,
        task: str,
        *,
        context: SpawnContext = "isolated",
        agent_id: str | None = None,
        model: str | None = None,
        label: str | None = None,
        timeout_ms: int | None = None,
        listener: Listener = nobody,
    ) -> Spawned:
        """Have a task done beside the conversation; returns when that has begun.

        `listener` hears the child's turn. Where this raises, there is no child and the parent
        is as it was: `SpawnRefused` for what is not allowed or too large, `ConfigError` for a
        model that cannot be used, `EngineError` where the engine could not prepare, and what
        the disk makes of it.
        """
        wish = Wish(
            task.strip(),
            " ".join((label or "").split()) or None,
            check_agent_id(agent_id or self._parent.agent().id),
            timeout_ms,
        )
        if self._closed:
            raise SpawnRefused(
                f"{self._parent.ref().session_key} is closed", remedy="open the conversation again"
            )
        check(wish, self._parent, self._limits, len(self._at_work()), self._unheard)
        run = self._reserve(wish, context, listener)
        async with AsyncExitStack() as undo:
            undo.callback(self._runs.pop, run.spawned.key)
            limit = self._limits.fork_tokens
            fork = await fork_of(self._parent, limit) if context == "fork" else None
            agent = await asyncio.to_thread(self._household.agent, wish.agent_id, model)
            undo.push_async_callback(self._harmless, agent.aclose)
            request = SubagentSpawn(run.parent, run.ref, context, run.task)
            await to_the_end(self._prepare(request, undo))
            await to_the_end(self._begin(run, fork, agent, undo, chosen=model is not None))
        return run.spawned

    def _reserve(self, wish: Wish, context: SpawnContext, listener: Listener) -> SubagentRun:
        """A place among those that run; nothing is awaited between the check and this."""
        parent, session_id = self._parent.ref(), self._ids.session_id()
        key = child_key(parent.session_key, wish.agent_id, self._ids.session_id())
        run = SubagentRun(
            spawned=Spawned(key, session_id, self._ids.session_id()),
            agent_id=wish.agent_id,
            parent=parent,
            ref=self._household.sessions(wish.agent_id).ref(key, session_id),
            context=context,
            task=wish.task,
            label=wish.label,
            began_ms=self._clock.now_ms(),
            timeout_ms=wish.timeout_ms or self._limits.timeout_ms,
            listener=listener,
            clock=self._clock,
        )
        self._runs[key] = run
        self._unheard += 1
        return run

    async def _prepare(self, request: SubagentSpawn, undo: AsyncExitStack) -> None:
        """Let the engine prepare; `undo` takes that back. Raises `EngineError`."""
        rollback = await self._parent.agent().engine.ask(
            "prepare_subagent_spawn",
            request.parent.session_key,
            lambda engine: engine.prepare_subagent_spawn(request),
            _wrong_rollback,
        )
        if rollback is not None:
            undo.push_async_callback(self._harmless, rollback)

    async def _begin(
        self,
        run: SubagentRun,
        fork: Fork | None,
        agent: Agent,
        undo: AsyncExitStack,
        *,
        chosen: bool,
    ) -> None:
        """Write the child's session, note it in the parent's, and let the child work.

        Where it raises, `undo` takes everything back.
        """
        sessions, key = self._household.sessions(run.agent_id), run.spawned.key
        new = NewChild(
            run.ref, run.parent, depth_of(key), run.label, agent.info if chosen else None
        )
        async with self._gate:
            if self._closed or self._parent.ref().session_id != run.parent.session_id:
                raise SpawnRefused("the conversation went elsewhere", remedy="spawn it there")
            await asyncio.to_thread(sessions.begin, new, fork)
            undo.push_async_callback(asyncio.to_thread, sessions.take_back, run.ref)
            child = await asyncio.to_thread(self._household.open, run.agent_id, key, agent)
            undo.push_async_callback(self._harmless, child.close)
            forked_at = fork.end if fork is not None else None
            session = self._parent.session()
            run.note = await asyncio.to_thread(
                note_spawn, session, run.spawned, run.label, forked_at
            )
            undo.pop_all()
            run.working = asyncio.create_task(self._live(run, child))
            await run.started.wait()

    async def _harmless(self, work: Callable[[], Awaitable[object]]) -> None:
        """Do what must not stand in the way of something else; its failure is told."""
        try:
            await work()
        except Exception as error:  # noqa: BLE001 - an engine's code, a model's
            self._announcer.listener(Notice(f"after a sub-agent: {words(error)}"))

    # -- living ----------------------------------------------------------------------------

    async def _live(self, run: SubagentRun, child: Child) -> None:
        run.started.set()
        cancelled: asyncio.CancelledError | None = None
        try:
            outcome = await run.work(child)
        except asyncio.CancelledError as error:
            outcome, cancelled = run.outcome("stopped"), error
        try:
            await to_the_end(self._end(run, child))
        except asyncio.CancelledError as error:  # somebody stopped it at its very end
            cancelled = error
        if cancelled is not None and not _forgiven(run):
            raise cancelled
        await self._announcer.announce(run, outcome)

    async def _end(self, run: SubagentRun, child: Child) -> None:
        """Close the child and tell the engine, once, whatever becomes of either."""
        await self._harmless(child.close)
        await self._harmless(partial(self._tell_engine, run))
        run.over.set()
        self._forget_oldest()

    async def _tell_engine(self, run: SubagentRun) -> None:
        there = self._household.sessions(run.agent_id).is_there
        reason: SubagentEnd = "deleted"
        if await asyncio.to_thread(there, run.ref):
            cut_short = run.status in {"stopped", "timeout"}
            reason = run.ending or ("swept" if cut_short else "completed")
        ended = SubagentEnded(run.parent, run.ref, reason)
        await self._parent.agent().engine.ask(
            "on_subagent_ended",
            ended.parent.session_key,
            lambda engine: engine.on_subagent_ended(ended),
            nothing_wrong,
        )

    def _forget_oldest(self) -> None:
        over = [key for key, run in self._runs.items() if run.working and run.working.done()]
        for key in over[:-MOST_LISTED]:
            del self._runs[key]

    async def catch_up(self) -> None:
        """Announce what ended when nobody was there to; the caller holds the lane.

        Done once for a session, before its first turn.
        """
        await self._announcer.catch_up({run.spawned.run_id for run in self._runs.values()})

    # -- looking and ending ----------------------------------------------------------------

    def list(self) -> tuple[Subagent, ...]:
        """Those that run and those that ended lately, the oldest first."""
        return tuple(run.shown() for run in self._runs.values() if run.working is not None)

    async def stop(self, which: str) -> Subagent:
        """Stop one, by its key, the beginning of its UUID or its label; it is announced.

        Returns when it has ended. Raises `SessionNotFound`.
        """
        run = self._find(which)
        await self._cancel([run], "swept")
        await run.over.wait()
        return run.shown()

    def _find(self, which: str) -> SubagentRun:
        found = [
            run
            for run in self._at_work()
            if run.working is not None
            and (
                which in {run.spawned.key, run.label}
                or (which and run.spawned.key.rpartition(":")[2].startswith(which))
            )
        ]
        if len(found) != 1:
            what = f"{len(found)} running sub-agents are" if found else "no running sub-agent is"
            raise SessionNotFound(f"{what} called {which!r}", remedy="/subagents lists them")
        return found[0]

    def _at_work(self) -> Sequence[SubagentRun]:
        """Those that take a place: being begun, or at work."""
        return [run for run in self._runs.values() if not run.over.is_set()]

    async def wait(self) -> tuple[TurnResult, ...]:
        """Wait until none is at work and all is announced; what was answered to that since."""
        while working := self._working():
            await asyncio.wait(working)
        return self._announcer.taken()

    async def release(self) -> None:
        """Give up those that are at work: the conversation goes elsewhere.

        Nothing is announced now; it is when the conversation is opened again.
        """
        async with self._gate:  # what is just being begun has begun then
            runs = [*self._runs.values()]
        await self._cancel(runs, "released")
        if working := self._working():
            await asyncio.wait(working)

    async def close(self) -> None:
        """The same for good."""
        self._closed = True
        await self.release()

    def _working(self) -> set[asyncio.Task[None]]:
        """The tasks that are not done, without the one that asks."""
        tasks = {run.working for run in self._runs.values() if run.working is not None}
        return {task for task in tasks if not task.done()} - {asyncio.current_task()}

    async def _cancel(self, runs: Sequence[SubagentRun], why: SubagentEnd) -> None:
        for run in runs:
            if run.working is None:
                continue
            await run.started.wait()
            if why == "released" or not run.over.is_set():
                run.ending = run.ending or why
                if run.working is not asyncio.current_task():
                    run.working.cancel()


def _forgiven(run: SubagentRun) -> bool:
    """Whether the task goes on after it was cancelled: to tell that the child was stopped."""
    task = asyncio.current_task()
    if run.ending != "swept" or task is None:
        return False
    return task.uncancel() == 0


def _wrong_rollback(answer: Rollback | None) -> str | None:
    """What is wrong with what an engine gave to take its preparation back."""
    return None if answer is None or callable(answer) else "its rollback is no function"
