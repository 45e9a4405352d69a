"""A tool call and its results stay or go together."""

from __future__ import annotations

from typing import Any

import pytest

from strandline.context.pairing import NO_RESULT, pair
from strandline.context.sanitize import sanitize
from strandline.context.tokens import HeuristicCounter, MessageTokens
from strandline.context.view import View
from strandline.transcript.context import PathMessage
from strandline.transcript.messages import Message


def user(text: str = "go on") -> Message:
    return {"role": "user", "content": text}


def calls(*ids: str, stop: str = "toolUse", text: str = "") -> Message:
    said: list[Any] = [{"type": "text", "text": text}] if text else []
    asked = [{"type": "toolCall", "id": i, "name": "read", "arguments": {}} for i in ids]
    return {"role": "assistant", "content": said + asked, "stopReason": stop, "timestamp": 9}


def result(call_id: str, text: str = "found") -> Message:
    return {
        "role": "toolResult",
        "toolCallId": call_id,
        "toolName": "read",
        "content": [{"type": "text", "text": text}],
        "isError": False,
    }


def paired(*messages: Message) -> View:
    tokens = MessageTokens(HeuristicCounter())
    items = [PathMessage(f"e{n}", message) for n, message in enumerate(messages)]
    return pair(sanitize(items, tokens), tokens)


def told(view: View) -> list[str]:
    """Each message in a word: u, c:ids, r:id=text."""
    words = []
    for said in view.messages:
        message = said.message
        if message["role"] == "toolResult":
            words.append(f"r:{message['toolCallId']}={message['content'][0]['text']}")
        elif message["role"] == "assistant":
            ids = [b["id"] for b in message["content"] if b["type"] == "toolCall"]
            words.append("c:" + ",".join(ids))
        else:
            words.append("u")
    return words


def why_left_out(view: View) -> list[str]:
    return [said.decisions[-1].rule for said in view.left_out]


def test_what_is_paired_already_stays_the_same() -> None:
    messages = [user(), calls("a", "b"), result("b"), result("a"), user()]
    view = paired(*messages)
    assert [said.message for said in view.messages] == messages
    assert all(not said.decisions for said in view.messages)


def test_a4_a_call_that_was_never_answered_gets_an_error_result_right_after_it() -> None:
    view = paired(user(), calls("a"), user())
    assert told(view) == ["u", "c:a", f"r:a={NO_RESULT}", "u"]
    added = view.messages[2]
    assert added.entry_id is None
    assert added.outcome == "added"
    assert added.message["isError"] is True
    assert view == paired(user(), calls("a"), user()), "the same bytes every time"


def test_a6_a_result_without_its_call_is_left_out() -> None:
    view = paired(result("gone"), user())
    assert told(view) == ["u"]
    assert why_left_out(view) == ["result_without_call"]


def test_a8_the_results_of_parallel_calls_are_completed() -> None:
    assert told(paired(calls("a", "b", "c"), result("a"), result("c"))) == [
        "c:a,b,c",
        "r:a=found",
        "r:c=found",
        f"r:b={NO_RESULT}",
    ]


def test_a17_of_two_results_the_first_stays_and_one_before_its_call_goes() -> None:
    view = paired(result("a", "early"), calls("a"), result("a", "first"), result("a", "second"))
    assert told(view) == ["c:a", "r:a=first"]
    assert why_left_out(view) == ["result_without_call", "second_result"]


def test_a_result_that_came_late_is_moved_next_to_its_call() -> None:
    view = paired(calls("a"), user(), result("a"), user())
    assert told(view) == ["c:a", "r:a=found", "u", "u"]
    assert [d.rule for d in view.messages[1].decisions] == ["moved"]


def test_an_id_that_is_used_again_pairs_by_place() -> None:
    view = paired(calls("a"), result("a", "one"), user(), calls("a"), result("a", "two"))
    assert told(view) == ["c:a", "r:a=one", "u", "c:a", "r:a=two"]
    view = paired(calls("a"), user(), calls("a"), result("a", "two"))
    assert told(view) == ["c:a", f"r:a={NO_RESULT}", "u", "c:a", "r:a=two"]


def test_an_id_twice_in_one_message_is_called_once() -> None:
    view = paired(calls("a", "a"), result("a", "one"), result("a", "two"))
    assert told(view) == ["c:a", "r:a=one"]


@pytest.mark.parametrize("stop", ["aborted", "error"])
def test_a2_failed_answers_keep_their_text_and_no_calls(stop: str) -> None:
    view = paired(user(), calls("a", stop=stop, text="I will"), result("a"), user())
    assert told(view) == ["u", "c:", "u"]
    assert view.messages[1].message["content"] == [{"type": "text", "text": "I will"}]
    assert why_left_out(view) == ["result_without_call"]


@pytest.mark.parametrize("stop", ["aborted", "error"])
def test_a2_failed_answers_of_calls_alone_are_left_out(stop: str) -> None:
    view = paired(user(), calls("a", stop=stop), result("a"), user())
    assert told(view) == ["u", "u"]
    assert why_left_out(view) == ["result_without_call", "failed_turn"] or why_left_out(view) == [
        "failed_turn",
        "result_without_call",
    ]


def test_a_result_of_an_aborted_call_does_not_answer_an_older_one_of_the_same_id() -> None:
    view = paired(calls("a"), user(), calls("a", stop="aborted", text="x"), result("a"))
    assert told(view) == ["c:a", f"r:a={NO_RESULT}", "u", "c:"]
