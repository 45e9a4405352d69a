"""A `ModelRequest` as the body of an Anthropic Messages request (source: spec 4, Models).

Pure, and deterministic: the same request gives the same bytes, and a conversation that only
grew gives messages that begin with the same bytes, cache marks aside. What Anthropic refuses
never leaves, whatever the messages hold: empty texts, two messages of one role in a row, ids
and names that it cannot read, calls without results, thinking that it did not sign.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from strandline.models.anthropic_marks import mark
from strandline.models.anthropic_messages import is_thinking, text_block, wire_messages
from strandline.models.anthropic_thinking import adaptive_thinking, is_adaptive
from strandline.models.content import body_bytes, ordered_tools
from strandline.runtime.model import ModelRequest
from strandline.transcript.messages import JsonObject, ThinkingLevel

MIN_BUDGET = 1024
"""The least that Anthropic lets a model think, in tokens."""

_BUDGETS: Mapping[ThinkingLevel, int] = {
    "off": 0,
    "minimal": 1024,
    "low": 2048,
    "medium": 8192,
    "high": 16_384,
    "xhigh": 32_768,
}
# What a caller that wants so much keeps for the answer itself: thinking counts as output.
_ANSWER_ROOM = 4096


def request_body(request: ModelRequest) -> bytes:
    """The body of a streaming request."""
    messages, may_think, ends = wire_messages(request.messages, request.model)
    if is_adaptive(request.model.id):
        asked = _adaptive(request)
    else:
        messages, asked = _with_budget(request, messages, turn_may_think=may_think)
    body: JsonObject = {"model": request.model.id, "stream": True, **asked}
    if request.system_prompt.strip():
        body["system"] = [text_block(request.system_prompt)]
    if request.tools:
        body["tools"] = _tools(request.tools)
    body["messages"] = messages
    if request.cache is not None:
        mark(body, request.cache, ends)
    return body_bytes(body)


def _adaptive(request: ModelRequest) -> JsonObject:
    """Thinking goes back whatever the level is: some of these models always think, and want
    the thoughts of a tool loop back; none needs them at an answer's beginning.
    """
    whole, _ = thinking_budget(request)
    if not request.model.reasoning:
        return {"max_tokens": whole}
    return {"max_tokens": whole, **adaptive_thinking(request.model.id, request.thinking)}


def _with_budget(
    request: ModelRequest, messages: list[JsonObject], *, turn_may_think: bool
) -> tuple[list[JsonObject], JsonObject]:
    whole, budget = thinking_budget(request)
    if not budget or messages[-1]["role"] == "assistant":
        # An answer that is to be gone on with can neither have thinking nor be thought about.
        messages = [_without_thinking(message) for message in messages]
        budget = 0
    if not (budget and turn_may_think):
        return messages, {"max_tokens": request.max_output_tokens}
    thinking = {"type": "enabled", "budget_tokens": budget}
    return messages, {"max_tokens": whole, "thinking": thinking}


def thinking_budget(request: ModelRequest) -> tuple[int, int]:
    """The whole output and the part of it for thinking, in tokens; 0 for no thinking.

    An adaptive model takes no budget, but thinks within the whole just so. The whole is raised
    so that both fit, as far as the model's limit lets it; else thinking gets less, and none
    where less would be under `MIN_BUDGET`.
    """
    asked = request.max_output_tokens
    wanted = _BUDGETS[request.thinking] if request.model.reasoning else 0
    limit = max(asked, request.model.max_output_tokens)
    room = min(asked, _ANSWER_ROOM, limit // 2)
    whole = min(max(asked, wanted + room), limit)
    budget = min(wanted, whole - room)
    return (whole, budget) if MIN_BUDGET <= budget < whole else (asked, 0)


def _without_thinking(message: JsonObject) -> JsonObject:
    content = [block for block in message["content"] if not is_thinking(block)]
    return {**message, "content": content}


def _tools(tools: Sequence[JsonObject]) -> list[JsonObject]:
    return ordered_tools([_tool(tool.get("function", tool)) for tool in tools])


def _tool(tool: JsonObject) -> JsonObject:
    described = {"description": tool["description"]} if tool.get("description") else {}
    schema = {"type": "object", **(tool.get("parameters") or {})}
    return {"name": tool["name"], **described, "input_schema": schema}
