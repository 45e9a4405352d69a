"""What the row of a session keeps of its turns: counters, sizes, who answered last.

They are statistics, never limits. Source: spec 2, Store entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from strandline.runtime.events import CompactionReceipt
from strandline.runtime.turn_result import TurnResult
from strandline.sessions.rows import SessionRow, row_of
from strandline.transcript.messages import Usage


def after_turn(
    row: SessionRow, result: TurnResult, usages: Sequence[Usage], now_ms: int
) -> SessionRow:
    """The row after a turn whose calls used `usages`."""
    info = result.info
    answered = {"modelProvider": info.provider, "model": info.id}  # as OpenClaw notes it
    row = with_usage(row_of({**row.raw, **answered}), usages)
    row = with_size(after_compactions(row, result.compactions), result.context_tokens)
    return row.with_changes(
        updated_at=now_ms,
        last_interaction_at=now_ms,
        context_tokens=info.context_window,
        compaction_count=row.compaction_count or 0,
        aborted_last_run=False,
    )


def with_size(row: SessionRow, context_tokens: int) -> SessionRow:
    """The row with what the context takes now."""
    return row.with_changes(total_tokens=context_tokens, total_tokens_fresh=True)


def after_compactions(row: SessionRow, receipts: Iterable[CompactionReceipt]) -> SessionRow:
    """The row after compactions."""
    for receipt in receipts:
        row = with_usage(row, [receipt.usage] if receipt.usage else [])
        if receipt.trigger == "manual":
            # A new cycle, which the counter of automatic compactions does not see.
            row = row.with_changes(memory_flush_compaction_count=None)
        else:
            row = row.with_changes(compaction_count=(row.compaction_count or 0) + 1)
    return row


def with_usage(row: SessionRow, usages: Iterable[Usage]) -> SessionRow:
    """The row with its counters raised."""
    for usage in usages:
        cost = usage["cost"]["total"] if "cost" in usage else 0.0
        row = row.with_changes(
            input_tokens=(row.input_tokens or 0) + usage.get("input", 0),
            output_tokens=(row.output_tokens or 0) + usage.get("output", 0),
            cache_read=(row.cache_read or 0) + usage.get("cacheRead", 0),
            cache_write=(row.cache_write or 0) + usage.get("cacheWrite", 0),
            estimated_cost_usd=(row.estimated_cost_usd or 0.0) + cost,
        )
    return row
