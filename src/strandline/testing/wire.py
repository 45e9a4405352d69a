"""What the wire formats of a scripted model server have in common.

A wire is a module of pure functions (`Wire`): a request's body and a `Reply` go in, JSON
goes out. `strandline.testing.wires` finds the one of a path.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from strandline.testing.issued import Issued
from strandline.testing.kept import Kept, Recalled
from strandline.testing.overflow_words import OverflowStyle
from strandline.testing.prompt_cache import Block, CacheRule
from strandline.testing.reply import Reply
from strandline.transcript.messages import JsonObject

CREATED_S = 1_767_225_600
"""When every answer was made, Unix seconds: the same script gives the same bytes."""


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """A call of the server: the path, the headers (names in lower case), the parsed body."""

    path: str
    headers: dict[str, str]
    body: JsonObject


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call. Those of the cache are among those of the prompt, those of the
    thinking among those of the output; `created_1h_tokens` among the created ones.
    """

    prompt_tokens: int
    output_tokens: int
    thinking_tokens: int = 0
    cached_tokens: int = 0
    created_tokens: int = 0
    created_1h_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        """Prompt and output."""
        return self.prompt_tokens + self.output_tokens


@dataclass(frozen=True, slots=True)
class Envelope:
    """What is around one answer: its `number` (from 1), the body of its `request`, the
    `signature` of its thinking (empty: none).
    """

    number: int
    model: str
    usage: Usage
    request: JsonObject
    signature: str = ""


class Event(NamedTuple):
    """A server-sent event; `data` is one line."""

    data: str
    name: str = ""


class Problem(NamedTuple):
    """Why a request is refused. An empty `message` stands for the status's own."""

    status: int = 400
    message: str = ""
    code: str | None = None
    param: str | None = None
    retry_after_s: float | None = None


class Wire(Protocol):
    """The functions and values of a wire module."""

    NAME: str
    """The wire format: signatures and caches belong to one."""
    ASKED: str
    """The key of the body under which the conversation stands."""
    NOT_JSON: str
    """What the provider says of a body that it cannot parse."""
    CACHE: CacheRule
    OVERFLOW: OverflowStyle

    def is_request(self, body: JsonObject) -> bool:
        """Whether the body can be read at all."""
        ...

    def recalled(self, request: RecordedRequest, kept: Kept) -> Recalled | Problem:
        """The body with what the server kept of it; why it cannot be, if it cannot."""
        ...

    def keep(self, body: JsonObject, reply: Reply, envelope: Envelope, kept: Kept) -> None:
        """Keep what is to be kept of a recalled `body` and the answer to it."""
        ...

    def shortened(self, body: JsonObject) -> JsonObject | None:
        """The body with less of its beginning, where the server may leave it out."""
        ...

    def prompt_blocks(self, body: JsonObject) -> list[Block]:
        """What a model reads of a request, in the order in which a prompt cache sees it."""
        ...

    def last_user_text(self, body: JsonObject) -> str:
        """The text of the last message that is a person's; empty if there is none."""
        ...

    def broken_rule(self, request: RecordedRequest, issued: Issued) -> Problem | None:
        """Why the real provider would answer 400; None if it would not."""
        ...

    def events(self, reply: Reply, envelope: Envelope) -> Iterator[Event]:
        """A streamed answer."""
        ...

    def error_event(self, error: JsonObject, envelope: Envelope, position: int) -> Event:
        """The error with that body as the event number `position` of a stream."""
        ...

    def whole(self, reply: Reply, envelope: Envelope) -> JsonObject:
        """The body of an answer that is not streamed."""
        ...

    def error_body(self, problem: Problem, number: int) -> JsonObject:
        """The body of an HTTP error; `number` is the request's."""
        ...

    def headers(self, number: int, retry_after_s: float | None) -> dict[str, str]:
        """The provider's own headers of an answer."""
        ...


def as_sent(request: RecordedRequest, kept: Kept) -> Recalled | Problem:  # noqa: ARG001 - Wire's
    """The body of a request that refers to nothing."""
    return Recalled(request.body)


def keep_nothing(body: JsonObject, reply: Reply, envelope: Envelope, kept: Kept) -> None:
    """What a server does that keeps no conversations."""


