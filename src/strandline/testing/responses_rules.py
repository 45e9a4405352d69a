"""What OpenAI's Responses refuse, in its words. Source: cases/faults, A (A19) and B."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

from strandline.testing.issued import Issued
from strandline.testing.wire import (
    Problem,
    dicts,
    openai_cache_problems,
    openai_empty,
    openai_too_long,
)
from strandline.transcript.messages import JsonObject

MAX_ID_CHARS = 64
MIN_OUTPUT_TOKENS = 16

_PREFIXES = {"message": "msg", "reasoning": "rs", "function_call": "fc"}
_ISSUED_ID = re.compile(r"(?:msg|fc)_(\d{8})(?:_\d+)?")


def problems(body: JsonObject, items: Sequence[JsonObject], issued: Issued) -> Iterator[Problem]:
    """What is wrong, the first first."""
    most = body.get("max_output_tokens")
    if isinstance(most, int) and most < MIN_OUTPUT_TOKENS:
        yield Problem(
            message="Invalid 'max_output_tokens': integer below minimum value. Expected a value "
            f">= {MIN_OUTPUT_TOKENS}, but got {most} instead.",
            code="integer_below_min_value",
            param="max_output_tokens",
        )
    yield from openai_cache_problems(body)
    if not items:
        yield Problem(
            message="One of 'input' or 'previous_response_id' or 'prompt' or 'conversation_id' "
            "must be provided.",
            param="input",
        )
    for index, item in enumerate(items):
        yield from _of_an_item(f"input[{index}]", item)
    yield from _of_the_pairs(items)
    yield from _of_the_reasoning(body, items, issued)


def _kind(item: JsonObject) -> str:
    return str(item.get("type") or ("message" if "role" in item else ""))


def _of_an_item(place: str, item: JsonObject) -> Iterator[Problem]:
    kind, given = _kind(item), item.get("id")
    yield from openai_too_long(f"{place}.id", given, MAX_ID_CHARS)
    yield from openai_too_long(f"{place}.call_id", item.get("call_id"), MAX_ID_CHARS)
    prefix = _PREFIXES.get(kind, "")
    if isinstance(given, str) and not given.startswith(prefix):
        yield Problem(
            message=f"Invalid '{place}.id': '{given}'. Expected an ID that begins with '{prefix}'.",
            code="invalid_value",
            param=f"{place}.id",
        )
    if kind == "reasoning" and "summary" not in item:
        yield Problem(
            message=f"Missing required parameter: '{place}.summary'.",
            code="missing_required_parameter",
            param=f"{place}.summary",
        )
    for key in ("content", "output"):
        for index, part in enumerate(dicts(item, key)):
            yield from openai_empty(f"{place}.{key}[{index}].text", part.get("text"))


def _of_the_pairs(items: Sequence[JsonObject]) -> Iterator[Problem]:
    answered = {i.get("call_id") for i in items if _kind(i) == "function_call_output"}
    called: set[object] = set()
    for item in items:
        call_id = item.get("call_id")
        if _kind(item) == "function_call":
            called.add(call_id)
            if call_id not in answered:
                yield Problem(
                    message=f"No tool output found for function call {call_id}.", param="input"
                )
        elif _kind(item) == "function_call_output" and call_id not in called:
            yield Problem(
                message=f"No tool call found for function call output with call_id {call_id}.",
                param="input",
            )


def _of_the_reasoning(
    body: JsonObject, items: Sequence[JsonObject], issued: Issued
) -> Iterator[Problem]:
    ids = {item.get("id") for item in items}
    for item, after in itertools.zip_longest(items, items[1:]):
        if _kind(item) == "reasoning":
            yield from _of_a_thought(body, item, issued)
            if after is None or _kind(after) not in _PREFIXES or after.get("role") == "user":
                yield Problem(
                    message=f"Item '{item.get('id')}' of type 'reasoning' was provided without "
                    "its required following item.",
                    param="input",
                )
        yield from _of_a_follower(item, ids, issued)


def _of_a_thought(body: JsonObject, item: JsonObject, issued: Issued) -> Iterator[Problem]:
    sealed = item.get("encrypted_content")
    if sealed and not issued.knows(sealed):
        shown = f"{str(sealed)[:4]}...{str(sealed)[-4:]}"
        yield Problem(
            message=f"The encrypted content {shown} could not be verified. Reason: Encrypted "
            "content could not be decrypted or parsed.",
            code="invalid_encrypted_content",
        )
    if not sealed and body.get("store") is False:
        yield Problem(
            404,
            f"Item with id '{item.get('id')}' not found. Items are not persisted when `store` is "
            "set to false. Try again with `store` set to true, or remove this item from your "
            "input.",
            param="input",
        )


def _of_a_follower(item: JsonObject, ids: set[object], issued: Issued) -> Iterator[Problem]:
    """An item that was sent with reasoning, named by its id, needs it back."""
    found = _ISSUED_ID.fullmatch(str(item.get("id") or ""))
    if found is None or int(found[1]) not in issued.reasoning:
        return
    if (reasoning := f"rs_{found[1]}") not in ids:
        yield Problem(
            message=f"Item '{item['id']}' of type '{_kind(item)}' was provided without its "
            f"required 'reasoning' item: '{reasoning}'.",
            param="input",
        )
