"""What is checked before a sub-agent begins: that it is allowed, and its fork small enough.

Nothing is changed here; a spawn that is refused leaves its parent as it was. Source:
cases/faults, N2, N3; spec 2, When a key gets a new session id (`parentForkMaxTokens`).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from strandline.errors import SpawnRefused
from strandline.runtime.child_sessions import Fork, fork_point
from strandline.runtime.family import Parent, SubagentLimits, depth_of
from strandline.transcript.session import Session

MOST_TASK_CHARS = 100_000
MOST_LABEL_CHARS = 80
COUNTING_S = 10.0
"""As long the size of a fork is counted; a context that takes longer is none to copy."""

SMALLER = "compact it first, or begin with an isolated context"


@dataclass(frozen=True, slots=True)
class Wish:
    """A sub-agent that is wanted: its task, what it is called, who does it, how long."""

    task: str
    label: str | None
    agent_id: str
    timeout_ms: int | None


def check(wish: Wish, parent: Parent, limits: SubagentLimits, running: int, unheard: int) -> None:
    """Raises `SpawnRefused` where there may be no such sub-agent now.

    `running` are at work already, `unheard` were begun since a person said something.
    """
    for what, remedy in (*_wrong_with(wish), *_in_the_way(wish, parent, limits, running, unheard)):
        raise SpawnRefused(what, remedy=remedy)


def may_spawn(parent_key: str, limits: SubagentLimits) -> bool:
    """Whether the conversation of that key may have sub-agents: one beyond the depth may not."""
    return depth_of(parent_key) < limits.most_depth


def _wrong_with(wish: Wish) -> Iterator[tuple[str, str]]:
    """What cannot be, whoever asks, and what helps."""
    if not wish.task or len(wish.task) > MOST_TASK_CHARS:
        yield f"the task has {len(wish.task):,} characters", f"write 1 to {MOST_TASK_CHARS:,}"
    if wish.label and len(wish.label) > MOST_LABEL_CHARS:
        yield f"the label has {len(wish.label)} characters", f"write at most {MOST_LABEL_CHARS}"
    if wish.timeout_ms is not None and wish.timeout_ms <= 0:
        yield f"a sub-agent cannot work for {wish.timeout_ms} ms", "give it more time"


def _in_the_way(
    wish: Wish, parent: Parent, limits: SubagentLimits, running: int, unheard: int
) -> Iterator[tuple[str, str]]:
    """What cannot be here and now, and what helps."""
    if not may_spawn(parent.ref().session_key, limits):
        yield "there may be no sub-agents here", "do the task in this conversation"
    if wish.agent_id != parent.agent().id and wish.agent_id not in limits.agents:
        yield (
            f"the agent {wish.agent_id} may not be asked from here",
            "leave the agent out, or let the settings allow it",
        )
    if running >= limits.most_running:
        yield f"{running} sub-agents are running", "wait until one ends, or stop one"
    if unheard >= limits.most_unattended:
        yield (
            f"{unheard} sub-agents were begun since a person said something",
            "go on without another one, or ask the person",
        )


async def fork_of(parent: Parent, limit: int) -> Fork:
    """The parent's branch as it can be copied. Raises `SpawnRefused` for one too large.

    `limit` is in tokens, 0 for none. The counting is bounded: it ends where the limit is
    passed, and is given up where it takes too long.
    """
    key, given_up = parent.ref().session_key, threading.Event()
    try:
        async with asyncio.timeout(COUNTING_S):
            end, tokens = await asyncio.to_thread(_measured, parent, limit, given_up)
    except TimeoutError:
        raise SpawnRefused(
            f"the size of {key} could not be told in {COUNTING_S:g} s; a fork may have "
            f"{limit:,} tokens",
            remedy=SMALLER,
        ) from None
    finally:
        given_up.set()
    if limit and tokens > limit:
        raise SpawnRefused(
            f"a fork of {key} has at least {tokens:,} tokens; {limit:,} are allowed",
            remedy=SMALLER,
        )
    return Fork(parent.session(), end)


def _measured(parent: Parent, limit: int, given_up: threading.Event) -> tuple[str | None, int]:
    """Where a fork ends, and its tokens, counted no further than need be."""
    session: Session = parent.session()
    end, tokens = fork_point(session), 0
    if end is None or not limit:
        return end, 0
    for item in session.build_context(end).items:
        tokens += parent.agent().tokens.of(item.entry_id, item.message)
        if tokens > limit or given_up.is_set():
            break
    return end, tokens