def never_shortened(body: JsonObject) -> JsonObject | None:  # noqa: ARG001 - Wire's
    """A prompt is read whole, or refused."""
    return None


def openai_headers(number: int, retry_after_s: float | None) -> dict[str, str]:
    """Those of both APIs of OpenAI."""
    wait = {} if retry_after_s is None else {"Retry-After": f"{retry_after_s:g}"}
    return {"x-request-id": f"req_{number:024d}", **wait}


_OPENAI_ERRORS: dict[int, tuple[str, str, str | None]] = {
    400: ("the request is not acceptable", "invalid_request_error", None),
    401: ("the API key is not accepted", "invalid_request_error", "invalid_api_key"),
    403: ("the API key may not do this", "invalid_request_error", None),
    404: ("there is no such address or model", "invalid_request_error", "model_not_found"),
    429: ("too many requests", "requests", "rate_limit_exceeded"),
    503: ("the model is overloaded", "service_unavailable_error", None),
}
OPENAI_NOT_JSON = (
    "We could not parse the JSON body of your request. (HINT: This likely means you aren't "
    "using your HTTP library correctly. The OpenAI API expects a JSON payload, but what was "
    "sent was not valid JSON.)"
)


def openai_error(problem: Problem) -> JsonObject:
    """The error body of both APIs of OpenAI."""
    standing = _OPENAI_ERRORS.get(problem.status, ("the server failed", "server_error", None))
    text, kind, code = standing
    return {
        "error": {
            "message": problem.message or text,
            "type": kind,
            "param": problem.param,
            "code": problem.code if problem.message else code,
        }
    }


def openai_too_long(place: str, text: object, most: int) -> Iterator[Problem]:
    """OpenAI's refusal of an id at `place` with more than `most` characters."""
    if isinstance(text, str) and len(text) > most:
        yield Problem(
            message=f"Invalid '{place}': string too long. Expected a string with maximum length "
            f"{most}, but got a string with length {len(text)} instead.",
            code="string_above_max_length",
            param=place,
        )


def openai_empty(place: str, text: object) -> Iterator[Problem]:
    """The refusal of an empty text, in OpenAI's words; servers that speak alike refuse it."""
    if text == "":
        yield Problem(
            message=f"Invalid '{place}': empty string. Expected a string with minimum length 1, "
            "but got an empty string instead.",
            code="empty_string",
            param=place,
        )


def openai_cache_problems(body: JsonObject) -> Iterator[Problem]:
    """What OpenAI refuses of what it is told about its prompt cache."""
    yield from openai_too_long("prompt_cache_key", body.get("prompt_cache_key"), 64)
    retention = body.get("prompt_cache_retention")
    if retention not in {None, "in_memory", "24h"}:
        yield Problem(
            message=f"Invalid value: '{retention}'. Supported values are: 'in_memory' and '24h'.",
            code="invalid_value",
            param="prompt_cache_retention",
        )


def openai_blocks(body: JsonObject, parts: Iterable[Any]) -> list[Block]:
    """The parts of a prompt, to be kept for as long as the body asks."""
    blocks = [unmarked(part) for part in parts]
    if blocks and body.get("prompt_cache_retention") == "24h":
        blocks[-1] = blocks[-1]._replace(ttl="24h")
    return blocks


def prompt_of(blocks: Sequence[Block]) -> str:
    """The blocks as one text, whose beginning a prompt cache can keep."""
    return "\n".join(block.text for block in blocks)


def dicts(body: JsonObject, key: str) -> list[JsonObject]:
    """The objects in a list of the body."""
    value = body.get(key)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def joined_text(content: Any) -> str:
    """The text of a content that is a text or a list of parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "".join(str(part.get("text") or "") for part in parts if isinstance(part, dict))


def compact(value: Any, *, ascii_only: bool = True) -> str:
    """JSON on one line, keys as they came."""
    return json.dumps(value, ensure_ascii=ascii_only, separators=(",", ":"))


def unmarked(value: Any) -> Block:
    """A part of a prompt on which no cache mark stands."""
    return Block(compact(value, ascii_only=False))
