"""Google's explicit cache: the stable beginning of requests, kept by the server under a name.

A request that names it leaves out its system prompt and tools. What is remembered here holds
for one server (`GeminiModel`), and there for one model and one beginning; beginnings that the
server would refuse are not sent to it, and what it refused is not asked for again at once.
Nothing that goes wrong here keeps a model from answering. Sources: spec 3, Caches;
cases/faults, K10.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakValueDictionary

from strandline.clock import Clock
from strandline.errors import ModelError
from strandline.models.content import body_bytes
from strandline.models.draft import string_in
from strandline.models.gemini_wire import is_second_generation, stable_beginning
from strandline.runtime.model import ModelRequest
from strandline.transcript.messages import JsonObject

LIFETIME_S = 3600
MARGIN_S = 60
"""So long before its end a cached content is used no more: a request takes its time."""

REFUSAL_S = 600
CREATE_TIMEOUT_S = 10.0
MAX_REMEMBERED = 64

_BYTES_A_TOKEN = 5  # more than any text has, so that nothing too short is taken for long enough


class Key(NamedTuple):
    """What a cached content holds for: a model, and the digest of a beginning."""

    model_id: str
    digest: bytes


@dataclass(frozen=True, slots=True)
class Beginning:
    """A stable beginning that is worth keeping; `body` is what asks the server to."""

    key: Key
    body: bytes


class _Known(NamedTuple):
    """The name of a cached content; empty while the server is not to be asked again."""

    name: str
    until_ms: int


def beginning_of(request: ModelRequest) -> Beginning | None:
    """What of a request can be kept; None where it is not wanted, or too short."""
    marks = request.cache
    if marks is None or marks.retention != "long" or not marks.system:
        return None
    content = stable_beginning(request)
    written = body_bytes(content)
    if not content or len(written) < _BYTES_A_TOKEN * _least_tokens(request.model.id):
        return None
    whole = {"model": f"models/{request.model.id}", **content, "ttl": f"{LIFETIME_S}s"}
    key = Key(request.model.id, hashlib.sha256(written).digest())
    return Beginning(key, body_bytes(whole))


def _least_tokens(model_id: str) -> int:
    """From where on Google keeps a beginning, in tokens."""
    return 2048 if is_second_generation(model_id) else 4096


class CachedContents:
    """The cached contents of one server. `clock` ends their lives."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[Key, _Known] = {}
        self._creating: WeakValueDictionary[Key, asyncio.Lock] = WeakValueDictionary()

    async def name_of(
        self, beginning: Beginning, create: Callable[[bytes], Awaitable[JsonObject]]
    ) -> str:
        """The name to ask with, made by `create` where there is none; empty to ask without.

        `create` may raise `ModelError`.
        """
        lock = self._creating.setdefault(beginning.key, asyncio.Lock())
        async with lock:
            known = self._alive(beginning.key)
            return await self._create(beginning, create) if known is None else known.name

    def refused(self, beginning: Beginning, error: ModelError) -> bool:
        """Whether the server refused a request because of its cached content.

        One that it does not know any more can be made again; another is left alone for a while.
        """
        told = error.what.lower()
        blamed = error.kind in {"auth", "refused"} and "cachedcontent" in told
        if blamed and ("not found" in told or "expired" in told):
            self._known.pop(beginning.key, None)
        elif blamed:
            self._remember(beginning.key, "", REFUSAL_S)
        return blamed

    async def _create(
        self, beginning: Beginning, create: Callable[[bytes], Awaitable[JsonObject]]
    ) -> str:
        began_ms = self._clock.now_ms()
        try:
            async with asyncio.timeout(CREATE_TIMEOUT_S):
                name = string_in((await create(beginning.body)).get("name"))
        except (ModelError, TimeoutError):
            name = ""
        self._remember(beginning.key, name, LIFETIME_S - MARGIN_S if name else REFUSAL_S, began_ms)
        return name

    def _alive(self, key: Key) -> _Known | None:
        known = self._known.pop(key, None)
        if known is None or known.until_ms <= self._clock.now_ms():
            return None
        self._known[key] = known  # at the end: the last used goes last
        return known

    def _remember(self, key: Key, name: str, for_s: int, since_ms: int | None = None) -> None:
        since_ms = self._clock.now_ms() if since_ms is None else since_ms
        self._known[key] = _Known(name, since_ms + for_s * 1000)
        while len(self._known) > MAX_REMEMBERED:
            del self._known[next(iter(self._known))]
