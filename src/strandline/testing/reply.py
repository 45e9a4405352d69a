"""One answer of a scripted model server, in words of no provider.

The wire modules (`strandline.testing.chat_wire` and its siblings) say it in theirs.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from strandline.transcript.messages import JsonObject


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool; `arguments` as text are sent as they are, valid JSON or not.

    Where a provider cannot send text that is no JSON object, it does what that provider does:
    Anthropic wraps it unless it streams, Gemini ends with ``MALFORMED_FUNCTION_CALL``.
    """

    name: str
    arguments: JsonObject | str
    id: str = "call_1"

    @property
    def arguments_text(self) -> str:
        """The arguments as they go on the wire."""
        if isinstance(self.arguments, str):
            return self.arguments
        return json.dumps(self.arguments, separators=(",", ":"))

    @property
    def arguments_object(self) -> JsonObject | None:
        """The arguments as an object; None if their text is none."""
        if not isinstance(self.arguments, str):
            return self.arguments
        try:
            parsed = json.loads(self.arguments)
        except ValueError:
            return None
        return parsed if isinstance(parsed, dict) else None


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer of the server.

    `text`: a text is sent in pieces of `chunk_chars`; a sequence is sent piece by piece.
    `thinking` goes before it, `tool_calls` after it. `redacted_thinking`: the data of such a
    block, which Anthropic alone has.
    `signature` signs the thinking where the provider signs it (Anthropic ``signature``,
    Responses ``encrypted_content``, Gemini ``thoughtSignature``, which must be base64): None
    for one of the server's own, empty for none, as when a stream breaks off before it.
    `finish_reason`: ``stop``, ``length``, ``tool_calls`` and ``content_filter`` are said in the
    words of the provider, ``failed`` is the failure of a Responses stream, anything else is
    sent as it is. None means ``tool_calls`` if there are any, else ``stop``.
    `delay_s`: the pause before each event after the first.

    `status`: 200, or an HTTP error with the body `error` (None: the provider's for that
    status) and, where given, the wait `retry_after_s` (a ``Retry-After``; Gemini says it in
    the body). With `error_after`, a streamed answer begins, and after so many events the
    error comes as an event, and a clean end.

    The faults count events of the stream; number 0 only opens the answer (not so Gemini's),
    and Chat Completions' ``[DONE]`` is its last. With 0 they strike before the status line.
    `stall_after`: after so many events, silence for `stall_s`, at most 60.
    `disconnect_after`: after so many events, the connection is closed.
    `truncate_after`: after so many events, one with half of its JSON, and a clean end.
    Without streaming: the stall comes before the answer; a disconnect after half of the body
    (0: before the status line); a truncated answer is half of its JSON.
    """

    text: str | Sequence[str] = ""
    thinking: str = ""
    tool_calls: Sequence[ToolCall] = ()
    finish_reason: str | None = None
    chunk_chars: int = 16
    delay_s: float = 0.0
    status: int = 200
    error: JsonObject | None = None
    retry_after_s: float | None = None
    stall_after: int | None = None
    stall_s: float = 5.0
    disconnect_after: int | None = None
    truncate_after: int | None = None
    error_after: int | None = None
    signature: str | None = None
    redacted_thinking: str = ""

    def __post_init__(self) -> None:
        if self.stall_s > 60 or self.delay_s > 60:
            raise ValueError("a reply may pause for 60 seconds at most")
        if self.chunk_chars < 1:
            raise ValueError("chunk_chars must be at least 1")
        if self.error_after is not None and self.status == 200:
            raise ValueError("error_after needs the status of the error")

    @property
    def full_text(self) -> str:
        """The text in one piece."""
        return self.text if isinstance(self.text, str) else "".join(self.text)

    @property
    def reason(self) -> str:
        """Why the answer ended."""
        return self.finish_reason or ("tool_calls" if self.tool_calls else "stop")

    @property
    def output(self) -> str:
        """Everything that the model wrote, for counting its tokens."""
        calls = (call.name + call.arguments_text for call in self.tool_calls)
        return "".join([self.thinking, self.full_text, *calls])

    def signed(self, provider: str) -> str:
        """The signature on the wire of `provider`; empty if nothing is signed."""
        if self.signature is not None or not self.thinking:
            return self.signature or ""
        digest = hashlib.sha256(f"{provider}\n{self.output}".encode("utf-8", "surrogatepass"))
        return base64.b64encode(digest.digest()).decode()

    def pieces(self, text: str | Sequence[str]) -> list[str]:
        """A text as it is streamed."""
        if not isinstance(text, str):
            return list(text)
        size = self.chunk_chars
        return [text[start : start + size] for start in range(0, len(text), size)]
