"""Where a conversation stands: a session, and everything that is remembered of it.

Another session under the same key (a reset, a rotation, another key) is another standing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field, replace

from strandline.context.budget import CompactionMode
from strandline.context.engine import BootstrapReason
from strandline.context.tokens import MessageTokens
from strandline.errors import StrandlineError
from strandline.runtime.agent import Agent
from strandline.runtime.assembling import Assembling
from strandline.runtime.compacting import Compactor
from strandline.runtime.engine_session import EngineSession
from strandline.runtime.events import CompactionReceipt
from strandline.runtime.inbound import Heard
from strandline.runtime.kept_prompts import KeptPrompt, is_compacted, is_warm
from strandline.runtime.registry import OpenSession, SessionRegistry
from strandline.runtime.rotation import Rotate
from strandline.runtime.turn_memory import TurnMemory
from strandline.runtime.upkeep import Upkeep
from strandline.sessions.keys import SessionKey
from strandline.sessions.rows import SessionRow
from strandline.transcript.messages import THINKING_LEVELS, Usage
from strandline.transcript.session import Session

MODES: tuple[CompactionMode, ...] = ("auto", "off", "error")

MOST_ENTRIES = 100
"""So many of the newest entries are looked through for a compaction that no call has followed."""


@dataclass
class Standing:
    """A session that a conversation stands on, for `agent`, which has tokens of its own.

    The agent is as the conversation has it; that of `memory` has the session's mode and prompt.
    """

    agent: Agent
    heard: Heard
    memory: TurnMemory
    upkeep: Upkeep
    _notes: set[asyncio.Task[None]] = field(default_factory=set)
    _kept: KeptPrompt | None = None
    _has_settled: bool = False

    @property
    def at(self) -> OpenSession:
        """The session, its key and its row."""
        return self.upkeep.at

    @property
    def session(self) -> Session:
        """The transcript."""
        return self.at.session

    @property
    def engine(self) -> EngineSession:
        """The context engine on the session."""
        return self.memory.engine

    async def stop(self) -> None:
        """Give up what is done beside the turns; what it used by now is noted."""
        await self.upkeep.stop()
        await self.noted()

    async def noted(self) -> None:
        """Wait until what was used beside the turns is noted in the row."""
        if self._notes:
            await asyncio.wait([*self._notes])

    def move_to(self, successor: OpenSession) -> None:
        """Go on in another transcript of the same conversation."""
        self.agent.tokens.forget()  # it may have other messages under the same ids
        self.upkeep.at = successor
        self.heard = Heard(successor.session)
        self.memory.move_to(successor.session)

    def prepare(self, row: SessionRow | None) -> str | None:
        """Before a turn: note the model and the level of thinking that hold from here on.

        Returns the entry of the newest message.
        """
        self.set_up(row)
        info, context = self.agent.info, self.session.build_context()
        if context.model != {"provider": info.provider, "modelId": info.id}:
            self.session.append_model_change(info.provider, info.id)
        if context.items:
            return context.items[-1].entry_id
        chosen = row.thinking_level if row else None
        usual = self.agent.thinking if info.reasoning else None
        level = next((each for each in THINKING_LEVELS if each == chosen), usual)
        if level is not None and level != context.thinking_level:
            self.session.append_thinking_level_change(level)
        return None

    def set_up(self, row: SessionRow | None) -> None:
        """Let the agent be as its row, its kept prompt and the newest compaction want it."""
        self._settle_prompt()
        self.upkeep.set_up(compaction_mode_of(row, self.agent))

    def _settle_prompt(self) -> None:
        """Go on with the system prompt that the provider's cache knows, while it does.

        A prompt that a session was given is kept until the cache is lost anyway, beyond this
        process too: one that another has kept is looked for once, before the first turn. After
        a compaction a prompt is made anew, but not once more where a turn has done so already.
        """
        upkeep, agent, prompts = self.upkeep, self.memory.agent, self.agent.prompts
        if upkeep.compacted and agent.engine.is_legacy:
            upkeep.compacted = self._is_compacted()
        if self._has_settled or prompts is None:
            return
        self._has_settled = True
        with suppress(StrandlineError):  # without it the prompt is the one of now
            kept = prompts.read(self.at.row.session_id, agent.info.ref)
            if kept is None or not self._is_warm():
                return
            if agent.engine.is_legacy:  # another may have put something before it
                self.memory.watch.resumed(kept.text, kept.tools)
            if kept.settings == agent.prompt_settings and not self._is_compacted():
                self.memory.set_up(replace(agent, system_prompt=kept.text))
                self._kept = kept

    def keep_prompt(self) -> None:
        """Keep the system prompt of now for whoever resumes the session."""
        prompts, agent = self.agent.prompts, self.memory.agent
        now = KeptPrompt(
            agent.info.ref, agent.system_prompt, agent.prompt_settings, (*agent.described_tools,)
        )
        if prompts is not None and now != self._kept:
            with suppress(StrandlineError):  # a cache may be lost then, no more
                prompts.keep(self.at.row.session_id, now)
                self._kept = now

    def _is_warm(self) -> bool:
        agent, items = self.memory.agent, self.session.build_context().items
        models = {backend.info.ref for backend in agent.backends}
        return is_warm(items, models, agent.clock.now_ms(), agent.policy.cache_lifetime_ms)

    def _is_compacted(self) -> bool:
        return is_compacted(self.session.newest_entries(MOST_ENTRIES))


def compaction_mode_of(row: SessionRow | None, agent: Agent) -> CompactionMode:
    """The mode that holds for a session: its own, else the agent's."""
    chosen = row.compaction_mode if row else None
    return next((mode for mode in MODES if mode == chosen), agent.compaction.effective_mode)


def chat_type_of(at: OpenSession) -> str:
    """What kind of chat a session is: its row says it, else its key.

    A thread says of what: ``channel/thread``.
    """
    key = SessionKey.parse(at.key)
    kind = at.row.chat_type
    if kind is None:
        kind = key.kind if key.kind in {"group", "channel", "room"} else "direct"
    return f"{kind}/thread" if key.is_thread else kind


def stand_on(
    at: OpenSession,
    agent: Agent,
    registry: SessionRegistry,
    lane: Callable[[Session], AbstractAsyncContextManager[None]],
    receipts: deque[CompactionReceipt],
    *,
    reason: BootstrapReason,
    rotate: Rotate,
) -> Standing:
    """Stand on a session that was opened."""
    policy = agent.policy_for(chat_type_of(at)) if agent.policy_for else agent.policy
    # Counts are kept by entry, and another session may have an entry of the same id.
    own = replace(agent, tokens=MessageTokens(agent.tokens.counter), policy=policy)
    notes: set[asyncio.Task[None]] = set()

    def spent(usage: Usage) -> None:
        """Note what a call beside the turns used; no turn waits for it."""
        note = asyncio.create_task(_noted(registry, upkeep.at, usage))
        notes.add(note)
        note.add_done_callback(notes.discard)

    compactor = Compactor(at.session, own)
    engine = EngineSession(at.session, own, compactor, at.key, reason, spent, rotate)
    memory = TurnMemory(Assembling(engine), compactor)
    upkeep = Upkeep(at, registry, lambda: lane(upkeep.at.session), memory, receipts)
    return Standing(own, Heard(at.session), memory, upkeep, notes)


async def _noted(registry: SessionRegistry, at: OpenSession, usage: Usage) -> None:
    with suppress(StrandlineError):  # a statistic
        await asyncio.to_thread(registry.note_usage, at, usage)
