"""Making room: what gives way when a view is larger than its budget.

The rungs of a ladder, mildest first; the first one that makes the view fit is the last
that is taken. The newest request is on none of them: in the end it is shortened, never
left out. Source: spec 3, The way of a message (limit) and Budget and compaction (Overflow).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise

from strandline.context.budget import Budget
from strandline.context.shorten import shorten_larger
from strandline.context.tokens import MessageTokens
from strandline.context.turns import is_summary, newest_request, turn_starts, unit_starts
from strandline.context.view import Decision, View, ViewMessage
from strandline.errors import ContextOverflow

SMALLEST_CAP_TOKENS = 64
"""Shortening a message to less than this leaves only the note."""

LARGEST_PARTS = 3
"""How many parts an overflow names."""

_MORE_ROOM = "compact the session, start a new one, or use a model with a larger window"
_LARGER_MAX = "the setting context.maxTokens leaves no more room; raise it"

Rung = Callable[[View, Budget, MessageTokens], View]


def make_room(view: View, budget: Budget, tokens: MessageTokens) -> View:
    """The view within the budget, as near to it as the ladder reaches."""
    for rung in _LADDER:
        if view.tokens <= budget.view_limit:
            break
        view = rung(view, budget, tokens)
    return view


def _shorten_tool_results(view: View, budget: Budget, tokens: MessageTokens) -> View:
    return _shorten_until_it_fits(view, budget, tokens, "toolResult", budget.tool_result_cap)


def _leave_out_oldest_turns(view: View, budget: Budget, _tokens: MessageTokens) -> View:
    request = newest_request(view.messages)
    starts = turn_starts(view.messages)
    newest = max((s for s in starts if request is None or s <= request), default=0)
    parts = [range(a, b) for a, b in pairwise([*starts, len(view.messages)])]
    why = _beyond(budget, "oldest_turns", "the oldest turns go first")
    return _leave_out(view, budget, [p for p in parts if p.start < newest], _summaries(view), why)


def _leave_out_oldest_steps(view: View, budget: Budget, _tokens: MessageTokens) -> View:
    """Within what is left: the oldest messages, each with its results, but the newest."""
    starts = unit_starts(view.messages)
    kept = {newest_request(view.messages), *starts[-1:], *_summaries(view)}
    parts = [range(a, b) for a, b in pairwise([*starts, len(view.messages)]) if a not in kept]
    why = _beyond(budget, "oldest_steps", "the newest turn alone is too large")
    return _leave_out(view, budget, parts, set(), why)


def _shorten_all(view: View, budget: Budget, tokens: MessageTokens) -> View:
    return _shorten_until_it_fits(view, budget, tokens, None, SMALLEST_CAP_TOKENS)


def _keep_newest_request(view: View, budget: Budget, tokens: MessageTokens) -> View:
    request = newest_request(view.messages)
    if request is None:
        return view
    why = _beyond(budget, "all_but_request", "only the newest request fits")
    others = [range(request + 1, len(view.messages)), range(request)]
    alone = _leave_out(view, budget, others, set(), why)
    return shorten_larger(alone, budget.view_limit, tokens)


_LADDER: tuple[Rung, ...] = (
    _shorten_tool_results,
    _leave_out_oldest_turns,
    _shorten_tool_results,  # of the newest turn, if that is what is left
    _leave_out_oldest_steps,
    _shorten_all,
    _keep_newest_request,
)


def _shorten_until_it_fits(
    view: View, budget: Budget, tokens: MessageTokens, role: str | None, smallest: int
) -> View:
    """Halves the cap from `message_cap` down to `smallest` until the view fits.

    Where even the smallest cap is not enough, the view stays as it is: what is kept on a
    later rung should not have suffered for nothing.
    """
    for cap in _halves(budget.message_cap, smallest):
        at_best = sum(
            min(said.tokens, cap) if role in {None, said.message["role"]} else said.tokens
            for said in view.messages
        )
        if at_best <= budget.view_limit:
            shorter = shorten_larger(view, cap, tokens, role=role)
            if shorter.tokens <= budget.view_limit:
                return shorter
    return view


def _halves(cap: int, smallest: int) -> Iterator[int]:
    while cap // 2 >= smallest:
        cap //= 2
        yield cap


def _leave_out(
    view: View, budget: Budget, parts: Iterable[range], spared: set[int], why: Decision
) -> View:
    """Leaves out parts in the order given, `spared` places excepted, until the view fits."""
    excess = view.tokens - budget.view_limit
    gone: set[int] = set()
    for part in parts:
        if excess <= 0:
            break
        places = [index for index in part if index not in spared]
        excess -= sum(view.messages[index].tokens for index in places)
        gone.update(places)
    kept = [said for index, said in enumerate(view.messages) if index not in gone]
    left_out = [view.messages[index].noted(why) for index in sorted(gone)]
    return view.to(kept, left_out)


def _beyond(budget: Budget, rule: str, reason: str) -> Decision:
    return Decision("left_out", "limit", rule, f"beyond {budget.view_limit:,} tokens: {reason}")


def _summaries(view: View) -> set[int]:
    """The place of the summary that stands for everything before it."""
    return {0} if view.messages and is_summary(view.messages[0]) else set()


def overflow(view: View, budget: Budget) -> ContextOverflow:
    """The error that says which parts of a view are the largest."""
    parts = [(said.tokens, _name(said)) for said in view.messages]
    parts.append((budget.fixed, "the system prompt and tools"))
    largest = sorted(parts, reverse=True)[:LARGEST_PARTS]
    named = ", ".join(f"{name}: {size:,}" for size, name in largest if size)
    return ContextOverflow(
        f"the context takes {view.tokens:,} tokens and may take {budget.view_limit:,} "
        f"(largest parts: {named})",
        remedy=_LARGER_MAX if budget.view_limit < budget.limit else _MORE_ROOM,
    )


def _name(said: ViewMessage) -> str:
    role = said.message.get("role")
    tool = f" of {said.message.get('toolName')}" if role == "toolResult" else ""
    return f"{role}{tool} in entry {said.entry_id or '(none)'}"
