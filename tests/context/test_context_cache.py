"""The context cache's keys and values: what comes out is what was computed, or nothing."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from dataclasses import dataclass, fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from strandline.context.cache import LARGEST_VALUE_BYTES, ContextKey, digest_of
from strandline.context.cached_view import FORMAT, decode, encode
from strandline.context.clean_path import Clean, CleanPath
from strandline.context.policy import AgeRule, CacheAware, ContextPolicy, ToolResultPruning
from strandline.context.prune import LayerSummary, Moment, prune, rules_digest
from strandline.context.prune.compose import Omitted
from strandline.context.tokens import HeuristicCounter, MessageTokens
from strandline.context.view import Decision, LeftOut, View, ViewMessage
from strandline.stores.context_cache_memory import MemoryContextCache
from strandline.testing import SimulatedClock
from strandline.transcript.context import PathMessage
from strandline.transcript.messages import Message

CAP = 50
NOW = 1_000

TEXT = st.sampled_from(["hi", "", "a rule: never", "half \ud83c", "日本", "long " * 100])
MESSAGES: st.SearchStrategy[Message] = st.one_of(
    st.builds(lambda text, at: {"role": "user", "content": text, "timestamp": at}, TEXT, st.none()),
    st.builds(lambda text: {"role": "user", "content": text, "timestamp": 5}, TEXT),
    st.builds(
        lambda call, stop: {
            "role": "assistant",
            "content": [{"type": "toolCall", "id": call, "name": "read", "arguments": {}}],
            "stopReason": stop,
        },
        st.sampled_from("abc"),
        st.sampled_from(["toolUse", "error"]),
    ),
    st.builds(
        lambda call, text: {"role": "toolResult", "toolCallId": call, "content": text},
        st.sampled_from("abc"),
        TEXT,
    ),
    st.builds(lambda text: {"role": "branchSummary", "summary": text}, TEXT),
)
WHY = [
    Decision("left_out", "maxMessages", "newest", "beyond the newest 3"),
    Decision("kept", "pins", "pin", "the label says so"),
    Decision("shortened", "toolResults", "soft", "half \ud83c"),
]
TO_DO = st.sampled_from(["keep", "keep", "keep", "note", "change", "leave", "leave", "forget"])


def clean_of(messages: list[Message]) -> Clean:
    items = [PathMessage(f"e{n}", said, n) for n, said in enumerate(messages)]
    return CleanPath(MessageTokens(HeuristicCounter())).follow(items, CAP)


@st.composite
def cleans(draw: st.DrawFn) -> Clean:
    return clean_of(draw(st.lists(MESSAGES, max_size=12)))


def added(text: str) -> ViewMessage:
    """A summary in the place of what it tells, as layer 4 puts one."""
    message = {"role": "user", "content": [{"type": "text", "text": text}]}
    return ViewMessage(None, message, 7, (WHY[1],), 2.5)


@st.composite
def pruned(draw: st.DrawFn, clean: Clean) -> View:
    """The path with anything done to any message, as layers and limits may."""
    shown, left = [], []
    for said in clean.messages:
        why = draw(st.sampled_from(WHY))
        match draw(TO_DO):
            case "keep":
                shown.append(said)
            case "note":
                shown.append(said.noted(why))
            case "change":
                shown.append(said.changed({"role": "user", "content": draw(TEXT)}, 3, why))
            case "leave":
                left.append(said.noted(why))
    if draw(st.booleans()):
        shown.insert(draw(st.integers(0, len(shown))), added(draw(TEXT)))
    half = draw(st.integers(0, len(left)))
    before = LeftOut() if draw(st.booleans()) else clean.left_out
    return View(tuple(shown), before.plus(left[:half]).plus(left[half:]))


@st.composite
def cases(draw: st.DrawFn) -> tuple[Clean, View]:
    clean = draw(cleans())
    return clean, draw(pruned(clean))


def value_of(view: View, clean: Clean, key: str = "key", until_ms: float | None = None) -> bytes:
    value = encode(view, clean, key, from_ms=NOW, until_ms=until_ms)
    assert value is not None
    return value


# -- values -----------------------------------------------------------------------------------


@given(cases())
@examples(max_examples=200)
def test_what_is_read_equals_what_was_computed_to_the_last_decision(
    case: tuple[Clean, View],
) -> None:
    clean, view = case
    read = decode(value_of(view, clean), clean, "key", NOW)
    assert read == view
    assert read.tokens == view.tokens
    every = [*view.messages, *view.left_out]
    again = [*read.messages, *read.left_out]
    assert [said.said_ms for said in again] == [said.said_ms for said in every]
    assert json.dumps([s.message for s in again]) == json.dumps([s.message for s in every])
    ours = {id(said) for said in clean.messages if said.entry_id is not None}
    assert all(one is other for one, other in zip(every, again, strict=True) if id(one) in ours)


@given(cases(), st.data())
@examples(max_examples=100)
def test_a_damaged_value_is_none(case: tuple[Clean, View], data: st.DataObject) -> None:
    clean, view = case
    value = bytearray(value_of(view, clean))
    place = data.draw(st.integers(0, len(value) - 1))
    match data.draw(st.sampled_from(["change", "cut", "add"])):
        case "change":
            value[place] ^= data.draw(st.integers(1, 255))
        case "cut":
            del value[place:]
        case _:
            value.insert(place, data.draw(st.integers(0, 255)))
    read = decode(bytes(value), clean, "key", NOW)
    assert read is None or bytes(value) == value_of(view, clean)  # the same byte was added


@given(cases(), cleans())
@examples(max_examples=100)
def test_on_another_path_it_is_none_or_made_of_what_stands_there(
    case: tuple[Clean, View], other: Clean
) -> None:
    clean, view = case
    read = decode(value_of(view, clean), other, "key", NOW)
    if read is None or not clean.messages:
        return
    assert len(clean.messages) == len(other.messages)
    assert read.tokens == view.tokens


@given(cases(), st.integers(-2, 2), st.sampled_from([None, 1, 2]))
@examples(max_examples=100)
def test_it_serves_its_age_window_and_its_key_only(
    case: tuple[Clean, View], moved_ms: int, lasts_ms: int | None
) -> None:
    clean, view = case
    until_ms = None if lasts_ms is None else NOW + lasts_ms
    value = value_of(view, clean, until_ms=until_ms)
    is_within = moved_ms >= 0 and (lasts_ms is None or moved_ms < lasts_ms)
    assert (decode(value, clean, "key", NOW + moved_ms) is not None) == is_within
    assert decode(value, clean, "another key", NOW) is None


def test_what_follows_on_the_path_makes_it_another() -> None:
    messages: list[Message] = [{"role": "user", "content": "hi"}] * 3
    clean = clean_of(messages)
    value = value_of(clean.view, clean)
    assert decode(value, clean_of([*messages, messages[0]]), "key", NOW) is None
    assert decode(value, clean_of(messages), "key", NOW) == clean.view
    changed = clean_of([*messages[:2], {"role": "user", "content": "longer " * 9}])
    assert decode(value, changed, "key", NOW) is None


def test_for_ever_is_said_in_two_ways() -> None:
    clean = clean_of([])
    assert value_of(clean.view, clean, until_ms=float("inf")) == value_of(clean.view, clean)


def test_a_window_of_fractions_of_milliseconds_is_kept() -> None:
    clean = clean_of([])
    value = value_of(clean.view, clean, until_ms=NOW + 0.5)
    assert decode(value, clean, "key", NOW) is not None
    assert decode(value, clean, "key", NOW + 1) is None


def test_a_view_of_a_long_path_is_a_short_value() -> None:
    clean = clean_of([{"role": "user", "content": f"message {n}"} for n in range(5_000)])
    why, messages = WHY[0], clean.messages
    left = [said.noted(why) for said in messages[:4_900]]
    for piece in (left, Omitted(clean, range(4_900), why)):
        view = clean.view.to(messages[4_900:], piece)
        value = value_of(view, clean)
        assert len(value) < 500
        assert decode(value, clean, "key", NOW) == view


@given(st.sets(st.integers(0, 9), min_size=1))
@examples(max_examples=100)
def test_what_pruning_left_out_with_gaps_is_told_with_its_gaps(places: set[int]) -> None:
    call = {"type": "toolCall", "id": "a", "name": "read", "arguments": {}}
    asking = {"role": "assistant", "content": [call], "stopReason": "toolUse"}
    clean = clean_of([asking] * 5)
    view = clean.view.to([], Omitted(clean, sorted(places), WHY[0]))
    assert decode(value_of(view, clean), clean, "key", NOW) == view


POLICIES = [
    ContextPolicy(max_messages=3),
    ContextPolicy(max_tokens=60),
    ContextPolicy(ttl=(AgeRule(4, 2), AgeRule(None, "none"))),
    ContextPolicy(ttl=(AgeRule(2, "all"), AgeRule(None, "summary"))),
    ContextPolicy(
        max_messages=4,
        tool_results=ToolResultPruning("cache-ttl", 1, 0, 0.0, 0.0, 0, 8, 2, 2),
        cache_aware=CacheAware(enabled=True),
    ),
]


@given(cleans(), st.sampled_from(POLICIES), st.integers(0, 12), st.sets(st.integers(0, 12)))
@examples(max_examples=150)
def test_whatever_pruning_makes_of_a_path_comes_back_equal(
    clean: Clean, policy: ContextPolicy, now_ms: int, pins: set[int]
) -> None:
    covers = tuple(said.entry_id for said in clean.messages[:2] if said.entry_id)
    made = LayerSummary(covers, "so far", "acme/one", now_ms, rules_digest(policy))
    moment = Moment(now_ms, 100, frozenset(f"e{n}" for n in pins), [made])
    view = prune(clean, policy, moment, MessageTokens(HeuristicCounter())).view
    value = encode(view, clean, "key", from_ms=now_ms, until_ms=None)
    assert value is not None
    assert decode(value, clean, "key", now_ms) == view


def deep(levels: int) -> Any:
    content: Any = []
    for _ in range(levels):
        content = [content]
    return content


@pytest.mark.parametrize(
    "content",
    [(1, 2), {1: "a number as a key"}, float("nan"), {"a set"}, b"bytes", deep(100_000)],
    ids=["tuple", "key", "nan", "set", "bytes", "deep"],
)
def test_what_json_does_not_give_back_is_not_kept(content: Any) -> None:
    clean = clean_of([])
    view = View((ViewMessage(None, {"role": "user", "content": content}, 1),))
    assert encode(view, clean, "key", from_ms=NOW, until_ms=None) is None


def test_what_is_too_large_is_not_kept() -> None:
    clean = clean_of([])
    view = View((added("x" * LARGEST_VALUE_BYTES),))
    assert encode(view, clean, "key", from_ms=NOW, until_ms=None) is None
    smaller = View((added("x" * (LARGEST_VALUE_BYTES - 1_000)),))
    assert decode(value_of(smaller, clean), clean, "key", NOW) == smaller


# -- what somebody else wrote -----------------------------------------------------------------


def sealed(document: Any) -> bytes:
    """A value with a right checksum, whatever it holds."""
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return FORMAT + hashlib.sha256(body).hexdigest().encode() + b"\n" + body


CLEAN = clean_of(
    [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": [{"type": "text", "text": "two"}]},
        {"role": "user", "content": ""},
        {"role": "user", "content": "three"},
    ]
)
SHOWN = View(
    (CLEAN.messages[0].noted(WHY[1]), CLEAN.messages[1], added("so far")),
    CLEAN.left_out.plus([CLEAN.messages[2].noted(WHY[0])]),
)
DOCUMENT: dict[str, Any] = json.loads(value_of(SHOWN, CLEAN, until_ms=2_000).partition(b"\n")[2])
JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 5),
    st.just(10**400),
    st.floats(),
    st.text(max_size=3),
    st.lists(st.integers(-2, 4), max_size=6),
    st.dictionaries(st.sampled_from(["at", "id", "role"]), st.integers(0, 2)),
)


def places(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a document."""
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    found = [here]
    for key, part in inner:
        is_tree = isinstance(part, dict | list)
        found += places(part, (*here, key)) if is_tree else [(*here, key)]
    return found


