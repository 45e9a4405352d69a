"""Which wire format a path speaks, and what the path and the body say of the call."""

from __future__ import annotations

from strandline.testing import anthropic_wire, chat_wire, gemini_wire, responses_wire
from strandline.testing.wire import RecordedRequest, Wire

WIRES: tuple[Wire, ...] = (chat_wire, anthropic_wire, responses_wire, gemini_wire)

_PATHS: dict[str, Wire] = {
    "/v1/chat/completions": chat_wire,
    "/v1/messages": anthropic_wire,
    "/v1/responses": responses_wire,
}


def find_wire(path: str) -> Wire | None:
    """The wire of a path, its query ignored; a Gemini stream must ask for ``alt=sse``."""
    if gemini_wire.PATH.match(path):
        return gemini_wire
    return _PATHS.get(path.partition("?")[0])


def model_of(request: RecordedRequest) -> str:
    """The model that is asked."""
    return gemini_wire.asked_model(request.path) or str(request.body.get("model", ""))


def is_streamed(request: RecordedRequest) -> bool:
    """Whether a stream is asked for."""
    found = gemini_wire.PATH.match(request.path)
    return bool(found[2] if found else request.body.get("stream"))
