"""What Anthropic's Messages refuse, in its words. Source: cases/faults, A, B and K.

Messages of one role in a row are one message to Anthropic; the numbers in its words here are
those of the messages as they were sent.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from strandline.testing.claude_rules import problems_of_the_model
from strandline.testing.issued import Issued
from strandline.testing.wire import RecordedRequest, dicts
from strandline.transcript.messages import JsonObject

ID_PATTERN = "^[a-zA-Z0-9_-]+$"
MAX_MARKS = 4
MIN_THINKING_TOKENS = 1024

_THINKING = frozenset({"thinking", "redacted_thinking"})
_ROLES = frozenset({"user", "assistant"})


class Placed(NamedTuple):
    """A content block and where it stands: ``messages.3.content.0``."""

    place: str
    block: JsonObject

    @property
    def kind(self) -> str:
        """The block's type."""
        return str(self.block.get("type"))


class Turn(NamedTuple):
    """Messages of one role in a row."""

    place: str
    role: str
    blocks: list[Placed]


def problems(request: RecordedRequest, issued: Issued) -> Iterator[str]:
    """What is wrong, the first first."""
    body = request.body
    if "anthropic-version" not in request.headers:
        yield "anthropic-version: header is required"
    yield from _of_the_limits(body)
    messages = dicts(body, "messages")
    yield from _of_the_roles(messages)
    for place, message in enumerate(messages):
        yield from _of_the_content(place, len(messages), message)
    turns = _turns(messages)
    yield from problems_of_the_model(body, turns[-1].role if turns else "")
    everything = [*_placed("system", body.get("system")), *(b for t in turns for b in t.blocks)]
    for placed in everything:
        yield from _of_a_block(placed, issued)
    yield from _of_the_marks(body, everything)
    for turn, following in itertools.pairwise([*turns, None]):
        yield from _of_the_calls(turn, following)
    for before, turn in itertools.pairwise([None, *turns]):
        yield from _of_the_results(before, turn)
    yield from _of_the_thinking(body, turns, issued)


def _of_the_limits(body: JsonObject) -> Iterator[str]:
    if not body.get("model"):
        yield "model: Field required"
    most = body.get("max_tokens")
    if most is None:
        yield "max_tokens: Field required"
    elif not isinstance(most, int) or most < 1:
        yield "max_tokens: Input should be greater than or equal to 1"
    thinking = body.get("thinking") or {}
    if thinking.get("type") == "enabled":
        budget = thinking.get("budget_tokens") or 0
        if budget < MIN_THINKING_TOKENS:
            yield (
                "thinking.enabled.budget_tokens: Input should be greater than or equal to "
                f"{MIN_THINKING_TOKENS}"
            )
        elif isinstance(most, int) and most <= budget:
            yield "`max_tokens` must be greater than `thinking.budget_tokens`."


def _of_the_roles(messages: Sequence[JsonObject]) -> Iterator[str]:
    if not messages:
        yield "messages: at least one message is required"
    for message in messages:
        if message.get("role") not in _ROLES:
            yield (
                f'messages: Unexpected role "{message.get("role")}". The Messages API accepts a '
                'top-level `system` parameter, not "system" as an input message role.'
            )
    if messages and messages[0].get("role") != "user":
        yield 'messages: first message must use the "user" role'


def _of_the_content(place: int, count: int, message: JsonObject) -> Iterator[str]:
    is_last_answer = place == count - 1 and message.get("role") == "assistant"
    if not message.get("content") and not is_last_answer:
        yield (
            f"messages.{place}: all messages must have non-empty content except for the optional "
            "final assistant message"
        )


def _placed(place: str, content: Any) -> list[Placed]:
    blocks = dicts({"content": content}, "content")
    if isinstance(content, str) and content:
        blocks = [{"type": "text", "text": content}]
    return [Placed(f"{place}.{index}", block) for index, block in enumerate(blocks)]


def _turns(messages: Sequence[JsonObject]) -> list[Turn]:
    turns: list[Turn] = []
    for place, message in enumerate(messages):
        role = str(message.get("role"))
        if not turns or turns[-1].role != role:
            turns.append(Turn(f"messages.{place}", role, []))
        turns[-1].blocks.extend(_placed(f"messages.{place}.content", message.get("content")))
    return turns


def _of_a_block(placed: Placed, issued: Issued) -> Iterator[str]:
    block = placed.block
    match placed.kind:
        case "text":
            yield from _of_a_text(placed, block)
        case "tool_use":
            yield from _of_an_id(f"{placed.place}.tool_use.id", block.get("id"))
            if not isinstance(block.get("input"), dict):
                yield f"{placed.place}.tool_use.input: Input should be a valid dictionary"
        case "tool_result":
            named = block.get("tool_use_id")
            yield from _of_an_id(f"{placed.place}.tool_result.tool_use_id", named)
            for inner in dicts(block, "content"):
                yield from _of_a_text(placed, inner)
        case "thinking":
            yield from _of_a_thought(placed, issued)
        case "redacted_thinking" if not issued.knows(block.get("data")):
            yield f"{placed.place}: Invalid `data` in `redacted_thinking` block"


def _of_a_text(placed: Placed, block: JsonObject) -> Iterator[str]:
    where = placed.place.partition(".")[0]
    text = block.get("text")
    if block.get("type") != "text" or not isinstance(text, str):
        return
    if not text and "cache_control" in block:
        yield f"{placed.place}.text: cache_control cannot be set for empty text blocks"
    if not text:
        yield f"{where}: text content blocks must be non-empty"
    elif not text.strip():
        yield f"{where}: text content blocks must contain non-whitespace text"


