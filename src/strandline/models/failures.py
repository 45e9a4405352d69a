"""What went wrong with a call, as a `ModelError`: its kind, whose fault, and the remedy.

A text names provider and model, is one line of bounded length, and never holds a secret:
servers and proxies repeat headers in their messages (source: spec 4, Safety).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from strandline.errors import ModelError, ModelErrorKind, ThreadLost
from strandline.models.overflow import Overflow, find_overflow
from strandline.runtime.model import ModelInfo
from strandline.transcript.messages import JsonObject

MAX_MESSAGE_CHARS = 1000
"""How much of a server's message is read."""

_SHOWN_CHARS = 300
_NO_COUNTS = Overflow()
_NESTED_DEPTH = 8
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{8,}")
# Validators (pydantic) repeat their input, which is the conversation.
_ECHO = re.compile(r"""(?s)(?:input_value\s*=|["']input["']\s*:).*""")

_REMEDIES: dict[ModelErrorKind, str] = {
    "overflow": "compact the session, or use a model with a larger window",
    "rate": "wait and try again, or use another model",
    "auth": "check the API key of this provider",
    "network": "try again; check the connection and the provider's status",
    "refused": "check the model's name and the settings of this provider",
    "aborted": "send the message again",
}
_STATUS_REMEDIES: dict[int, str] = {
    402: "add credit to the account at this provider",
    404: "check the model's name and the base URL of this provider",
}
_BAD_KEY_CODE = "api_key_invalid"  # Google's, with the status 400
_THREAD_CODE = "previous_response_not_found"
_THREAD_LOST = re.compile(
    r"(?i)previous[ _]response\b.{0,120}\b(?:not found|cannot be used|does not exist|expired)"
)
_QUOTA_CODES = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_error"})
# Words in the code or type of an error that came without a status, inside a stream.
_CODE_KINDS: tuple[tuple[str, ModelErrorKind], ...] = (
    ("rate_limit", "rate"),
    ("too_many_requests", "rate"),
    ("throttl", "rate"),
    ("resource_exhausted", "rate"),
    ("api_key", "auth"),
    ("authentication", "auth"),
    ("unauthenticated", "auth"),
    ("permission", "auth"),
    ("invalid", "refused"),
    ("badrequest", "refused"),
    ("validation", "refused"),
    ("not_found", "refused"),
    ("precondition", "refused"),
    ("content_filter", "refused"),
    ("policy", "refused"),
    ("mismatch", "refused"),
    ("image", "refused"),
)


@dataclass(frozen=True, slots=True)
class ServerError:
    """An error as a server told it: one line of `message`; codes and types in lower case."""

    message: str = ""
    codes: tuple[str, ...] = ()
    status: int | None = None
    counts: Overflow = _NO_COUNTS
    retry_after_s: float | None = None


class Failures:
    """Makes the errors of one call to `model`; `secrets` never appear in them."""

    def __init__(self, model: ModelInfo, secrets: tuple[str, ...] = ()) -> None:
        self._ref = model.ref
        self._secrets = tuple(sorted((s for s in secrets if s), key=len, reverse=True))

    def network(self, what: str, remedy: str = "") -> ModelError:
        """The connection or the server failed; trying again may help."""
        return self._error(what, "network", remedy)

    def refused(self, what: str, remedy: str = "") -> ModelError:
        """The request, or the answer, is not acceptable; trying again does not help."""
        return self._error(what, "refused", remedy)

    def aborted(self, what: str) -> ModelError:
        """Somebody on this side ended the call."""
        return self._error(what, "aborted")

    def overflow(self, what: str, prompt_tokens: int | None = None) -> ModelError:
        """The prompt did not fit, as an answer's finish reason says."""
        return self._error(what, "overflow", counts=Overflow(prompt_tokens))

    def from_server(
        self, raw: object, status: int | None = None, retry_after_s: float | None = None
    ) -> ModelError:
        """The error in `raw`, the parsed body or event; `status` is HTTP's, if it was one.

        `ThreadLost` where the server does not know the response after which to go on.
        """
        said = read_error(raw, status)
        detail = self._clean(said.message)
        what = "refused the request" if said.status is None else f"answered HTTP {said.status}"
        if detail:
            what = f"{what} ({detail})"
        found = find_overflow(said.message, said.codes, said.status)
        if found is not None:
            counts = Overflow(
                said.counts.prompt_tokens or found.prompt_tokens,
                said.counts.window_tokens or found.window_tokens,
            )
            return self._error(what, "overflow", counts=counts)
        if not _QUOTA_CODES.isdisjoint(said.codes):
            return self._error(what, "refused", _STATUS_REMEDIES[402])
        if _THREAD_CODE in said.codes or _THREAD_LOST.search(said.message):
            return self._error(what, "refused", "begin the thread anew", error=ThreadLost)
        kind = _kind_of(said)
        remedy = _STATUS_REMEDIES.get(said.status or 0, "")
        wait_s = said.retry_after_s if retry_after_s is None else retry_after_s
        return self._error(what, kind, remedy, retry_after_s=wait_s)

    def _error(
        self,
        what: str,
        kind: ModelErrorKind,
        remedy: str = "",
        *,
        counts: Overflow = _NO_COUNTS,
        retry_after_s: float | None = None,
        error: type[ModelError] = ModelError,
    ) -> ModelError:
        return error(
            f"{self._ref} {what}",
            kind=kind,
            remedy=remedy or _REMEDIES[kind],
            prompt_tokens=counts.prompt_tokens,
            window_tokens=counts.window_tokens,
            retry_after_s=retry_after_s,
        )

    def _clean(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "***")
        text = _BEARER.sub(r"\1 ***", text)
        return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 1] + "…"


