"""Where a conversation stands: a session, and everything that is remembered of it.

Another session under the same key (a reset, a rotation, another key) is another standing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field, replace

from strandline.context.engine import BootstrapReason, CompactionOutcome
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
from strandline.runtime.turn import TurnMemory
from strandline.runtime.upkeep import Upkeep
from strandline.sessions.keys import SessionKey
from strandline.transcript.messages import Usage
from strandline.transcript.session import Session

MOST_ENTRIES = 100
"""So many of the newest entries are looked through for a compaction that no call has followed."""

Rotate = Callable[[CompactionOutcome], Awaitable[None]]


@dataclass
class Standing:
    """A session that a conversation stands on, for `agent`, which has tokens of its own."""

    at: OpenSession
    agent: Agent
    heard: Heard
    memory: TurnMemory
    upkeep: Upkeep
    _notes: set[asyncio.Task[None]] = field(default_factory=set)
    _kept: KeptPrompt | None = None
    _has_settled: bool = False

    @property
    def session(self) -> Session:
        """The transcript."""
        return self.at.session

    @property
    def engine(self) -> EngineSession:
        """The context engine on the session."""
        return self.memory.assembling.engine

    async def noted(self) -> None:
        """Wait until what was used beside the turns is noted in the row."""
        if self._notes:
            await asyncio.wait([*self._notes])

    def move_to(self, successor: OpenSession) -> None:
        """Go on in another transcript of the same conversation."""
        self.agent.tokens.forget()  # it may have other messages under the same ids
        self.at = self.upkeep.at = successor
        self.heard = Heard(successor.session)
        self.memory.move_to(successor.session)

    def settle_prompt(self) -> None:
        """Go on with the system prompt that the provider's cache knows, while it does.

        A prompt that a session was given is kept until the cache is lost anyway, beyond this
        process too: one that another has kept is looked for once, before the first turn. After
        a compaction a prompt is made anew, but not once more where a turn has done so already.
        """
        upkeep = self.upkeep
        # A turn that compacts goes on with a prompt of its own making.
        prompt = self.memory.assembling.agent.system_prompt
        if prompt != upkeep.agent.system_prompt:
            upkeep.agent = replace(upkeep.agent, system_prompt=prompt)
        if upkeep.compacted and upkeep.agent.engine.is_legacy:
            upkeep.compacted = self._is_compacted()
        prompts, agent = self.agent.prompts, upkeep.agent
        if self._has_settled or prompts is None:
            return
        self._has_settled = True
        with suppress(StrandlineError):  # without it the prompt is the one of now
            kept = prompts.read(self.at.row.session_id, agent.info.ref)
            holds = kept is not None and kept.settings == agent.prompt_settings
            if kept is not None and holds and self._is_warm() and not self._is_compacted():
                upkeep.agent = replace(agent, system_prompt=kept.text)
                self._kept = kept

    def keep_prompt(self) -> None:
        """Keep the system prompt of now for whoever resumes the session."""
        prompts, agent = self.agent.prompts, self.memory.assembling.agent
        now = KeptPrompt(agent.info.ref, agent.system_prompt, agent.prompt_settings)
        if prompts is not None and now != self._kept:
            with suppress(StrandlineError):  # a cache may be lost then, no more
                prompts.keep(self.at.row.session_id, now)
                self._kept = now

    def _is_warm(self) -> bool:
        agent, items = self.upkeep.agent, self.session.build_context().items
        models = {backend.info.ref for backend in agent.backends}
        return is_warm(items, models, agent.clock.now_ms(), agent.policy.cache_lifetime_ms)

    def _is_compacted(self) -> bool:
        return is_compacted(self.session.newest_entries(MOST_ENTRIES))


def chat_type_of(at: OpenSession) -> str:
    """What kind of chat a session is: its row says it, else its key."""
    if at.row.chat_type is not None:
        return at.row.chat_type
    kind = SessionKey.parse(at.key).kind
    return kind if kind in {"group", "channel", "room"} else "direct"


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
    memory = TurnMemory(Assembling(at.session, own, engine, spent), compactor)
    upkeep = Upkeep(at, own, registry, lambda: lane(upkeep.at.session), memory, receipts)
    return Standing(at, own, Heard(at.session), memory, upkeep, notes)


async def _noted(registry: SessionRegistry, at: OpenSession, usage: Usage) -> None:
    with suppress(StrandlineError):  # a statistic
        await asyncio.to_thread(registry.note_usage, at, usage)
