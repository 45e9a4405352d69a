"""One sub-agent at work: the task that it is given, its turn, what comes of it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from strandline.clock import Clock
from strandline.context.engine import SessionRef, SubagentEnd
from strandline.errors import StrandlineError
from strandline.runtime.announcing import Outcome, RunStatus, Spawned, SpawnNote
from strandline.runtime.child_sessions import last_reply
from strandline.runtime.events import (
    AnswerBroken,
    AnswerKept,
    Listener,
    ReplyDiscarded,
    TurnEvent,
)
from strandline.runtime.family import Child, SpawnContext
from strandline.runtime.reporting import report, words
from strandline.runtime.silence import Occasion, deliverable
from strandline.runtime.spending import usage_sum, usages_of
from strandline.transcript.messages import Message, Usage

BACKGROUND = Occasion(background=True)


@dataclass(frozen=True, slots=True)
class Subagent:
    """A sub-agent as it is now. Times are Unix ms."""

    spawned: Spawned
    context: SpawnContext
    task: str
    label: str | None
    status: RunStatus
    began_ms: int
    ended_ms: int | None


@dataclass(eq=False)
class SubagentRun:
    """A sub-agent from its reservation on.

    `parent` and `ref` are its parent's session and its own. `ending` says why it is being
    stopped, None where nobody stops it. `started` is set when its task runs, `over` when it
    has ended and the engine was told.
    """

    spawned: Spawned
    agent_id: str
    parent: SessionRef
    ref: SessionRef
    context: SpawnContext
    task: str
    label: str | None
    began_ms: int
    timeout_ms: int
    listener: Listener
    clock: Clock
    status: RunStatus = "running"
    ended_ms: int | None = None
    ending: SubagentEnd | None = None
    usage: Usage | None = None
    note: SpawnNote | None = None
    working: asyncio.Task[None] | None = None
    started: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)

    def shown(self) -> Subagent:
        """It, for a list."""
        return Subagent(
            self.spawned,
            self.context,
            self.task,
            self.label,
            self.status,
            self.began_ms,
            self.ended_ms,
        )

    async def work(self, child: Child) -> Outcome:
        """Have the task done. Raises only cancellation."""
        limit = asyncio.timeout(self.timeout_ms / 1000)
        try:
            async with limit:
                reply = await self._reply(child)
        except TimeoutError as error:
            if not limit.expired():
                return self.outcome("failed", problem=words(error))
            return self.outcome("timeout")
        except StrandlineError as error:
            return self.outcome("failed", problem=str(error))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the child that failed
            report(f"the sub-agent {self.spawned.key} failed", error)
            return self.outcome("failed", problem=words(error))
        return self.outcome("completed", reply=reply)

    def outcome(self, status: RunStatus, *, reply: str = "", problem: str = "") -> Outcome:
        """What came of it, as it stands now."""
        self.status, self.ended_ms = status, self.clock.now_ms()
        return Outcome(status, reply, problem, self.ended_ms - self.began_ms, self.usage)

    async def _reply(self, child: Child) -> str:
        """What is to be announced of its answer; nothing where it is silent.

        What its own sub-agents announce it answers too; silence on that takes nothing back.
        """
        message = task_message(self)
        result = await child.say(message, listener=self._hear, occasion=BACKGROUND)
        await child.settle()
        forked_at = self.note.forked_at if self.note else None
        last = await asyncio.to_thread(last_reply, child.session, forked_at)
        return deliverable(last or "", BACKGROUND) or result.reply

    def _hear(self, event: TurnEvent) -> None:
        """Add up what calls used; pass everything on."""
        match event:
            case AnswerKept(message) | AnswerBroken(message):
                for usage in usages_of([message]):
                    self.usage = usage_sum(self.usage, usage)
            case ReplyDiscarded(usage):
                self.usage = usage_sum(self.usage, usage)
        self.listener(event)


def task_message(run: SubagentRun) -> Message:
    """The task as the child reads it: who asks, and that no person wrote it.

    `provenance` is what OpenClaw calls what came from another session.
    """
    who = f"another agent, in the session {run.parent.session_key}"
    above = " What is above is a copy of that conversation." if run.context == "fork" else ""
    frame = (
        f"[A task from {who}; no person wrote it.{above} "
        "Do this task and nothing else. Your last answer is all that is passed on.]"
    )
    return {
        "role": "user",
        "content": [{"type": "text", "text": frame}, {"type": "text", "text": run.task}],
        "timestamp": run.began_ms,
        "provenance": {
            "kind": "inter_session",
            "sourceSessionKey": run.parent.session_key,
            "sourceSessionId": run.parent.session_id,
            "runId": run.spawned.run_id,
        },
    }
