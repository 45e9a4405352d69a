"""What a scripted server signed, so that it can tell what it never said (cases/faults, B)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from strandline.testing.reply import Reply


class Issued:
    """The signatures of one wire format. `accepted`: signatures that count as its own."""

    def __init__(self, accepted: Iterable[str] = ()) -> None:
        self.reasoning: set[int] = set()
        """The numbers of the answers with thinking."""
        self._thinking: dict[str, str | None] = dict.fromkeys(accepted)
        self._signed_calls: dict[str, bool] = {}

    def note(self, reply: Reply, number: int, signature: str) -> None:
        """An answer that goes out."""
        if signature:
            self._thinking[signature] = reply.thinking
        if reply.redacted_thinking:
            self._thinking[reply.redacted_thinking] = None
        if reply.thinking:
            self.reasoning.add(number)
        for call in reply.tool_calls:
            key = _call_key(call.name, call.arguments_object)
            self._signed_calls[key] = bool(signature)

    def knows(self, signature: object) -> bool:
        """Whether it comes from here."""
        return isinstance(signature, str) and signature in self._thinking

    def fits(self, signature: str, thinking: object) -> bool:
        """Whether `thinking` is what was signed; so too where what was signed is not known."""
        return self._thinking.get(signature) in {None, thinking}

    def signed_call(self, name: object, arguments: Any) -> bool:
        """Whether the last call like this went out with signed thinking."""
        return self._signed_calls.get(_call_key(name, arguments), False)


def _call_key(name: object, arguments: Any) -> str:
    return json.dumps([name, arguments or {}], sort_keys=True)
