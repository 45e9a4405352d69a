"""The context of each call of a recording, under one policy.

Where the pruned context is more than the window holds, what is older is compacted first, and
the conversation goes on from the summary, as it would have. Summaries are texts of the size
that they may have, with what they would have cost.
Source: spec 3, The way of a message, Budget and compaction, Pruning in four layers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from strandline.context.assemble import Limit, within
from strandline.context.budget import Budget
from strandline.context.clean_path import CleanPath
from strandline.context.compaction import CompactionPlan, NoCompaction, plan_compaction
from strandline.context.prune import LayerSummary, Moment, Pruned, PruneMemo, prune
from strandline.context.tokens import MessageTokens
from strandline.context.view import View
from strandline.errors import CompactionRefused
from strandline.replay.outcome import NO_SUMMARIES, Summaries
from strandline.replay.policies import Policy
from strandline.replay.recording import Call, Recording
from strandline.replay.simulated import compaction_text, layer_summary, told_tokens
from strandline.transcript.context import PathMessage
from strandline.transcript.live_context import MessagesSoFar
from strandline.transcript.messages import JsonObject, Message
from strandline.transcript.tree import Node

MOST_COMPACTIONS = 3
MOST_LAYER_SUMMARIES = 3
"""As many are made for one call, as a turn makes them."""

MOST_REMEMBERED = 16
"""As many layer summaries are remembered, the newest."""


@dataclass(frozen=True, slots=True)
class Context:
    """What a call sees, and the summaries that had to be made for it."""

    view: View
    compactions: Summaries = NO_SUMMARIES
    layer_summaries: Summaries = NO_SUMMARIES

    def after(self, before: Context, compaction: Summaries) -> Context:
        """The same view, with what was made for the one before and the compaction between."""
        compactions = before.compactions.plus(compaction)
        layers = before.layer_summaries.plus(self.layer_summaries)
        return Context(self.view, compactions, layers)


class Contexts:
    """Gives the context of one call after the other.

    Of the recording it follows what had been said by a call, and no more; after a compaction
    that begins with the summary.
    """

    def __init__(
        self, recording: Recording, policy: Policy, budget: Budget, tokens: MessageTokens
    ) -> None:
        self._recording = recording
        self._policy = policy
        self._budget = budget
        self._tokens = tokens
        self._places = {item.entry_id: place for place, item in enumerate(recording.items)}
        self._followed = 0
        self._said: list[Node | PathMessage] = []
        self._path = CleanPath(tokens)
        self._memo = PruneMemo()
        self._summaries: list[LayerSummary] = []
        self._details: JsonObject | None = None
        self._compacted = 0

    def at(self, call: Call) -> Context:
        """What that call sees. Raises `ContextOverflow` where no window can hold it."""
        place = self._places[call.entry_id]
        self._said += self._recording.items[self._followed : place]
        self._followed = place
        context = self._pruned(call)
        mode = self._policy.compaction.effective_mode
        for _ in range(MOST_COMPACTIONS if mode == "auto" else 0):
            made = self._compact(call) if self._budget.is_over(context.view.tokens) else None
            if made is None:
                break
            context = self._pruned(call).after(context, made)
        limit: Limit = "none" if mode == "error" else "oldest_turns"
        view = within(context.view, budget=self._budget, tokens=self._tokens, limit=limit)
        return replace(context, view=view)

    def _pruned(self, call: Call) -> Context:
        """The view of the policy's rules, with the summaries that they want."""
        rules = self._policy.rules.summaries
        now_ms = math.ceil(call.at_ms)
        oldest_ms = now_ms - (rules.cache_ttl_ms if rules.cached else 0)
        self._summaries = [made for made in self._summaries if made.made_ms >= oldest_ms]
        pruned, cost = self._prune(now_ms), NO_SUMMARIES
        for _ in range(MOST_LAYER_SUMMARIES):
            if pruned.wanted is None:
                break
            made, took = layer_summary(pruned.wanted, rules.max_tokens, now_ms, self._tokens)
            self._summaries = [*self._summaries[1 - MOST_REMEMBERED :], made]
            pruned, cost = self._prune(now_ms), cost.plus(took)
        return Context(pruned.view, layer_summaries=cost)

    def _prune(self, now_ms: int) -> Pruned:
        clean = self._path.follow(MessagesSoFar(self._said), self._budget.message_cap)
        limit, pins = self._budget.view_limit, self._recording.pins
        moment = Moment(now_ms, limit, pins, self._summaries)
        return prune(clean, self._policy.rules, moment, self._tokens, memo=self._memo)

    def _compact(self, call: Call) -> Summaries | None:
        """Compact what was said before the call; None where that would not help."""
        said = MessagesSoFar(self._said)
        plan = plan_compaction(said, self._tokens, self._budget, previous_details=self._details)
        if isinstance(plan, NoCompaction):
            return None
        body = compaction_text(plan, self._tokens.counter)
        summary = plan.summary(body, self._tokens.counter)
        try:
            plan.tokens_after(summary, self._tokens)
        except CompactionRefused:
            return None
        self._go_on_from(plan, summary, call)
        told = told_tokens(plan.request, self._tokens)
        return Summaries(1, told, self._tokens.counter.count(body))

    def _go_on_from(self, plan: CompactionPlan, summary: str, call: Call) -> None:
        self._compacted += 1
        message: Message = {
            "role": "compactionSummary",
            "summary": summary,
            "tokensBefore": plan.tokens_before,
            "timestamp": call.at_ms,
        }
        # The same name never stands for two texts: tokens are remembered by it.
        entry_id = f"compaction {self._compacted} of {self._policy.name}"
        said = MessagesSoFar(self._said)
        kept = next(n for n, item in enumerate(said) if item.entry_id == plan.first_kept_entry_id)
        self._said = [PathMessage(entry_id, message), *said[kept:]]
        self._details = plan.details
