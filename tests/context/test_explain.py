"""Every message of a path has one row that says what became of it, and the sums agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, overload

from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.context.budget import CompactionSettings, resolve_budget
from strandline.context.clean_path import CleanPath
from strandline.context.explain import Explanation, Sum, explain, whole_path
from strandline.context.tokens import HeuristicCounter, MessageTokens
from strandline.context.view import Decision, LeftOut, View, ViewMessage
from strandline.manager import SessionManager

OLDER = Decision("left_out", "messages", "max_messages", "only the newest few are kept")


class Lazy(Sequence[ViewMessage]):
    """A range of messages that knows its sums, and counts how often it is looked through."""

    def __init__(self, messages: Sequence[ViewMessage], decision: Decision) -> None:
        self._messages = messages
        self.decision = decision
        self.tokens = sum(said.tokens for said in messages)
        self.looks = 0

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[ViewMessage]:
        self.looks += 1
        return (said.noted(self.decision) for said in self._messages)

    @overload
    def __getitem__(self, index: int) -> ViewMessage: ...
    @overload
    def __getitem__(self, index: slice) -> list[ViewMessage]: ...
    def __getitem__(self, index: int | slice) -> ViewMessage | list[ViewMessage]:
        return list(self)[index]


def call(call_id: str) -> dict[str, Any]:
    return {"type": "toolCall", "id": call_id, "name": "read", "arguments": {"path": "a.py"}}


def text(words: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": words}]


def assistant(content: list[dict[str, Any]], stop: str = "stop") -> dict[str, Any]:
    return {"role": "assistant", "content": content, "stopReason": stop, "timestamp": 2}


def result(call_id: str, words: str = "fine") -> dict[str, Any]:
    return {"role": "toolResult", "toolCallId": call_id, "content": text(words), "timestamp": 3}


def user(words: str) -> dict[str, Any]:
    return {"role": "user", "content": words, "timestamp": 1}


def explained(session: SessionManager, leave: int = 0, cap: int = 10_000) -> Explanation:
    """The clean path of a session, the oldest `leave` messages left out, explained."""
    tokens = MessageTokens(HeuristicCounter())
    context = session.build_context()
    clean = CleanPath(tokens).follow(context.items, cap)
    gone = Lazy(clean.messages[:leave], OLDER)
    view = View(tuple(clean.messages[leave:]), clean.left_out.plus(gone))
    return explain(
        view,
        context,
        budget=resolve_budget(60_000, CompactionSettings(), system_tokens=100, tool_tokens=50),
        system_tokens=100,
        engine="legacy",
        tokens=tokens,
        find_whole=lambda: whole_path(session, context),
    )


STEPS = st.lists(
    st.sampled_from(
        ["user", "answer", "call", "result", "late", "failed", "empty", "bash", "compact", "branch"]
    ),
    max_size=25,
)


SAYINGS: dict[str, dict[str, Any]] = {
    "user": user("a question"),
    "answer": assistant(text("an answer")),
    "failed": assistant([], "error"),
    "empty": user("  "),
    "bash": {"role": "bashExecution", "command": "ls", "output": "a"},
}


def grown(steps: list[str], where: list[int]) -> SessionManager:
    """A session of these steps; `where` chooses among the entries and calls that there are."""
    session = SessionManager.in_memory()
    asked = ["c0"]
    for step, choice in zip(steps, where, strict=False):
        path = session.path() if session.leaf_id else []
        if step == "call":
            asked.append(f"c{len(asked)}")
            session.append_message(assistant([*text("look"), call(asked[-1])], "toolUse"))
        elif step in {"result", "late"}:
            session.append_message(result(asked[-1 if step == "result" else choice % len(asked)]))
        elif step in SAYINGS:
            session.append_message(SAYINGS[step])
        elif path and step == "compact":
            session.append_compaction("a summary", path[choice % len(path)], 100)
        elif path:
            session.branch_with_summary(path[choice % len(path)], "what was left")
    return session


def messages_on_path(session: SessionManager) -> list[str]:
    kinds = {"message", "custom_message", "compaction", "branch_summary"}
    return [i for i in session.path() if session.entry(i).type in kinds] if session.leaf_id else []


@settings(max_examples=200, deadline=None)
@given(
    steps=STEPS,
    where=st.lists(st.integers(0, 30), min_size=25, max_size=25),
    leave=st.integers(0, 10),
)
def test_every_message_of_the_path_has_exactly_one_row_in_its_order(
    steps: list[str], where: list[int], leave: int
) -> None:
    session = grown(steps, where)
    explanation = explained(session, leave)
    rows = explanation.rows
    assert [row.entry_id for row in rows if row.entry_id] == messages_on_path(session)
    for row in rows:
        assert row.role
        assert (row.layer is None) == (row.rule is None) == (not row.reason)
        if row.entry_id is None:
            assert row.outcome in {"added", "left_out"}
        if row.outcome != "kept":
            assert row.reason


@settings(max_examples=200, deadline=None)
@given(
    steps=STEPS,
    where=st.lists(st.integers(0, 30), min_size=25, max_size=25),
    leave=st.integers(0, 10),
)
def test_the_sums_are_those_of_the_rows(steps: list[str], where: list[int], leave: int) -> None:
    explanation = explained(grown(steps, where), leave)
    totals, rows = explanation.totals, explanation.rows
    assert totals.all == Sum(len(rows), sum(row.tokens for row in rows))
    assert {o: s.messages for o, s in totals.by_outcome.items()} == Counter(
        row.outcome for row in rows
    )
    sent = [totals.by_outcome.get(o, Sum()) for o in ("kept", "shortened", "added")]
    assert sum(each.tokens for each in sent) == explanation.room.used == explanation.view.tokens
    # What the rules chose from is all of it but what was compacted before.
    there = explanation.in_context
    compacted = totals.by_layer.get("compaction", Sum())
    gone = [row for row in rows if row.layer == "compaction"]
    assert compacted == Sum(len(gone), sum(row.tokens for row in gone))
    for outcome, sum_ in there.by_outcome.items():
        whole = totals.by_outcome[outcome]
        assert sum_.messages <= whole.messages
        assert outcome == "summarised" or sum_.tokens == whole.tokens


def test_sums_are_had_without_looking_through_what_was_left_out() -> None:
    session = grown(["user", "answer"] * 10, [0] * 20)
    explanation = explained(session, 15)
    lazy = explanation.view.left_out.pieces[-1]
    assert isinstance(lazy, Lazy)
    assert explanation.in_context.by_layer == {"messages": Sum(15, lazy.tokens)}
    assert explanation.in_context.by_outcome["kept"].messages == 5
    assert lazy.looks == 0
    assert len(explanation.rows) == 20


def test_a_message_in_the_transcript_s_role_and_words_stands_in_its_row() -> None:
    session = SessionManager.in_memory()
    session.append_message({"role": "bashExecution", "command": "make", "output": "ok"})
    session.append_message(user("go on"))
    bash, said = explained(session).rows
    assert (bash.role, bash.outcome, bash.rule) == ("bashExecution", "kept", "reference")
    assert bash.message["command"] == "make"
    assert (said.layer, said.rule, said.reason, said.decisions) == (None, None, "", ())


def test_a_stand_in_for_a_result_is_added_behind_its_call() -> None:
    session = SessionManager.in_memory()
    session.append_message(user("look"))
    asked = session.append_message(assistant([call("a")], "toolUse"))
    after = session.append_message(user("well?"))
    rows = explained(session).rows
    assert [row.entry_id for row in rows][1:] == [asked, None, after]
    assert (rows[2].outcome, rows[2].layer, rows[2].role) == ("added", "pairing", "toolResult")


def test_the_decision_that_changed_a_message_is_told_and_the_others_are_listed() -> None:
    session = SessionManager.in_memory()
    session.append_message(assistant([call("a")], "toolUse"))
    session.append_message(user("well?"))
    late = session.append_message(result("a", "word " * 4000))
    row = next(row for row in explained(session, cap=500).rows if row.entry_id == late)
    assert (row.outcome, row.layer, row.rule) == ("shortened", "shorten", "too_large")
    assert [each.rule for each in row.decisions] == ["moved"]
    gone = explained(session, leave=9).rows[-1]
    assert (gone.outcome, gone.layer) == ("left_out", "messages")


def test_what_compactions_summarised_says_which_one_did() -> None:
    session = SessionManager.in_memory()
    first = session.append_message(user("one"))
    kept = session.append_message(user("two"))
    one = session.append_compaction("about one", kept, 10)
    newest = session.append_message(user("three"))
    two = session.append_compaction("about one and two", newest, 10)
    rows = {row.entry_id: row for row in explained(session).rows}
    assert list(rows) == [first, kept, one, newest, two]
    assert [rows[i].layer for i in (first, kept, one)] == ["compaction"] * 3
    assert one in rows[first].reason
    assert two in rows[kept].reason
    assert two in rows[one].reason
    assert [rows[i].outcome for i in (newest, two)] == ["kept", "kept"]


def test_the_summary_of_a_layer_stands_before_what_follows_it() -> None:
    """Also where the summary of a compaction, whose entry is younger, comes first in the view."""
    session = SessionManager.in_memory()
    first = session.append_message(user("one"))
    kept = session.append_message(user("two"))
    summary = session.append_compaction("about one", kept, 10)
    told = explained(session)
    layer = Decision("added", "ttl", "summary", "in place of one message")
    added = ViewMessage(None, user("a summary"), 5, (layer,))
    first_said, *rest = told.view.messages
    view = View((first_said, added, *rest), LeftOut())
    again = Explanation(view, told.items, told.room, told.engine, told.find_whole, told.tokens)
    assert [row.entry_id for row in again.rows] == [first, None, kept, summary]


def test_an_empty_session_has_no_rows_and_all_of_its_budget() -> None:
    explanation = explained(SessionManager.in_memory())
    assert explanation.rows == []
    assert explanation.totals.all == Sum()
    assert explanation.room.free == explanation.room.limit > 0


def test_looking_leaves_the_context_of_the_session_as_it_was() -> None:
    session = grown(["user", "answer", "compact", "user", "answer"], [1] * 5)
    before = session.build_context().messages
    assert explained(session).rows
    assert session.build_context().messages == before