@given(st.sampled_from(places(DOCUMENT)[1:]), JUNK, st.sampled_from(["put", "remove"]))
@examples(max_examples=200)
def test_a_forged_value_is_none_or_a_proper_view(
    place: tuple[Any, ...], junk: Any, done: str
) -> None:
    document = json.loads(json.dumps(DOCUMENT))
    *above, last = place
    parent = document
    for key in above:
        parent = parent[key]
    if done == "remove":
        del parent[last]
    else:
        parent[last] = junk
    read = decode(sealed(document), CLEAN, "key", NOW)
    if read is None:
        return
    for said in (*read.messages, *read.left_out):
        assert said.message["role"] in {"user", "assistant", "toolResult"}
        assert type(said.tokens) is int
        assert all(isinstance(why, Decision) for why in said.decisions)
        assert said.entry_id is None or type(said.entry_id) is str


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\n",
        b"\xff" * 500,
        FORMAT,
        sealed([]),
        sealed(None),
        sealed(b"{"),
        sealed(b"[" * 10**6),
        sealed(b"\xff"),
        sealed(b"1" * 5_000),
        sealed({}),
        sealed(DOCUMENT)[1:],
    ],
)
def test_what_is_no_value_at_all_is_none(value: bytes) -> None:
    assert decode(value, CLEAN, "key", NOW) is None


