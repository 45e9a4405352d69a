"""A Gemini answer, read: the chunks of a stream, or a whole document of them.

Pure. Every chunk is a ``GenerateContentResponse``; text comes in pieces, a call always
whole. Source: spec 4, Models; spec 3, Caches (usage).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Literal

from strandline.errors import ModelError
from strandline.models.draft import (
    Draft,
    Kind,
    event_object,
    object_in,
    objects_in,
    string_in,
)
from strandline.models.failures import Failures, is_error
from strandline.models.usage import token_count, usage_of
from strandline.runtime.model import Failed, Finished, ModelEvent, ModelInfo, Prices
from strandline.transcript.messages import JsonObject, StopReason, Usage

_SIGNATURE_KEYS: dict[Kind, str] = {
    "text": "textSignature",
    "thinking": "thinkingSignature",
    "toolCall": "thoughtSignature",
}
_REFUSALS = frozenset(
    {
        "BLOCKLIST",
        "ESCALATION",
        "IMAGE_PROHIBITED_CONTENT",
        "IMAGE_RECITATION",
        "IMAGE_SAFETY",
        "LANGUAGE",
        "MODEL_ARMOR",
        "PROHIBITED_CONTENT",
        "PUP_LIMITED_DISABLED",
        "RECITATION",
        "SAFETY",
        "SPII",
    }
)
"""Finish reasons of a filter. Any other that is no end is a fault that may pass."""

_UNSAID = frozenset({"", "FINISH_REASON_UNSPECIFIED", "BLOCKED_REASON_UNSPECIFIED"})
_REASON = re.compile(r"[A-Z_]{1,60}")
_SAY_OTHERWISE = "say it differently, or ask another model"


class GeminiAnswer:
    """Feed it chunks in order, then `finish` it, or say why it `failed`.

    `timestamp_ms` becomes the message's; `failures` names what the server did wrong.
    """

    def __init__(self, model: ModelInfo, timestamp_ms: int, failures: Failures) -> None:
        self._draft = Draft(model, timestamp_ms, failures)
        self._failures = failures
        self._usage: JsonObject = {}
        self._finish = ""
        self._blocked = ""

    @property
    def complete(self) -> bool:
        """Whether the server said why the answer ends; only usage may follow."""
        return bool(self._finish or self._blocked)

    def feed_text(self, text: str) -> list[ModelEvent]:
        """`feed` the chunk, or the list of chunks, in a JSON text.

        Raises `ModelError` for what is neither.
        """
        chunks = _chunks(text) or [event_object(text, self._failures)]
        return [event for chunk in chunks for event in self.feed(chunk)]

    def feed(self, chunk: JsonObject) -> list[ModelEvent]:
        """The deltas in one chunk. Raises `ModelError` where it is an error."""
        if is_error(chunk):
            raise self._failures.from_server(chunk)
        self._usage |= object_in(chunk.get("usageMetadata"))
        feedback = object_in(chunk.get("promptFeedback"))
        self._blocked = _reason(feedback.get("blockReason")) or self._blocked
        candidates = objects_in(chunk.get("candidates"))
        candidate: JsonObject = next((c for c in candidates if not c.get("index")), {})
        parts = objects_in(object_in(candidate.get("content")).get("parts"))
        events = [event for part in parts for event in self._part(part)]
        self._finish = _reason(candidate.get("finishReason")) or self._finish
        return events

    def finish(self) -> list[ModelEvent]:
        """What is left to say, then `Finished`, or `Failed` where the server gave up."""
        events = self._draft.end_all()
        if (error := self._bad_end()) is not None:
            return [*events, self.failed(error)]
        called = any(call.name for call in self._draft.calls)
        usual: StopReason = "toolUse" if called else "stop"
        stop: StopReason = "length" if self._finish == "MAX_TOKENS" else usual
        return [*events, Finished(self._draft.message(stop, self._normalised()))]

    def failed(self, error: ModelError) -> Failed:
        """The end by `error`. What was said so far goes with it, without tool calls."""
        return self._draft.failed(error, self._normalised())

    def _normalised(self) -> Usage:
        return normalised_usage(self._usage, self._draft.model.prices)

    def _part(self, part: JsonObject) -> Iterator[ModelEvent]:
        signature, text = string_in(part.get("thoughtSignature")), string_in(part.get("text"))
        call = part.get("functionCall")
        if isinstance(call, dict):
            self._add_call(call)
        elif text:
            yield from self._say("thinking" if part.get("thought") is True else "text", text)
        self._sign(signature)

    def _say(self, kind: Literal["text", "thinking"], piece: str) -> Iterator[ModelEvent]:
        block = self._draft.blocks[-1] if self._draft.blocks else None
        # What was signed is whole: nothing is added to it.
        if block is None or block.kind != kind or block.extra:
            if block is not None:
                yield from self._draft.end(block)
            block = self._draft.begin(kind)
        yield from self._draft.add(block, piece)

    def _add_call(self, call: JsonObject) -> None:
        block = self._draft.begin(
            "toolCall", string_in(call.get("id")), string_in(call.get("name"))
        )
        arguments = call.get("args")
        self._draft.add(block, json.dumps(arguments) if isinstance(arguments, dict) else "")

    def _sign(self, signature: str) -> None:
        """Keep a signature with the block that it closes; it may come after it, alone."""
        block = self._draft.blocks[-1] if self._draft.blocks else None
        if signature and block is not None and not block.extra:
            block.extra[_SIGNATURE_KEYS[block.kind]] = signature

    def _bad_end(self) -> ModelError | None:
        """Why this is no answer, if it is none."""
        if self._blocked:
            return self._failures.refused(f"blocked the prompt ({self._blocked})", _SAY_OTHERWISE)
        if self._finish in _REFUSALS:
            what = f"stopped the answer by its content filter ({self._finish})"
            return self._failures.refused(what, _SAY_OTHERWISE)
        if not self._finish:
            return self._failures.network("ended its answer too soon")
        if self._finish not in {"STOP", "MAX_TOKENS"}:
            return self._failures.network(f"gave up in the middle of its answer ({self._finish})")
        return None


def normalised_usage(raw: JsonObject, prices: Prices) -> Usage:
    """Google's prompt includes what came from its cache; thoughts are output beside the rest."""
    prompt = token_count(raw, "promptTokenCount") + token_count(raw, "toolUsePromptTokenCount")
    cached = min(token_count(raw, "cachedContentTokenCount"), prompt)
    output = token_count(raw, "candidatesTokenCount") + token_count(raw, "thoughtsTokenCount")
    return usage_of(prices, fresh=prompt - cached, output=output, cache_read=cached)


def _chunks(text: str) -> list[JsonObject]:
    """The chunks of an answer that is one list, as it comes from other ways of asking."""
    if not text.startswith("["):
        return []
    try:
        chunks: Any = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return chunks if all(isinstance(chunk, dict) for chunk in chunks) else []


def _reason(value: object) -> str:
    reason = string_in(value)
    if reason in _UNSAID:
        return ""
    return reason if _REASON.fullmatch(reason) else "OTHER"
