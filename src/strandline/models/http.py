"""Models behind an HTTP server: one call, whatever the provider's format.

A `Dialect` says what a request looks like and how its answer is read; here is what all of
them share: connections, timeouts, streams cut anywhere, errors in our words. Importing this
module is cheap: the HTTP library comes with the first call. Source: spec 4, A turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import TYPE_CHECKING, Protocol, Required, TypedDict

from strandline.clock import Clock
from strandline.errors import ModelError
from strandline.models.address import Address
from strandline.models.draft import event_object
from strandline.models.failures import Failures
from strandline.models.http_headers import request_headers, retry_after_s
from strandline.models.sse import CompletionBody
from strandline.runtime.model import Failed, ModelEvent, ModelInfo, ModelRequest
from strandline.transcript.messages import JsonObject

if TYPE_CHECKING:
    import httpx2

CONNECT_TIMEOUT_S = 10.0
IDLE_TIMEOUT_S = 120.0
MAX_ERROR_BYTES = 64 * 1024
"""How much is read of the body of an error, and of any other that is no stream."""

_DRAIN_S = 0.2
_USAGE_S = 5.0
"""How long usage may take to follow a complete answer."""


class Answer(Protocol):
    """One answer in the making: fed the JSON texts of its events in order."""

    @property
    def complete(self) -> bool:
        """Whether the server said why the answer ends; only usage may follow."""
        ...

    def feed_text(self, text: str) -> list[ModelEvent]:
        """The deltas in one event. Raises `ModelError` where it is an error."""
        ...

    def finish(self) -> list[ModelEvent]:
        """What is left to say, then `Finished`, or `Failed` where the server gave up."""
        ...

    def failed(self, error: ModelError) -> Failed:
        """The end by `error`, with what was said so far, without tool calls."""
        ...


class Dialect(Protocol):
    """A provider's format. Pure: the same request gives the same bytes."""

    def path(self, request: ModelRequest) -> str:
        """What follows the base URL, with its query."""
        ...

    def headers(self, api_key: str) -> Mapping[str, str]:
        """The headers that carry the key (and a version); `api_key` may be empty."""
        ...

    def body(self, request: ModelRequest) -> bytes:
        """The body of a streaming request."""
        ...

    def answer(self, request: ModelRequest, timestamp_ms: int, failures: Failures) -> Answer:
        """A new reader of an answer; `timestamp_ms` becomes the message's."""
        ...


class HttpOptions(TypedDict, total=False):
    """What every `HttpModel` takes beside its address and key; see there."""

    clock: Required[Clock]
    headers: Mapping[str, str]
    connect_timeout_s: float
    idle_timeout_s: float


