"""The scripted model server as Gemini, asked by Google's own client."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest
from google import genai
from google.genai import errors, types

from strandline.testing import Reply, ScriptedModelServer, SimulatedClock, ToolCall
from strandline.testing.gemini_wire import invalid_key

CALLS = [ToolCall("read", {"path": "a.txt"}, "call_1"), ToolCall("now", {}, "")]


@contextmanager
def clients(server: ScriptedModelServer) -> Iterator[Any]:
    options = types.HttpOptions(
        base_url=server.root_url,
        api_version="v1beta",
        timeout=20_000,
        client_args={"trust_env": False},
        retry_options=types.HttpRetryOptions(attempts=1),
    )
    with genai.Client(api_key="key", http_options=options) as client:
        yield client


@contextmanager
def connected(server: ScriptedModelServer) -> Iterator[Any]:
    with clients(server) as client:
        yield client.models


def parts_of(chunks: list[Any]) -> list[Any]:
    return [part for c in chunks for part in c.candidates[0].content.parts or []]


@pytest.mark.parametrize("streamed", [True, False])
def test_text_thoughts_and_calls_arrive_whole(streamed: bool) -> None:  # noqa: FBT001 - a parameter
    reply = Reply("Let me look. 🎉", thinking="Hm, a file.", tool_calls=CALLS)
    asked = {"model": "gemini-x", "contents": "hello"}
    with ScriptedModelServer([reply]) as server, connected(server) as models:
        if streamed:
            chunks = list(models.generate_content_stream(**asked))
        else:
            chunks = [models.generate_content(**asked)]
    parts, last = parts_of(chunks), chunks[-1]
    assert "".join(p.text for p in parts if p.thought) == "Hm, a file."
    assert "".join(p.text for p in parts if p.text and not p.thought) == "Let me look. 🎉"
    calls = [part for part in parts if part.function_call]
    assert [(c.function_call.name, c.function_call.args) for c in calls] == [
        ("read", {"path": "a.txt"}),
        ("now", {}),
    ]
    assert [call.function_call.id for call in calls] == ["call_1", None]
    signed = base64.b64decode(reply.signed("gemini"))
    assert [call.thought_signature for call in calls] == [signed, None]
    assert last.candidates[0].finish_reason == types.FinishReason.STOP
    assert last.model_version == "gemini-x"
    usage, thought = last.usage_metadata, server.tokens("Hm, a file.")
    assert usage.thoughts_token_count == thought
    assert usage.candidates_token_count == server.tokens(reply.output) - thought
    assert usage.total_token_count == usage.prompt_token_count + server.tokens(reply.output)
    assert usage.cached_content_token_count is None


def test_a_text_is_signed_at_its_end() -> None:
    reply = Reply("Yes.", thinking="Hm.", signature="AAAA")
    with ScriptedModelServer([reply, reply]) as server, connected(server) as models:
        whole = parts_of([models.generate_content(model="g", contents="hi")])
        streamed = parts_of(list(models.generate_content_stream(model="g", contents="hi")))
    assert [(p.text, p.thought_signature) for p in whole] == [
        ("Hm.", None),
        ("Yes.", b"\0\0\0"),
    ]
    assert (streamed[-1].text, streamed[-1].thought_signature) == ("", b"\0\0\0")


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply("x", finish_reason="length"), "MAX_TOKENS"),
        (Reply("x", finish_reason="content_filter"), "SAFETY"),
        (Reply("x", finish_reason="RECITATION"), "RECITATION"),
        (Reply(tool_calls=[ToolCall("broken", '{"pa')]), "MALFORMED_FUNCTION_CALL"),
        (Reply(), "STOP"),
    ],
)
def test_reasons_are_said_in_googles_words(reply: Reply, reason: str) -> None:
    with ScriptedModelServer([reply, reply]) as server, connected(server) as models:
        whole = models.generate_content(model="g", contents="hi")
        *_, last = models.generate_content_stream(model="g", contents="hi")
    assert whole.candidates[0].finish_reason.value == reason
    assert last.candidates[0].finish_reason.value == reason


ERRORS: list[tuple[int, type[errors.APIError], str]] = [
    (400, errors.ClientError, "INVALID_ARGUMENT"),
    (403, errors.ClientError, "PERMISSION_DENIED"),
    (404, errors.ClientError, "NOT_FOUND"),
    (429, errors.ClientError, "RESOURCE_EXHAUSTED"),
    (500, errors.ServerError, "INTERNAL"),
    (503, errors.ServerError, "UNAVAILABLE"),
]


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize(("status", "kind", "name"), ERRORS)
def test_an_error_is_of_its_class(
    status: int,
    kind: type[errors.APIError],
    name: str,
    streamed: bool,  # noqa: FBT001 - a parameter
) -> None:
    script = [Reply(status=status, retry_after_s=36)]
    with ScriptedModelServer(script) as server, connected(server) as models:
        ask = models.generate_content_stream if streamed else models.generate_content
        with pytest.raises(kind) as caught:
            list(ask(model="g", contents="hi"))
    assert (caught.value.code, caught.value.status) == (status, name)
    (info,) = caught.value.details["error"]["details"]
    assert info == {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "36s"}


def test_a_wrong_key_is_a_400_as_with_google() -> None:
    with ScriptedModelServer([invalid_key()]) as server, connected(server) as models:
        with pytest.raises(errors.ClientError, match="API_KEY_INVALID"):
            models.generate_content(model="g", contents="hi")
        assert server.requests[0].headers["x-goog-api-key"] == "key"


def test_an_error_can_come_in_the_middle_of_a_stream() -> None:
    reply = Reply("abcdef", chunk_chars=2, status=503, error_after=2)
    with ScriptedModelServer([reply]) as server, connected(server) as models:
        seen: list[str] = []
        with pytest.raises(errors.ServerError, match="overloaded"):
            seen.extend(c.text for c in models.generate_content_stream(model="g", contents="hi"))
    assert seen == ["ab", "cd"]


def test_an_overflow_tells_both_counts_and_takes_nothing() -> None:
    with (
        ScriptedModelServer([Reply("fits")], context_window=1000) as server,
        connected(server) as models,
    ):
        with pytest.raises(errors.ClientError) as caught:
            models.generate_content(model="g", contents="x" * 8000)
        assert caught.value.message == (
            "The input token count (2010) exceeds the maximum number of tokens allowed (1000)."
        )
        assert models.generate_content(model="g", contents="hi").text == "fits"


def test_a_chat_gives_back_what_was_signed() -> None:
    """The client's own history: signatures in the other alphabet of base64, and a call's result."""
    first = Reply(thinking="??>>~~", tool_calls=CALLS[:1], signature="+/+/")
    with ScriptedModelServer([first, Reply("done")]) as server, connected(server) as models:
        asked = types.Content(role="user", parts=[types.Part(text="hello")])
        said = models.generate_content(model="g", contents=[asked]).candidates[0].content
        result = types.Part.from_function_response(name="read", response={"output": "text"})
        history = [asked, said, types.Content(role="user", parts=[result])]
        assert models.generate_content(model="g", contents=history).text == "done"
        sent = server.requests[1].body["contents"][1]["parts"]
    assert server.refused == []
    assert [part.get("thoughtSignature") for part in sent] == [None, "-_-_"]


def test_a_long_beginning_is_cached_without_a_mark() -> None:
    with ScriptedModelServer() as server, connected(server) as models:
        used = [
            models.generate_content(model="g", contents="x" * 8000).usage_metadata for _ in range(2)
        ]
    assert used[0].cached_content_token_count is None
    assert used[1].cached_content_token_count == used[1].prompt_token_count


@pytest.mark.parametrize("query", ["", "?alt=json", "?alt=ssed"])
def test_only_server_sent_events_are_streamed(query: str) -> None:
    with ScriptedModelServer() as server:
        url = f"{server.root_url}/v1beta/models/g:streamGenerateContent{query}"
        assert httpx2.post(url, json={"contents": []}, trust_env=False).status_code == 404


# -- cached contents ----------------------------------------------------------------------------


def config(words: str = "x" * 8000, **more: Any) -> dict[str, Any]:
    tool = {"function_declarations": [{"name": "read"}]}
    return {"system_instruction": words, "tools": [tool], **more}


def test_a_content_is_kept_and_read_under_its_name() -> None:
    with ScriptedModelServer() as server, clients(server) as client:
        kept = client.caches.create(model="gemini-x", config=config(ttl="60s"))
        assert kept.name.startswith("cachedContents/")
        assert kept.model == "models/gemini-x"
        assert (kept.expire_time - kept.create_time).total_seconds() == 60
        asked = {"model": "gemini-x", "contents": "hi", "config": {"cached_content": kept.name}}
        used = [client.models.generate_content(**asked).usage_metadata for _ in range(2)]
    assert used[0].cached_content_token_count == kept.usage_metadata.total_token_count
    assert used[0].prompt_token_count > used[0].cached_content_token_count > 2000
    assert [request.body["model"] for request in server.to_cache] == ["models/gemini-x"]
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"model": "models/g"}, "Cached content is too small. total_token_count=0, min_total_"),
        ({"systemInstruction": {"parts": [{"text": "x"}]}}, "model is not specified"),
    ],
)
def test_a_content_that_is_too_small_is_not_kept(body: dict[str, Any], words: str) -> None:
    with ScriptedModelServer() as server:
        url = f"{server.root_url}/v1beta/cachedContents"
        response = httpx2.post(url, json=body, trust_env=False)
    error = response.json()["error"]
    assert (response.status_code, error["status"]) == (400, "INVALID_ARGUMENT")
    assert words in error["message"]
    assert server.refused == [error["message"]]


def test_what_is_kept_is_listed_in_pages_without_what_it_holds() -> None:
    with ScriptedModelServer() as server, clients(server) as client:
        assert list(client.caches.list()) == []
        made = [client.caches.create(model="g", config=config(display_name=name)) for name in "abc"]
        listed = list(client.caches.list(config={"page_size": 2}))
        url = f"{server.root_url}/v1beta/cachedContents"
        told = httpx2.get(url, trust_env=False).json()["cachedContents"][0]
    assert [each.display_name for each in listed] == ["a", "b", "c"]
    assert [(each.name, each.model, each.expire_time) for each in listed] == [
        (each.name, "models/g", each.expire_time) for each in made
    ]
    assert not told.keys() & {"systemInstruction", "tools", "contents"}
    assert len(server.looked_up) == 4
    assert len(server.to_cache) == 3


@pytest.mark.parametrize("gone", ["unknown", "forgotten", "expired"])
def test_a_name_that_is_not_known_is_refused(gone: str) -> None:
    clock = SimulatedClock()
    with ScriptedModelServer(now_ms=clock.now_ms) as server, clients(server) as client:
        name = client.caches.create(model="g", config=config(ttl="60s")).name
        if gone == "forgotten":
            server.forget()
        if gone == "expired":
            clock.advance(60_000)
        named = "cachedContents/other" if gone == "unknown" else name
        with pytest.raises(errors.ClientError) as caught:
            client.models.generate_content(
                model="g", contents="hi", config={"cached_content": named}
            )
    assert (caught.value.code, caught.value.status) == (403, "PERMISSION_DENIED")
    assert "CachedContent not found" in str(caught.value.message)


def test_what_is_kept_is_not_sent_beside_its_name_nor_to_another_model() -> None:
    with ScriptedModelServer() as server, clients(server) as client:
        name = client.caches.create(model="g", config=config()).name
        for model, more, words in (
            ("g", {"system_instruction": "x"}, "setting system_instruction, tools or tool_config"),
            ("other", {}, "has to be the same"),
        ):
            with pytest.raises(errors.ClientError) as caught:
                client.models.generate_content(
                    model=model, contents="hi", config={"cached_content": name, **more}
                )
            assert caught.value.code == 400
            assert words in str(caught.value.message)
