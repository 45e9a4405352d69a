"""Texts in the place of summaries that a replay would have to ask a model for."""

from __future__ import annotations

from strandline.context.compaction import CompactionPlan
from strandline.context.prune import LayerSummary, SummaryWanted
from strandline.context.summarize import SummaryRequest
from strandline.context.tokens import MessageTokens, TokenCounter
from strandline.replay.outcome import Summaries

COMPACTION_TOKENS = 2000
"""What a summary of a compaction takes, where it may take more: what models write."""

_WORD = " and"
"""One token in every vocabulary that is counted with."""


def text_of(tokens: int, counter: TokenCounter) -> str:
    """A text of about that many tokens, never of more."""
    words = tokens
    while words > 0:
        text = (_WORD * words).strip()
        excess = counter.count(text) - tokens
        if excess <= 0:
            return text
        words -= excess
    return ""


def compaction_text(plan: CompactionPlan, counter: TokenCounter) -> str:
    """What the summariser would write for that plan."""
    return text_of(min(plan.request.max_tokens, COMPACTION_TOKENS), counter)


def layer_summary(
    wanted: SummaryWanted, max_tokens: int, now_ms: int, tokens: MessageTokens
) -> tuple[LayerSummary, Summaries]:
    """The summary that a view wants, at most half as long as what it tells; what it took."""
    most = min(max_tokens, max(1, wanted.tokens // 2))
    text = text_of(most, tokens.counter)
    told = sum(map(tokens.count, wanted.new_messages()))
    told += tokens.counter.count(wanted.previous.text) if wanted.previous else 0
    made = LayerSummary(wanted.covers, text, "replay", now_ms, wanted.rules)
    return made, Summaries(1, told, tokens.counter.count(text))


def told_tokens(request: SummaryRequest, tokens: MessageTokens) -> int:
    """What a summariser reads: the messages, and the summary that it updates."""
    previous = request.previous_summary or ""
    return sum(map(tokens.count, request.messages)) + tokens.counter.count(previous)
