"""Gemini's answers become the message that its chunks say, however the bytes are cut."""

from __future__ import annotations

import base64
import itertools
import json
from typing import Any

import pytest
from google.genai import types
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.errors import ModelError
from strandline.models.failures import Failures
from strandline.models.gemini import API
from strandline.models.gemini_answer import GeminiAnswer
from strandline.models.gemini_wire import gemini_contents
from strandline.models.sse import CompletionBody
from strandline.runtime.model import (
    Failed,
    Finished,
    ModelEvent,
    ModelInfo,
    ModelRequest,
    Prices,
    TextDelta,
    ThinkingDelta,
)

MODEL = ModelInfo(
    *("google", "gemini-3-pro-preview", API, 1_048_576, 65_536, Prices(2, 12, 0.2)), reasoning=True
)
FAILURES = Failures(MODEL, ("sk-secret",))
SIGNATURE = base64.b64encode(b"thought").decode()
OTHER = base64.b64encode(b"other thought").decode()

Json = dict[str, Any]


def chunk(*parts: Json, finish: str | None = None, **more: Any) -> Json:
    """A chunk, checked and written by Google's own library."""
    candidate = {"content": {"role": "model", "parts": list(parts)}, "finishReason": finish}
    whole = {"candidates": [candidate], "modelVersion": MODEL.id, **more}
    checked = types.GenerateContentResponse.model_validate(whole)
    written: Json = checked.model_dump(mode="json", by_alias=True, exclude_none=True)
    return written


def answered(*chunks: Json) -> list[ModelEvent]:
    answer = GeminiAnswer(MODEL, 5, FAILURES)
    events = [event for said in chunks for event in answer.feed_text(json.dumps(said))]
    return events + answer.finish()


def message_of(events: list[ModelEvent]) -> Json:
    assert isinstance(events[-1], Finished), events[-1]
    return events[-1].message


def events_in(*pieces: bytes) -> list[ModelEvent]:
    body, answer = CompletionBody(FAILURES), GeminiAnswer(MODEL, 5, FAILURES)
    texts = [text for piece in pieces for text in body.feed(piece)] + body.end()
    return [event for text in texts for event in answer.feed_text(text)] + answer.finish()


CHUNKS = (
    chunk({"text": "hm, 海?", "thought": True}),
    chunk({"text": " Yes.", "thought": True}),
    chunk({"text": "Grüße "}),
    chunk({"text": "aus 東京 🎉"}, usageMetadata={"promptTokenCount": 9}),
    chunk(
        {"functionCall": {"name": "read", "args": {"path": "é"}}, "thoughtSignature": SIGNATURE},
        {"functionCall": {"id": "fc-1", "name": "list"}},
    ),
    chunk(
        finish="STOP",
        usageMetadata={
            "promptTokenCount": 100,
            "cachedContentTokenCount": 60,
            "candidatesTokenCount": 7,
            "thoughtsTokenCount": 3,
            "totalTokenCount": 110,
        },
    ),
)
STREAM = b"".join(
    b"data: %s\r\n\r\n" % json.dumps(said, ensure_ascii=False).encode() for said in CHUNKS
)
WHOLE = events_in(STREAM)


def test_one_cut_at_any_byte_gives_the_same_events() -> None:
    for place in range(len(STREAM) + 1):
        assert events_in(STREAM[:place], STREAM[place:]) == WHOLE


@settings(deadline=None, max_examples=100)
@given(st.sets(st.integers(0, len(STREAM))))
def test_any_cuts_give_the_same_events(places: set[int]) -> None:
    cuts = [0, *sorted(places), len(STREAM)]
    assert events_in(*(STREAM[a:b] for a, b in itertools.pairwise(cuts))) == WHOLE


def test_a_list_of_chunks_says_the_same_as_the_stream() -> None:
    listed = json.dumps(list(CHUNKS), indent=1).encode()
    assert events_in(listed) == events_in(listed[:99], listed[99:]) == WHOLE


def test_the_message_holds_thoughts_text_calls_and_usage() -> None:
    message = message_of(WHOLE)
    thinking, text, first, second = message["content"]
    assert thinking == {"type": "thinking", "thinking": "hm, 海? Yes."}
    assert text == {"type": "text", "text": "Grüße aus 東京 🎉"}
    assert text["text"] == "".join(e.text for e in WHOLE if isinstance(e, TextDelta))
    assert thinking["thinking"] == "".join(e.text for e in WHOLE if isinstance(e, ThinkingDelta))
    made_up = {"id": "call_5_2", "name": "read", "arguments": {"path": "é"}}
    assert first == {"type": "toolCall", **made_up, "thoughtSignature": SIGNATURE}
    assert second == {"type": "toolCall", "id": "fc-1", "name": "list", "arguments": {}}
    told = [message[key] for key in ("api", "provider", "model", "stopReason", "timestamp")]
    assert told == [API, "google", "gemini-3-pro-preview", "toolUse", 5]
    usage = dict(message["usage"])
    cost = usage.pop("cost")
    counts = {"input": 40, "output": 10, "cacheRead": 60, "cacheWrite": 0, "totalTokens": 110}
    assert usage == counts
    assert cost["total"] == pytest.approx((40 * 2 + 10 * 12 + 60 * 0.2) / 1e6)


