"""The faults of the scripted model server strike every wire format alike."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from strandline.testing import RecordedRequest, Reply, ScriptedModelServer

Json = dict[str, Any]
HEADERS = {"anthropic-version": "2023-06-01"}
USER = [{"role": "user", "content": "hi"}]
ASKED: dict[str, tuple[str, Json]] = {
    "chat": ("/v1/chat/completions", {"model": "m", "messages": USER, "stream": True}),
    "anthropic": (
        "/v1/messages",
        {"model": "m", "max_tokens": 9, "messages": USER, "stream": True},
    ),
    "responses": ("/v1/responses", {"model": "m", "input": "hi", "stream": True}),
    "gemini": (
        "/v1beta/models/m:streamGenerateContent?alt=sse",
        {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]},
    ),
}


@pytest.fixture
def client() -> Iterator[httpx2.Client]:
    with httpx2.Client(trust_env=False, timeout=20, headers=HEADERS) as client:
        yield client


def ask(client: httpx2.Client, server: ScriptedModelServer, wire: str) -> httpx2.Response:
    path, body = ASKED[wire]
    return client.post(server.root_url + path, json=body)


def payloads(text: str) -> list[str]:
    lines = text.split("\n")
    return [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]


@pytest.mark.parametrize("wire", ASKED)
def test_a_stall_and_delays_change_nothing_but_the_time(client: httpx2.Client, wire: str) -> None:
    slow = Reply("abcd", chunk_chars=1, delay_s=0.001, stall_after=2, stall_s=0.01)
    with ScriptedModelServer([Reply("abcd", chunk_chars=1)]) as server:
        quick = ask(client, server, wire).text
    with ScriptedModelServer([slow]) as server:
        assert ask(client, server, wire).text == quick


@pytest.mark.parametrize("wire", ASKED)
def test_a_stall_can_be_longer_than_the_clients_patience(client: httpx2.Client, wire: str) -> None:
    path, body = ASKED[wire]
    with (
        ScriptedModelServer([Reply("slow", stall_after=1, stall_s=60)]) as server,
        pytest.raises(httpx2.ReadTimeout),
    ):
        client.post(server.root_url + path, json=body, timeout=0.2)


@pytest.mark.parametrize("wire", ASKED)
@pytest.mark.parametrize("after", [0, 2])
def test_a_disconnect_shows_the_events_before_it(
    client: httpx2.Client, wire: str, after: int
) -> None:
    path, body = ASKED[wire]
    reply = Reply("abcdefgh", chunk_chars=2, disconnect_after=after)
    seen: list[str] = []

    def read(url: str) -> None:
        with client.stream("POST", url, json=body) as response:
            seen.extend(response.iter_text())

    with ScriptedModelServer([reply]) as server, pytest.raises(httpx2.RemoteProtocolError):
        read(server.root_url + path)
    assert len(payloads("".join(seen))) == after


@pytest.mark.parametrize("wire", ASKED)
def test_a_truncated_event_is_half_of_its_json_and_a_clean_end(
    client: httpx2.Client, wire: str
) -> None:
    with ScriptedModelServer([Reply("abcd", truncate_after=1)]) as server:
        whole, half = payloads(ask(client, server, wire).text)
    json.loads(whole)
    with pytest.raises(json.JSONDecodeError):
        json.loads(half)


@pytest.mark.parametrize("wire", ASKED)
def test_an_error_can_have_any_body_and_any_place(client: httpx2.Client, wire: str) -> None:
    error = {"error": {"message": "tired", "type": "odd"}}
    early = Reply("abcd", status=529, error=error)
    late = Reply("abcd", status=529, error=error, error_after=99)
    with ScriptedModelServer([early, late]) as server:
        response = ask(client, server, wire)
        assert (response.status_code, response.json()) == (529, error)
        streamed = ask(client, server, wire)
        assert streamed.status_code == 200
        assert "tired" in payloads(streamed.text)[-1]


@pytest.mark.parametrize("wire", ASKED)
def test_a_script_that_fails_is_a_500_in_every_format(client: httpx2.Client, wire: str) -> None:
    def script(request: RecordedRequest) -> Reply:
        raise LookupError("no such step")

    with pytest.raises(LookupError), ScriptedModelServer(script) as server:
        assert ask(client, server, wire).status_code == 500


@pytest.mark.parametrize("wire", ASKED)
def test_a_body_without_a_conversation_is_no_request(client: httpx2.Client, wire: str) -> None:
    with ScriptedModelServer() as server:
        response = client.post(server.root_url + ASKED[wire][0], json={"model": "m"})
        assert (response.status_code, server.requests) == (400, [])
        assert response.json()["error"]["message"].startswith("the body is not a JSON object with")


def test_one_script_serves_every_format(client: httpx2.Client) -> None:
    words = ("one", "two", "three", "four")
    with ScriptedModelServer([Reply(word) for word in words]) as server:
        heard = [ask(client, server, wire).text for wire in ASKED]
    assert all(word in text for word, text in zip(words, heard, strict=True))


def test_many_formats_at_once_each_get_their_own_answer() -> None:
    arrived = threading.Barrier(len(ASKED))

    def script(request: RecordedRequest) -> Reply:
        arrived.wait(20)
        return Reply(request.path)

    heard: dict[str, str] = {}

    def run(server: ScriptedModelServer, wire: str) -> None:
        with httpx2.Client(trust_env=False, timeout=20, headers=HEADERS) as client:
            heard[wire] = ask(client, server, wire).text

    with ScriptedModelServer(script) as server:
        threads = [threading.Thread(target=run, args=(server, wire)) for wire in ASKED]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert set(heard) == set(ASKED)
    assert "response.completed" in heard["responses"]
    assert "message_stop" in heard["anthropic"]
