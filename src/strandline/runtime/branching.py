"""Going to another entry, with a summary of the branch that is left if that is wanted.

Source: spec 1, Branches; spec 3, Budget and compaction (Hooks: session_before_tree).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from strandline.context.assemble import prepare
from strandline.context.budget import Budget
from strandline.context.files import file_operations
from strandline.context.shorten import shorten_text
from strandline.context.summarize import Summary, SummaryRequest
from strandline.errors import BranchRefused
from strandline.runtime.agent import Agent
from strandline.runtime.events import Listener, Notice
from strandline.runtime.hooks import BeforeTree, Cancel, Supply, ask_hooks
from strandline.transcript.context import PathMessage
from strandline.transcript.messages import JsonObject
from strandline.transcript.session import Session


@dataclass(frozen=True, slots=True)
class Branched:
    """Where the conversation stands now; `summary` is what came along, None if nothing did."""

    leaf_id: str | None
    summary: Summary | None


async def go_to(
    session: Session,
    agent: Agent,
    entry_id: str | None,
    *,
    summarize: bool,
    instructions: str | None = None,
    listener: Listener,
) -> Branched:
    """Stand at `entry_id` (None: before the first entry); the caller holds the lane.

    Raises `EntryNotFound`, and `BranchRefused` where a hook says no; nothing is appended then.
    """
    left = await asyncio.to_thread(_left_behind, session, entry_id)
    event = BeforeTree(session, entry_id, [item.entry_id for item in left], summarize)
    said = await ask_hooks(
        agent.hooks.session_before_tree, event, lambda text: listener(Notice(text))
    )
    if isinstance(said, Cancel):
        raise BranchRefused(
            f"the conversation stays where it is: a hook said {said.reason!r}",
            remedy="go there without that hook",
        )
    summary, details = await _summary(agent, left, said, instructions, wanted=summarize)
    if summary is None:
        return Branched(await asyncio.to_thread(_move, session, entry_id), None)
    for note in summary.notes:
        listener(Notice(note))
    await asyncio.to_thread(
        session.branch_with_summary,
        entry_id,
        summary.text,
        details=details,
        from_hook=isinstance(said, Supply) or None,
    )
    return Branched(session.leaf_id, summary)


def _move(session: Session, entry_id: str | None) -> str | None:
    if entry_id is None:
        session.reset_leaf()
    else:
        session.branch(entry_id)
    return session.leaf_id


def _left_behind(session: Session, entry_id: str | None) -> Sequence[PathMessage]:
    """The messages that only the branch that is left holds, oldest first."""
    stays = set(session.path(entry_id)) if entry_id is not None else set()
    return [item for item in session.build_context().items if item.entry_id not in stays]


async def _summary(
    agent: Agent,
    left: Sequence[PathMessage],
    said: Supply | None,
    instructions: str | None,
    *,
    wanted: bool,
) -> tuple[Summary | None, JsonObject | None]:
    budget = agent.budget()
    if said is not None:
        text = shorten_text(said.summary, budget.summary_cap, agent.tokens.counter)
        return Summary(text, "hook"), said.details or None
    if not wanted or not left:
        return None, None
    request = await asyncio.to_thread(_request, agent, budget, left, instructions)
    if not request.messages:
        return None, None
    details = file_operations(item.message for item in left)
    return await agent.summarizer.summarize(request), details


def _request(
    agent: Agent, budget: Budget, left: Sequence[PathMessage], instructions: str | None
) -> SummaryRequest:
    view = prepare(left, budget=budget, tokens=agent.tokens)
    room = max(1, min(budget.summary_cap, view.tokens))
    messages = tuple(said.message for said in view.messages)
    return SummaryRequest(messages, room, instructions=instructions)
