"""Carrying out a compaction: plan, summarise, check that it helps, append one entry.

The plan and the check are pure (`strandline.context.compaction`); here the summariser is
asked and the entry is written. Source: spec 3, Budget and compaction.
"""

from __future__ import annotations

import asyncio

from strandline.context.budget import Budget
from strandline.context.compaction import CompactionPlan, NoCompaction, plan_compaction
from strandline.errors import CompactionRefused
from strandline.runtime.agent import Agent
from strandline.runtime.events import (
    CompactionReceipt,
    CompactionStarted,
    CompactionTrigger,
    Listener,
)
from strandline.transcript.session import Session


async def compact(
    session: Session,
    agent: Agent,
    budget: Budget,
    *,
    trigger: CompactionTrigger,
    listener: Listener,
    instructions: str | None = None,
) -> CompactionReceipt:
    """Compact the context of the session's leaf.

    Appends exactly one entry and changes nothing else; a cancelled or failed summary
    appends nothing. Raises `CompactionRefused` where it would not help, with the reason.
    """
    plan = await asyncio.to_thread(_plan, session, agent, budget, trigger, instructions)
    listener(CompactionStarted(trigger))
    body = await agent.summarizer.summarize(plan.request)
    summary = plan.summary(body, agent.tokens.counter)
    tokens_after = plan.tokens_after(summary, agent.tokens)
    entry_id = await asyncio.to_thread(
        session.append_compaction,
        summary,
        plan.first_kept_entry_id,
        budget.provider_tokens(plan.tokens_before),
        details=plan.details,
    )
    receipt = CompactionReceipt(
        trigger,
        entry_id,
        plan.tokens_before,
        tokens_after,
        len(plan.summarised),
        len(plan.kept),
    )
    listener(receipt)
    return receipt


def _plan(
    session: Session,
    agent: Agent,
    budget: Budget,
    trigger: CompactionTrigger,
    instructions: str | None,
) -> CompactionPlan:
    items = session.build_context().items
    details = None
    if items and items[0].message.get("role") == "compactionSummary":
        details = session.entry(items[0].entry_id).data.get("details")
    plan = plan_compaction(
        items,
        agent.tokens,
        budget,
        previous_details=details if isinstance(details, dict) else None,
        instructions=instructions,
        force=trigger in {"manual", "overflow"},
    )
    if isinstance(plan, NoCompaction):
        raise CompactionRefused(
            f"nothing was compacted: {plan.reason}", remedy="the context can stay as it is"
        )
    return plan
