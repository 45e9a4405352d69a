"""What a strict scripted server refuses, in each provider's words (cases/faults, A and B).

Every case is one request; the words are a piece of the refusal.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, get_args

import httpx2
import pytest

from strandline.models.anthropic_wire import request_body
from strandline.models.catalog import known
from strandline.runtime.model import ModelInfo, ModelRequest
from strandline.testing import Reply, ScriptedModelServer, ToolCall
from strandline.transcript.messages import Message, ThinkingLevel

Json = dict[str, Any]
PATHS = {
    "chat": "/v1/chat/completions",
    "anthropic": "/v1/messages",
    "responses": "/v1/responses",
    "gemini": "/v1beta/models/m:generateContent",
}


def post(server: ScriptedModelServer, wire: str, body: Json) -> httpx2.Response:
    headers = {"anthropic-version": "2023-06-01"}
    url = server.root_url + PATHS[wire]
    return httpx2.post(url, json=body, headers=headers, trust_env=False, timeout=20)


def said(response: httpx2.Response) -> str:
    message: str = response.json()["error"]["message"]
    return message


USER: Json = {"role": "user", "content": "hi"}

# -- chat ---------------------------------------------------------------------------------------


def chat(*messages: Json) -> Json:
    return {"model": "m", "messages": [USER, *messages]}


def called(*ids: str) -> Json:
    function = {"name": "read", "arguments": "{}"}
    calls = [{"id": id_, "type": "function", "function": function} for id_ in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def tool(id_: str, content: Any = "text") -> Json:
    return {"role": "tool", "tool_call_id": id_, "content": content}


CHAT: list[tuple[Json, str]] = [
    ({"model": "m", "messages": []}, "Invalid 'messages': empty array."),
    (chat(tool("a")), "role 'tool' must be a response to a preceeding message with 'tool_calls'"),
    (chat(called("a"), tool("b")), "did not have response messages: a"),
    (chat(called("a"), tool("a"), tool("b")), "'tool_call_id' of 'b' not found in 'tool_calls'"),
    (chat(called("a", "b"), tool("b")), "did not have response messages: a"),
    (chat(called("a")), "did not have response messages: a"),
    (chat(called("a"), USER, tool("a")), "did not have response messages: a"),
    (
        chat(called("a" * 41), tool("a" * 41)),
        "Invalid 'messages[1].tool_calls[0].id': string too long. Expected a string with maximum",
    ),
    (chat({"role": "assistant", "content": None}), "expected a string, got null"),
    (chat({"role": "user", "content": []}), "Invalid 'messages[1].content': empty array."),
    (
        chat({"role": "user", "content": [{"type": "text", "text": ""}]}),
        "Invalid 'messages[1].content[0].text': empty string",
    ),
    ({**chat(), "prompt_cache_key": "k" * 65}, "Invalid 'prompt_cache_key': string too long."),
    ({**chat(), "prompt_cache_retention": "1h"}, "Supported values are: 'in_memory' and '24h'."),
]

# -- anthropic ----------------------------------------------------------------------------------


def claude(*messages: Json, **more: Any) -> Json:
    return {"model": "m", "max_tokens": 2000, "messages": [USER, *messages], **more}


def text(text: str, **more: Any) -> Json:
    return {"type": "text", "text": text, **more}


def used(*ids: str) -> Json:
    blocks = [{"type": "tool_use", "id": id_, "name": "read", "input": {}} for id_ in ids]
    return {"role": "assistant", "content": blocks}


def result(*ids: str, before: Json | None = None) -> Json:
    blocks = [{"type": "tool_result", "tool_use_id": id_, "content": "text"} for id_ in ids]
    return {"role": "user", "content": [*([before] if before else []), *blocks]}


def thought(**more: Any) -> Json:
    return {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm.", **more}]}


BUDGET = "enabled"


def thinks(model: str, kind: str | None, effort: str | None = None) -> Json:
    """A request to a Claude for thinking of one kind; a budget with the least that there is."""
    thinking: Json = {"type": kind, **({"budget_tokens": 1024} if kind == BUDGET else {})}
    more: Json = {"thinking": thinking} if kind else {}
    more |= {"output_config": {"effort": effort}} if effort else {}
    return {**claude(**more), "model": f"claude-{model}"}


MARK = {"cache_control": {"type": "ephemeral"}}
HOUR = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
ANTHROPIC: list[tuple[Json, str]] = [
    ({**claude(), "max_tokens": 0}, "max_tokens: Input should be greater than or equal to 1"),
    ({"model": "m", "messages": [USER]}, "max_tokens: Field required"),
    ({**claude(), "model": ""}, "model: Field required"),
    ({**claude(), "messages": []}, "messages: at least one message is required"),
    (claude({"role": "system", "content": "x"}), 'messages: Unexpected role "system"'),
    (
        {**claude(), "messages": [{"role": "assistant", "content": "x"}]},
        'messages: first message must use the "user" role',
    ),
    (
        claude({"role": "assistant", "content": []}, USER),
        "messages.1: all messages must have non-empty content except for the optional final",
    ),
    (
        claude({"role": "user", "content": [text("")]}),
        "messages: text content blocks must be non-empty",
    ),
    (claude({"role": "user", "content": " \n"}), "messages: text content blocks must contain non-"),
    (claude(system=[text("")]), "system: text content blocks must be non-empty"),
    (
        claude(
            used("a"),
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "a", "content": [text("")]}],
            },
        ),
        "messages: text content blocks must be non-empty",
    ),
    (
        claude(used("a|b"), result("a|b")),
        "messages.1.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'",
    ),
    (
        claude(used("a"), result("a.b")),
        "messages.2.content.0.tool_result.tool_use_id: String should match pattern",
    ),
    (
        claude({"role": "assistant", "content": [{**used("a")["content"][0], "input": "{"}]}),
        "messages.1.content.0.tool_use.input: Input should be a valid dictionary",
    ),
    (
        claude(used("a", "b"), result("b")),
        "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: a.",
    ),
    (claude(used("a")), "`tool_use` ids were found without `tool_result` blocks"),
    (claude(used("a"), USER, result("a")), "`tool_use` ids were found without"),
    (claude(used("a"), result("a", before=text("x"))), "`tool_use` ids were found without"),
    (claude(used("a", "a"), result("a")), "messages.1: `tool_use` ids must be unique"),
    (
        claude(result("a")),
        "messages.1.content.0: unexpected `tool_use_id` found in `tool_result` blocks: a.",
    ),
    (claude(used("a"), result("a", "a")), "each tool_use must have a single result."),
    (claude(thought()), "messages.1.content.0.thinking.signature: Field required"),
    (claude(thought(signature="x")), "messages.1.content.0: Invalid `signature` in `thinking`"),
    (claude(thought(signature=None)), "Invalid `signature` in `thinking` block"),
    (
        claude({"role": "assistant", "content": [{"type": "redacted_thinking", "data": "x"}]}),
        "messages.1.content.0: Invalid `data` in `redacted_thinking` block",
    ),
    (
        claude(system=[text("x", **MARK)] * 5),
        "A maximum of 4 blocks with cache_control may be provided. Found 5.",
    ),
    (
        claude(tools=[{"name": "a", **MARK}], system=[text("x", **MARK)] * 4),
        "A maximum of 4 blocks with cache_control may be provided. Found 5.",
    ),
    (
        claude({"role": "user", "content": [text("", **MARK)]}),
        "messages.1.content.0.text: cache_control cannot be set for empty text blocks",
    ),
    (
        claude({"role": "user", "content": [text("x", **HOUR)]}, system=[text("x", **MARK)]),
        "messages.1.content.0.cache_control.ttl: a ttl='1h' cache_control block must not come",
    ),
    (
        claude(system=[text("x", cache_control={"type": "ephemeral", "ttl": "2h"})]),
        "system.0.cache_control.ephemeral.ttl: Input should be '5m' or '1h'",
    ),
    (
        claude(thinking={"type": "enabled", "budget_tokens": 1000}),
        "budget_tokens: Input should be greater than or equal to 1024",
    ),
    (
        claude(thinking={"type": "enabled", "budget_tokens": 2000}),
        "`max_tokens` must be greater than `thinking.budget_tokens`.",
    ),
    (thinks("opus-4-7", BUDGET), '"thinking.type.enabled" is not supported for this model. Use'),
    (thinks("haiku-5-5", BUDGET), 'Use "thinking.type.adaptive" and "output_config.effort"'),
    (thinks("opus-4-5", "adaptive"), "adaptive thinking is not supported on this model"),
    (thinks("opus-5-5", "disabled"), '"thinking.type.disabled" is not supported for this model'),
    (thinks("sonnet-5-5", "disabled"), '"thinking.type.between_tools" for the lowest thinking'),
    (thinks("opus-5", "between_tools"), '"thinking.type.between_tools" is not supported'),
    (thinks("opus-5", "disabled", "xhigh"), "'xhigh' is not supported when thinking is disabled"),
    (thinks("sonnet-5-5", "between_tools", "max"), "'max' is not supported when thinking is dis"),
    (
        thinks("opus-4-6", "adaptive", "xhigh"),
        "does not support effort level 'xhigh'. Supported levels: high, low, max, medium.",
    ),
    (thinks("haiku-4-5", BUDGET, "low"), "This model does not support the effort parameter."),
    (
        {**claude({"role": "assistant", "content": "So"}), "model": "claude-sonnet-5"},
        "This model does not support assistant message prefill. The conversation must end with",
    ),
]
TAKEN: list[Json] = [
    thinks("opus-4-5", BUDGET),
    thinks("haiku-4-5", "disabled"),
    thinks("opus-4-6", BUDGET),
    thinks("opus-4-6", "adaptive", "max"),
    thinks("opus-4-8", "adaptive", "xhigh"),
    thinks("opus-5", "disabled", "high"),
    thinks("opus-5-5", "adaptive", "xhigh"),
    thinks("fable-5-2", None, "low"),
    thinks("sonnet-5", "disabled", "xhigh"),
    thinks("sonnet-5-5", "between_tools", "high"),
    thinks("haiku-5-5", "disabled"),
    thinks("of-tomorrow", "unheard_of", "more"),
    claude({"role": "assistant", "content": "So"}),
]

# -- responses ----------------------------------------------------------------------------------


def items(*more: Json, **body: Any) -> Json:
    return {"model": "m", "input": [USER, *more], **body}


def call(id_: str, **more: Any) -> Json:
    return {"type": "function_call", "call_id": id_, "name": "read", "arguments": "{}", **more}


def output(id_: str, content: Any = "text") -> Json:
    return {"type": "function_call_output", "call_id": id_, "output": content}


REASONING: Json = {"type": "reasoning", "id": "rs_1", "summary": []}
RESPONSES: list[tuple[Json, str]] = [
    (items(prompt_cache_key="k" * 65), "Invalid 'prompt_cache_key': string too long."),
    (items(prompt_cache_retention="1h"), "Supported values are: 'in_memory' and '24h'."),
    (items(call("a")), "No tool output found for function call a."),
    (items(output("a")), "No tool call found for function call output with call_id a."),
    (items(output("a"), call("a")), "No tool call found for function call output"),
    (
        items(call("a" * 65), output("a" * 65)),
        "Invalid 'input[1].call_id': string too long. Expected a string with maximum length 64",
    ),
    (items(call("a", id="a"), output("a")), "Expected an ID that begins with 'fc'."),
    (items(call("a"), output("a", [{"type": "input_text", "text": ""}])), "empty string"),
    (
        items({"role": "user", "content": [{"type": "input_text", "text": ""}]}),
        "Invalid 'input[1].content[0].text': empty string",
    ),
    (items(REASONING), "'rs_1' of type 'reasoning' was provided without its required following"),
    (items(REASONING, USER), "was provided without its required following item."),
    (items({"type": "reasoning", "id": "rs_1"}), "Missing required parameter: 'input[1].summary'"),
    (
        items({**REASONING, "encrypted_content": "gAAAAxyzQ=="}, call("a"), output("a")),
        "The encrypted content gAAA...zQ== could not be verified.",
    ),
    (items(max_output_tokens=15), "Expected a value >= 16, but got 15 instead."),
]

# -- gemini -------------------------------------------------------------------------------------


def contents(*more: Json) -> Json:
    return {"contents": [{"role": "user", "parts": [{"text": "hi"}]}, *more]}


def asks(count: int = 1, **more: Any) -> Json:
    part = {"functionCall": {"name": "read", "args": {}}, **more}
    return {"role": "model", "parts": [part] * count}


def answers(count: int = 1, **more: Any) -> Json:
    response = {"name": "read", "response": {"output": "x"}, **more}
    return {"role": "user", "parts": [{"functionResponse": response}] * count}


GEMINI: list[tuple[Json, str]] = [
    ({"contents": []}, "contents is not specified"),
    (contents({"role": "assistant", "parts": [{"text": "x"}]}), "use a valid role: user, model."),
    (contents({"role": "model", "parts": []}), "contents[1].parts: contents.parts must not be"),
    (contents({"role": "model", "parts": [{"text": ""}]}), "contents[1].parts[0].data: required"),
    ({**contents(), "systemInstruction": {"parts": [{"text": ""}]}}, "system_instruction.parts[0]"),
    (contents(asks(2), answers(1)), "number of function response parts is equal to the number of"),
    (contents(asks()), "number of function response parts is equal"),
    (contents(answers()), "function response turn comes immediately after a function call turn."),
    (
        contents({"role": "model", "parts": [{"text": "x"}]}, asks(), answers()),
        "function call turn comes immediately after a user turn or after a function response turn.",
    ),
    (contents(asks(), answers(name="")), "function_response.name: Name cannot be empty."),
    (contents(asks(), answers(response="x")), "function_response.response' (type.googleapis.com"),
    (contents(asks(thoughtSignature="AAAA"), answers()), "Corrupted thought signature."),
    (contents(asks(thoughtSignature="???"), answers()), "Base64 decoding failed for"),
]

CASES = [
    *(("chat", body, words) for body, words in CHAT),
    *(("anthropic", body, words) for body, words in ANTHROPIC),
    *(("responses", body, words) for body, words in RESPONSES),
    *(("gemini", body, words) for body, words in GEMINI),
]


@pytest.mark.parametrize(("wire", "body", "words"), CASES)
def test_a_request_that_breaks_a_rule_is_refused_in_the_providers_words(
    wire: str, body: Json, words: str
) -> None:
    with ScriptedModelServer([Reply("next")]) as server:
        response = post(server, wire, body)
        assert response.status_code == 400
        assert words in said(response)
        assert server.refused == [said(response)]
        server.strict = False
        assert "next" in post(server, wire, body).text, "it took nothing from the script"
        assert server.refused == [said(response)]


GOOD: list[tuple[str, Json]] = [
    ("chat", chat(called("a", "b"), tool("b"), tool("a", ""), USER)),
    ("anthropic", claude(used("a", "b"), result("b"), result("a"), {**USER, "content": "and"})),
    ("anthropic", claude({"role": "assistant", "content": ""})),
    (
        "anthropic",
        claude(used("a"), {**result("a"), "content": [*result("a")["content"], text("x")]}),
    ),
    ("responses", items(call("a"), USER, call("b", id="fc_9"), output("b"), output("a"))),
    ("responses", {"model": "m", "input": "hi"}),
    ("gemini", contents(asks(2), answers(2), asks(), answers())),
    ("gemini", contents(asks(thoughtSignature="skip_thought_signature_validator"), answers())),
]


@pytest.mark.parametrize(("wire", "body"), GOOD)
def test_a_request_that_breaks_none_is_answered(wire: str, body: Json) -> None:
    with ScriptedModelServer([Reply("next")]) as server:
        assert post(server, wire, body).status_code == 200
        assert server.refused == []


@pytest.mark.parametrize("wire", PATHS)
def test_half_of_a_character_is_no_json_to_anybody(wire: str) -> None:
    body = {"chat": chat(), "anthropic": claude(), "responses": items(), "gemini": contents()}[wire]
    raw = {**body, "user": "\ud83d"}
    headers = {"anthropic-version": "2023-06-01", "content-type": "application/json"}
    with ScriptedModelServer() as server:
        url = server.root_url + PATHS[wire]
        sent = json.dumps(raw).encode()
        response = httpx2.post(url, content=sent, headers=headers, trust_env=False)
    assert response.status_code == 400
    assert "JSON" in said(response)


def test_anthropic_wants_to_know_its_version() -> None:
    with ScriptedModelServer() as server:
        url = server.root_url + PATHS["anthropic"]
        response = httpx2.post(url, json=claude(), trust_env=False)
    assert said(response) == "anthropic-version: header is required"


@pytest.mark.parametrize("body", TAKEN, ids=lambda body: body["model"])
def test_what_a_claude_takes_of_thinking_is_answered(body: Json) -> None:
    with ScriptedModelServer([Reply("yes")]) as server:
        assert post(server, "anthropic", body).status_code == 200


@pytest.mark.parametrize("level", get_args(ThinkingLevel))
@pytest.mark.parametrize(
    "model", [model for model in known() if model.provider == "anthropic"], ids=lambda m: m.id
)
def test_every_claude_of_the_catalog_takes_every_level_in_the_middle_of_a_tool_loop(
    model: ModelInfo, level: ThinkingLevel
) -> None:
    """The requests that are written, against the table of what each model refuses."""
    thinking = Reply(thinking="Hm.", tool_calls=[ToolCall("read", {}, "a")])
    request = ModelRequest(model, "S", [{"role": "user", "content": "hi"}], 3000, (), level)
    with ScriptedModelServer([thinking, Reply("done"), Reply("done")]) as server:
        body = json.loads(request_body(request))
        answer = post(server, "anthropic", {**body, "stream": False}).json()["content"]
        thought = {"type": "thinking", "thinking": answer[0]["thinking"]}
        by = {"api": model.api, "provider": model.provider, "model": model.id}
        call = {"type": "toolCall", "id": "a", "name": "read", "arguments": {}}
        content = [{**thought, "thinkingSignature": answer[0]["signature"]}, call]
        spoken: list[Message] = [
            *request.messages,
            {"role": "assistant", "content": content, **by},
            {"role": "toolResult", "toolCallId": "a", "content": [text("text")]},
        ]
        for messages in (spoken, [*spoken, {"role": "assistant", "content": [text("So")], **by}]):
            body = json.loads(request_body(replace(request, messages=messages)))
            response = post(server, "anthropic", {**body, "stream": False})
            assert response.status_code == 200, response.text


# -- what the server signed -----------------------------------------------------------------------


def test_thinking_goes_back_to_anthropic_as_it_came_or_not_at_all() -> None:
    signed = Reply(thinking="Hm.", tool_calls=[ToolCall("read", {}, "a")])
    thinking = {"type": "enabled", "budget_tokens": 1024}
    with ScriptedModelServer([signed, Reply("done"), Reply("done"), Reply("done")]) as server:
        first = post(server, "anthropic", claude(thinking=thinking)).json()
        answer = {"role": "assistant", "content": first["content"]}
        history = claude(answer, result("a"), thinking=thinking)
        assert post(server, "anthropic", history).status_code == 200

        changed = [{**first["content"][0], "thinking": "Other."}, first["content"][1]]
        body = claude({"role": "assistant", "content": changed}, result("a"))
        assert "cannot be modified" in said(post(server, "anthropic", body))

        without = {"role": "assistant", "content": first["content"][1:]}
        body = claude(without, result("a"), thinking=thinking)
        refusal = said(post(server, "anthropic", body))
        assert "Expected `thinking` or `redacted_thinking`, but found `tool_use`" in refusal
        assert post(server, "anthropic", claude(without, result("a"))).status_code == 200
        done = {"role": "assistant", "content": "done"}
        later = claude(without, result("a"), done, USER, thinking=thinking)
        assert post(server, "anthropic", later).status_code == 200, "only in the loop of tools"


def test_thinking_takes_no_cache_mark_and_longer_lives_come_before_shorter_ones() -> None:
    with ScriptedModelServer(signatures=["x"]) as server:
        for kind in ("thinking", "redacted_thinking"):
            block = {"type": kind, "thinking": "Hm.", "signature": "x", "data": "x", **MARK}
            answer = {"role": "assistant", "content": [block, text("So.")]}
            refusal = said(post(server, "anthropic", claude(answer, USER)))
            assert refusal == (
                f"messages.1.content.0.{kind}.cache_control: Extra inputs are not permitted"
            )
        words = {"role": "user", "content": [text("x", **MARK)]}
        body = claude(words, tools=[{"name": "a", **HOUR}], system=[text("x", **HOUR)])
        assert post(server, "anthropic", body).status_code == 200


def test_a_signature_of_one_provider_is_none_of_another() -> None:
    with ScriptedModelServer([Reply("x", thinking="Hm.")] * 2) as server:
        item = post(server, "responses", items()).json()["output"][0]
        body = claude(thought(signature=item["encrypted_content"]))
        assert "Invalid `signature`" in said(post(server, "anthropic", body))


def test_signatures_can_be_made_known_beforehand() -> None:
    with ScriptedModelServer(signatures=["x", "AAAA"]) as server:
        assert post(server, "anthropic", claude(thought(signature="x"), USER)).status_code == 200
        body = contents(asks(thoughtSignature="AAAA"), answers())
        assert post(server, "gemini", body).status_code == 200


def test_a_thought_can_be_cut_off_before_its_signature() -> None:
    """cases/faults, B2."""
    reply = Reply(thinking="Hm.", signature="")
    with ScriptedModelServer([reply]) as server:
        streamed = post(server, "anthropic", {**claude(), "stream": True})
    assert "thinking_delta" in streamed.text
    assert "signature_delta" not in streamed.text


def test_items_of_responses_need_the_reasoning_that_came_with_them() -> None:
    """cases/faults, A19: an id whose reasoning is gone is refused, the same item without is not."""
    reply = Reply("Yes.", thinking="Hm.", tool_calls=[ToolCall("read", {}, "a")])
    with ScriptedModelServer([reply]) as server:
        reasoning, message, function = post(server, "responses", items()).json()["output"]
        whole = items(reasoning, message, function, output("a"))
        assert post(server, "responses", whole).status_code == 200
        refusal = said(post(server, "responses", items(message, function, output("a"))))
        assert refusal == (
            "Item 'msg_00000001' of type 'message' was provided without its required 'reasoning' "
            "item: 'rs_00000001'."
        )
        refusal = said(post(server, "responses", items(function, output("a"))))
        assert "of type 'function_call' was provided without" in refusal
        bare = [{k: v for k, v in item.items() if k != "id"} for item in (message, function)]
        assert post(server, "responses", items(*bare, output("a"))).status_code == 200

        sealed = reasoning.pop("encrypted_content")
        assert sealed
        lost = post(server, "responses", items(reasoning, message, store=False))
        assert (lost.status_code, "not persisted" in said(lost)) == (404, True)


def test_gemini_wants_the_signature_of_a_call_back_while_its_turn_lasts() -> None:
    reply = Reply(thinking="Hm.", tool_calls=[ToolCall("read", {}, "")])
    with ScriptedModelServer([reply]) as server:
        said_ = post(server, "gemini", contents()).json()["candidates"][0]["content"]
        assert post(server, "gemini", contents(said_, answers())).status_code == 200
        refusal = said(post(server, "gemini", contents(asks(), answers())))
        assert "missing a thought_signature" in refusal
        assert "`default_api:read` , position 2." in refusal
        later = contents(asks(), answers(), *contents()["contents"])
        assert post(server, "gemini", later).status_code == 200
