"""Hooks: code of others that is asked before a session is compacted or moved.

A hook gets an event and says nothing (None), `Cancel`, or `Supply` with a summary of its
own. They are asked in the order in which they were added; the first that says something
decides. A hook that raises, or says anything else, is told about and counts as saying
nothing: the session goes on.
Source: spec 3, Budget and compaction (Hooks).
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from strandline.context.compaction import CompactionPlan
from strandline.runtime.events import CompactionTrigger
from strandline.runtime.finishing import cancellings
from strandline.transcript.session import Session

Event = TypeVar("Event")


@dataclass(frozen=True, slots=True)
class Cancel:
    """Don't; `reason` is told to the person."""

    reason: str


@dataclass(frozen=True, slots=True)
class Supply:
    """Take this summary; it is bounded like any other. `details` are kept in the entry."""

    summary: str
    details: dict[str, Any] = field(default_factory=dict)


Say = Cancel | Supply | None


@dataclass(frozen=True, slots=True)
class BeforeCompact:
    """`session_before_compact`: a compaction is planned and not yet summarised."""

    session: Session
    trigger: CompactionTrigger
    plan: CompactionPlan
    instructions: str | None


@dataclass(frozen=True, slots=True)
class BeforeTree:
    """`session_before_tree`: the conversation is about to go to another entry.

    `left` are the entries that only the branch that is left holds, oldest first.
    """

    session: Session
    target_id: str | None
    left: Sequence[str]
    wants_summary: bool


CompactHook = Callable[[BeforeCompact], Say | Awaitable[Say]]
TreeHook = Callable[[BeforeTree], Say | Awaitable[Say]]


@dataclass
class Hooks:
    """The hooks of an agent."""

    session_before_compact: list[CompactHook] = field(default_factory=list)
    session_before_tree: list[TreeHook] = field(default_factory=list)


async def ask_hooks(
    hooks: Sequence[Callable[[Event], Say | Awaitable[Say]]],
    event: Event,
    tell: Callable[[str], None],
) -> Say:
    """What the first hook says that says anything; `tell` hears of those that fail."""
    for hook in tuple(hooks):
        stopped_before = cancellings()
        try:
            said = hook(event)
            answer = _checked(await said if inspect.isawaitable(said) else said)
        except asyncio.CancelledError as error:
            if cancellings() > stopped_before:
                raise
            tell(_failed(hook, error))  # what the hook waited for was cancelled, not we
        except (Exception, SystemExit) as error:  # noqa: BLE001 - anybody's code; the session goes on
            tell(_failed(hook, error))
        else:
            if answer is not None:
                return answer
    return None


def _checked(said: object) -> Say:
    """What a hook said. Raises `TypeError` where that is nothing that a hook can say."""
    if isinstance(said, Supply) and not isinstance(said.summary, str):
        raise TypeError(f"it supplied a {type(said.summary).__name__}, not a text")
    if said is not None and not isinstance(said, Cancel | Supply):
        raise TypeError(f"it said a {type(said).__name__}, not None, Cancel or Supply")
    return said


def _failed(hook: object, error: BaseException) -> str:
    name = getattr(hook, "__qualname__", repr(hook))
    return f"the hook {name} failed ({type(error).__name__}: {error}) and was passed over"
