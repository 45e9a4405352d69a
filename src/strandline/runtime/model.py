"""The seam to models: a request goes in, events come out, a failure is an event too.

An adapter (see `strandline.models`) translates a `ModelRequest` into its provider's wire
format and the provider's stream into the events below. It raises nothing for what a
provider or network does: that is a final `Failed` event with a class. Source: spec 4,
A turn; architecture, Seams.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from strandline.errors import ModelError
from strandline.transcript.messages import JsonObject, Message, ThinkingLevel


@dataclass(frozen=True, slots=True)
class Prices:
    """US dollars for a million tokens; `cache_write_1h` is `cache_write` where it is None."""

    input: float = 0.0
    output: float = 0.0
    cache_read: float = 0.0
    cache_write: float = 0.0
    cache_write_1h: float | None = None


APIS_WITH_THREADS = frozenset({"openai-responses"})
"""The formats whose servers keep a conversation between calls."""


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What is known of one model: `context_window` and `max_output_tokens` in tokens.

    `reasoning`: it can be asked to think. `images`, `tools`: it takes them; a model without
    is told of an image in words, and is offered no tools. `threads`: its backend can keep the
    conversation itself (`ModelRequest.thread`).
    """

    provider: str
    id: str
    api: str
    context_window: int
    max_output_tokens: int
    prices: Prices = Prices()
    reasoning: bool = False
    images: bool = True
    tools: bool = True

    @property
    def threads(self) -> bool:
        """Whether the backend can keep a conversation itself."""
        return self.api in APIS_WITH_THREADS

    @property
    def ref(self) -> str:
        """``provider/model``, as a person writes it."""
        return f"{self.provider}/{self.id}"


CacheRetention = Literal["none", "short", "long"]
"""How long a provider is asked to keep what it was sent: not at all, minutes, an hour or more."""


@dataclass(frozen=True, slots=True)
class CacheMarks:
    """What of a request the provider's cache should keep (spec 3, Caches).

    `key` is the same for all requests of a session, and tells nothing of it. `tools` and
    `system` mark the end of those; `messages` are places in `ModelRequest.messages`, rising:
    each ends a beginning that is worth keeping. A provider that takes no marks takes none.
    """

    retention: CacheRetention = "short"
    key: str = ""
    tools: bool = True
    system: bool = True
    messages: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ThreadPoint:
    """A backend's own thread (`context_projection`, spec 3, Engine slot).

    `previous_id` is the answer after which the thread goes on; None begins one, with `context`
    as the developer's instructions (an input of that role, which the thread keeps). `epoch` and
    `fingerprint` are the engine's names for what the thread was begun with.
    """

    epoch: str
    fingerprint: str
    previous_id: str | None = None
    context: str = ""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One call: `messages` have the roles user, assistant and toolResult only.

    `tools` are ``{"name", "description", "parameters"}``, the last a JSON Schema. `thinking`
    is how hard the model should think, where it can. `cache` None asks for no caching. With a
    `thread` (only where `ModelInfo.threads`) the backend keeps the conversation itself:
    `messages` are what is new in it, and its answer has a ``responseId`` and, as ``thread``,
    ``{"epoch", "fingerprint"}``.
    """

    model: ModelInfo
    system_prompt: str
    messages: Sequence[Message]
    max_output_tokens: int
    tools: Sequence[JsonObject] = ()
    thinking: ThinkingLevel = "off"
    cache: CacheMarks | None = None
    thread: ThreadPoint | None = None


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More of the visible answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    """More of what the model thinks."""

    text: str


@dataclass(frozen=True, slots=True)
class Finished:
    """The whole assistant message (`AssistantMessage`), usage and stop reason included."""

    message: Message


@dataclass(frozen=True, slots=True)
class Failed:
    """The call ended without an answer. `partial` is what came before, if anything came."""

    error: ModelError
    partial: Message | None = None


ModelEvent = TextDelta | ThinkingDelta | Finished | Failed


class Model(Protocol):
    """Something that answers."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Any number of deltas, then exactly one `Finished` or `Failed`.

        Closing the generator early (`aclose`) aborts the call.
        """
        ...

    async def aclose(self) -> None:
        """Give back connections and memory. Called once, when the process is done with it."""
        ...
