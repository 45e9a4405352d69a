"""The invariants of spec 3, over histories of every shape."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.context.assemble import Limit, assemble, prepare
from strandline.context.budget import CompactionSettings, resolve_budget
from strandline.context.compaction import CompactionPlan, plan_compaction
from strandline.context.extractive import extract_summary
from strandline.context.frames import REFERENCE, SUMMARY
from strandline.context.pairing import pair
from strandline.context.sanitize import sanitize
from strandline.context.tokens import HeuristicCounter, MessageTokens
from strandline.context.view import View
from strandline.errors import ContextOverflow
from strandline.transcript.context import PathMessage
from strandline.transcript.messages import Message

COUNTER = HeuristicCounter()
SHARED = Path(__file__).parents[3] / "shared"


class Repeated(str):  # noqa: SLOT000 - a test value, not kept by the thousand
    """A long text whose repr is short, so that a failing example can be read."""

    shown: str

    def __new__(cls, unit: str, times: int) -> Self:
        text = super().__new__(cls, unit * times)
        text.shown = f"Repeated({unit!r}, {times})"
        return text

    def __repr__(self) -> str:
        return self.shown


LONG = [Repeated("漢字", 300), Repeated("long ", 3_000)]
TEXT = st.one_of(
    st.text(max_size=40), st.sampled_from(["", " \n", "half \ud83c", "must not", *LONG])
)
ODD = st.one_of(st.none(), st.integers(), st.booleans(), st.just({"type": 3}), TEXT)
CALL_ID = st.sampled_from(["a", "b", "c", "", None])
TEXT_BLOCK = st.builds(lambda text: {"type": "text", "text": text}, TEXT)
IMAGE_BLOCK = st.just({"type": "image", "data": "aGk=", "mimeType": "image/png"})
THINKING_BLOCK = st.builds(
    lambda text, signature: {"type": "thinking", "thinking": text, "thinkingSignature": signature},
    TEXT,
    st.sampled_from([None, "", "signed"]),
)
CALL_BLOCK = st.builds(
    lambda call_id, arguments: {
        "type": "toolCall",
        "id": call_id,
        "name": "read",
        "arguments": arguments,
    },
    CALL_ID,
    st.one_of(st.dictionaries(st.sampled_from(["path", "x"]), TEXT, max_size=2), ODD),
)
CONTENT = st.one_of(
    TEXT, ODD, st.lists(st.one_of(TEXT_BLOCK, IMAGE_BLOCK, CALL_BLOCK, ODD), max_size=3)
)
TIME = st.one_of(st.integers(0, 100), st.none())


def message(role: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Message]:
    return st.fixed_dictionaries({"role": st.just(role), "timestamp": TIME, **fields})


MESSAGE: st.SearchStrategy[Any] = st.one_of(
    message("user", content=CONTENT),
    message(
        "assistant",
        content=st.one_of(
            st.lists(st.one_of(TEXT_BLOCK, THINKING_BLOCK, CALL_BLOCK), max_size=4), CONTENT
        ),
        stopReason=st.sampled_from(["stop", "toolUse", "aborted", "error", "length"]),
    ),
    message("toolResult", toolCallId=CALL_ID, toolName=st.just("read"), content=CONTENT),
    message("toolResult", toolCallId=CALL_ID, toolName=st.just("read"), content=CONTENT),
    message("bashExecution", command=TEXT, output=TEXT, excludeFromContext=st.booleans()),
    message("custom", customType=TEXT, content=CONTENT),
    message("branchSummary", summary=TEXT),
    message("strange", content=CONTENT),
    st.sampled_from([None, "no object", 7]),
)


def path(messages: list[Message]) -> list[PathMessage]:
    return [PathMessage(f"e{n}", message) for n, message in enumerate(messages)]


@st.composite
def turns(draw: st.DrawFn) -> list[Message]:
    """A turn as agents have them: a request, steps with results, an answer."""
    request = Repeated("do it ", draw(st.sampled_from([1, 100, 700, 5_000])))
    said: list[Message] = [{"role": "user", "content": request, "timestamp": 5}]
    for n in range(draw(st.integers(0, 6))):
        call = {"type": "toolCall", "id": f"t{n}", "name": "read", "arguments": {"path": f"/{n}"}}
        output = draw(st.sampled_from(["ok", Repeated("row\n", 300), Repeated("data ", 4_000)]))
        said += [
            {"role": "assistant", "content": [call], "stopReason": "toolUse", "timestamp": 6},
            {
                "role": "toolResult",
                "toolCallId": f"t{n}",
                "toolName": "read",
                "content": [{"type": "text", "text": output}],
            },
        ]
    answer = {"type": "text", "text": Repeated("done ", draw(st.sampled_from([1, 400])))}
    if draw(st.booleans()):
        said.append({"role": "assistant", "content": [answer], "stopReason": "stop"})
    return said


@st.composite
def paths(draw: st.DrawFn) -> list[PathMessage]:
    parts = st.one_of(MESSAGE.map(lambda said: [said]), turns())
    least = draw(st.sampled_from([0, 3, 8]))
    messages = [
        said for part in draw(st.lists(parts, min_size=least, max_size=12)) for said in part
    ]
    if draw(st.booleans()):
        summary = {"role": "compactionSummary", "summary": draw(TEXT), "timestamp": draw(TIME)}
        messages = [summary, *messages]
    return path(messages)


WINDOW = st.sampled_from([4_096, 8_192, 16_384, 200_000])


def tokens() -> MessageTokens:
    return MessageTokens(COUNTER)


def again(view: View) -> list[PathMessage]:
    return [PathMessage(f"v{n}", said.message) for n, said in enumerate(view.messages)]


def assert_sendable(view: View) -> None:
    """Roles, blocks and pairs as every provider wants them."""
    waiting: list[str] = []
    for said in view.messages:
        message = said.message
        json.dumps(message["content"], ensure_ascii=False).encode()
        assert message["content"]
        if message["role"] == "toolResult":
            assert message["toolCallId"] in waiting
            waiting.remove(message["toolCallId"])
            continue
        assert not waiting, "a call was left without its result"
        assert message["role"] in {"user", "assistant"}
        if message["role"] == "assistant":
            waiting = [b["id"] for b in message["content"] if b["type"] == "toolCall"]
            assert len(waiting) == len(set(waiting))
            assert not (waiting and message["stopReason"] in {"aborted", "error"})
    assert not waiting


def assert_covers(items: list[PathMessage], view: View) -> None:
    """Every message is there verbatim, there with a decision, or left out with one."""
    there = {said.entry_id: said for said in view.messages if said.entry_id is not None}
    gone = {said.entry_id: said for said in view.left_out if said.entry_id is not None}
    assert not there.keys() & gone.keys()
    for entry_id, message, _ in items:
        if entry_id in there:
            said = there[entry_id]
            assert said.message is message or said.decisions
        else:
            assert gone[entry_id].outcome == "left_out"
    for said in view.messages:
        if said.entry_id is None:
            assert said.outcome == "added"


@given(items=paths(), window=WINDOW)
def test_pairing_and_coverage_hold_whatever_the_history(
    items: list[PathMessage], window: int
) -> None:
    view = prepare(items, budget=resolve_budget(window, CompactionSettings()), tokens=tokens())
    assert_sendable(view)
    assert_covers(items, view)


def test_recorded_conversations_become_requests_that_providers_take() -> None:
    if not SHARED.is_dir():
        pytest.skip("the recorded conversations are beside the repository, and are not there")
    files = sorted([*SHARED.glob("vectors/context/*.jsonl"), *SHARED.glob("fixtures/pi/*.jsonl")])
    assert files
    for file in files:
        items = recorded(file)
        for window in (8_192, 200_000):
            budget = resolve_budget(window, CompactionSettings())
            view = prepare(items, budget=budget, tokens=tokens())
            assert_sendable(view)
            assert_covers(items, view)
            fitting = assemble(items, budget=budget, tokens=tokens(), limit="oldest_turns")
            assert_sendable(fitting)
            assert fitting.tokens <= budget.limit


def recorded(file: Path) -> list[PathMessage]:
    """The messages of a transcript in the order of its lines."""
    lines = [line for line in file.read_bytes().split(b"\n") if line.strip()]
    entries = [entry for entry in map(parsed, lines) if isinstance(entry.get("message"), dict)]
    return [PathMessage(f"{n:08x}", entry["message"]) for n, entry in enumerate(entries)]


def parsed(line: bytes) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except ValueError:
        return {}
    return entry if isinstance(entry, dict) else {}


@given(items=paths())
def test_doing_it_twice_is_doing_it_once(items: list[PathMessage]) -> None:
    once = pair(sanitize(items, tokens()), tokens())
    twice = pair(sanitize(again(once), tokens()), tokens())
    assert [said.message for said in twice.messages] == [said.message for said in once.messages]
    assert pair(once, tokens()).messages == once.messages


@given(items=paths(), window=WINDOW, limit=st.sampled_from(["none", "oldest_turns"]))
def test_a_view_fits_or_the_overflow_says_so_and_both_are_the_same_again(
    items: list[PathMessage], window: int, limit: Limit
) -> None:
    budget = resolve_budget(window, CompactionSettings())

    def outcome() -> str | View:
        try:
            return assemble(items, budget=budget, tokens=tokens(), limit=limit)
        except ContextOverflow as overflow:
            return str(overflow)

    first = outcome()
    assert first == outcome()
    if isinstance(first, View):
        assert first.tokens <= budget.limit
        assert first.tokens == sum(tokens().count(said.message) for said in first.messages)
        assert_sendable(first)
        assert_covers(items, first)
    else:
        assert "largest parts" in first


@given(items=paths(), window=st.sampled_from([2_048, 4_096, 8_192]), text=TEXT)
def test_any_session_can_take_its_next_message(
    items: list[PathMessage], window: int, text: str
) -> None:
    newest = {"role": "user", "content": f"next {text}", "timestamp": 200}
    items = [*items, PathMessage("newest", newest)]
    budget = resolve_budget(window, CompactionSettings())
    view = assemble(items, budget=budget, tokens=tokens(), limit="oldest_turns")
    newest_said = [said for said in view.messages if said.entry_id == "newest"]
    assert len(newest_said) == 1
    assert newest_said[0].message["content"].startswith("next")


def requests(view: View) -> list[str | None]:
    return [
        said.entry_id
        for said in view.messages
        if said.message["role"] == "user"
        and not any(decision.rule in {REFERENCE, SUMMARY} for decision in said.decisions)
    ]


@given(items=paths(), window=WINDOW)
def test_the_newest_request_is_never_dropped_to_make_room(
    items: list[PathMessage], window: int
) -> None:
    budget = resolve_budget(window, CompactionSettings())
    there = requests(prepare(items, budget=budget, tokens=tokens()))
    try:
        view = assemble(items, budget=budget, tokens=tokens(), limit="oldest_turns")
    except ContextOverflow:
        assert not there, "with a request to keep there is always a view"
        return
    assert requests(view)[-1:] == there[-1:]


@given(items=paths(), window=WINDOW, force=st.booleans())
def test_a_compaction_covers_every_message_and_always_makes_progress(
    items: list[PathMessage], window: int, *, force: bool
) -> None:
    budget = resolve_budget(window, CompactionSettings())
    plan = plan_compaction(items, tokens(), budget, force=force)
    assert plan == plan_compaction(items, tokens(), budget, force=force)
    if not isinstance(plan, CompactionPlan):
        return
    ids = [item.entry_id for item in items]
    assert sorted([*plan.summarised, *plan.kept]) == sorted(ids)
    assert plan.kept[0] == plan.first_kept_entry_id
    kept_role = items[ids.index(plan.first_kept_entry_id)].message["role"]
    assert kept_role not in {"toolResult", "compactionSummary"}
    for body in (extract_summary(plan.request, COUNTER), "word " * 20_000):
        summary = plan.summary(body, COUNTER)
        after = plan.tokens_after(summary, tokens())
        assert after < plan.tokens_before
        assert_next_context_is_smaller(items, plan, summary, after, window)


def assert_next_context_is_smaller(
    items: list[PathMessage], plan: CompactionPlan, summary: str, after: int, window: int
) -> None:
    ids = [item.entry_id for item in items]
    kept = items[ids.index(plan.first_kept_entry_id) :]
    entry = {"role": "compactionSummary", "summary": summary, "timestamp": 300}
    context = [PathMessage("compaction", entry), *kept]
    view = prepare(context, budget=resolve_budget(window, CompactionSettings()), tokens=tokens())
    assert view.tokens <= after


@given(items=paths(), window=st.sampled_from([4_096, 8_192]))
def test_repeated_compaction_ends_below_the_threshold_or_says_why(
    items: list[PathMessage], window: int
) -> None:
    budget = resolve_budget(window, CompactionSettings())
    sizes = []
    for turn in range(10):
        view = prepare(items, budget=budget, tokens=tokens())
        if not budget.is_over(view.tokens):
            return
        sizes.append(view.tokens)
        plan = plan_compaction(items, tokens(), budget)
        if not isinstance(plan, CompactionPlan):
            assert plan.reason
            return
        summary = plan.summary(extract_summary(plan.request, COUNTER), COUNTER)
        entry = {"role": "compactionSummary", "summary": summary, "timestamp": 300 + turn}
        place = [item.entry_id for item in items].index(plan.first_kept_entry_id)
        items = [PathMessage(f"compaction {turn}", entry), *items[place:]]
    assert sizes == sorted(sizes, reverse=True)
    raise AssertionError(f"still over the threshold after {sizes}")
