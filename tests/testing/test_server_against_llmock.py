"""The scripted model server says what llmock, another's mock of the same providers, says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from llmock.scenarios import Reply as MockedReply
from llmock.scenarios import ToolCall as MockedCall
from llmock.testing import LLMockServer

from strandline.testing import Reply, ScriptedModelServer, ToolCall

Json = dict[str, Any]
USER = [{"role": "user", "content": "hi"}]
HEADERS = {"anthropic-version": "2023-06-01", "x-api-key": "k", "authorization": "Bearer k"}
GEMINI = "/v1beta/models/gemini-2.0-flash:streamGenerateContent?alt=sse"
ASKED: list[tuple[str, str, Json]] = [
    (
        "",
        "/v1/chat/completions",
        {"model": "gpt-4o", "messages": USER, "stream_options": {"include_usage": True}},
    ),
    ("/anthropic", "/v1/messages", {"model": "claude-x", "max_tokens": 99, "messages": USER}),
    ("", "/v1/responses", {"model": "gpt-4o", "input": "hi"}),
    ("/gemini", GEMINI, {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}),
]


@pytest.fixture(scope="module")
def mocked() -> Iterator[LLMockServer]:
    with LLMockServer() as server:
        yield server


def keys(value: Any, path: str = "") -> Iterator[str]:
    """The paths of all values: ``.choices[].delta.content``."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from keys(inner, f"{path}.{key}")
    elif isinstance(value, list):
        for inner in value:
            yield from keys(inner, f"{path}[]")
    else:
        yield path


def events(url: str, body: Json) -> dict[str, set[str]]:
    """The keys of a stream's events, by type."""
    sent = body if "contents" in body else {**body, "stream": True}
    response = httpx2.post(url, json=sent, headers=HEADERS, trust_env=False, timeout=20)
    found: dict[str, set[str]] = {}
    for line in response.text.split("\n"):
        if line.startswith("data: {"):
            event = json.loads(line[6:])
            found.setdefault(event.get("type", ""), set()).update(keys(event))
    return found


@pytest.mark.parametrize(
    ("prefix", "path", "body"), ASKED, ids=["chat", "anthropic", "responses", "gemini"]
)
def test_the_events_of_a_stream_have_the_same_types_and_at_least_its_keys(
    mocked: LLMockServer, prefix: str, path: str, body: Json
) -> None:
    mocked.state.scenarios.add(
        MockedReply(text="hello there", tool_calls=(MockedCall("read", {"path": "a"}),))
    )
    reply = Reply("hello there", tool_calls=[ToolCall("read", {"path": "a"})])
    theirs = events(mocked.base_url("openai").removesuffix("/v1") + prefix + path, body)
    with ScriptedModelServer([reply]) as server:
        ours = events(server.root_url + path, body)
    assert theirs.keys() == ours.keys() != set()
    assert {kind: theirs[kind] - ours[kind] for kind in theirs if theirs[kind] - ours[kind]} == {}
