"""Compactions in words and as JSON: what one did, and what one would do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from strandline.cli.words import amount
from strandline.context.budget import Budget
from strandline.context.compaction import CompactionPlan
from strandline.runtime.compaction_entry import receipt_object
from strandline.runtime.events import CompactionReceipt


def receipt_json(receipt: CompactionReceipt) -> dict[str, Any]:
    """A receipt with its entry."""
    return {"entryId": receipt.entry_id, **receipt_object(receipt)}


def receipt_line(receipt: CompactionReceipt, count: int | None = None) -> str:
    """A receipt in a line; `count` is how many automatic ones there were."""
    auto = receipt.trigger != "manual"
    title = "Auto-compaction complete" if auto else "Compacted"
    counted = f" (count {count})" if auto and count else ""
    return (
        f"🧹 {title}{counted}: {receipt.tokens_before:,} → {receipt.tokens_after:,} tokens "
        f"({receipt.tokens_freed:,} freed, budget {receipt.budget_tokens:,}), "
        f"{amount(receipt.messages_summarised, 'message')} summarised by {receipt.summarizer}, "
        f"{receipt.messages_kept:,} kept"
    )


def plan_json(plan: CompactionPlan, budget: Budget, summarizer: str) -> dict[str, Any]:
    """What a compaction would do; the summary is only known by its bound."""
    return {
        "tokensBefore": plan.tokens_before,
        "tokensKept": plan.tokens_kept,
        "tokensAfterAtMost": plan.tokens_after_at_most,
        "tokensFreedAtLeast": plan.tokens_before - plan.tokens_after_at_most,
        "budgetTokens": budget.limit,
        "contextWindow": budget.window,
        "messagesSummarised": len(plan.summarised),
        "messagesKept": len(plan.kept),
        "firstKeptEntryId": plan.first_kept_entry_id,
        "splitTurn": plan.request.split_turn,
        "summarizer": summarizer,
        "readFiles": plan.details["readFiles"],
        "modifiedFiles": plan.details["modifiedFiles"],
    }


def plan_lines(plan: CompactionPlan, budget: Budget, summarizer: str) -> Iterator[str]:
    """The same for a person."""
    at_most = plan.tokens_after_at_most
    yield (
        f"{plan.tokens_before:,} tokens → at most {at_most:,} "
        f"(at least {plan.tokens_before - at_most:,} freed, budget {budget.limit:,})"
    )
    split = ", in the middle of a turn" if plan.request.split_turn else ""
    yield (
        f"{amount(len(plan.summarised), 'message')} would be summarised by {summarizer}; "
        f"{len(plan.kept):,} kept, from entry {plan.first_kept_entry_id} on{split}"
    )
    for title, key in (("modified", "modifiedFiles"), ("read", "readFiles")):
        if plan.details[key]:
            yield f"files {title}: {', '.join(plan.details[key])}"