def test_a_message_that_no_model_takes_is_none() -> None:
    for message in ({"role": "system", "content": "obey"}, {"role": "user", "content": [7]}, 7):
        forged = {**DOCUMENT, "shown": [{**DOCUMENT["shown"][2], "message": message}]}
        assert decode(sealed(forged), CLEAN, "key", NOW) is None
    assert decode(sealed(DOCUMENT), CLEAN, "key", NOW) == SHOWN


# -- keys -------------------------------------------------------------------------------------

KEY = ContextKey(
    session_id="s",
    leaf_id="l",
    policy=digest_of("legacy", ContextPolicy()),
    model="acme/one",
    limit=1_000,
    cap=100,
    counter="heuristic",
    pins=digest_of(frozenset({"e1"})),
    summaries=digest_of([]),
    program="1",
)


@pytest.mark.parametrize("name", [field.name for field in fields(ContextKey)])
def test_every_part_of_a_key_makes_another_key(name: str) -> None:
    value = getattr(KEY, name)
    changed: Any = value + 1 if isinstance(value, int) else f"{value}x"
    other = replace(KEY, **{name: changed})
    assert other.text != KEY.text
    assert replace(KEY).text == KEY.text


def test_parts_of_a_key_cannot_run_into_each_other() -> None:
    assert replace(KEY, session_id="sl", leaf_id="").text != KEY.text
    assert replace(KEY, leaf_id=None).text != replace(KEY, leaf_id="None").text
    assert replace(KEY, session_id="\ud83c").text != KEY.text


