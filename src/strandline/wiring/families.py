"""The sub-agents that conversations of a state directory may have."""
# ruff: noqa: PLC0415 - what is picked is imported when it is picked

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from strandline.clock import Clock, IdSource

if TYPE_CHECKING:
    from strandline.runtime.agent import Agent
    from strandline.runtime.child_sessions import ChildSessions
    from strandline.runtime.conversation import Conversation
    from strandline.runtime.family import Parent
    from strandline.runtime.subagents import Subagents
    from strandline.runtime.tools import Tool
    from strandline.settings.model import Settings
    from strandline.stores.jsonl import JsonlStore
    from strandline.stores.rows_file import RowsFile


class Opened(Protocol):
    """What is needed of a state directory (`strandline.wiring.State`)."""

    @property
    def settings(self) -> Settings: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def ids(self) -> IdSource: ...
    def cwd(self, agent_id: str) -> str: ...
    def sessions_folder(self, agent_id: str) -> Path: ...
    def rows(self, agent_id: str) -> RowsFile: ...
    def transcripts(self, agent_id: str) -> JsonlStore: ...
    def agent(self, agent_id: str, model_ref: str | None = None) -> Agent: ...


@dataclass(frozen=True)
class Families:
    """Gives conversations their sub-agents; `open_child` opens the conversation of one."""

    state: Opened
    open_child: Callable[[str, str, Agent], Conversation]

    def of(self, agent_id: str, key: str) -> Callable[[Parent], tuple[Subagents, Sequence[Tool]]]:
        """The sub-agents of a conversation, with the tool to spawn them where it is offered."""
        from strandline.runtime.family import Household, SubagentLimits
        from strandline.runtime.spawn_checks import may_spawn
        from strandline.runtime.subagents import Subagents
        from strandline.tools.spawning import NAME, spawn_tool

        state, own = self.state, self.state.settings.agent(agent_id)
        tools, told = own.tools, own.subagents
        limits = SubagentLimits(
            most_depth=told.max_spawn_depth,
            most_running=told.max_concurrent,
            timeout_ms=told.run_timeout,
            fork_tokens=state.settings.session.parent_fork_max_tokens,
            agents=frozenset(name.lower() for name in told.allow_agents),
        )
        allowed = NAME not in tools.deny and (tools.allow is None or NAME in tools.allow)
        household = Household(self._sessions, state.agent, self.open_child)

        def of(parent: Parent) -> tuple[Subagents, Sequence[Tool]]:
            mine = Subagents(parent, household, clock=state.clock, ids=state.ids, limits=limits)
            return mine, [spawn_tool(mine)] if allowed and may_spawn(key, limits) else []

        return of

    def _sessions(self, agent_id: str) -> ChildSessions:
        from strandline.runtime.child_sessions import ChildSessions

        state, folder = self.state, self.state.sessions_folder(agent_id)
        return ChildSessions(
            state.rows(agent_id),
            state.transcripts(agent_id),
            state.cwd(agent_id),
            state.clock,
            state.ids,
            lambda name: str(folder.absolute() / name),
        )
