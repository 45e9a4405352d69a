"""Thinking that providers signed, or did not (faults B), in conversations on real files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from strandline.context.budget import CompactionSettings
from strandline.models.anthropic_answer import Answer
from strandline.models.failures import Failures
from strandline.runtime.agent import Backend
from strandline.runtime.conversation import Conversation
from strandline.runtime.model import Finished, ModelInfo
from strandline.runtime.tools import Tool
from strandline.testing import RecordedRequest, Reply, ToolCall
from strandline.transcript.messages import JsonObject, Message

BackendFor = Callable[..., Backend]
SIGNING = ["anthropic-messages", "openai-responses", "google-generative-ai"]
CLAUDE = "anthropic-messages"


def thinking_of(backend_for: BackendFor, api: str, server: Any, window: int = 32_000) -> Backend:
    return backend_for(api, server, window, reasoning=True, max_output_tokens=4_000)


def looking(words: int) -> Tool:
    async def look(_: object) -> str:
        return "lantern " * words

    return Tool("look", "It looks.", {"type": "object"}, look)


def sent_thoughts(request: RecordedRequest, api: str) -> list[str]:
    """The signatures of the thinking in a request."""
    body = request.body
    match api:
        case "anthropic-messages":
            blocks = [b for m in body["messages"] for b in m["content"] if isinstance(b, dict)]
            return [b["signature"] for b in blocks if b["type"] == "thinking"]
        case "openai-responses":
            items = [item for item in body["input"] if item["type"] == "reasoning"]
            return [item["encrypted_content"] for item in items]
        case _:
            parts = [p for c in body["contents"] for p in c["parts"] if "thoughtSignature" in p]
            return [part["thoughtSignature"] for part in parts]


def stored_thoughts(talk: Conversation) -> list[JsonObject]:
    """The thinking blocks of the whole transcript."""
    messages = [entry.data.get("message") for entry in talk.session.entries()]
    answers = [m for m in messages if m and m["role"] == "assistant"]
    return [b for m in answers for b in m["content"] if b["type"] == "thinking"]


@pytest.mark.parametrize("signing", SIGNING)
async def test_what_a_compaction_keeps_goes_without_its_thinking_and_the_file_has_it(
    serve: Any, agent_of: Any, talk_of: Any, backend_for: BackendFor, signing: str
) -> None:
    """B1: signed for a beginning that is gone; what is thought afterwards goes back as usual."""
    script = [Reply(f"Answer {n}. " + "berth " * 400, thinking=f"Thought {n}.") for n in range(8)]
    server = serve(script)
    agent = agent_of(
        thinking_of(backend_for, signing, server),
        compaction=CompactionSettings(keep_recent_tokens=1_400),
    )
    talk = talk_of(agent)
    await talk.set_thinking("low")
    for number in range(5):
        await talk.say(f"question {number}")
    assert len(sent_thoughts(server.requests[-1], signing)) == 4
    receipt = await talk.compact()
    assert receipt.messages_kept >= 4, "thoughts among them"
    counts = []
    for number in range(5, 8):
        await talk.say(f"question {number}")
        counts.append(len(sent_thoughts(server.requests[-1], signing)))
    assert counts == [0, 1, 2]
    assert server.refused == []
    assert [block["thinking"] for block in stored_thoughts(talk)] == [
        f"Thought {n}." for n in range(8)
    ]


@pytest.mark.parametrize("signing", SIGNING)
async def test_a_turn_that_compacts_between_its_thoughts_goes_on(
    serve: Any, agent_of: Any, talk_of: Any, backend_for: BackendFor, signing: str
) -> None:
    """B1: in the tool loop, where the thought before a call has to stand or thinking is off."""

    def script(_: RecordedRequest) -> Reply:
        number = len(server.requests)
        called = [ToolCall("look", {"n": number}, f"c{number}")]
        if number % 13 == 0:
            return Reply("Seen.", thinking=f"Then {number}.")
        return Reply("Let me look.", thinking=f"Thought {number}.", tool_calls=called)

    server = serve(script, context_window=12_000)
    agent = agent_of(thinking_of(backend_for, signing, server, 12_000), looking(300))
    talk = talk_of(agent)
    await talk.set_thinking("low")
    made = []
    for number in range(4):
        result = await talk.say(f"Look {number}")
        assert result.reply == "Seen."
        made += result.compactions
    assert len(made) > 2
    assert server.refused == []
    assert len(server.requests) == 4 * 13, "none was refused for its size"
    assert len(stored_thoughts(talk)) == 4 * 13


@pytest.mark.parametrize("signing", SIGNING)
async def test_a_thought_that_broke_off_before_its_signature_is_never_sent_again(
    serve: Any, agent_of: Any, talk_of: Any, backend_for: BackendFor, signing: str
) -> None:
    """B2: as our own adapter stores it, and as others do."""
    broken = Reply("So it is.", thinking="abc", signature="")
    server = serve([broken, Reply("Yes.", thinking="Hm.")])
    backend = thinking_of(backend_for, signing, server)
    talk = talk_of(agent_of(backend))
    await talk.set_thinking("low")
    await talk.say("think")
    info = backend.info
    unsigned: Message = {
        "role": "assistant",
        "content": [{"type": "thinking", "thinking": "abc"}, {"type": "text", "text": "I was"}],
        "api": info.api,
        "provider": info.provider,
        "model": info.id,
        "stopReason": "aborted",
        "timestamp": 1,
    }
    talk.session.append_message(unsigned)
    assert (await talk.say("go on")).reply == "Yes."
    assert "abc" not in json.dumps(server.requests[-1].body)
    assert server.refused == []


@pytest.mark.parametrize("signature", [None, "", "  "])
async def test_an_empty_thought_without_a_signature_is_not_sent_with_the_latest_answer(
    serve: Any, agent_of: Any, talk_of: Any, backend_for: BackendFor, api: str, signature: Any
) -> None:
    """B3, at replay: the answer that holds it is the last one in the context."""
    server = serve()
    backend = thinking_of(backend_for, api, server)
    talk = talk_of(agent_of(backend))
    await talk.set_thinking("low")
    info = backend.info
    empty = {"type": "thinking", "thinking": "", "thinkingSignature": signature}
    said: Message = {
        "role": "assistant",
        "content": [empty, {"type": "text", "text": "Here."}],
        "api": info.api,
        "provider": info.provider,
        "model": info.id,
        "stopReason": "stop",
        "timestamp": 1,
    }
    talk.session.append_message({"role": "user", "content": "hello", "timestamp": 1})
    talk.session.append_message(said)
    assert (await talk.say("and now?")).reply
    assert server.refused == []
    if api in SIGNING:
        assert sent_thoughts(server.requests[-1], api) == []


def test_an_empty_thought_without_a_signature_is_not_stored() -> None:
    """B3, at write: one that is signed is, with or without words."""

    def stored(start: JsonObject, *deltas: JsonObject) -> list[JsonObject]:
        info = ModelInfo("anthropic", "claude", CLAUDE, 64_000, 4_000)
        answer = Answer(info, 1, Failures(info))
        block = {"type": "thinking", "thinking": "", **start}
        answer.feed({"type": "content_block_start", "index": 0, "content_block": block})
        for delta in deltas:
            answer.feed({"type": "content_block_delta", "index": 0, "delta": delta})
        text = {"type": "text", "text": "So."}
        answer.feed({"type": "content_block_start", "index": 1, "content_block": text})
        answer.feed({"type": "message_stop"})
        [finished] = [event for event in answer.finish() if isinstance(event, Finished)]
        content: list[JsonObject] = finished.message["content"]
        assert content[-1] == text
        return content[:-1]

    for empty in ({}, {"signature": ""}, {"signature": None}):
        assert stored(empty) == []
        assert stored(empty, {"type": "signature_delta", "signature": ""}) == []
    signed = {"type": "thinking", "thinking": "", "thinkingSignature": "abc"}
    assert stored({}, {"type": "signature_delta", "signature": "abc"}) == [signed]


def test_a_record_with_a_raw_line_end_is_passed_over_and_a_fork_does_not_inherit_it(
    serve: Any, run: Any, setup: Any, state: Path
) -> None:
    """B6: turns go on, `verify` counts it, and a fork is whole."""
    seen: list[RecordedRequest] = []

    def script(request: RecordedRequest) -> Reply:
        seen.append(request)
        return Reply(f"Answer {len(seen)}.")

    setup(serve(script))
    assert run("agent", "-m", "Hello").out == "Answer 1.\n"
    [path] = (state / "agents").rglob("*.jsonl")
    torn = (
        b'{"type":"message","id":"torn0001","parentId":null,"timestamp":"2025-06-01T10:00:00.000Z",'
        b'"message":{"role":"assistant","content":[{"type":"toolCall","id":"c1","name":"write",'
        b'"partialJson":"{\\"text\\": \\"one\ntwo"}]}}\n'
    )
    path.write_bytes(path.read_bytes() + torn)
    before = path.read_bytes()
    for number in (2, 3):
        assert run("agent", "-m", "Go on").out == f"Answer {number}.\n"
    assert path.read_bytes().startswith(before), "what is damaged stays where it is"
    told = json.dumps(seen[-1].body)
    assert all(words in told for words in ("Hello", "Answer 1.", "Answer 2."))
    assert "partialJson" not in told
    assert len(run("session", "verify", path, "--json").json()["findings"]) == 2
    forked = run("session", "fork", path, "--json").json()["file"]
    assert run("session", "verify", forked).code == 0
    assert "Answer 3." in run("session", "show", forked).out
