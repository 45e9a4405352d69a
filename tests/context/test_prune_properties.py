"""The invariants of spec 3 for pruning, over paths, rules and clocks of every kind."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from strandline.context.clean_path import Clean, CleanPath
from strandline.context.policy import (
    AgeRule,
    CacheAware,
    ContextPolicy,
    LayerSummaries,
    ToolResultPruning,
)
from strandline.context.prune import (
    LayerSummary,
    Moment,
    Pruned,
    PruneMemo,
    SummaryWanted,
    prune,
)
from strandline.context.tokens import HeuristicCounter, MessageTokens
from strandline.context.turns import is_summary_of_any_kind, newest_request
from strandline.context.view import ViewMessage
from strandline.transcript.context import PathMessage
from strandline.transcript.live_context import MessagesSoFar
from strandline.transcript.messages import Message

COUNTER = HeuristicCounter()
CAP = 1 << 16
START_MS = 1_700_000_000_000
SECOND, MINUTE, HOUR = 1000, 60_000, 3_600_000
GAPS = [0, SECOND, 30 * SECOND, MINUTE, 4 * MINUTE, 6 * MINUTE, HOUR, 7 * HOUR, 50 * HOUR]
ODD_GAPS = [*GAPS, -3 * MINUTE, 400 * HOUR, None]

SIZE = st.sampled_from([1, 5, 20, 100])
TEXT = SIZE.map(lambda words: "word " * words)


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _call(call_id: str) -> dict[str, Any]:
    return {"type": "toolCall", "id": call_id, "name": "read", "arguments": {}}


def _result(call_id: str, text: str, *, image: bool) -> Message:
    content = [_text(text)]
    if image:
        content.append({"type": "image", "data": "aGk=", "mimeType": "image/png"})
    return {"role": "toolResult", "toolCallId": call_id, "toolName": "Read", "content": content}


@st.composite
def _parts(draw: st.DrawFn, number: int) -> list[Message]:
    """A few messages that belong together; results may be missing or come later."""
    kind = draw(st.sampled_from(["user", "user", "answer", "tools", "tools", "branch", "custom"]))
    text = draw(TEXT)
    if kind == "user":
        return [{"role": "user", "content": text}]
    if kind == "answer":
        return [{"role": "assistant", "content": [_text(text)], "stopReason": "stop"}]
    if kind == "branch":
        return [{"role": "branchSummary", "summary": text}]
    if kind == "custom":
        return [{"role": "custom", "customType": "note", "content": text}]
    ids = [f"c{number}.{n}" for n in range(draw(st.integers(1, 3)))]
    asking = {"role": "assistant", "content": [*map(_call, ids)], "stopReason": "toolUse"}
    answered = ids if draw(st.booleans()) else ids[1:]
    image = draw(st.sampled_from([False, False, False, True]))
    return [asking, *(_result(each, draw(TEXT), image=image) for each in answered)]


@st.composite
def paths(draw: st.DrawFn, gaps: Sequence[int | None] = ODD_GAPS) -> list[PathMessage]:
    """A path, oldest first. A gap of None is a message that does not say its time."""
    said: list[Message] = []
    for number in range(draw(st.integers(1, 12))):
        said += draw(_parts(number))
    if draw(st.booleans()):
        late = draw(st.integers(0, 12))
        said.append(_result(f"c{late}.0", draw(TEXT), image=False))
    if draw(st.booleans()):
        said.insert(0, {"role": "compactionSummary", "summary": draw(TEXT)})
    if draw(st.sampled_from([True, True, False])):
        said.append({"role": "user", "content": draw(TEXT)})
    now, items = START_MS, []
    for number, message in enumerate(said):
        gap = draw(st.sampled_from(gaps))
        now += gap or 0
        timed = message if gap is None else {**message, "timestamp": now}
        items.append(PathMessage(f"e{number}", timed))
    return items


RULE = st.builds(
    AgeRule,
    st.sampled_from([MINUTE, 5 * MINUTE, HOUR, 6 * HOUR, 24 * HOUR, None]),
    st.sampled_from(["all", "summary", "summary", "none", 0, 1, 2, 5]),
)
RESULTS = st.one_of(
    st.just(ToolResultPruning()),
    st.builds(
        ToolResultPruning,
        mode=st.just("cache-ttl"),
        keep_last_assistants=st.integers(0, 3),
        soft_trim_ratio=st.sampled_from([0.0, 0.3]),
        hard_clear_ratio=st.sampled_from([0.1, 0.5]),
        min_prunable_chars=st.sampled_from([0, 200]),
        soft_max_chars=st.sampled_from([0, 60]),
        soft_head_chars=st.just(20),
        soft_tail_chars=st.just(10),
        hard_clear=st.booleans(),
        deny=st.sampled_from([(), ("re*",)]),
    ),
)
POLICIES = st.builds(
    ContextPolicy,
    max_messages=st.one_of(st.none(), st.integers(0, 8)),
    max_tokens=st.one_of(st.none(), st.sampled_from([0, 20, 60, 150, 400])),
    ttl=st.one_of(st.none(), st.lists(RULE, max_size=4).map(tuple)),
    summaries=st.builds(LayerSummaries, enabled=st.booleans(), cached=st.booleans()),
    tool_results=RESULTS,
    cache_aware=st.builds(CacheAware, st.booleans(), st.sampled_from([0.0, 0.5, 0.8])),
)
LIMIT = st.sampled_from([40, 200, 1000, 10_000])
PINS = st.frozensets(st.integers(0, 20).map(lambda number: f"e{number}"), max_size=2)


def clean_of(items: Sequence[PathMessage]) -> Clean:
    return CleanPath(MessageTokens(COUNTER)).follow(MessagesSoFar([*items]), CAP)


def bytes_of(pruned: Pruned) -> str:
    def told(said: ViewMessage) -> list[object]:
        return [said.entry_id, said.message, said.tokens, repr(said.decisions)]

    view, wanted = pruned.view, pruned.wanted
    return json.dumps([[*map(told, view.messages)], [*map(told, view.left_out)], repr(wanted)])


def summary_of(wanted: SummaryWanted, made_ms: int) -> LayerSummary:
    return LayerSummary(wanted.covers, "what was said", "extractive", made_ms, wanted.rules)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Clean, ContextPolicy, Moment]:
    clean = clean_of(draw(paths()))
    policy = draw(POLICIES)
    now_ms = START_MS + draw(st.sampled_from([-HOUR, *GAPS, 20 * HOUR]))
    moment = Moment(now_ms, draw(LIMIT), draw(PINS))
    if draw(st.booleans()):
        earlier = draw(st.integers(0, len(clean.messages)))
        before = replace(moment, now_ms=now_ms - draw(st.sampled_from(GAPS)))
        wanted = prune(clean, policy, before, MessageTokens(COUNTER), end=earlier).wanted
        if wanted:
            moment = replace(moment, summaries=(summary_of(wanted, before.now_ms),))
    return clean, policy, moment


def pruned_of(clean: Clean, policy: ContextPolicy, moment: Moment, **more: Any) -> Pruned:
    return prune(clean, policy, moment, MessageTokens(COUNTER), **more)


def is_layer_summary(said: ViewMessage) -> bool:
    return (
        bool(said.decisions)
        and said.decisions[-1].outcome == "added"
        and (said.decisions[-1].step == "summary")
    )


@given(cases())
@settings(max_examples=200)
def test_a_call_and_its_results_stay_or_go_together(
    case: tuple[Clean, ContextPolicy, Moment],
) -> None:
    waiting: list[str] = []
    for said in pruned_of(*case).view.messages:
        message = said.message
        if message["role"] == "toolResult":
            assert message["toolCallId"] in waiting
            waiting.remove(message["toolCallId"])
            continue
        assert not waiting
        content = message["content"] if isinstance(message["content"], list) else []
        waiting = [block["id"] for block in content if block["type"] == "toolCall"]
    assert not waiting


@given(cases())
@settings(max_examples=200)
def test_every_message_is_in_the_view_or_left_out_once_by_a_rule_that_is_set(
    case: tuple[Clean, ContextPolicy, Moment],
) -> None:
    clean, policy, _ = case
    view = pruned_of(*case).view
    own = [said for said in view.messages if not is_layer_summary(said)]
    out = list(view.left_out)[len(clean.left_out) :]
    assert list(view.left_out)[: len(clean.left_out)] == list(clean.left_out)
    entries = Counter(said.entry_id for said in [*own, *out])
    assert entries == Counter(said.entry_id for said in clean.messages)
    is_set = {
        "maxMessages": policy.max_messages is not None,
        "maxTokens": policy.max_tokens is not None,
        "ttl": bool(policy.ttl),
        "summary": any(rule.keep == "summary" for rule in policy.ttl or ()),
    }
    for said in out:
        why = said.decisions[-1]
        assert is_set[why.step]
        assert why.outcome in {"left_out", "summarised"}
        if why.outcome == "summarised":
            assert policy.summaries.enabled
            assert any(map(is_layer_summary, view.messages))
    assert sum(map(is_layer_summary, view.messages)) <= 1


@given(cases())
@settings(max_examples=200)
def test_order_is_kept_and_what_no_rule_changed_is_the_same_object(
    case: tuple[Clean, ContextPolicy, Moment],
) -> None:
    clean, _, _ = case
    rest = iter(clean.messages)
    for said in pruned_of(*case).view.messages:
        if is_layer_summary(said):
            continue
        original = next(each for each in rest if each.entry_id == said.entry_id)
        new = said.decisions[len(original.decisions) :]
        assert said is original if not new else said.decisions[: -len(new)] == original.decisions
        if all(why.outcome == "kept" for why in new):
            assert said.message is original.message


@given(cases())
@settings(max_examples=200)
def test_the_running_turn_pins_and_summaries_are_kept(
    case: tuple[Clean, ContextPolicy, Moment],
) -> None:
    clean, _, moment = case
    kept = {said.entry_id for said in pruned_of(*case).view.messages}
    request = newest_request(clean.messages)
    running = clean.messages[request:] if request is not None else ()
    assert {said.entry_id for said in running} <= kept
    for said in clean.messages:
        if said.entry_id in moment.pins or is_summary_of_any_kind(said):
            assert said.entry_id in kept


@given(cases())
@settings(max_examples=200)
def test_limits_hold_but_for_what_no_layer_touches(
    case: tuple[Clean, ContextPolicy, Moment],
) -> None:
    clean, policy, moment = case
    view = pruned_of(*case).view
    own = [said for said in view.messages if not is_layer_summary(said)]
    untouched = prune(
        clean,
        replace(policy, max_messages=0, cache_aware=CacheAware()),
        moment,
        MessageTokens(COUNTER),
    ).view.messages
    if policy.max_messages is not None:
        counted = [said for said in own if not is_summary_of_any_kind(said)]
        assert len(counted) <= policy.max_messages or len(own) == len(untouched)
    if policy.max_tokens is not None:
        taken = sum(said.tokens for said in own)
        assert taken <= policy.max_tokens or len(own) == len(untouched)


@given(cases(), st.sampled_from([1, SECOND, MINUTE, HOUR, 30 * HOUR]))
@settings(max_examples=200)
def test_until_it_may_change_the_clock_changes_nothing(
    case: tuple[Clean, ContextPolicy, Moment], later_ms: int
) -> None:
    clean, policy, moment = case
    now = pruned_of(*case)
    assert now.valid_until_ms > moment.now_ms
    latest = moment.now_ms + later_ms
    if now.valid_until_ms < math.inf:
        latest = min(latest, math.ceil(now.valid_until_ms) - 1)
    assert bytes_of(pruned_of(clean, policy, replace(moment, now_ms=latest))) == bytes_of(now)


@given(paths(), POLICIES, LIMIT, PINS, st.data())
@settings(max_examples=150)
def test_a_memo_changes_nothing_however_the_path_grows(
    items: list[PathMessage],
    policy: ContextPolicy,
    limit: int,
    pins: frozenset[str],
    data: st.DataObject,
) -> None:
    growing: list[Any] = []
    path, memo, tokens = CleanPath(MessageTokens(COUNTER)), PruneMemo(), MessageTokens(COUNTER)
    now_ms = START_MS
    for item in items:
        growing.append(item)
        if data.draw(st.booleans()):
            now_ms += data.draw(st.sampled_from(GAPS))
            moment = Moment(now_ms, limit, pins)
            clean = path.follow(MessagesSoFar(growing), CAP)
            remembered = prune(clean, policy, moment, tokens, memo=memo)
            assert bytes_of(remembered) == bytes_of(pruned_of(clean_of(growing), policy, moment))


@given(paths(), POLICIES, LIMIT, PINS)
@settings(max_examples=150)
def test_the_beginning_of_a_path_is_pruned_as_if_there_were_no_more(
    items: list[PathMessage], policy: ContextPolicy, limit: int, pins: frozenset[str]
) -> None:
    clean, memo = clean_of(items), PruneMemo()
    for place in clean.calls:
        number = next(
            n for n, i in enumerate(items) if i.entry_id == clean.messages[place].entry_id
        )
        shorter = clean_of(items[:number])
        if list(shorter.messages) != list(clean.messages[:place]):
            continue  # a result came late
        moment = Moment(int(clean.messages[place].said_ms or START_MS), limit, pins)
        at_call = pruned_of(clean, policy, moment, end=place, memo=memo)
        then = pruned_of(shorter, policy, moment)
        assert at_call.view.messages == then.view.messages
        assert at_call.wanted == then.wanted


@given(paths(), POLICIES, LIMIT)
@settings(max_examples=150)
def test_what_was_trimmed_stays_so_and_changes_only_when_the_cache_is_lost(
    items: list[PathMessage], policy: ContextPolicy, limit: int
) -> None:
    assume(policy.tool_results.mode != "off")
    clean, memo = clean_of(items), PruneMemo()
    trims = replace(policy, max_messages=None, max_tokens=None, ttl=None, cache_aware=CacheAware())
    known: dict[int, Message] = {}
    steps: dict[int, int] = {}
    previous_ms: float | None = None
    for end in clean.calls:
        now_ms = clean.messages[end].said_ms
        if now_ms is None:
            continue
        before = known.copy()
        moment = Moment(int(now_ms), limit)
        view = pruned_of(clean, trims, moment, end=end, memo=memo).view
        for place, said in enumerate(view.messages):
            rules = [w.rule.split()[0] for w in said.decisions if w.step == "toolResults"]
            step = ["raw", "softTrim", "hardClear"].index(rules[0] if rules else "raw")
            assert step >= steps.get(place, 0)
            steps[place], known[place] = step, said.message
        lost = previous_ms is None or now_ms - previous_ms > policy.tool_results.ttl_ms
        changed = any(known[place] != message for place, message in before.items())
        if changed and not lost:
            assert clean.tokens_to[end] > limit * 7 // 8
        previous_ms = now_ms


@given(paths([0, SECOND, MINUTE, 4 * MINUTE, 6 * MINUTE, HOUR]), POLICIES)
@settings(max_examples=200)
def test_inside_the_cache_lifetime_a_view_continues_the_one_before_unless_a_rule_forces_it(
    items: list[PathMessage], policy: ContextPolicy
) -> None:
    policy = replace(
        policy,
        cache_aware=CacheAware(enabled=True),
        tool_results=ToolResultPruning(),
        summaries=LayerSummaries(enabled=False),
    )
    clean, memo = clean_of(items), PruneMemo()
    plain = replace(policy, cache_aware=CacheAware())
    for earlier, later in pairwise(clean.calls):
        before_ms, now_ms = clean.messages[earlier].said_ms, clean.messages[later].said_ms
        assert before_ms is not None
        assert now_ms is not None
        moment = Moment(int(now_ms), 10_000)
        before = pruned_of(clean, policy, Moment(int(before_ms), 10_000), end=earlier, memo=memo)
        view = pruned_of(clean, policy, moment, end=later, memo=memo).view
        by_rules = pruned_of(clean, plain, moment, end=later).view
        if now_ms - before_ms > policy.cache_lifetime_ms:
            assert [s.entry_id for s in view.messages] == [s.entry_id for s in by_rules.messages]
            continue
        told = [s.entry_id for s in before.view.messages]
        kept = [s.entry_id for s in view.messages]
        if kept[: len(told)] != told:
            # By the plain rules too, something goes out of it, or has come in by its age.
            by_rule = {s.entry_id for s in by_rules.messages}
            said = {s.entry_id for s in clean.messages[:earlier]}
            assert set(told) - by_rule or (said & by_rule) - set(told)
