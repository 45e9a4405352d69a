"""Which wire format a path speaks, and what the path and the body say of the call."""

from __future__ import annotations

import re
from urllib.parse import unquote

from strandline.testing import anthropic_wire, chat_wire, gemini_wire, responses_wire
from strandline.testing.wire import RecordedRequest, Wire

WIRES: tuple[Wire, ...] = (chat_wire, anthropic_wire, responses_wire, gemini_wire)

_PATHS: dict[str, Wire] = {
    "/v1/chat/completions": chat_wire,
    "/v1/messages": anthropic_wire,
    "/v1/responses": responses_wire,
}
_GEMINI = re.compile(
    r"/v1(?:beta)?/models/([^/:?]+):"
    r"(?:generateContent(?=\?|$)|(streamGenerateContent)(?=\?(?:.*&)?alt=sse(?:&|$)))"
)


def find_wire(path: str) -> Wire | None:
    """The wire of a path, its query ignored; a Gemini stream must ask for ``alt=sse``."""
    if _GEMINI.match(path):
        return gemini_wire
    return _PATHS.get(path.partition("?")[0])


def model_of(request: RecordedRequest) -> str:
    """The model that is asked."""
    found = _GEMINI.match(request.path)
    return unquote(found[1]) if found else str(request.body.get("model", ""))


def is_streamed(request: RecordedRequest) -> bool:
    """Whether a stream is asked for."""
    found = _GEMINI.match(request.path)
    return bool(found[2] if found else request.body.get("stream"))
