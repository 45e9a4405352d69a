"""A model server on the loopback interface that answers as a script says.

`ScriptedModelServer` speaks Chat Completions, Responses, Anthropic Messages and Gemini,
streamed or not, over real HTTP; it counts tokens, remembers prompts and what it signed, so
that its cache counters, its overflow errors and its refusals are the consequences of what it
was sent. It can be slow, refuse, break off and lie half way.
Source: spec 3 (cache, overflow) and spec 4 (models), seen from the other side.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from threading import Event, Lock, Thread
from types import TracebackType
from typing import Self

from strandline.testing import gemini_contents
from strandline.testing.issued import Issued
from strandline.testing.kept import Kept, Recalled
from strandline.testing.model_http import ModelHttpServer
from strandline.testing.overflow_words import OverflowStyle, overflow_reply
from strandline.testing.prompt_cache import (
    Block,
    Cache,
    CacheUse,
    NowMs,
    cache_of,
    time_stands_still,
)
from strandline.testing.reply import Reply
from strandline.testing.wire import (
    Envelope,
    Problem,
    RecordedRequest,
    Usage,
    Wire,
    prompt_of,
)
from strandline.testing.wires import WIRES, find_wire, model_of
from strandline.transcript.messages import JsonObject

Script = Sequence[Reply] | Callable[[RecordedRequest], Reply]
"""Replies for one request after the other, or a function of the request. The function may be
called by several threads at once, may wait, and what it raises comes out of the server's
``with`` block (the client gets a 500)."""


def chars_over_four(text: str) -> int:
    """A token for every four characters, rounded up."""
    return -(-len(text) // 4)


class ScriptedModelServer:
    """Listens on a free port of 127.0.0.1 from the moment it is made until it is closed.

    ::

        with ScriptedModelServer([Reply("Good morning."), Reply(status=429)]) as server:
            client = openai.OpenAI(base_url=server.base_url, api_key="any")
            other = anthropic.Anthropic(base_url=server.root_url, api_key="any")

    The path of a request says its format: ``/v1/chat/completions``, ``/v1/responses``,
    ``/v1/messages``, ``/v1beta/models/MODEL:generateContent`` and, with ``?alt=sse``,
    ``:streamGenerateContent`` (``/v1/models/MODEL`` too). One script serves them all. Keys are
    recorded, not checked.

    `script`: see `Script`; after the last reply of a list, and without one, the server says
    how many characters it heard. `context_window` in tokens (None: no limit) and `overflow`,
    the words for a prompt above it (None: those of the format's own provider); such a request
    takes nothing from the script.
    `strict`: refuse, in the provider's words, what the provider refuses with a 400: calls and
    results that are no pairs, empty texts, ids that it does not take, thinking that it never
    signed, text that is no Unicode, and more (`strandline.testing.chat_rules` and its
    siblings); such a request takes nothing from the script either, nor does one that refers
    to what is not kept here, which is always refused. `signatures`: signatures of thinking
    that count as the server's own.
    `count` counts the tokens of a text, times `token_factor`. All of these but `signatures`
    are attributes that a test may change between requests. `models` are the ids that it
    lists; it answers to any. `now_ms`, Unix milliseconds, ends the lives of what is cached;
    without it time stands still.

    `kept` has the threads of Responses and Gemini's cached contents; `forget` loses them.
    `requests` has every call of a model in the order of arrival, `to_cache` every request to
    keep a content (Gemini's ``cachedContents``), `looked_up` the paths of those for their list,
    `refused` the words of every refusal of a request, `hung_up` counts clients that left
    before the end of an answer, `failures` has what the script raised.
    """

    def __init__(  # noqa: PLR0913 - each has a name and may be left out
        self,
        script: Script = (),
        *,
        context_window: int | None = None,
        overflow: OverflowStyle | None = None,
        strict: bool = True,
        signatures: Iterable[str] = (),
        count: Callable[[str], int] = chars_over_four,
        token_factor: float = 1.0,
        models: Sequence[str] = ("scripted",),
        now_ms: NowMs = time_stands_still,
    ) -> None:
        self.script = script
        self.context_window = context_window
        self.overflow: OverflowStyle | None = overflow
        self.strict = strict
        self.count = count
        self.token_factor = token_factor
        self.models = models
        self.kept = Kept(now_ms)
        self.requests: list[RecordedRequest] = []
        self.to_cache: list[RecordedRequest] = []
        self.looked_up: list[str] = []
        self.refused: list[str] = []
        self.hung_up = 0
        self.failures: list[BaseException] = []
        self.closing = Event()
        self._lock = Lock()
        self._step = 0
        own = list(signatures)
        self._issued = {wire.NAME: Issued(own) for wire in WIRES}
        self._caches = self._empty_caches()
        self._http = ModelHttpServer(self)
        self._thread = Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def root_url(self) -> str:
        """Where clients of Anthropic and Gemini connect: ``http://127.0.0.1:PORT``."""
        return f"http://127.0.0.1:{self._http.server_port}"

    @property
    def base_url(self) -> str:
        """Where clients of OpenAI connect: ``http://127.0.0.1:PORT/v1``."""
        return f"{self.root_url}/v1"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
        if error is None and self.failures:
            raise self.failures[0]

    def close(self) -> None:
        """Break off what is being answered, wait for its threads, free the port."""
        if self.closing.is_set():
            return
        self.closing.set()
        self._http.shutdown()
        self._http.hang_up()
        self._http.server_close()
        self._thread.join()

    def answer(self, request: RecordedRequest) -> tuple[Reply, Envelope]:
        """Record a request and decide what is answered. For the handler, and for tests
        without a socket. Raises `LookupError` for a path that is none of a model's.
        """
        wire = find_wire(request.path)
        if wire is None:
            raise LookupError(f"{request.path} is no address of a model")
        with self._lock:
            self.requests.append(request)
            number = len(self.requests)
        with self._lock:
            recalled = wire.recalled(request, self.kept)
            self._note(recalled)
        if isinstance(recalled, Problem):
            refusal = _refusal(wire, recalled, number)
            return refusal, Envelope(number, model_of(request), Usage(0, 0), request.body)
        return self._answer(wire, request, recalled, number)

    def keep_content(self, request: RecordedRequest) -> JsonObject | Problem:
        """Record a request to keep a content, and what is answered to it."""
        with self._lock:
            self.to_cache.append(request)
            answer = gemini_contents.create(request.body, self.kept, self.tokens)
            self._note(answer)
        return answer

    def list_contents(self, path: str) -> JsonObject:
        """Record a request for the list of what is kept, and the page that is answered."""
        with self._lock:
            self.looked_up.append(path)
            return gemini_contents.page(path, self.kept)

    def forget(self) -> None:
        """Lose the threads, the cached contents and the prompts that were cached."""
        with self._lock:
            self.kept.forget()
            self._caches = self._empty_caches()

    def tokens(self, text: str) -> int:
        """The tokens of a text as this server counts them."""
        # Rounded first: 1.1 * 10 is a little more than 11.
        return math.ceil(round(self.count(text) * self.token_factor, 6))

    def _answer(
        self, wire: Wire, request: RecordedRequest, recalled: Recalled, number: int
    ) -> tuple[Reply, Envelope]:
        blocks = self._read(wire, recalled.body)
        prompt_tokens = self.tokens(prompt_of(blocks))
        whole = replace(request, body=recalled.body)
        refusal = self._broken_rule(wire, whole, number) or self._overflow(wire, prompt_tokens)
        reply = refusal or self._scripted(wire, request)
        answered = refusal is None and reply.status == 200
        model = model_of(request)
        use = self._cache_use(wire, model, blocks, recalled.cached) if answered else CacheUse()
        usage = self._usage(reply, prompt_tokens, use)
        envelope = Envelope(number, model, usage, request.body, reply.signed(wire.NAME))
        if answered:
            with self._lock:
                self._issued[wire.NAME].note(reply, number, envelope.signature)
                wire.keep(recalled.body, reply, envelope, self.kept)
        return reply, envelope

    def _read(self, wire: Wire, body: JsonObject) -> list[Block]:
        """What the model reads: all of it, or what fits where the server may shorten it."""
        blocks = wire.prompt_blocks(body)
        while self._overflows(self.tokens(prompt_of(blocks))):
            shorter = wire.shortened(body)
            if shorter is None:
                break
            body, blocks = shorter, wire.prompt_blocks(shorter)
        return blocks

    def _broken_rule(self, wire: Wire, request: RecordedRequest, number: int) -> Reply | None:
        if not self.strict:
            return None
        with self._lock:
            if _is_unicode(request.body):
                problem = wire.broken_rule(request, self._issued[wire.NAME])
            else:
                problem = Problem(message=wire.NOT_JSON)
            self._note(problem)
        return None if problem is None else _refusal(wire, problem, number)

    def _note(self, answer: object) -> None:
        """Where it is a refusal, `refused` gets its words."""
        if isinstance(answer, Problem):
            self.refused.append(answer.message)

    def _empty_caches(self) -> dict[str, Cache]:
        return {wire.NAME: cache_of(wire.CACHE, self.kept.now_ms) for wire in WIRES}

    def _overflows(self, prompt_tokens: int) -> bool:
        return self.context_window is not None and prompt_tokens > self.context_window

    def _overflow(self, wire: Wire, prompt_tokens: int) -> Reply | None:
        if self.context_window is None or prompt_tokens <= self.context_window:
            return None
        return overflow_reply(self.overflow or wire.OVERFLOW, prompt_tokens, self.context_window)

    def _usage(self, reply: Reply, prompt_tokens: int, use: CacheUse) -> Usage:
        return Usage(
            prompt_tokens=prompt_tokens,
            output_tokens=self.tokens(reply.output),
            thinking_tokens=self.tokens(reply.thinking),
            cached_tokens=use.read,
            created_tokens=use.created,
            created_1h_tokens=use.created_1h,
        )

    def _cache_use(
        self, wire: Wire, model: str, blocks: Sequence[Block], named: Sequence[Block]
    ) -> CacheUse:
        """What the cache finds, and at least what the request named in it."""
        with self._lock:
            use = self._caches[wire.NAME].use(model, blocks, self.tokens)
        return use._replace(read=max(use.read, self.tokens(prompt_of(named))))

    def _scripted(self, wire: Wire, request: RecordedRequest) -> Reply:
        if callable(self.script):
            return self.script(request)
        with self._lock:
            step, self._step = self._step, self._step + 1
        if step < len(self.script):
            return self.script[step]
        heard = len(wire.last_user_text(request.body))
        return Reply(f"I heard {heard} characters.")

    def failed(self, error: BaseException) -> None:
        """A handler's error: kept, to be raised where the server is closed."""
        with self._lock:
            self.failures.append(error)

    def client_left(self) -> None:
        """A handler could not send the rest of an answer."""
        with self._lock:
            self.hung_up += not self.closing.is_set()


def _refusal(wire: Wire, problem: Problem, number: int) -> Reply:
    return Reply(status=problem.status, error=wire.error_body(problem, number))


def _is_unicode(body: JsonObject) -> bool:
    """Whether no text in it has half of a character (a lone surrogate)."""
    try:
        json.dumps(body, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True
