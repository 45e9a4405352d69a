"""Assembling without rules and at one go: from the messages of a path to those of a request.

Sanitise, pair, shorten what is larger than one message may be, make room where that is
wanted, and validate last, because whatever was left out may have broken a pair. Each step is
a function from one view to the next. A session that grows is followed instead
(`strandline.context.clean_path`) and pruned, and shares the last steps with this (`within`).
Source: spec 3, The way of a message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from strandline.context.budget import Budget
from strandline.context.limit import make_room, overflow
from strandline.context.pairing import pair
from strandline.context.sanitize import sanitize
from strandline.context.shorten import shorten_larger
from strandline.context.tokens import MessageTokens
from strandline.context.view import View
from strandline.transcript.context import PathMessage
from strandline.transcript.garbage import collector_off

Limit = Literal["none", "oldest_turns"]
"""What may give way in a view that does not fit: nothing (compaction is on and has its
chance first), or the oldest turns and then more (compaction is off or has failed)."""


def assemble(
    items: Sequence[PathMessage],
    *,
    budget: Budget,
    tokens: MessageTokens,
    limit: Limit = "none",
    tool_result_cap: int | None = None,
) -> View:
    """The view of a path within the budget.

    `tool_result_cap` shortens every tool result to that many tokens, for a second try
    after a provider's overflow (`Budget.tool_result_cap`). Raises `ContextOverflow`, which
    names the largest parts, when the view is larger than the budget. The same arguments
    give the same bytes.
    """
    view = prepare(items, budget=budget, tokens=tokens, tool_result_cap=tool_result_cap)
    return within(view, budget=budget, tokens=tokens, limit=limit)


def within(view: View, *, budget: Budget, tokens: MessageTokens, limit: Limit = "none") -> View:
    """A prepared view within the budget. Raises `ContextOverflow`, as `assemble` does."""
    if limit == "oldest_turns" and view.tokens > budget.view_limit:
        view = pair(make_room(view, budget, tokens), tokens)
    if view.tokens > budget.view_limit:
        raise overflow(view, budget)
    return view


def prepare(
    items: Sequence[PathMessage],
    *,
    budget: Budget,
    tokens: MessageTokens,
    tool_result_cap: int | None = None,
) -> View:
    """The view of a path before anything makes room: it may be larger than the budget.

    Its tokens are what a threshold is compared with (`Budget.is_over`).
    """
    with collector_off():
        view = pair(sanitize(items, tokens), tokens)
    if tool_result_cap is not None:
        view = shorten_larger(view, tool_result_cap, tokens, role="toolResult")
    return shorten_larger(view, budget.message_cap, tokens)
