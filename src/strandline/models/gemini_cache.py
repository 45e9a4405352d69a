"""Google's explicit cache: the stable beginning of requests, kept by the server under a name.

A request that names it leaves out its system prompt and tools. What is remembered here holds
for one server (`GeminiModel`), and there for one model and one beginning. Before one is made,
the server's list is looked through: another process may have made it, and each is paid for by
the hour. Beginnings that the server would refuse are not sent to it, and what it refused is not
asked for again at once.
Nothing that goes wrong here keeps a model from answering. Sources: spec 3, Caches;
cases/faults, K10.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import quote
from weakref import WeakValueDictionary

from strandline.clock import Clock, ms_from_iso
from strandline.errors import ModelError
from strandline.models.content import body_bytes
from strandline.models.draft import objects_in, string_in
from strandline.models.gemini_wire import is_second_generation, stable_beginning
from strandline.models.surrogates import whole_text
from strandline.runtime.model import ModelRequest
from strandline.transcript.messages import JsonObject

LIFETIME_S = 3600
MARGIN_S = 60
"""So long before its end a cached content is used no more: a request takes its time."""

REFUSAL_S = 600
CREATE_TIMEOUT_S = 10.0
LOOK_TIMEOUT_S = 3.0
"""For all pages of the list together: a turn waits for it."""

MAX_PAGES = 2
PAGE_SIZE = 100  # of about 500 bytes each, within what is read of a body
MAX_REMEMBERED = 64

_PATH = "/cachedContents"
_BYTES_A_TOKEN = 5  # more than any text has, so that nothing too short is taken for long enough

Ask = Callable[[str, bytes | None], Awaitable[JsonObject]]
"""Asks the server: a path, and what is sent to it (None: nothing). May raise `ModelError`."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """A stable beginning that is worth keeping; `body` is what asks the server to.

    `key` is a digest of it and of its model, and the name by which every process knows it.
    """

    key: str
    body: bytes


class _Known(NamedTuple):
    """The name of a cached content; empty while the server is not to be asked again."""

    name: str
    until_ms: int


_NOTHING = _Known("", 0)


def beginning_of(request: ModelRequest) -> Beginning | None:
    """What of a request can be kept; None where it is not wanted, or too short."""
    marks = request.cache
    if marks is None or marks.retention != "long" or not marks.system:
        return None
    content = stable_beginning(request)
    written = body_bytes(content)
    if not content or len(written) < _BYTES_A_TOKEN * _least_tokens(request.model.id):
        return None
    model = f"models/{request.model.id}"
    key = f"strandline-{hashlib.sha256(body_bytes({'model': model, **content})).hexdigest()}"
    whole = {"model": model, "displayName": key, **content, "ttl": f"{LIFETIME_S}s"}
    return Beginning(key, body_bytes(whole))


def _least_tokens(model_id: str) -> int:
    """From where on Google keeps a beginning, in tokens."""
    return 2048 if is_second_generation(model_id) else 4096


class CachedContents:
    """The cached contents of one server. `clock` ends their lives."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[str, _Known] = {}
        self._creating: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def name_of(self, beginning: Beginning, ask: Ask) -> str:
        """The name to ask with, of one that is found or made; empty to ask without."""
        lock = self._creating.setdefault(beginning.key, asyncio.Lock())
        async with lock:
            known = self._known.get(beginning.key, _NOTHING)
            if known.until_ms <= self._clock.now_ms():
                found = await self._find(beginning, ask, gone=known.name)
                known = found or await self._create(beginning, ask)
            self._remember(beginning.key, known)
            return known.name

    def refused(self, beginning: Beginning, name: str, error: ModelError) -> bool:
        """Whether the server refused a request because of its cached content.

        One that it does not know any more can be made again; another is left alone for a while.
        """
        told = error.what.lower()
        blamed = error.kind in {"auth", "refused"} and "cachedcontent" in told
        if blamed and ("not found" in told or "expired" in told):
            self._remember(beginning.key, _Known(name, 0))
        elif blamed:
            self._remember(beginning.key, self._refusal())
        return blamed

    async def _find(self, beginning: Beginning, ask: Ask, gone: str) -> _Known | None:
        """The one in the server's list that lives longest; `gone` is known to be none.

        None where there is none among the first, or the list cannot be had.
        """
        query = f"?pageSize={PAGE_SIZE}"
        try:
            async with asyncio.timeout(LOOK_TIMEOUT_S):
                for _ in range(MAX_PAGES):
                    page = await ask(_PATH + query, None)
                    found = [known for known in _named(page, beginning) if known.name != gone]
                    best = max(found, key=lambda known: known.until_ms, default=_NOTHING)
                    if best.until_ms > self._clock.now_ms():
                        return best
                    token = whole_text(string_in(page.get("nextPageToken")))
                    if not token:
                        break
                    query = f"?pageSize={PAGE_SIZE}&pageToken={quote(token, safe='')}"
        except (ModelError, TimeoutError):
            pass  # it is made then
        return None

    async def _create(self, beginning: Beginning, ask: Ask) -> _Known:
        began_ms = self._clock.now_ms()
        try:
            async with asyncio.timeout(CREATE_TIMEOUT_S):
                name = string_in((await ask(_PATH, beginning.body)).get("name"))
        except (ModelError, TimeoutError):
            name = ""
        return _Known(name, began_ms + (LIFETIME_S - MARGIN_S) * 1000) if name else self._refusal()

    def _refusal(self) -> _Known:
        return _Known("", self._clock.now_ms() + REFUSAL_S * 1000)

    def _remember(self, key: str, known: _Known) -> None:
        self._known.pop(key, None)
        self._known[key] = known  # at the end: the last used goes last
        while len(self._known) > MAX_REMEMBERED:
            del self._known[next(iter(self._known))]


def _named(page: JsonObject, beginning: Beginning) -> list[_Known]:
    """Those of a page of the list that hold `beginning`, dead or alive."""
    return [
        _Known(string_in(content.get("name")), until_ms - MARGIN_S * 1000)
        for content in objects_in(page.get("cachedContents"))
        if content.get("displayName") == beginning.key
        and content.get("name")
        and (until_ms := ms_from_iso(content.get("expireTime"))) is not None
    ]
