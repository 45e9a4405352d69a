"""A conversation under one session key: turns in its lane, noted in its row.

This is what a face holds on to: it says something, compacts, goes back, changes the model.
Source: spec 4, A turn; spec 2, Looking.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace

from strandline.context.budget import CompactionMode
from strandline.context.compaction import CompactionPlan
from strandline.context.engine import BootstrapReason, SessionRef
from strandline.errors import NothingToAnswer, StrandlineError
from strandline.runtime.agent import Agent
from strandline.runtime.branching import Branched, go_to
from strandline.runtime.delivery import Delivery
from strandline.runtime.engine_host import EngineHost
from strandline.runtime.events import CacheUsed, CompactionReceipt, Listener, Notice, nobody
from strandline.runtime.family import Parent
from strandline.runtime.finishing import to_the_end
from strandline.runtime.fitting import Fitting
from strandline.runtime.inbound import HEARTBEAT, INBOUND_ID, is_answered
from strandline.runtime.lanes import DEFAULT_TIMEOUT_MS
from strandline.runtime.path_news import newest_before_request
from strandline.runtime.registry import SessionRegistry
from strandline.runtime.seat import Seat
from strandline.runtime.silence import Occasion, deliverable
from strandline.runtime.standing import Standing, compaction_mode_of
from strandline.runtime.subagents import Subagents
from strandline.runtime.tools import Tool
from strandline.runtime.turn import Turn, user_message
from strandline.runtime.turn_result import TurnResult
from strandline.runtime.undo import Undone, undo_compaction
from strandline.sessions.rows import SessionRow
from strandline.transcript.messages import Message, ThinkingLevel
from strandline.transcript.session import Session

Raise = Callable[[Parent], tuple[Subagents, Sequence[Tool]]]
"""Gives a conversation its sub-agents, and the tools for them."""


class Conversation:
    """An agent and the session that a key writes to now.

    What is asked of one conversation at the same time is done in the order in which it came.
    `holder` is what others are told while a turn runs, `reason` why the session is new to the
    context engine. Close it when done.
    """

    def __init__(
        self,
        registry: SessionRegistry,
        agent: Agent,
        key: str,
        *,
        holder: str,
        lock_timeout_ms: int = DEFAULT_TIMEOUT_MS,
        children: Raise | None = None,
        reason: BootstrapReason = "opened",
    ) -> None:
        self._registry = registry
        self.subagents: Subagents | None = None
        self._own_tools: Sequence[Tool] = ()
        if children is not None:
            self.subagents, self._own_tools = children(self._as_parent())
        self._seat = Seat(
            registry,
            self._equipped(agent),
            key,
            holder=holder,
            lock_timeout_ms=lock_timeout_ms,
            leaving=self._release_subagents,
            reason=reason,
        )
        self._host: EngineHost | None = agent.engine.take()  # None once it is given back

    @property
    def agent(self) -> Agent:
        """Who answers."""
        return self._standing.agent

    @property
    def _standing(self) -> Standing:
        return self._seat.standing

    @property
    def key(self) -> str:
        """The session key."""
        return self._standing.at.key

    @property
    def session(self) -> Session:
        """The transcript that the key writes to now."""
        return self._standing.session

    @property
    def session_id(self) -> str:
        """The id of that transcript."""
        return self._standing.at.row.session_id

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
        if occasion is not None and occasion.heartbeat:
            message = {**message, HEARTBEAT: True}
        if self.subagents is not None and not (occasion and occasion.background):
            self.subagents.attend()
        async with self._seat.lane():
            if inbound_id is not None and await asyncio.to_thread(
                self._standing.heard.said_before, inbound_id
            ):
                return await self._turn(None, listener, occasion)
            return await self._turn(message, listener, occasion)

    async def retry(
        self, *, listener: Listener = nobody, occasion: Occasion | None = None
    ) -> TurnResult:
        """Answer what was said last and got no answer, without saying it again.

        Raises `NothingToAnswer` where it has one.
        """
        async with self._seat.lane():
            return await self._turn(None, listener, occasion)

    async def _turn(
        self, message: Message | None, listener: Listener, occasion: Occasion | None
    ) -> TurnResult:
        occasion = occasion or Occasion()
        if message is None and await asyncio.to_thread(is_answered, self.session):
            raise NothingToAnswer(
                f"what was said last in {self.key} has its answer", remedy="say something new"
            )
        if self.subagents is not None:
            await self.subagents.catch_up()
        newest_before = await to_the_end(asyncio.to_thread(self._prepare))
        delivery, session = Delivery(listener, occasion), self.session
        result = await self._answered(message, delivery)
        if self.session is not session:  # an engine has moved it: its entries are others
            newest_before = await asyncio.to_thread(newest_before_request, self.session)
        upkeep = self._standing.upkeep
        await upkeep.after_turn(listener, newest_before)
        upkeep.start(listener)
        delivery.finish()
        return replace(result, reply=deliverable(result.reply, occasion))

    async def _answered(self, message: Message | None, delivery: Delivery) -> TurnResult:
        """Have the turn done and note in the row what it did, however it ends."""
        upkeep, listener = self._standing.upkeep, delivery.listener
        turn = Turn(self._standing.memory, delivery.hear, lambda: upkeep.flush_if_due(listener))
        try:
            result = await turn.run(message)
        except BaseException:
            await to_the_end(asyncio.to_thread(self._note_interruption, delivery))
            raise
        finally:
            upkeep.compacted |= bool(delivery.compactions)
        try:
            await to_the_end(asyncio.to_thread(self._note_turn, result, delivery))
        except StrandlineError as error:  # the answer is there: nobody is to ask again
            listener(Notice(f"the turn was not noted in the session's row: {error}"))
        return result

    def _note_turn(self, result: TurnResult, delivery: Delivery) -> None:
        self._standing.keep_prompt()
        self._registry.note_turn(self._standing.at, result, delivery.usages)

    def _note_interruption(self, delivery: Delivery) -> None:
        with suppress(StrandlineError):  # the error of the turn is the one to tell
            self._registry.note_interruption(
                self._standing.at, delivery.usages, delivery.compactions
            )

    async def settle(self) -> tuple[CompactionReceipt, ...]:
        """Wait for what is being done after the last turns; what was compacted in it."""
        if self.subagents is not None:
            await self.subagents.wait()
        receipts = await self._standing.upkeep.settle()
        await self._standing.noted()
        return receipts

    async def compact(
        self, instructions: str | None = None, *, listener: Listener = nobody
    ) -> CompactionReceipt | None:
        """Compact now, or join the compaction that is being made (not with `instructions`).

        None where a context engine made its own things smaller. Raises `CompactionRefused`
        where it would not help, `SessionBusy` and `EngineError`.
        """
        async with self._seat.lane():
            await asyncio.to_thread(self._set_up)
        return await self._standing.upkeep.compact(listener, instructions)

    async def preview_compaction(self, instructions: str | None = None) -> CompactionPlan:
        """What `compact` would do. Changes nothing. Raises `CompactionRefused`."""
        await asyncio.to_thread(self.session.refresh)
        await asyncio.to_thread(self._set_up)
        return await self._standing.upkeep.plan(instructions)

    async def undo_compaction(self) -> Undone:
        """Stand where the conversation stood before its newest compaction.

        Raises `CompactionRefused` where there is none.
        """
        async with self._seat.lane():
            undone = await to_the_end(asyncio.to_thread(undo_compaction, self.session))
            await self._note_size()
            return undone

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
        async with self._seat.lane():
            gone = await go_to(
                self.session,
                self.agent,
                entry_id,
                summarize=summarize,
                instructions=instructions,
                listener=listener,
            )
            if gone.summary is not None:
                note = self._registry.note_usage
                await asyncio.to_thread(note, self._standing.at, gone.summary.usage)
            await self._note_size()
            return gone

    async def context_size(self) -> tuple[int, int]:
        """What the context takes, in the provider's tokens, and the window it has."""
        await asyncio.to_thread(self.session.refresh)
        standing = self._standing
        return await Fitting.of_first(standing.memory, standing.upkeep.lane).size()

    @property
    def cache_used(self) -> CacheUsed | None:
        """What the provider's cache did for the last answer; None where nothing is known."""
        return self._standing.memory.watch.used

    @property
    def compaction_mode(self) -> CompactionMode:
        """The mode that holds here: the session's own, else the agent's."""
        return compaction_mode_of(self._registry.row(self.key), self.agent)

    # -- changes ---------------------------------------------------------------------------

    async def set_compaction_mode(self, mode: CompactionMode | None) -> None:
        """Let this session be compacted otherwise than its agent says; None goes back."""
        await self._choose(compaction_mode=mode)

    async def set_thinking(self, level: ThinkingLevel) -> None:
        """From here on, models think this hard."""
        async with self._seat.lane():
            append = self.session.append_thinking_level_change
            await to_the_end(asyncio.to_thread(append, level))
        await self._choose(thinking_level=level)

    async def set_verbose(self, level: str) -> None:
        """Note whether people want to be told of tools and compactions (``on``, ``off``)."""
        await self._choose(verbose_level=level)

    async def _choose(self, **choices: str | None) -> None:
        note = self._registry.note_choice
        await asyncio.to_thread(lambda: note(self._standing.at, **choices))

    async def reset(self) -> None:
        """Go on under the same key with a new session; the old one becomes an archive.

        Raises `SessionBusy` while a turn runs on the old one.
        """
        async with self._seat.lane():
            await self._seat.leave(await asyncio.to_thread(self._registry.reset, self.key), "reset")

    async def move_to(self, key: str | None) -> None:
        """Go on under another key; None is a new one of its own."""
        async with self._seat.in_line():
            there = key or self._registry.new_key()
            await self._seat.leave(await asyncio.to_thread(self._registry.open, there))

    async def use(self, agent: Agent) -> None:
        """Let another model answer from here on; the row remembers the choice.

        A compaction that is being made is given up: the old model may be writing it.
        """
        async with self._seat.in_line():
            agent.engine.check(agent.info)
            before = self._standing
            await before.stop()
            host, self._host = self._host, agent.engine.take()
            self._seat.stand_on(before.at, self._equipped(agent), "opened")
            self._standing.engine.go_on_from(before.engine)
            try:
                await asyncio.to_thread(self._registry.note_model, before.at, agent.info)
            finally:
                await before.agent.aclose()
                await self._release(host)

    async def close(self, listener: Listener = nobody) -> None:
        """Give back the models and the files; what is being done after a turn is given up.

        `listener` hears where the engine could not be disposed of.
        """
        async with AsyncExitStack() as rest:  # each of it, whatever becomes of the others
            host, self._host = self._host, None
            rest.push_async_callback(self._release, host, listener)
            rest.push_async_callback(self.agent.aclose)
            rest.callback(self.session.close)
            rest.push_async_callback(self._standing.stop)
            if self.subagents is not None:
                await self.subagents.close()

    async def _release(self, host: EngineHost | None, listener: Listener = nobody) -> None:
        failed = await host.release() if host is not None else None
        if failed is not None:
            listener(Notice(str(failed)))

    # -- inside ----------------------------------------------------------------------------

    def _prepare(self) -> str | None:
        return self._standing.prepare(self._registry.row(self.key))

    def _set_up(self) -> None:
        self._standing.set_up(self._registry.row(self.key))

    async def _note_size(self) -> None:
        """Note in the row what the context takes now: it is not what it was."""
        with suppress(StrandlineError):  # a statistic
            size, _ = await Fitting.of_first(self._standing.memory).size()
            await asyncio.to_thread(self._registry.note_size, self._standing.at, size)

    def _as_parent(self) -> Parent:
        return Parent(
            ref=lambda: SessionRef(self.session_id, self.key, self.session.log_name),
            session=lambda: self.session,
            agent=lambda: self.agent,
            lane=lambda: self._seat.lane(),  # noqa: PLW0108 - the seat comes after this
            go_on=lambda heard: self.retry(listener=heard, occasion=Occasion(background=True)),
        )

    async def _release_subagents(self) -> None:
        if self.subagents is not None:
            await self.subagents.release()

    def _equipped(self, agent: Agent) -> Agent:
        """The agent with the tools that belong to this conversation."""
        if not self._own_tools:
            return agent
        return replace(agent, toolbox=agent.toolbox.plus(self._own_tools))
