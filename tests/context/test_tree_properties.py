"""Pairing, coverage and fit over random trees: branches, moves, summaries, compactions.

Source: spec 3, The way of a message (Invariants). `test_context_properties` has the same for
any list of messages; here they come out of real sessions, and every tip is looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from strandline import SessionManager
from strandline.context.assemble import assemble
from strandline.context.budget import Budget, CompactionSettings, resolve_budget
from strandline.context.compaction import CompactionPlan, plan_compaction
from strandline.context.extractive import extract_summary
from strandline.context.tokens import HeuristicCounter, MessageTokens
from strandline.context.view import View
from strandline.errors import CompactionRefused
from strandline.transcript.messages import Message

COUNTER = HeuristicCounter()
TOLD = {"message", "custom_message", "branch_summary"}
"""Entries that a model is told of."""


@dataclass
class Grown:
    """A session that grows; `covers` says which entries each compaction stands for."""

    session: SessionManager
    budget: Budget
    tokens: MessageTokens = field(default_factory=lambda: MessageTokens(COUNTER))
    covers: dict[str, set[str]] = field(default_factory=dict)
    compactions: int = 0

    def say(self, role: str, content: Any, **more: Any) -> None:
        self.session.append_message({"role": role, "content": content, "timestamp": 1, **more})

    def somewhere(self, number: int) -> str | None:
        ids = [entry.id for entry in self.session.entries()]
        return ids[number % len(ids)] if ids else None


Doing = Callable[[Grown], None]


def user(size: int) -> Doing:
    return lambda grown: grown.say("user", "Is the lantern lit? " * size)


def answer(size: int) -> Doing:
    text = [{"type": "text", "text": "It is lit. " * size}]
    return lambda grown: grown.say("assistant", text, stopReason="stop")


def tools(names: list[str], answered: list[str], size: int) -> Doing:
    """A message that calls, and results for some of it and for what nobody called."""

    def act(grown: Grown) -> None:
        calls = [{"type": "toolCall", "id": n, "name": "read", "arguments": {}} for n in names]
        grown.say("assistant", calls, stopReason="toolUse")
        for name in answered:
            text = [{"type": "text", "text": "row\n" * size}]
            grown.say("toolResult", text, toolCallId=name, toolName="read", isError=False)

    return act


def command(grown: Grown) -> None:
    grown.session.append_message({"role": "bashExecution", "command": "ls", "output": "a b"})


def note(grown: Grown) -> None:
    grown.session.append_custom_message("a.plugin", "it is dark")


def branch(number: int) -> Doing:
    def act(grown: Grown) -> None:
        if (entry := grown.somewhere(number)) is not None:
            grown.session.branch(entry)

    return act


def branch_with_summary(number: int) -> Doing:
    return lambda grown: void(
        grown.session.branch_with_summary(grown.somewhere(number), "The other way was dark.")
    )


def label(number: int) -> Doing:
    def act(grown: Grown) -> None:
        if (entry := grown.somewhere(number)) is not None:
            grown.session.append_label(entry, "here")

    return act


def void(_: object) -> None:
    """For doings that are expressions."""


def compact(grown: Grown) -> None:
    """A real compaction of where the session stands: one entry more, or a reason."""
    session = grown.session
    plan = plan_compaction(session.build_context().items, grown.tokens, grown.budget, force=True)
    if not isinstance(plan, CompactionPlan):
        assert plan.reason
        return
    text = plan.summary(extract_summary(plan.request, COUNTER), COUNTER)
    before = [entry.raw for entry in session.entries()]
    try:
        after = plan.tokens_after(text, grown.tokens)
    except CompactionRefused:
        return  # the reason is in it, and nothing was written
    assert after < plan.tokens_before
    made = session.append_compaction(text, plan.first_kept_entry_id, plan.tokens_before)
    lines = [entry.raw for entry in session.entries()]
    assert lines[:-1] == before, "one entry more, and nothing else is changed"
    grown.covers[made] = _all_of(grown, plan.summarised)
    grown.compactions += 1


def _all_of(grown: Grown, ids: Any) -> set[str]:
    """These, and what the summaries among them stand for."""
    return set(ids).union(*(grown.covers.get(entry, set()) for entry in ids))


SIZE = st.sampled_from([1, 20, 400])
NAMES = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=3, unique=True)
DOINGS = st.lists(
    st.one_of(
        SIZE.map(user),
        SIZE.map(answer),
        st.builds(tools, NAMES, st.lists(st.sampled_from("abcd"), max_size=3), SIZE),
        st.sampled_from([command, note, compact, compact]),
        st.integers(0, 50).map(branch),
        st.integers(0, 50).map(branch_with_summary),
        st.integers(0, 50).map(label),
    ),
    min_size=2,
    max_size=25,
)


@settings(deadline=None, max_examples=150)
@given(doings=DOINGS, window=st.sampled_from([4_096, 8_192, 32_000]))
def test_on_every_tip_of_any_tree_nothing_is_lost_unpaired_or_too_large(
    doings: list[Doing], window: int
) -> None:
    settings_ = CompactionSettings(reserve_tokens=500, reserve_tokens_floor=0)
    with SessionManager.in_memory() as session:
        grown = Grown(session, resolve_budget(window, settings_))
        for doing in doings:
            doing(grown)
        for tip in [*session.tips(), session.leaf_id]:
            _hold(grown, tip)


def _hold(grown: Grown, tip: str | None) -> None:
    session, budget = grown.session, grown.budget
    if tip is None:
        return
    items = session.build_context(tip).items
    view = assemble(items, budget=budget, tokens=grown.tokens, limit="oldest_turns")
    again = assemble(items, budget=budget, tokens=MessageTokens(COUNTER), limit="oldest_turns")
    assert view == again, "the same path gives the same view"
    assert view.tokens <= budget.limit
    _is_paired([said.message for said in view.messages])
    _is_covered(grown, tip, view)


def _is_covered(grown: Grown, tip: str, view: View) -> None:
    assert all(said.decisions for said in view.left_out), "whatever is left out has its reason"
    there = {said.entry_id for said in (*view.messages, *view.left_out)}
    accounted = _all_of(grown, [entry for entry in there if entry is not None])
    path = [grown.session.entry(entry_id) for entry_id in grown.session.path(tip)]
    assert {entry.id for entry in path if entry.type in TOLD} <= accounted


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
    assert not open_calls
