"""Pairing, coverage and fit, the whole way of a message, on every tip of random trees.

A session on a real store -> its path -> cleaned -> pruned by rules of every kind -> within the
budget -> a request in each format. Source: spec 3, The way of a message (Invariants).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.context.assemble import within
from strandline.context.explain import COMPACTION, Row, Sum
from strandline.context.policy import ContextPolicy
from strandline.context.tokens import MessageTokens
from strandline.context.turns import is_reference
from strandline.context.view import View
from strandline.errors import ContextOverflow
from strandline.transcript.messages import Message
from strandline.transcript.session import Session

CLEANING = {"sanitize", "pairing"}
TOO_SMALL = 8
"""Fewer tokens than these hold no message at all (`maxTokens` 0)."""


@settings(max_examples=200)
@given(data=st.data())
def test_on_every_tip_of_any_tree_nothing_is_lost_unpaired_or_too_large(
    ways: Any, data: st.DataObject
) -> None:
    with ways.begin() as grown:
        for step in data.draw(ways.growth):
            grown.take(step)
        way = ways.way(grown.session, data.draw(ways.setups))
        now_ms = data.draw(ways.gaps) + grown.clock.now_ms()
        for tip in grown.tips:
            looked = way.look(tip, now_ms)
            _is_paired([said.message for said in looked.view.messages])
            _is_covered(looked, way.setup.policy, grown.session, tip)
            _adds_up(looked)
            _fits(looked, way.tokens)
            _names_the_largest(looked, way.tokens)
            if looked.view.messages:
                for api in ways.formats:
                    assert ways.refusal(api, looked.view) is None


def _is_paired(messages: list[Message]) -> None:
    """Every call has one result, at once behind it, and every result its call."""
    open_calls: list[str] = []
    for message in messages:
        if message["role"] == "toolResult":
            assert message["toolCallId"] in open_calls
            open_calls.remove(message["toolCallId"])
            continue
        assert not open_calls
        if message["role"] == "assistant":
            open_calls = [b["id"] for b in message["content"] if b["type"] == "toolCall"]
            assert not (open_calls and message["stopReason"] in {"aborted", "error"})
    assert not open_calls


# -- coverage ------------------------------------------------------------------------------


def _is_covered(looked: Any, policy: ContextPolicy, session: Session, tip: str) -> None:
    """Each message of the path is in one row, which says truly what became of it."""
    rows = [row for row in looked.explanation.rows if row.entry_id is not None]
    path = [session.entry(entry_id) for entry_id in session.path(tip)]
    assert [row.entry_id for row in rows] == [entry.id for entry in path if _speaks(entry.data)]
    row_of = {row.entry_id: row for row in looked.explanation.rows if row.entry_id}
    sent = {said.entry_id: said for said in looked.view.messages if said.entry_id}
    given_to_rules = {item.entry_id: item.message for item in looked.context.items}
    for row in rows:
        assert (row.entry_id in sent) == (row.outcome in {"kept", "shortened"})
        if row.entry_id in sent:
            said = sent[row.entry_id]
            assert said.message is given_to_rules[row.entry_id] or said.decisions
        elif row.outcome == "summarised" and row.layer == COMPACTION:
            _is_told_in_a_compaction(row, row_of)
        else:
            assert _is_set(row.layer, policy, looked)
    for added in (row for row in looked.explanation.rows if row.entry_id is None):
        assert added.outcome in {"added", "left_out", "summarised"}
        assert added.role in {"toolResult", "user"}


def _speaks(data: dict[str, Any]) -> bool:
    """Whether an entry has something for a model."""
    match data["type"]:
        case "message":
            return isinstance(data.get("message"), dict)
        case "branch_summary":
            return bool(data.get("summary"))
        case kind:
            return kind in {"custom_message", "compaction"}


def _is_told_in_a_compaction(row: Row, row_of: dict[str, Row]) -> None:
    """Its summary is in the view, or is told in one that is, or went by a decision of its own."""
    compaction = row_of[row.reason.rsplit(" ", 1)[1]]
    assert compaction.entry_id != row.entry_id
    if compaction.layer == COMPACTION:
        _is_told_in_a_compaction(compaction, row_of)
    else:
        assert compaction.outcome in {"kept", "shortened"} or compaction.layer in {
            "limit",
            *CLEANING,
        }


def _is_set(layer: str | None, policy: ContextPolicy, looked: Any) -> bool:
    """Whether the rule is configured that left a message out, or told it in a layer's summary."""
    keeps = [rule.keep for rule in policy.ttl or ()]
    told = [said for said in looked.pruned.messages if said.entry_id is None]
    is_set: dict[str, bool] = {
        "sanitize": True,
        "pairing": True,
        "limit": looked.pruned.tokens > looked.budget.view_limit,
        "maxMessages": policy.max_messages is not None,
        "maxTokens": policy.max_tokens is not None,
        "ttl": bool(policy.ttl),
        "summary": "summary" in keeps and bool(told or not policy.summaries.enabled),
    }
    return is_set[layer or ""]


