"""Who announces what came of sub-agents, and has their parent's agent go on.

An announcement waits for the parent's lane, however long its turns take, so that it never
comes between the parts of one. What a process left behind is announced by the next one.
Source: cases/faults, E1, M5.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from functools import partial
from typing import TypeVar

from strandline.errors import NothingToAnswer, SessionBusy, StrandlineError
from strandline.runtime.announcing import Outcome, SpawnNote, announce, open_spawns
from strandline.runtime.events import Listener, Notice, nobody
from strandline.runtime.family import Household, Parent
from strandline.runtime.finishing import to_the_end
from strandline.runtime.silence import deliverable
from strandline.runtime.subagent_run import BACKGROUND, SubagentRun
from strandline.runtime.turn_result import TurnResult
from strandline.sessions.keys import SessionKey
from strandline.transcript.session import Session

MOST_CAUGHT_UP = 8
"""As many that were left behind are looked at when a conversation is opened."""

MOST_ANSWERS = 100
"""As many answers to announcements wait for whoever asks for them."""

POLL_S = 0.1
PATIENCE_S = 3600.0
"""As long an announcement waits for the turns of its parent; later it is made at the next one."""

Got = TypeVar("Got")


class Announcer:
    """Announces in the transcript of `parent`; `listener` hears what its agent says to that."""

    def __init__(self, parent: Parent, household: Household) -> None:
        self._parent = parent
        self._household = household
        self.listener: Listener = nobody
        self._answers: list[TurnResult] = []
        self._caught_up: str | None = None

    def taken(self) -> tuple[TurnResult, ...]:
        """What was answered to announcements since somebody asked last."""
        answers = tuple(self._answers)
        self._answers.clear()
        return answers

    async def announce(self, run: SubagentRun, outcome: Outcome) -> None:
        """Say what came of a run, and let the parent's agent answer that."""
        try:
            if await self._patiently(lambda: self._append(run, outcome)):
                await self._patiently(self._go_on)
        except NothingToAnswer:
            pass  # somebody's message came first, and its answer has seen the announcement
        except StrandlineError as error:
            self.listener(Notice(f"after the sub-agent {run.spawned.key}: {error}"))

    async def _append(self, run: SubagentRun, outcome: Outcome) -> bool:
        """Say it in the parent's transcript; whether its agent is to answer."""
        async with self._parent.lane():
            if run.note is None or run.ending == "released":
                return False  # the key has another session by now, which this is none of
            moved = self._parent.ref().session_id != run.parent.session_id
            work = partial(announce, self._parent.session(), run.note, outcome, moved=moved)
            return await to_the_end(asyncio.to_thread(work))

    async def _go_on(self) -> None:
        answer = await self._parent.go_on(self.listener)
        self._answers = [*self._answers, answer][-MOST_ANSWERS:]

    async def _patiently(self, work: Callable[[], Awaitable[Got]]) -> Got:
        """Do it when the parent's lane is free."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE_S
        while True:
            try:
                return await work()
            except SessionBusy:
                if loop.time() > deadline:
                    raise
                await asyncio.sleep(POLL_S)

    async def catch_up(self, known: Collection[str]) -> None:
        """Announce what ended when nobody was there to; the caller holds the lane.

        Done once for a session. `known` are the runs of this process. What runs elsewhere is
        left to whoever runs it.
        """
        session, ref = self._parent.session(), self._parent.ref()
        if self._caught_up != ref.session_id:
            self._caught_up = ref.session_id
            work = asyncio.to_thread(self._catch_up, session, ref.session_key, known)
            await to_the_end(work)

    def _catch_up(self, session: Session, parent_key: str, known: Collection[str]) -> None:
        left = [note for note in open_spawns(session) if note.spawned.run_id not in known]
        for note in left[-MOST_CAUGHT_UP:]:
            with suppress(StrandlineError):  # it stays where it is, and is looked at again
                outcome = self._found(note, parent_key)
                if outcome is not None:
                    announce(session, note, outcome)

    def _found(self, note: SpawnNote, parent_key: str) -> Outcome | None:
        """What came of a sub-agent of an earlier process, as far as its transcript says."""
        agent_id = SessionKey.parse(note.spawned.key).agent_id
        sessions = self._household.sessions(agent_id or self._parent.agent().id)
        ref = sessions.ref(note.spawned.key, note.spawned.session_id)
        found = sessions.look(ref, parent_key, note.forked_at)
        if found is None or found.running:
            return None
        if found.reply is None:
            return Outcome("interrupted")
        return Outcome("completed", deliverable(found.reply, BACKGROUND))