def _of_an_id(place: str, text: object) -> Iterator[str]:
    if not isinstance(text, str) or not re.fullmatch(ID_PATTERN, text):
        yield f"{place}: String should match pattern '{ID_PATTERN}'"


def _of_a_thought(placed: Placed, issued: Issued) -> Iterator[str]:
    if "signature" not in placed.block:
        yield f"{placed.place}.thinking.signature: Field required"
    elif not issued.knows(placed.block["signature"]):
        yield f"{placed.place}: Invalid `signature` in `thinking` block"


def _of_the_marks(body: JsonObject, blocks: Sequence[Placed]) -> Iterator[str]:
    placed = [*_placed("tools", body.get("tools")), *blocks, Placed("request", body)]
    marked = [each for each in placed if "cache_control" in each.block]
    if len(marked) > MAX_MARKS:
        yield (
            f"A maximum of {MAX_MARKS} blocks with cache_control may be provided. "
            f"Found {len(marked)}."
        )
    short = False
    for each in marked:
        control = each.block["cache_control"]
        ttl = control.get("ttl", "5m") if isinstance(control, dict) else None
        yield from _of_a_mark(each, ttl, after_short=short)
        short = short or ttl == "5m"


def _of_a_mark(placed: Placed, ttl: object, *, after_short: bool) -> Iterator[str]:
    place = f"{placed.place}.cache_control"
    if placed.kind in _THINKING:
        yield f"{placed.place}.{placed.kind}.cache_control: Extra inputs are not permitted"
    if ttl not in {"5m", "1h"}:
        yield f"{place}.ephemeral.ttl: Input should be '5m' or '1h'"
    if after_short and ttl == "1h":
        yield (
            f"{place}.ttl: a ttl='1h' cache_control block must not come after a ttl='5m' "
            "cache_control block. Note that blocks are processed in the following order: "
            "`tools`, `system`, `messages`."
        )


def _of_the_calls(turn: Turn | None, following: Turn | None) -> Iterator[str]:
    calls = [b.block.get("id") for b in turn.blocks if b.kind == "tool_use"] if turn else []
    if turn is None or not calls:
        return
    if len(set(calls)) < len(calls):
        yield f"{turn.place}: `tool_use` ids must be unique"
    # Results count only before anything else that the message holds.
    answers = itertools.takewhile(
        lambda placed: placed.kind == "tool_result", following.blocks if following else []
    )
    answered = {placed.block.get("tool_use_id") for placed in answers}
    unanswered = [str(call) for call in calls if call not in answered]
    if unanswered:
        yield (
            f"{turn.place}: `tool_use` ids were found without `tool_result` blocks immediately "
            f"after: {', '.join(unanswered)}. Each `tool_use` block must have a corresponding "
            "`tool_result` block in the next message."
        )


def _of_the_results(before: Turn | None, turn: Turn | None) -> Iterator[str]:
    calls = {b.block.get("id") for b in before.blocks if b.kind == "tool_use"} if before else set()
    seen: set[object] = set()
    for placed in (b for b in (turn.blocks if turn else []) if b.kind == "tool_result"):
        named = placed.block.get("tool_use_id")
        if named not in calls:
            yield (
                f"{placed.place}: unexpected `tool_use_id` found in `tool_result` blocks: "
                f"{named}. Each `tool_result` block must have a corresponding `tool_use` block "
                "in the previous message."
            )
        if named in seen:
            yield (
                f"{placed.place}: each tool_use must have a single result. Found multiple "
                f"`tool_result` blocks with id: {named}"
            )
        seen.add(named)


def _of_the_thinking(body: JsonObject, turns: Sequence[Turn], issued: Issued) -> Iterator[str]:
    last = next((turn for turn in reversed(turns) if turn.role == "assistant"), None)
    if last is None:
        return
    for placed in last.blocks:
        signature = placed.block.get("signature")
        thinking = placed.block.get("thinking")
        if placed.kind == "thinking" and not issued.fits(str(signature), thinking):
            yield (
                f"{placed.place}: `thinking` or `redacted_thinking` blocks in the latest "
                "assistant message cannot be modified. These blocks must remain as they were "
                "in the original response."
            )
    enabled = (body.get("thinking") or {}).get("type") == "enabled"
    in_tools = turns[-1].blocks and turns[-1].blocks[0].kind == "tool_result"
    if enabled and in_tools and last.blocks:
        yield from _of_the_first_block(last.blocks, issued)


def _of_the_first_block(blocks: Sequence[Placed], issued: Issued) -> Iterator[str]:
    """Where thinking has a budget, and only where this server sent it: a history from elsewhere
    may have none.
    """
    if blocks[0].kind in _THINKING:
        return
    calls = [placed.block for placed in blocks if placed.kind == "tool_use"]
    if any(issued.signed_call(call.get("name"), call.get("input")) for call in calls):
        yield (
            f"{blocks[0].place}.type: Expected `thinking` or `redacted_thinking`, but found "
            f"`{blocks[0].kind}`. When `thinking` is enabled, a final `assistant` message must "
            "start with a thinking block (preceeding the lastmost set of `tool_use` and "
            "`tool_result` blocks)."
        )
