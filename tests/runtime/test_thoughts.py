"""Which thoughts a model is not shown again, and for how long."""

from __future__ import annotations

from strandline.runtime.model import ModelInfo
from strandline.runtime.thoughts import Thoughts
from strandline.transcript.messages import Message

INFO = ModelInfo("p", "m", "anthropic-messages", 1000, 10)


def thought(timestamp: int) -> Message:
    return {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "hm", "thinkingSignature": "s"},
            {"type": "text", "text": "yes"},
        ],
        "api": INFO.api,
        "provider": INFO.provider,
        "model": INFO.id,
        "timestamp": timestamp,
    }


def kinds(thoughts: Thoughts, message: Message) -> list[str]:
    return [block["type"] for block in thoughts.shown(INFO, message)["content"]]


def test_what_was_refused_is_not_shown_again_and_later_thoughts_are() -> None:
    thoughts = Thoughts()
    assert thoughts.refused(INFO, [thought(1), thought(2)])
    thoughts.answered(INFO)
    assert kinds(thoughts, thought(2)) == ["text"]
    assert kinds(thoughts, thought(3)) == ["thinking", "text"]


def test_where_the_rest_is_refused_too_the_thoughts_were_not_the_reason() -> None:
    thoughts = Thoughts()
    assert thoughts.refused(INFO, [thought(1)])
    assert not thoughts.refused(INFO, [thought(1)])
    assert kinds(thoughts, thought(1)) == ["thinking", "text"]


def test_an_answer_settles_it_whatever_is_refused_afterwards() -> None:
    thoughts = Thoughts()
    assert thoughts.refused(INFO, [thought(1)])
    thoughts.answered(INFO)
    assert not thoughts.refused(INFO, [thought(1)])
    assert kinds(thoughts, thought(1)) == ["text"]
    assert thoughts.refused(INFO, [thought(1), thought(5)])
    assert not thoughts.refused(INFO, [thought(1), thought(5)])
    assert kinds(thoughts, thought(1)) == ["text"]
    assert kinds(thoughts, thought(5)) == ["thinking", "text"]
