"""What an engine chose of a path, told message by message: nothing goes without a reason."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.context.chosen import OWN, STEP, TokensOfForms, chosen_path, explained
from strandline.context.clean_path import CleanPath
from strandline.context.tokens import HeuristicCounter, MessageTokens
from strandline.context.view import View
from strandline.transcript.context import PathMessage
from strandline.transcript.messages import Message


def said(n: int, text: str = "") -> Message:
    role = "user" if n % 2 == 0 else "assistant"
    content = [{"type": "text", "text": text or f"message {n}"}]
    stop = {"stopReason": "stop"} if role == "assistant" else {}
    return {"role": role, "content": content, "timestamp": n, **stop}


def path(count: int) -> list[PathMessage]:
    return [PathMessage(f"e{n}", said(n)) for n in range(count)]


def view_of(given_: Sequence[PathMessage | Message], items: Sequence[PathMessage]) -> View:
    tokens = MessageTokens(HeuristicCounter())
    chosen = chosen_path(given_)
    clean = CleanPath(TokensOfForms(tokens)).follow(chosen, 10_000)
    return explained(clean.view, chosen, items, "mine", tokens)


def told(view: View) -> list[tuple[str | None, str]]:
    return [(each.entry_id, each.outcome) for each in view.messages]


def test_what_is_given_back_as_it_was_is_kept_without_a_word() -> None:
    items = path(3)
    view = view_of(items, items)
    assert told(view) == [("e0", "kept"), ("e1", "kept"), ("e2", "kept")]
    assert not view.left_out
    assert all(each.decisions == () for each in view.messages)


def test_what_is_not_given_back_was_left_out_by_the_engine() -> None:
    items = path(4)
    view = view_of(items[2:], items)
    assert told(view) == [("e2", "kept"), ("e3", "kept")]
    assert [(each.entry_id, each.decisions[-1].step) for each in view.left_out] == [
        ("e0", STEP),
        ("e1", STEP),
    ]
    assert view.left_out[0].decisions[-1].rule == "mine"
    assert "the engine mine did not choose it" in view.left_out[0].decisions[-1].reason
    assert view.left_out[0].tokens > 0


def test_other_words_under_an_entry_are_told_and_counted_as_what_they_are() -> None:
    items = path(2)
    long = PathMessage("e1", said(1, "word " * 400))
    view = view_of([items[0], long], items)
    assert told(view) == [("e0", "kept"), ("e1", "shortened")]
    assert view.messages[1].tokens >= 400
    assert view.messages[1].decisions[0].step == STEP


def test_a_message_of_its_own_has_no_entry_whether_bare_or_wrapped() -> None:
    items = path(1)
    own, foreign = said(8, "a note"), PathMessage("elsewhere", said(10, "from elsewhere"))
    view = view_of([own, PathMessage(OWN, said(6, "another")), foreign, *items], items)
    assert told(view) == [(None, "added"), (None, "added"), (None, "added"), ("e0", "kept")]


def test_the_same_bare_message_twice_is_two_of_its_own() -> None:
    own = said(8, "again")
    view = view_of([own, own], [])
    assert told(view) == [(None, "added"), (None, "added")]


def test_what_no_model_can_be_told_is_left_out_and_counted_once() -> None:
    items = [PathMessage("e0", {"role": "user"}), *path(2)[1:]]
    view = view_of(items, items)
    assert [each.entry_id for each in view.left_out] == ["e0"]
    assert told(view) == [("e1", "kept")]


def test_a_result_whose_call_was_not_chosen_is_left_out_with_that_reason() -> None:
    """What the engine tore apart is paired like everything else."""
    call = {"type": "toolCall", "id": "c", "name": "look", "arguments": {}}
    asking: Message = {"role": "assistant", "content": [call], "stopReason": "toolUse"}
    result: Message = {"role": "toolResult", "toolCallId": "c", "toolName": "look", "content": []}
    items = [*path(1), PathMessage("a", asking), PathMessage("r", result)]
    without_call = view_of([items[0], items[2]], items)
    assert told(without_call) == [("e0", "kept")]
    assert {each.entry_id for each in without_call.left_out} == {"a", "r"}
    without_result = view_of(items[:2], items)
    assert [outcome for _, outcome in told(without_result)] == ["kept", "kept", "added"]


def test_each_form_of_a_message_is_counted_and_the_same_one_once() -> None:
    counted: list[str] = []

    class Counting(HeuristicCounter):
        def count(self, text: str) -> int:
            counted.append(text)
            return super().count(text)

    tokens = TokensOfForms(MessageTokens(Counting()))
    one, other = said(0), said(0, "other words")
    assert tokens.of("e0", one) == tokens.of("e0", one)
    assert len(counted) == 1
    tokens.of("e0", other)
    tokens.of(None, one)
    tokens.of(OWN, one)
    assert len(counted) == 4


CHOICES = st.lists(
    st.one_of(
        st.tuples(st.just("kept"), st.integers(0, 7)),
        st.tuples(st.just("reworded"), st.integers(0, 7)),
        st.tuples(st.just("own"), st.integers(0, 7)),
    ),
    max_size=12,
    unique_by=lambda each: each[1] if each[0] != "own" else object(),
)


@settings(max_examples=200)
@given(CHOICES)
def test_every_message_of_the_path_is_seen_or_left_out_for_a_reason(choices: list[Any]) -> None:
    """Coverage (spec 3), and no message of an engine passes for one of the conversation."""
    items = path(8)
    given_: list[PathMessage | Message] = []
    for kind, n in choices:
        match kind:
            case "kept":
                given_.append(items[n])
            case "reworded":
                given_.append(PathMessage(f"e{n}", said(n, "in short")))
            case _:
                given_.append(said(n, "mine"))
    view = view_of(given_, items)
    seen = [each for each in view.messages if each.entry_id is not None]
    ids = [each.entry_id for each in (*seen, *view.left_out)]
    assert sorted(ids) == sorted(item.entry_id for item in items)
    assert all(each.outcome == "left_out" for each in view.left_out)
    known = {item.entry_id: item.message for item in items}
    for each in view.messages:
        unchanged = each.entry_id is not None and each.message == known[each.entry_id]
        assert unchanged or each.decisions, "what is otherwise is told"
