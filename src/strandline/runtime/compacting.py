"""Carrying out a compaction: plan, summarise, check that it helps, append one entry.

Only the first and the last step need the session to stand still. The summary, which may take
minutes, is written beside the conversation: messages that arrive meanwhile are appended and
answered, and are kept by the compaction when it is written at last. At most one is in the
making; who needs one joins it. Source: spec 3, Budget and compaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from strandline.context.budget import Budget
from strandline.context.compaction import CompactionPlan, NoCompaction, plan_compaction
from strandline.context.summarize import Summary
from strandline.errors import CompactionRefused
from strandline.runtime.agent import Agent
from strandline.runtime.events import (
    CompactionReceipt,
    CompactionStarted,
    CompactionTrigger,
    Listener,
    Notice,
)
from strandline.runtime.hooks import BeforeCompact, Cancel, Supply, ask_hooks
from strandline.transcript.context import PathMessage
from strandline.transcript.messages import JsonObject
from strandline.transcript.session import Session

CHOSEN_BY_HOOK = "hook"
"""The summariser of a summary that a hook supplied."""


@dataclass
class PendingCompaction:
    """A compaction in the making: planned, its summary being written, not yet appended."""

    trigger: CompactionTrigger
    plan: CompactionPlan
    budget: Budget
    writing: asyncio.Task[tuple[Summary, JsonObject]]
    waiting: int = 0
    receipt: CompactionReceipt | None = None

    @property
    def planned(self) -> list[str]:
        """The entries of the context that was planned for, in order."""
        return [*self.plan.summarised, *self.plan.kept]


class Compactor:
    """The compactions of one session, for an agent as it is set up now."""

    def __init__(self, session: Session, agent: Agent) -> None:
        self._session = session
        self.agent = agent
        self._pending: PendingCompaction | None = None

    async def compact(
        self,
        budget: Budget,
        trigger: CompactionTrigger,
        listener: Listener,
        instructions: str | None = None,
    ) -> CompactionReceipt:
        """Plan, summarise and append at one go; the caller holds the lane.

        Appends exactly one entry and changes nothing else; a cancelled or failed summary
        appends nothing. Raises `CompactionRefused` where it would not help, with the reason.
        """
        pending = await self.begin(budget, trigger, listener, instructions)
        await self.summarised(pending)
        return await self.commit(pending, listener)

    async def begin(
        self,
        budget: Budget,
        trigger: CompactionTrigger,
        listener: Listener,
        instructions: str | None = None,
    ) -> PendingCompaction:
        """Plan a compaction and let its summary be written; or join the one in the making.

        Raises `CompactionRefused`.
        """
        items = await asyncio.to_thread(self._items)
        current = self._pending
        if current is not None and instructions is None and _still_holds(current, items):
            return current
        if current is not None:
            current.writing.cancel()
        plan = await asyncio.to_thread(self.plan, budget, trigger, instructions)
        listener(CompactionStarted(trigger))
        writing = asyncio.create_task(self._write(plan, trigger, listener, instructions))
        writing.add_done_callback(_retrieved)
        self._pending = PendingCompaction(trigger, plan, budget, writing)
        return self._pending

    async def summarised(self, pending: PendingCompaction) -> None:
        """Wait for the summary. When the last who waits is cancelled, so is the summary."""
        pending.waiting += 1
        try:
            await asyncio.shield(pending.writing)
        except BaseException:
            if pending.waiting == 1:
                pending.writing.cancel()
                self._forget(pending)
            raise
        finally:
            pending.waiting -= 1

    async def commit(self, pending: PendingCompaction, listener: Listener) -> CompactionReceipt:
        """Append the entry of a summary that is written; the caller holds the lane.

        Done already by another who waited, it is the same receipt. Raises
        `CompactionRefused` where the conversation has moved to where the plan does not hold.
        """
        if pending.receipt is None:
            summary, details = pending.writing.result()
            self._forget(pending)
            receipt = await asyncio.to_thread(self._append, pending, summary, details)
            pending.receipt = receipt
            for note in summary.notes:
                listener(Notice(note))
            listener(receipt)
        return pending.receipt

    def plan(
        self, budget: Budget, trigger: CompactionTrigger, instructions: str | None = None
    ) -> CompactionPlan:
        """What a compaction would do now. Raises `CompactionRefused` with the reason."""
        items = self._items()
        plan = plan_compaction(
            items,
            self.agent.tokens,
            budget,
            previous_details=self._details_before(items),
            instructions=instructions,
            force=trigger in {"manual", "overflow"},
        )
        if isinstance(plan, NoCompaction):
            raise CompactionRefused(
                f"nothing was compacted: {plan.reason}", remedy="the context can stay as it is"
            )
        return plan

    def cancel(self) -> None:
        """Give up what is in the making; nothing was written."""
        if self._pending is not None:
            self._pending.writing.cancel()
            self._pending = None

    def _items(self) -> Sequence[PathMessage]:
        return self._session.build_context().items

    def _details_before(self, items: Sequence[PathMessage]) -> JsonObject | None:
        if not items or items[0].message.get("role") != "compactionSummary":
            return None
        details = self._session.entry(items[0].entry_id).data.get("details")
        return details if isinstance(details, dict) else None

    async def _write(
        self,
        plan: CompactionPlan,
        trigger: CompactionTrigger,
        listener: Listener,
        instructions: str | None,
    ) -> tuple[Summary, JsonObject]:
        event = BeforeCompact(self._session, trigger, plan, instructions)
        hooks = self.agent.hooks.session_before_compact
        match await ask_hooks(hooks, event, lambda text: listener(Notice(text))):
            case Cancel(reason):
                raise CompactionRefused(
                    f"nothing was compacted: a hook said {reason!r}",
                    remedy="ask again without that hook, or let the context stay as it is",
                )
            case Supply(text, details):
                return Summary(text, CHOSEN_BY_HOOK), details
            case None:
                return await self.agent.summarizer.summarize(plan.request), {}

    def _append(
        self, pending: PendingCompaction, summary: Summary, details: JsonObject
    ) -> CompactionReceipt:
        plan, tokens = pending.plan, self.agent.tokens
        items = self._items()
        if not _still_holds(pending, items):
            raise CompactionRefused(
                "the compaction was not written: the conversation went elsewhere meanwhile",
                remedy="compact again where it stands now",
            )
        text = plan.summary(summary.text, tokens.counter)
        tokens_after = plan.tokens_after(text, tokens)
        added = items[len(pending.planned) :]
        came = sum(tokens.of(item.entry_id, item.message) for item in added)
        receipt = CompactionReceipt(
            trigger=pending.trigger,
            entry_id="",
            tokens_before=plan.tokens_before + came,
            tokens_after=tokens_after + came,
            messages_summarised=len(plan.summarised),
            messages_kept=len(plan.kept) + len(added),
            budget_tokens=pending.budget.limit,
            summarizer=summary.by,
            usage=summary.usage,
            audit=summary.audit,
        )
        entry_id = self._session.append_compaction(
            text,
            plan.first_kept_entry_id,
            pending.budget.provider_tokens(receipt.tokens_before),
            details={**plan.details, **details, "receipt": receipt_object(receipt)},
            from_hook=summary.by == CHOSEN_BY_HOOK or None,
        )
        return replace(receipt, entry_id=entry_id)

    def _forget(self, pending: PendingCompaction) -> None:
        if self._pending is pending:
            self._pending = None


def receipt_object(receipt: CompactionReceipt) -> JsonObject:
    """A receipt as JSON, without its entry: it is kept in the entry's details."""
    written: JsonObject = {
        "trigger": receipt.trigger,
        "tokensBefore": receipt.tokens_before,
        "tokensAfter": receipt.tokens_after,
        "tokensFreed": receipt.tokens_freed,
        "budgetTokens": receipt.budget_tokens,
        "messagesSummarised": receipt.messages_summarised,
        "messagesKept": receipt.messages_kept,
        "summarizer": receipt.summarizer,
    }
    if receipt.audit is not None:
        audit = receipt.audit
        written["audit"] = {
            "named": audit.named,
            "kept": audit.kept,
            "missing": [*audit.missing],
        }
    if receipt.usage is not None:
        written["usage"] = receipt.usage
    return written


def _still_holds(pending: PendingCompaction, items: Sequence[PathMessage]) -> bool:
    """Whether the conversation still begins with what was planned for."""
    planned = pending.planned
    return [item.entry_id for item in items[: len(planned)]] == planned


def _retrieved(task: asyncio.Task[tuple[Summary, JsonObject]]) -> None:
    """A failure that nobody waits for any more is no surprise to the event loop."""
    if not task.cancelled():
        task.exception()
