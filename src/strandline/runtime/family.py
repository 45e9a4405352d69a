"""Who is involved when a sub-agent runs: its parent, itself, where it lives, what limits it.

A sub-agent's key says whose child it is, as OpenClaw writes it:
``agent:<agent>:subagent:<uuid>``, and for a child of a child
``agent:<agent>:subagent:<uuid>:subagent:<uuid>``. Source: spec 3, Engine slot.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from strandline.context.engine import SessionRef
from strandline.errors import ConfigError
from strandline.runtime.agent import Agent
from strandline.runtime.child_sessions import ChildSessions
from strandline.runtime.events import Listener
from strandline.runtime.silence import Occasion
from strandline.runtime.turn_result import TurnResult
from strandline.sessions.keys import SessionKey
from strandline.transcript.messages import Message
from strandline.transcript.session import Session

SpawnContext = Literal["isolated", "fork"]
"""A child begins with nothing but its task, or with a copy of its parent's branch too."""

DEEPEST = 2
"""No setting lets children of children have children."""

_WORD = "subagent"


@dataclass(frozen=True, slots=True)
class SubagentLimits:
    """What a conversation may have of sub-agents.

    `most_depth`: 0 for none, 1 for children, 2 for their children too. `most_running` at a time,
    `most_unattended` between two messages of a person, `timeout_ms` for each unless it is begun
    with another one. `fork_tokens` is the largest context that is forked, ours (0: any).
    `agents` are the agents that may be asked beside the conversation's own. Raises
    `ConfigError`.
    """

    most_depth: int = 1
    most_running: int = 8
    most_unattended: int = 32
    timeout_ms: int = 600_000
    fork_tokens: int = 100_000
    agents: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if not 0 <= self.most_depth <= DEEPEST:
            raise ConfigError(
                f"sub-agents cannot be {self.most_depth} deep", remedy=f"say 0 to {DEEPEST}"
            )


@dataclass(frozen=True, slots=True)
class Parent:
    """The conversation that has sub-agents, as it is whenever it is asked.

    `ref` and `session` are those that its key writes to now, `agent` is who answers. In `lane`
    nobody else does anything on the session (raises `SessionBusy`). `go_on` answers, in the
    background, what has no answer; it raises `NothingToAnswer`, and what a turn raises.
    """

    ref: Callable[[], SessionRef]
    session: Callable[[], Session]
    agent: Callable[[], Agent]
    lane: Callable[[], AbstractAsyncContextManager[None]]
    go_on: Callable[[Listener], Awaitable[TurnResult]]


class Child(Protocol):
    """The conversation of a sub-agent."""

    @property
    def session(self) -> Session:
        """Its transcript."""
        ...

    async def say(
        self, text: str | Message, *, listener: Listener = ..., occasion: Occasion | None = ...
    ) -> TurnResult:
        """One turn."""
        ...

    async def settle(self) -> Any:
        """Wait for what goes on after its turns, its own sub-agents among that."""
        ...

    async def close(self) -> None:
        """Give back its model and files."""
        ...


@dataclass(frozen=True, slots=True)
class Household:
    """Makes what sub-agents need, by the id of the agent.

    `sessions`: where the sessions of its sub-agents are. `agent`: the agent, with a model other
    than its own where one is named; raises `ConfigError` for one that cannot be used. `open`:
    the conversation of a key whose session was begun just now, which is `new` to the engine;
    closing it closes the agent it is given.
    """

    sessions: Callable[[str], ChildSessions]
    agent: Callable[[str, str | None], Agent]
    open: Callable[[str, str, Agent], Child]


def child_key(parent: str, agent_id: str, unique: str) -> str:
    """The key of a child; `unique` is a fresh UUID. Raises `InvalidSessionKey`."""
    words = [*_generations(parent), _WORD, unique]
    return str(SessionKey.parse(":".join(["agent", agent_id, *words])))


def depth_of(key: str) -> int:
    """0 for a conversation of people, 1 for a sub-agent, 2 for a sub-agent's."""
    return len(_generations(key)) // 2


def _generations(key: str) -> list[str]:
    """The part of a key that tells of sub-agents, in words; the outermost first."""
    parsed = SessionKey.parse(key)
    words = parsed.id.split(":") if parsed.kind == "other" else []
    found: list[str] = []
    for word, unique in zip(words[::2], words[1::2], strict=False):
        if word.lower() != _WORD:
            break
        found += [_WORD, unique]
    return found
