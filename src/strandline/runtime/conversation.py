"""A conversation under one session key: turns in its lane, noted in its row.

This is what a face holds on to: it says something, compacts, goes back, changes the model.
Source: spec 4, A turn; spec 2, Looking.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import replace

from strandline.context.budget import CompactionMode
from strandline.context.compaction import CompactionPlan
from strandline.errors import NothingToAnswer, StrandlineError
from strandline.runtime.agent import Agent
from strandline.runtime.branching import Branched, go_to
from strandline.runtime.compacting import Compactor
from strandline.runtime.delivery import Delivery
from strandline.runtime.events import CompactionReceipt, Listener, nobody
from strandline.runtime.inbound import INBOUND_ID, is_answered, said_before
from strandline.runtime.lanes import DEFAULT_TIMEOUT_MS, lane
from strandline.runtime.registry import OpenSession, SessionRegistry
from strandline.runtime.silence import Occasion, deliverable
from strandline.runtime.turn import TurnResult, context_size, run_turn, user_message
from strandline.runtime.undo import Undone, undo_compaction
from strandline.runtime.upkeep import Upkeep
from strandline.sessions.rows import SessionRow
from strandline.transcript.messages import Message, ThinkingLevel
from strandline.transcript.session import Session

MODES: tuple[CompactionMode, ...] = ("auto", "off", "error")


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
        self._upkeep = self._new_upkeep()

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

    async def say(
        self,
        text: str | Message,
        *,
        listener: Listener = nobody,
        occasion: Occasion | None = None,
        inbound_id: str | None = None,
    ) -> TurnResult:
        """One turn; the result's `reply` is what is to be delivered on this `occasion`.

        A message with an `inbound_id` that the conversation has heard is not said again: it
        is answered if it was not, and refused (`NothingToAnswer`) if it was. Raises what
        `run_turn` raises, and `SessionBusy`. What the conversation needs afterwards, a
        compaction for instance, is done beside what comes next; `settle` waits for it.
        """
        message = user_message(text, self.agent.clock.now_ms()) if isinstance(text, str) else text
        if inbound_id is not None:
            message = {**message, INBOUND_ID: inbound_id}
        async with self._lane():
            if inbound_id is not None and await asyncio.to_thread(
                said_before, self.session, inbound_id
            ):
                return await self._turn(None, listener, occasion)
            return await self._turn(message, listener, occasion)

    async def retry(
        self, *, listener: Listener = nobody, occasion: Occasion | None = None
    ) -> TurnResult:
        """Answer what was said last and got no answer, without saying it again.

        Raises `NothingToAnswer` where it has one.
        """
        async with self._lane():
            return await self._turn(None, listener, occasion)

    async def _turn(
        self, message: Message | None, listener: Listener, occasion: Occasion | None
    ) -> TurnResult:
        occasion = occasion or Occasion()
        if message is None and await asyncio.to_thread(is_answered, self.session):
            raise NothingToAnswer(
                f"what was said last in {self.key} has its answer", remedy="say something new"
            )
        await asyncio.to_thread(self._prepare)
        delivery = Delivery(listener, occasion)
        upkeep = self._upkeep
        try:
            result = await run_turn(
                self.session,
                upkeep.agent,
                message,
                listener=delivery.hear,
                compactor=upkeep.compactor,
                before_compaction=lambda: upkeep.flush_if_due(
                    listener, without=self.session.leaf_id
                ),
                session_key=self.key,
            )
        except BaseException:
            delivery.end()
            with suppress(StrandlineError):  # the first error is the one to tell
                self._registry.note_interruption(self.key, delivery.usages)
            raise
        await asyncio.to_thread(self._registry.note_turn, self.key, result)
        upkeep.compacted |= bool(result.compactions)
        upkeep.start(listener)
        return replace(result, reply=deliverable(result.reply, occasion))

    async def settle(self) -> tuple[CompactionReceipt, ...]:
        """Wait for what is being done after the last turns; what was compacted in it."""
        return await self._upkeep.settle()

    async def compact(
        self, instructions: str | None = None, *, listener: Listener = nobody
    ) -> CompactionReceipt:
        """Compact now. Raises `CompactionRefused` where it would not help."""
        await asyncio.to_thread(self._prepare)
        return await self._upkeep.compact("manual", listener, instructions)

    async def preview_compaction(self, instructions: str | None = None) -> CompactionPlan:
        """What `compact` would do. Changes nothing. Raises `CompactionRefused`."""
        await asyncio.to_thread(self._prepare)
        agent = self._upkeep.agent
        budget = agent.budget()
        return await asyncio.to_thread(self._upkeep.compactor.plan, budget, "manual", instructions)

    async def undo_compaction(self) -> Undone:
        """Stand where the conversation stood before its newest compaction.

        Raises `CompactionRefused` where there is none.
        """
        async with self._lane():
            return await asyncio.to_thread(undo_compaction, self.session)

    async def branch(
        self,
        entry_id: str | None,
        *,
        summarize: bool = False,
        instructions: str | None = None,
        listener: Listener = nobody,
    ) -> Branched:
        """Go to another entry; `summarize` takes a summary of what is left along.

        Raises `EntryNotFound` and `BranchRefused`.
        """
        async with self._lane():
            return await go_to(
                self.session,
                self.agent,
                entry_id,
                summarize=summarize,
                instructions=instructions,
                listener=listener,
            )

    async def context_size(self) -> tuple[int, int]:
        """What the context takes, in the provider's tokens, and the window it has."""
        return await context_size(self.session, self.agent)

    @property
    def compaction_mode(self) -> CompactionMode:
        """The mode that holds here: the session's own, else the agent's."""
        row = self._registry.row(self.key)
        chosen = row.compaction_mode if row else None
        return next((m for m in MODES if m == chosen), self.agent.compaction.effective_mode)

    # -- changes ---------------------------------------------------------------------------

    async def set_compaction_mode(self, mode: CompactionMode | None) -> None:
        """Let this session be compacted otherwise than its agent says; None goes back."""
        note = self._registry.note_choice
        await asyncio.to_thread(lambda: note(self.key, compaction_mode=mode))

    async def set_thinking(self, level: ThinkingLevel) -> None:
        """From here on, models think this hard."""
        async with self._lane():
            await asyncio.to_thread(self.session.append_thinking_level_change, level)
        note = self._registry.note_choice
        await asyncio.to_thread(lambda: note(self.key, thinking_level=level))

    async def set_verbose(self, level: str) -> None:
        """Note whether people want to be told of tools and compactions (``on``, ``off``)."""
        note = self._registry.note_choice
        await asyncio.to_thread(lambda: note(self.key, verbose_level=level))

    async def reset(self) -> None:
        """Go on under the same key with a new session; the old one becomes an archive.

        Raises `SessionBusy` while a turn runs on the old one.
        """
        await self._upkeep.stop()
        async with self._lane():
            old = self._open
            self._open = await asyncio.to_thread(self._registry.reset, self.key)
        old.session.close()
        self._upkeep = self._new_upkeep()

    async def move_to(self, key: str | None) -> None:
        """Go on under another key; None is a new one of its own."""
        fresh = await asyncio.to_thread(self._registry.open, key or self._registry.new_key())
        await self._upkeep.stop()
        self._open.session.close()
        self._open = fresh
        self._upkeep = self._new_upkeep()

    async def use(self, agent: Agent) -> None:
        """Let another model answer from here on; the row remembers the choice."""
        await self._upkeep.stop()
        old, self.agent = self.agent, agent
        self._upkeep = self._new_upkeep()
        await asyncio.to_thread(self._registry.note_model, self.key, agent.info)
        await old.aclose()

    async def close(self) -> None:
        """Give back the models and the files; what is being done after a turn is given up."""
        await self._upkeep.stop()
        self.session.close()
        await self.agent.aclose()

    # -- inside ----------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Before a turn: the session's own mode, and the model and level that hold from here."""
        self._upkeep.use(self._agent_of_now())
        info, context = self.agent.info, self.session.build_context()
        if context.model != {"provider": info.provider, "modelId": info.id}:
            self.session.append_model_change(info.provider, info.id)
        if not context.items and self.agent.thinking not in {"off", context.thinking_level}:
            self.session.append_thinking_level_change(self.agent.thinking)

    def _agent_of_now(self) -> Agent:
        """The agent as it was in the last turn, as far as nothing asks for another."""
        agent = self._upkeep.agent
        if self._upkeep.compacted and agent.renew_prompt is not None:
            # The cache is lost with the compaction; what the workspace says now is free.
            agent = replace(agent, system_prompt=agent.renew_prompt())
        self._upkeep.compacted = False
        if agent.compaction.effective_mode == self.compaction_mode:
            return agent
        mode = replace(agent.compaction, enabled=True, mode=self.compaction_mode)
        return replace(agent, compaction=mode)

    def _new_upkeep(self) -> Upkeep:
        compactor = Compactor(self.session, self.agent)
        return Upkeep(self.key, self.session, self.agent, self._registry, compactor, self._lane)

    def _lane(self) -> AbstractAsyncContextManager[None]:
        return lane(self.session, holder=self._holder, timeout_ms=self._lock_timeout_ms)