class HttpModel:
    """Answers by asking the server at `base_url` (``https://api.openai.com/v1``).

    `api_key`: empty for servers that want none. `clock` dates the answers.
    `connect_timeout_s` bounds the connecting, `idle_timeout_s` the silence between two
    pieces of an answer. `headers` are sent along; their values are kept secret like the key.
    One object serves any number of calls at once, of one event loop.

    Raises `ConfigError` for an address, key or header that cannot be used.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str,
        dialect: Dialect,
        *,
        clock: Clock,
        headers: Mapping[str, str] | None = None,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        idle_timeout_s: float = IDLE_TIMEOUT_S,
    ) -> None:
        address, api_key, headers = Address.of(base_url), api_key.strip(), headers or {}
        self._dialect = dialect
        self._address = address
        self._headers = request_headers({**dialect.headers(api_key), **address.login}, headers)
        self._secrets = (api_key, *address.secrets, *headers.values())
        self._clock = clock
        self._connect_timeout_s = connect_timeout_s
        self._idle_timeout_s = idle_timeout_s
        self._connected: httpx2.AsyncClient | None = None

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """The events of one call (`strandline.runtime.model.Model`)."""
        return self._stream(request, self._dialect)

    async def _stream(
        self, request: ModelRequest, dialect: Dialect
    ) -> AsyncGenerator[ModelEvent, None]:
        """The events of a call that is made in `dialect`."""
        failures = Failures(request.model, self._secrets)
        answer = dialect.answer(request, self._clock.now_ms(), failures)
        try:
            asked = self._ask(request, dialect, answer, failures)
            async with contextlib.aclosing(asked) as events:
                async for event in events:
                    yield event
        except ModelError as error:
            yield answer.failed(error)

    async def aclose(self) -> None:
        """Close the connections."""
        client, self._connected = self._connected, None
        if client is not None:
            await client.aclose()

    async def _ask(
        self, request: ModelRequest, dialect: Dialect, answer: Answer, failures: Failures
    ) -> AsyncGenerator[ModelEvent, None]:
        import httpx2  # noqa: PLC0415 - 0.1 s, for those who call a model

        body = CompletionBody(failures)
        # A long conversation takes a while to write down.
        content = await asyncio.to_thread(dialect.body, request)
        try:
            async with (
                self._call(dialect.path(request), content, failures) as response,
                contextlib.aclosing(_texts(response, body, answer)) as texts,
            ):
                async for text in texts:
                    for event in answer.feed_text(text):
                        yield event
            if not body.done and not answer.complete:
                raise self._too_soon(body, failures)
        except (httpx2.RequestError, httpx2.InvalidURL) as error:
            # After the finish reason, only usage could have been lost.
            if not answer.complete:
                raise self._broken(error, failures) from None
        for event in answer.finish():
            yield event

    @contextlib.asynccontextmanager
    async def _call(
        self, path: str, content: bytes | None, failures: Failures
    ) -> AsyncGenerator[httpx2.Response, None]:
        """The response to a POST of `content`, to a GET without; its body is yet to come.

        Raises `ModelError` for a refusal.
        """
        method, url = "GET" if content is None else "POST", self._address.url(path)
        call = self._client(failures).stream(method, url, content=content, headers=self._headers)
        async with call as response:
            if not response.is_success:
                raise await self._refusal(response, failures)
            yield response

    async def _told(self, model: ModelInfo, path: str, content: bytes | None) -> JsonObject:
        """The object that the server answers to a call beside those that ask `model`.

        Raises `ModelError` for whatever goes wrong.
        """
        import httpx2  # noqa: PLC0415 - see _ask

        failures = Failures(model, self._secrets)
        try:
            async with self._call(path, content, failures) as response:
                text = await _beginning(response)
        except (httpx2.RequestError, httpx2.InvalidURL) as error:
            raise self._broken(error, failures) from None
        return event_object(text, failures)

    def _client(self, failures: Failures) -> httpx2.AsyncClient:
        import httpx2  # noqa: PLC0415 - see _ask

        if self._connected is None:
            timeout = httpx2.Timeout(self._idle_timeout_s, connect=self._connect_timeout_s)
            logging.getLogger("httpx2").addFilter(_NO_QUERIES)
            # A proxy of the environment must not get what goes to this machine.
            trusts = not self._address.is_here
            try:
                self._connected = httpx2.AsyncClient(timeout=timeout, trust_env=trusts)
            except (ImportError, OSError, ValueError, httpx2.InvalidURL):
                # The error is not told: a proxy's address may have a password in it.
                raise failures.network(
                    "cannot be asked through the proxy or with the certificates of the environment",
                    "correct HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and SSL_CERT_FILE; a SOCKS proxy "
                    "needs the package socksio",
                ) from None
        return self._connected

    async def _refusal(self, response: httpx2.Response, failures: Failures) -> ModelError:
        """The error in a response that is no answer."""
        text = await _beginning(response)
        kind = response.headers.get("content-type", "")
        said = "" if text.startswith("<") or "html" in kind else text
        wait_s = retry_after_s(response.headers, self._clock.now_ms())
        return failures.from_server(said, response.status_code, wait_s)

    def _too_soon(self, body: CompletionBody, failures: Failures) -> ModelError:
        if body.empty:
            return failures.network(
                f"sent no answer from {self._address.server}", "check that the base URL is right"
            )
        return failures.network("ended its answer too soon")

    def _broken(self, error: Exception, failures: Failures) -> ModelError:
        """The connection's failure in our words: the library's may hold what was sent."""
        import httpx2  # noqa: PLC0415 - see _ask

        match error:
            case httpx2.ConnectTimeout():
                what = f"did not take the connection within {self._connect_timeout_s:g} s"
            case (
                httpx2.ConnectError()
                | httpx2.ProxyError()
                | httpx2.UnsupportedProtocol()
                | httpx2.InvalidURL()
            ):
                return failures.network(
                    f"cannot be reached at {self._address.server}",
                    "check that its server runs and the base URL is right",
                )
            case httpx2.TimeoutException():
                what = f"sent nothing for {self._idle_timeout_s:g} s"
            case _:
                what = "broke off the connection"
        return failures.network(what)


class _NoQueries(logging.Filter):
    """The library logs the address of each request; a query in it may be a key."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(
                str(arg).partition("?")[0] if hasattr(arg, "query") else arg for arg in record.args
            )
        return True


_NO_QUERIES = _NoQueries()


async def _texts(
    response: httpx2.Response, body: CompletionBody, answer: Answer
) -> AsyncGenerator[str, None]:
    """The JSON texts of an answer, as they come."""
    pieces = response.aiter_bytes()
    while (piece := await _next(pieces, _USAGE_S if answer.complete else None)) is not None:
        for text in body.feed(piece):
            yield text
        if body.done:
            await _drain(pieces)
            return
    for text in body.end():
        yield text


async def _beginning(response: httpx2.Response) -> str:
    """As much of a body as is read where no stream is expected."""
    body = bytearray()
    async with contextlib.aclosing(response.aiter_bytes()) as pieces:
        async for piece in pieces:
            body += piece
            if len(body) > MAX_ERROR_BYTES:
                break
    return body[:MAX_ERROR_BYTES].decode("utf-8", "replace").strip()


async def _next(pieces: AsyncIterator[bytes], within_s: float | None) -> bytes | None:
    """The next piece, None at the end. A proxy may keep open what the server has ended: after
    a complete answer the end is not waited for.
    """
    try:
        async with asyncio.timeout(within_s):
            return await anext(pieces, None)
    except TimeoutError:
        return None


async def _drain(pieces: AsyncIterator[bytes]) -> None:
    """Read the end of the body, so that the connection can serve the next call."""
    import httpx2  # noqa: PLC0415 - see _ask

    with contextlib.suppress(TimeoutError, httpx2.RequestError):
        async with asyncio.timeout(_DRAIN_S):
            async for _ in pieces:
                pass
