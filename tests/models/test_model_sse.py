"""The body of an answer is read the same however it is cut and whoever wrote it."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.errors import ModelError
from strandline.models.failures import Failures
from strandline.models.openai_chat_answer import Answer
from strandline.models.sse import CompletionBody
from strandline.runtime.model import Finished, ModelEvent, ModelInfo, TextDelta, ThinkingDelta

MODEL = ModelInfo("acme", "one", "openai-completions", 8192, 512)
FAILURES = Failures(MODEL)


def chunk(delta: object, finish: str | None = None, **more: object) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}


def texts_of(*pieces: bytes) -> list[str]:
    body = CompletionBody(FAILURES)
    return [text for piece in pieces for text in body.feed(piece)] + body.end()


def events_in(*pieces: bytes) -> list[ModelEvent]:
    answer = Answer(MODEL, 5, FAILURES)
    events = [event for text in texts_of(*pieces) for event in answer.feed_text(text)]
    return events + answer.finish()


ANSWER = b"".join(
    b"data: %s\r\n\r\n" % json.dumps(event, ensure_ascii=False).encode()
    for event in (
        chunk({"role": "assistant", "content": ""}),
        chunk({"reasoning_content": "hm, 海?"}),
        chunk({"content": "Grüße aus 東京 🎉"}),
        chunk({"content": "!\n"}),
        chunk({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "read"}}]}),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": '{"path":"é"}'}}]}),
        chunk({}, "tool_calls"),
        {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}},
    )
)
ANSWER = b": keep-alive\r\n\r\n" + ANSWER + b"event: ping\r\n\r\ndata: [DONE]\r\n\r\n"
WHOLE = events_in(ANSWER)


def test_one_cut_at_any_byte_gives_the_same_events() -> None:
    for place in range(len(ANSWER) + 1):
        assert events_in(ANSWER[:place], ANSWER[place:]) == WHOLE


@settings(deadline=None)
@given(st.sets(st.integers(0, len(ANSWER))))
def test_any_cuts_give_the_same_events(places: set[int]) -> None:
    cuts = [0, *sorted(places), len(ANSWER)]
    assert events_in(*(ANSWER[a:b] for a, b in itertools.pairwise(cuts))) == WHOLE


def test_byte_for_byte_and_with_any_line_ends_it_is_the_same_message() -> None:
    for line_end in (b"\n", b"\r", b"\r\n"):
        body = ANSWER.replace(b"\r\n", line_end)
        assert events_in(*(body[i : i + 1] for i in range(len(body)))) == WHOLE


def test_the_deltas_together_are_the_message() -> None:
    done = WHOLE[-1]
    assert isinstance(done, Finished)
    thinking, text, call = done.message["content"]
    assert text["text"] == "".join(e.text for e in WHOLE if isinstance(e, TextDelta))
    assert thinking["thinking"] == "".join(e.text for e in WHOLE if isinstance(e, ThinkingDelta))
    assert call == {"type": "toolCall", "id": "a", "name": "read", "arguments": {"path": "é"}}


@pytest.mark.parametrize(
    "body",
    [
        b'data: {"a":1}\n\ndata: [DONE]\n\n',
        b'data:{"a":1}\n\ndata:[DONE]\n\n',
        b'\xef\xbb\xbf\n\ndata: {"a":1}',
        b'id: 7\nretry: 10\nevent: message\ndata: {"a":1}\n\n',
        b'data: {"a":\ndata: 1}\n\n',
        b'error: {"a":1}\n\n',
        b'data: \n\ndata: {"a":1}\r',
        b'  {"a":1}\n',
    ],
    ids=["usual", "no-space", "no-last-line", "fields", "two-lines", "error", "empty", "json"],
)
def test_what_servers_write_is_read(body: bytes) -> None:
    for place in range(len(body) + 1):
        assert [json.loads(t) for t in texts_of(body[:place], body[place:])] == [{"a": 1}]


def test_nothing_is_read_after_the_end_mark() -> None:
    body = CompletionBody(FAILURES)
    assert body.feed(b'data: [DONE]\n\ndata: {"a":1}\n\n') == []
    assert body.done


def test_a_line_an_event_and_a_document_without_end_are_refused() -> None:
    for piece in (b"data: xxxxxxxxx", b"data: xxxxxxxxx\n", b'{"a": xxxxxxxxx', b"xxxxxxxxxxxx"):
        body = CompletionBody(FAILURES, limit_bytes=1000)
        body.feed(piece * 50)
        with pytest.raises(ModelError, match="more than 1000 bytes") as caught:
            body.feed(piece * 50)
        assert caught.value.kind == "refused"