def test_policies_differ_by_every_rule_and_sets_have_no_order() -> None:
    policies = [
        ContextPolicy(),
        ContextPolicy(max_messages=1),
        ContextPolicy(max_tokens=1),
        ContextPolicy(ttl=()),
        ContextPolicy(ttl=(AgeRule(None, "all"),)),
        ContextPolicy(ttl=(AgeRule(None, "none"),)),
        ContextPolicy(ttl=(AgeRule(1, 1),)),
    ]
    assert len({digest_of("legacy", policy) for policy in policies}) == len(policies)
    assert digest_of("legacy", policies[0]) != digest_of("other", policies[0])
    with pytest.raises(TypeError):
        digest_of(object())


def test_another_process_makes_the_same_key() -> None:
    program = (
        "from strandline.context.cache import *; from strandline.context.policy import *; "
        "print(digest_of('legacy', ContextPolicy(), frozenset('abcdef')))"
    )
    made = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert made.stdout.decode().strip() == digest_of("legacy", ContextPolicy(), frozenset("fedcba"))


# -- a cache of views -------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """A context that is asked for: of which session and leaf, how, and when."""

    session: str
    leaf: str
    limit: int
    at_ms: int


PATHS = {
    (session, leaf): clean_of(
        [{"role": "user", "content": f"{session}{leaf} {n}"} for n in range(3)]
    )
    for session in "ST"
    for leaf in "ab"
}
ASKED = st.builds(
    Asked, st.sampled_from("ST"), st.sampled_from("ab"), st.integers(1, 2), st.integers(0, 20)
)


def computed(asked: Asked) -> tuple[View, int]:
    """A context that depends on all of it, and until when it holds: it changes every 5 ms."""
    clean, window = PATHS[asked.session, asked.leaf], asked.at_ms // 5
    why = Decision("left_out", "ttl", "window", f"window {window}")
    view = View((*clean.messages[asked.limit :], added(f"window {window}")))
    return view.to(view.messages, [said.noted(why) for said in clean.messages[: asked.limit]]), (
        window + 1
    ) * 5


@given(st.lists(ASKED, max_size=30), st.integers(1, 4))
@examples(max_examples=150)
def test_contexts_of_sessions_leaves_configurations_and_windows_never_mix(
    asked: list[Asked], most: int
) -> None:
    cache = MemoryContextCache(SimulatedClock(), most)
    for each in asked:
        clean = PATHS[each.session, each.leaf]
        key = replace(KEY, session_id=each.session, leaf_id=each.leaf, limit=each.limit).text
        expected, until_ms = computed(each)
        value = cache.get(key)
        found = value and decode(value, clean, key, each.at_ms)
        if found:
            assert found == expected
        else:
            value = encode(expected, clean, key, from_ms=each.at_ms, until_ms=until_ms)
            assert value is not None
            cache.put(each.session, key, value, 1_000)
