"""The entry of a compaction: appended where it helps, with a receipt of what it did.

Nobody else writes to the session meanwhile. Source: spec 3, Budget and compaction
(Guaranteed progress).
"""

from __future__ import annotations

from dataclasses import replace

from strandline.context.budget import Budget
from strandline.context.compaction import summary_tokens
from strandline.context.engine import CompactionOutcome
from strandline.context.summarize import Summary
from strandline.context.tokens import MessageTokens
from strandline.errors import CompactionRefused
from strandline.runtime.events import CompactionReceipt, CompactionTrigger
from strandline.runtime.pending_compaction import PendingCompaction
from strandline.transcript.messages import JsonObject
from strandline.transcript.session import Session

CHOSEN_BY_HOOK = "hook"
"""The summariser of a summary that a hook supplied."""


def append_planned(
    session: Session,
    tokens: MessageTokens,
    pending: PendingCompaction,
    summary: Summary,
    details: JsonObject,
) -> CompactionReceipt:
    """Append what was planned, with its summary and what came since kept behind it.

    Raises `CompactionRefused` where the conversation went to where the plan does not hold.
    """
    plan, items = pending.plan, session.build_context().items
    if not pending.still_holds(items):
        raise CompactionRefused(
            "the compaction was not written: the conversation went elsewhere meanwhile",
            remedy="compact again where it stands now",
        )
    text = plan.summary(summary.text, tokens.counter)
    tokens_after = plan.tokens_after(text, tokens)
    added = items[len(plan.summarised) + len(plan.kept) :]
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
    entry_id = session.append_compaction(
        text,
        plan.first_kept_entry_id,
        pending.budget.provider_tokens(receipt.tokens_before),
        details={**plan.details, **details, "receipt": receipt_object(receipt)},
        from_hook=summary.by == CHOSEN_BY_HOOK or None,
    )
    return replace(receipt, entry_id=entry_id)


def append_supplied(
    session: Session,
    tokens: MessageTokens,
    outcome: CompactionOutcome,
    by: str,
    budget: Budget,
    trigger: CompactionTrigger,
) -> CompactionReceipt:
    """Append the compaction that the engine `by` made.

    Raises `CompactionRefused` where what it keeps is not on the path, or where it would not
    shrink the context.
    """
    items, first_kept = session.build_context().items, outcome.first_kept_entry_id or ""
    ids = [item.entry_id for item in items]
    if first_kept not in ids:
        raise CompactionRefused(
            f"nothing was compacted: the engine {by} keeps an entry that is not on the path",
            remedy="correct the engine's first_kept_entry_id",
        )
    first = ids.index(first_kept)
    sizes = [tokens.of(item.entry_id, item.message) for item in items]
    after, before = sum(sizes[first:]) + summary_tokens(outcome.summary, tokens), sum(sizes)
    if after >= before:
        raise CompactionRefused(
            f"the compaction of the engine {by} would leave {after:,} of {before:,} tokens",
            remedy="nothing was written",
        )
    receipt = CompactionReceipt(
        trigger, "", before, after, first, len(items) - first, budget.limit, by
    )
    entry_id = session.append_compaction(
        outcome.summary,
        first_kept,
        budget.provider_tokens(before),
        details={**outcome.details, "receipt": receipt_object(receipt)},
        from_hook=True,
    )
    return replace(receipt, entry_id=entry_id)


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
