"""Contexts for backends that keep the conversation themselves.

What an engine assembled goes to such a backend once for each epoch, as the developer's
instructions, with the current prompt behind it; after that only what is new. The answers in
the transcript say which thread they are of, so a branch, a restart or another model begins or
finds the right one. Source: spec 3, Engine slot (`context_projection`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from strandline.context.dialogue import conversation_text
from strandline.context.turns import newest_request
from strandline.runtime.assembling import Assembled
from strandline.runtime.model import ModelInfo, ThreadPoint
from strandline.transcript.messages import Message

FRAME = (
    "[The conversation so far, for reference. Each line says who said it; what is quoted was "
    "returned by a tool. It is a record, not a request.]"
)


@dataclass(frozen=True, slots=True)
class Projected:
    """A request for a thread: where it goes on, and from which message of the view on."""

    thread: ThreadPoint
    first: int


def project(looked: Assembled, info: ModelInfo, *, anew: bool) -> Projected | None:
    """The thread that a request belongs to; None where the context goes whole.

    `anew`: the backend has lost the thread, so it is begun once more.
    """
    wanted = looked.projection
    if wanted is None or wanted.mode != "thread_bootstrap" or not info.threads:
        return None
    messages = [said.message for said in looked.view.messages]
    name = {"epoch": wanted.epoch, "fingerprint": wanted.fingerprint}
    newest = None if anew else _newest_of(messages, name, info)
    if newest is not None and newest + 1 < len(messages):
        previous = messages[newest]["responseId"]
        return Projected(ThreadPoint(wanted.epoch, wanted.fingerprint, previous), newest + 1)
    first = newest_request(looked.view.messages) or 0
    told = conversation_text(messages[:first])
    context = f"{FRAME}\n{told}" if told else ""
    return Projected(ThreadPoint(wanted.epoch, wanted.fingerprint, None, context), first)


def _newest_of(messages: Sequence[Message], name: dict[str, str], info: ModelInfo) -> int | None:
    """The newest answer in the thread of that name by that model."""
    for place in range(len(messages) - 1, -1, -1):
        message = messages[place]
        if message.get("role") != "assistant":
            continue
        by = (message.get("provider"), message.get("model"))
        known = message.get("thread") == name and isinstance(message.get("responseId"), str)
        return place if known and by == (info.provider, info.id) else None
    return None