def _adds_up(looked: Any) -> None:
    """The rows add up to the totals, and the totals without what was compacted to the path."""
    explanation, view = looked.explanation, looked.view
    rows: Sequence[Row] = explanation.rows
    assert explanation.totals.all == Sum(len(rows), sum(row.tokens for row in rows))
    items = {item.entry_id for item in looked.context.items}
    ours = [row for row in rows if row.entry_id is None or row.entry_id in items]
    by_outcome: Counter[str] = Counter()
    by_layer: Counter[str] = Counter()
    for row in ours:
        by_outcome[row.outcome] += row.tokens
        by_layer[row.layer or ""] += row.tokens
    there = explanation.in_context
    assert there.all.messages == len(ours)
    assert {each: total.tokens for each, total in there.by_outcome.items()} == by_outcome
    by_layer.pop("", None)
    assert {each: total.tokens for each, total in there.by_layer.items()} == by_layer
    sent = [by_outcome[each] for each in ("kept", "shortened", "added")]
    assert sum(sent) == explanation.room.used == view.tokens


# -- the view fits -------------------------------------------------------------------------


def _fits(looked: Any, tokens: MessageTokens) -> None:
    """It is within the budget, with the newest request in it."""
    view: View = looked.view
    for said in (*looked.pruned.messages, *view.messages):
        assert said.tokens == tokens.count(said.message)
    request = _newest_request(looked.pruned)
    if looked.overflow:
        assert request is None or looked.budget.view_limit < TOO_SMALL
        return
    assert sum(said.tokens for said in view.messages) == view.tokens <= looked.budget.view_limit
    if request is not None:
        assert _newest_request(view) == request


def _newest_request(view: View) -> str | None:
    people = [s for s in view.messages if s.message["role"] == "user" and not is_reference(s)]
    return people[-1].entry_id if people else None


def _names_the_largest(looked: Any, tokens: MessageTokens) -> None:
    """Where nothing may give way, the overflow says which parts are the largest."""
    view, budget = looked.pruned, looked.budget
    try:
        assert within(view, budget=budget, tokens=tokens) is view
        assert view.tokens <= budget.view_limit
    except ContextOverflow as overflow:
        assert view.tokens > budget.view_limit
        sizes = sorted([budget.fixed, *(said.tokens for said in view.messages)], reverse=True)
        named = [int(size) for size in re.findall(r": ([\d,]+)", str(overflow).replace(",", ""))]
        assert named == [size for size in sizes[:3] if size]


@pytest.mark.xfail(strict=True, raises=ContextOverflow, reason="maxTokens has no smallest value")
@pytest.mark.parametrize("most", [0, 3])
def test_whatever_max_tokens_says_the_newest_request_can_be_sent(ways: Any, most: int) -> None:
    """docs/context.md: it is kept, and shortened."""
    with ways.begin() as grown:
        grown.user(5, "now")
        way = ways.way(grown.session, replace(ways.setup, policy=ContextPolicy(max_tokens=most)))
        looked = way.look(None, grown.clock.now_ms())
        within(looked.pruned, budget=looked.budget, tokens=way.tokens, limit="oldest_turns")