def is_error(document: JsonObject) -> bool:
    """Whether a parsed body or event is an error rather than a completion."""
    if document.get("error"):
        return True
    named = "error" in {str(document.get("object")), str(document.get("type"))}
    return "choices" not in document and (named or "message" in document)


def read_error(raw: object, status: int | None = None) -> ServerError:
    """What a server says in any of the shapes that are in use.

    ``{"error": {"message", "type", "code"}}``, ``{"error": "…"}``, ``{"message"}``,
    ``{"detail"}``, a list of one of these, or a text; what a router was told by the provider
    behind it (``metadata.raw``) is read too, and Google's ``details``.
    """
    messages, codes, numbers = [], [], [status]
    counts, wait_s = _NO_COUNTS, None
    for part in _parts(raw):
        if isinstance(part, str):
            messages.append(part)
            continue
        codes += [str(part.get(k) or "").lower() for k in ("code", "type", "__type", "status")]
        numbers += [_http_status(part.get(key)) for key in ("code", "status", "status_code")]
        if (prompt := _count(part.get("n_prompt_tokens"))) is not None:  # llama.cpp
            counts = Overflow(prompt, _count(part.get("n_ctx")))
        for detail in _details(part):
            codes.append(str(detail.get("reason") or "").lower())
            wait_s = _seconds(detail.get("retryDelay")) if wait_s is None else wait_s
    message = _one_line(": ".join(messages))
    return ServerError(
        message, tuple(filter(None, codes)), next((n for n in numbers if n), None), counts, wait_s
    )


def _parts(raw: object, depth: int = 0) -> Iterator[JsonObject | str]:
    """The objects and message texts of an error, outermost first."""
    if depth > _NESTED_DEPTH:
        return
    if isinstance(raw, str):
        document = _document(raw)
        yield from [raw] if document is None else _parts(document, depth + 1)
    elif isinstance(raw, list):
        for item in raw[:3]:
            yield from _parts(item, depth + 1)
    elif isinstance(raw, dict):
        yield raw
        metadata = raw.get("metadata")
        told = metadata.get("raw") if isinstance(metadata, dict) else None
        for inner in (
            raw.get("error"),
            raw.get("message"),
            raw.get("msg"),
            raw.get("detail"),
            told,
        ):
            yield from _parts(inner, depth + 1)


def _details(part: JsonObject) -> Iterator[JsonObject]:
    """What Google adds to an error: reasons, and how long to wait."""
    details = part.get("details")
    if isinstance(details, list):
        yield from (detail for detail in details[:8] if isinstance(detail, dict))


def _seconds(value: object) -> float | None:
    """A duration as Google writes it: ``"12s"``, ``"0.5s"``."""
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)s", value) if isinstance(value, str) else None
    return float(found[1]) if found else None


def _document(text: str) -> JsonObject | list[Any] | None:
    """The JSON in a text, if that is what it is."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict | list) else None


def _one_line(text: str) -> str:
    text = _ECHO.sub("…", text[: 4 * MAX_MESSAGE_CHARS])
    printable = "".join(c if c.isprintable() else " " for c in text)
    return " ".join(printable.split())[:MAX_MESSAGE_CHARS]


def _http_status(value: object) -> int | None:
    text = str(value) if isinstance(value, int | str) else ""
    return int(text) if re.fullmatch(r"[45]\d\d", text) else None


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


def _kind_of(said: ServerError) -> ModelErrorKind:
    if _BAD_KEY_CODE in said.codes:
        return "auth"
    match said.status:
        case 401 | 403:
            return "auth"
        case 429:
            return "rate"
        case 408 | None:
            codes = " ".join(said.codes)
            return next((kind for word, kind in _CODE_KINDS if word in codes), "network")
        case status:
            return "network" if status >= 500 else "refused"
