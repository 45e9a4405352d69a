"""Going to another entry, with a summary of the branch that is left if that is wanted.

Source: spec 1, Branches; spec 3, Budget and compaction (Hooks: session_before_tree).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from strandline.context.assemble import prepare
from strandline.context.files import file_operations
from strandline.context.shorten import shorten_text
from strandline.context.summarize import Summary, SummaryRequest
from strandline.errors import BranchRefused
from strandline.runtime.agent import Agent
from strandline.runtime.events import Listener, Notice
from strandline.runtime.finishing import to_the_end
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
    for note in summary.notes if summary is not None else ():
        listener(Notice(note))

    def move() -> str | None:
        if summary is not None:
            by_hook = isinstance(said, Supply) or None
            session.branch_with_summary(entry_id, summary.text, details=details, from_hook=by_hook)
        elif entry_id is not None:
            session.branch(entry_id)
        else:
            session.reset_leaf()
        return session.leaf_id

    return Branched(await to_the_end(asyncio.to_thread(move)), summary)


def _left_behind(session: Session, entry_id: str | None) -> Sequence[PathMessage]:
    """The messages that only the branch that is left holds, oldest first.

    A compaction on it tells of what stays, too, unless nothing does; so what it summarised
    takes its place.
    """
    stays = set(session.path(entry_id)) if entry_id is not None else set()
    path = session.path()
    if not stays.intersection(path):
        return session.build_context().items
    left = [each for each in path if each not in stays]
    found: dict[str, PathMessage] = {}
    end = path[-1] if left else None
    while end is not None:
        items = session.build_context(end).items
        found.update((item.entry_id, item) for item in items)
        compaction = items[0] if items and _is_compaction(items[0]) else None
        end = None
        if compaction is not None and compaction.entry_id not in stays:
            place = path.index(compaction.entry_id)
            end = path[place - 1] if place else None
    said = (found[each] for each in left if each in found)
    return [item for item in said if not _is_compaction(item)]


def _is_compaction(item: PathMessage) -> bool:
    return item.message.get("role") == "compactionSummary"


async def _summary(
    agent: Agent,
    left: Sequence[PathMessage],
    said: Supply | None,
    instructions: str | None,
    *,
    wanted: bool,
) -> tuple[Summary | None, JsonObject | None]:
    if said is not None:
        return await asyncio.to_thread(_supplied, agent, said)
    if not wanted or not left:
        return None, None
    request, details = await asyncio.to_thread(_request, agent, left, instructions)
    if not request.messages:
        return None, None
    return await agent.summarizer.summarize(request), details


def _supplied(agent: Agent, said: Supply) -> tuple[Summary | None, JsonObject | None]:
    if not said.summary.strip():
        return None, None
    text = shorten_text(said.summary, agent.budget().summary_cap, agent.tokens.counter)
    return Summary(text, "hook"), said.details or None


def _request(
    agent: Agent, left: Sequence[PathMessage], instructions: str | None
) -> tuple[SummaryRequest, JsonObject]:
    budget = agent.budget()
    view = prepare(left, budget=budget, tokens=agent.tokens)
    room = max(1, min(budget.summary_cap, view.tokens))
    messages = tuple(said.message for said in view.messages)
    request = SummaryRequest(messages, room, instructions=instructions)
    return request, file_operations(item.message for item in left)