def test_a_signature_stays_with_its_part_wherever_it_came() -> None:
    events = answered(
        chunk({"text": "so ", "thought": True}),
        chunk({"text": "it is", "thought": True, "thoughtSignature": SIGNATURE}),
        chunk({"text": "Hel"}),
        chunk({"text": "lo"}),
        chunk({"text": "", "thoughtSignature": OTHER}, finish="STOP"),
    )
    assert message_of(events)["content"] == [
        {"type": "thinking", "thinking": "so it is", "thinkingSignature": SIGNATURE},
        {"type": "text", "text": "Hello", "textSignature": OTHER},
    ]


def test_nothing_is_added_to_a_signed_part_and_no_signature_is_replaced() -> None:
    events = answered(
        chunk({"text": "", "thoughtSignature": OTHER}),
        chunk({"text": "one", "thoughtSignature": SIGNATURE}, {"text": "two"}),
        chunk({"functionCall": {"name": "f"}, "thoughtSignature": SIGNATURE}),
        chunk({"text": "", "thoughtSignature": OTHER}, finish="STOP"),
    )
    signed, bare, call = message_of(events)["content"]
    assert signed == {"type": "text", "text": "one", "textSignature": SIGNATURE}
    assert bare == {"type": "text", "text": "two"}
    assert call["thoughtSignature"] == SIGNATURE


PARTS = st.one_of(
    st.builds(lambda t: {"text": t}, st.text(max_size=4)),
    st.builds(lambda t: {"text": t, "thought": True}, st.text(max_size=4)),
    st.builds(
        lambda i, a: {"functionCall": {"id": i, "name": "f", "args": a}},
        st.sampled_from([None, "fc-1", "fc-2"]),
        st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
    ),
)
SIGNED_PARTS = st.builds(
    lambda part, signature: {**part, **({"thoughtSignature": signature} if signature else {})},
    PARTS,
    st.sampled_from([None, None, SIGNATURE, OTHER]),
)


@settings(deadline=None, max_examples=200)
@given(st.lists(SIGNED_PARTS, max_size=8), st.data())
def test_what_the_model_said_goes_back_to_it_with_the_same_words(
    parts: list[Json], data: st.DataObject
) -> None:
    """Answer and request are inverse, but for unsigned thoughts and white space."""
    cuts = sorted(data.draw(st.sets(st.integers(0, len(parts)))))
    pieces = itertools.pairwise([0, *cuts, len(parts)])
    message = message_of(answered(*(chunk(*parts[a:b]) for a, b in pieces), chunk(finish="STOP")))
    sent = gemini_contents(ModelRequest(MODEL, "", [message], 1))
    said = [part for content in sent if content["role"] == "model" for part in content["parts"]]
    calls = [p["functionCall"] for p in said if "functionCall" in p]
    asked = [p["functionCall"]["args"] for p in parts if "functionCall" in p]
    assert [call["args"] for call in calls] == asked
    words = "".join(p["text"] for p in said if "text" in p and "thought" not in p)
    told = "".join(p["text"] for p in parts if "text" in p and "thought" not in p)
    assert "".join(words.split()) == "".join(told.split())
    given_signatures = {part.get("thoughtSignature") for part in parts}
    assert all(p["thoughtSignature"] in given_signatures for p in said if p.get("thought"))


def test_the_ends_of_an_answer_are_told_apart() -> None:
    text = {"text": "Hi"}
    assert message_of(answered(chunk(text, finish="STOP")))["stopReason"] == "stop"
    assert message_of(answered(chunk(text, finish="MAX_TOKENS")))["stopReason"] == "length"
    unsaid = chunk(text, finish="FINISH_REASON_UNSPECIFIED")
    assert message_of(answered(unsaid, chunk(finish="STOP")))["stopReason"] == "stop"


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        *((name, "refused") for name in ("SAFETY", "RECITATION", "PROHIBITED_CONTENT")),
        *((name, "refused") for name in ("BLOCKLIST", "SPII", "IMAGE_SAFETY", "LANGUAGE")),
        *((name, "network") for name in ("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL")),
        *((name, "network") for name in ("OTHER", "something <new>")),
    ],
)
def test_an_answer_that_was_stopped_is_a_failure_with_what_was_said(reason: str, kind: str) -> None:
    said = {"text": "Well, "}, {"functionCall": {"name": "f"}}
    stopped = {"candidates": [{"content": {"parts": [*said]}, "finishReason": reason}]}
    delta, failed = answered(stopped)
    assert delta == TextDelta("Well, ")
    assert isinstance(failed, Failed)
    assert failed.error.kind == kind
    assert (reason if reason.isupper() else "OTHER") in failed.error.what
    assert failed.partial is not None
    assert failed.partial["content"] == [{"type": "text", "text": "Well, "}]


def test_every_finish_reason_that_google_knows_ends_the_answer() -> None:
    for reason in types.FinishReason:
        (end,) = answered(chunk(finish=reason.value))
        good = reason.value in {"STOP", "MAX_TOKENS"}
        assert isinstance(end, Finished) == good


