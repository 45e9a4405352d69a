"""The context of a path: what the entries from the root to the leaf say to a model.

Pure: a path goes in, messages and settings come out (source: spec 1, Context of a path).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypedDict

from strandline.transcript.messages import Message


class ModelChoice(TypedDict):
    """The model in force on a path, in the words of the file."""

    provider: str
    modelId: str


class PathMessage(NamedTuple):
    """A message on the path, and the entry that holds it.

    `entry_ms` is when the entry was written (Unix ms), where the message does not say itself
    when it was said.
    """

    entry_id: str
    message: Message
    entry_ms: int | None = None


@dataclass(frozen=True)
class SessionContext:
    """What the model would see of a session, before any engine chooses.

    `items` pairs every message with its entry. `model` and `thinking_level` are the last
    that the path set; finding them may read further back in the file than the messages
    did, so they are looked up when they are asked for.
    """

    items: Sequence[PathMessage]
    leaf_id: str | None
    find_model: Callable[[], ModelChoice | None]
    find_thinking_level: Callable[[], str]

    @cached_property
    def messages(self) -> list[Message]:
        """The messages alone, oldest first."""
        return [item.message for item in self.items]

    @cached_property
    def model(self) -> ModelChoice | None:
        """``{"provider", "modelId"}`` as last set on the path, or None."""
        return self.find_model()

    @cached_property
    def thinking_level(self) -> str:
        """The thinking level last set on the path, ``"off"`` if never."""
        return self.find_thinking_level()