def test_a_blocked_prompt_is_refused() -> None:
    answer = GeminiAnswer(MODEL, 5, FAILURES)
    usage = {"promptTokenCount": 4}
    blocked = {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": usage}
    assert answer.feed_text(json.dumps(blocked)) == []
    assert answer.complete
    (failed,) = answer.finish()
    assert isinstance(failed, Failed)
    assert failed.error.kind == "refused"
    assert "PROHIBITED_CONTENT" in failed.error.what


def test_an_answer_without_an_end_is_a_failure() -> None:
    answer = GeminiAnswer(MODEL, 5, FAILURES)
    answer.feed(chunk({"text": "Hel"}))
    assert not answer.complete
    failed = answer.finish()[-1]
    assert isinstance(failed, Failed)
    assert failed.error.kind == "network"


@pytest.mark.parametrize("odd", ["7", "[1]", "{", "[{]", '"text"', "[" * 5000])
def test_what_is_no_chunk_is_a_failure(odd: str) -> None:
    with pytest.raises(ModelError) as caught:
        GeminiAnswer(MODEL, 5, FAILURES).feed_text(odd)
    assert caught.value.kind == "network"


def test_odd_chunks_say_nothing_and_break_nothing() -> None:
    no_parts: list[Any] = [None, [3], [{}]]
    odd: list[Json] = [
        *({"candidates": value} for value in (None, 3, [], [None], [{"content": None}])),
        *({"candidates": [{"content": {"parts": value}}]} for value in no_parts),
        {"candidates": [{"index": 1, "content": {"parts": [{"text": "another candidate"}]}}]},
        {"candidates": [{"content": {"parts": [{"text": 3}, {"functionCall": {"args": 3}}]}}]},
        {"usageMetadata": {"promptTokenCount": "many", "cachedContentTokenCount": -1}},
        {"usageMetadata": {"promptTokenCount": 5, "cachedContentTokenCount": 50}},
    ]
    (finished,) = answered(*odd, chunk(finish="STOP"))
    assert isinstance(finished, Finished)
    assert finished.message["content"] == []
    assert finished.message["usage"]["cacheRead"] == 5


def error(code: int, status: str, message: str = "No.", **more: Any) -> Json:
    return {"error": {"code": code, "message": message, "status": status, **more}}


BAD_KEY = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (error(400, "INVALID_ARGUMENT"), "refused"),
        (error(400, "INVALID_ARGUMENT", details=[BAD_KEY]), "auth"),
        (error(400, "FAILED_PRECONDITION"), "refused"),
        (error(401, "UNAUTHENTICATED"), "auth"),
        (error(403, "PERMISSION_DENIED"), "auth"),
        (error(404, "NOT_FOUND"), "refused"),
        (error(429, "RESOURCE_EXHAUSTED"), "rate"),
        (error(500, "INTERNAL"), "network"),
        (error(503, "UNAVAILABLE"), "network"),
        (error(504, "DEADLINE_EXCEEDED"), "network"),
    ],
)
def test_errors_have_the_kind_of_their_status_in_a_body_and_in_a_stream(
    said: Json, kind: str
) -> None:
    assert FAILURES.from_server(json.dumps([said]), said["error"]["code"]).kind == kind
    for text in (said, [said], {"error": {**said["error"], "code": 0}}):
        with pytest.raises(ModelError) as caught:
            GeminiAnswer(MODEL, 5, FAILURES).feed_text(json.dumps(text))
        assert caught.value.kind == kind


def test_the_wait_that_the_server_asks_for_is_known() -> None:
    wait = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "12.5s"}
    spent = error(429, "RESOURCE_EXHAUSTED", details=[{"@type": "Help"}, wait])
    told = FAILURES.from_server(json.dumps(spent), 429)
    assert (told.kind, told.retry_after_s) == ("rate", 12.5)
    assert FAILURES.from_server(json.dumps(spent), 429, 3.0).retry_after_s == 3.0
    for odd in ("soon", "1e9s", 7, None, "-1s"):
        wait["retryDelay"] = odd  # type: ignore[assignment]  # servers send anything
        assert FAILURES.from_server(json.dumps(spent), 429).retry_after_s is None


@pytest.mark.parametrize(
    ("message", "counts"),
    [
        (
            "The input token count (263000) exceeds the maximum number of tokens allowed (262144).",
            (263_000, 262_144),
        ),
        (
            "The input token count exceeds the maximum number of tokens allowed 1048576.",
            (None, 1_048_576),
        ),
        (
            "The input token count is 1048577 but model only supports up to 1048576.",
            (1_048_577, 1_048_576),
        ),
    ],
)
def test_an_overflow_is_known_by_its_words_with_its_counts(
    message: str, counts: tuple[int | None, int]
) -> None:
    """Faults H18: overflow wording that was not recognised."""
    told = FAILURES.from_server(json.dumps(error(400, "INVALID_ARGUMENT", message)), 400)
    assert told.kind == "overflow"
    assert (told.prompt_tokens, told.window_tokens) == counts
