"""Models behind OpenAI's Chat Completions: OpenAI itself and every server that speaks alike.

Ollama, vLLM, llama.cpp, LM Studio, OpenRouter and others differ in small ways; those that
were seen are borne (`strandline.models.sse`, `strandline.models.completion`) or chosen by
`ServerTraits`. Importing this module is cheap: the HTTP library comes with the first call.
Source: spec 4, A turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import ipaddress
import json
import math
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from strandline.clock import Clock
from strandline.errors import ConfigError, ModelError
from strandline.models.completion import Answer
from strandline.models.failures import Failures
from strandline.models.sse import CompletionBody
from strandline.models.wire import ServerTraits, request_body
from strandline.runtime.model import ModelEvent, ModelRequest

if TYPE_CHECKING:
    import httpx2

API = "openai-completions"
"""The name of this format in transcripts and in the catalog."""

CONNECT_TIMEOUT_S = 10.0
IDLE_TIMEOUT_S = 120.0
MAX_ERROR_BYTES = 64 * 1024
"""How much of an error's body is read."""

_DRAIN_S = 0.2


class OpenAIChatModel:
    """Answers by asking the server at `base_url` (``https://api.openai.com/v1``).

    `api_key`: empty for servers that want none. `clock` dates the answers.
    `connect_timeout_s` bounds the connecting, `idle_timeout_s` the silence between two
    pieces of an answer. `headers` are sent along; their values are kept secret like the key.
    `traits`: what the server wants differently, by default what its host is known for.
    One object serves any number of calls at once, of one event loop.

    Raises `ConfigError` for an address, key or header that cannot be used.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str = "",
        *,
        clock: Clock,
        traits: ServerTraits | None = None,
        headers: Mapping[str, str] | None = None,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        idle_timeout_s: float = IDLE_TIMEOUT_S,
    ) -> None:
        address = _address(base_url)
        self._url = address._replace(path=address.path.rstrip("/") + "/chat/completions").geturl()
        self._server = address.netloc.rpartition("@")[2]
        self._is_here = _is_loopback(address.hostname or "")
        self._traits = traits or ServerTraits.of_host(address.hostname or "")
        _require_json(self._traits.extra_body)
        self._headers = _headers(api_key.strip(), headers or {})
        self._secrets = (api_key.strip(), address.password or "", *(headers or {}).values())
        self._clock = clock
        self._connect_timeout_s = connect_timeout_s
        self._idle_timeout_s = idle_timeout_s
        self._connected: httpx2.AsyncClient | None = None

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """The events of one call (`strandline.runtime.model.Model`)."""
        failures = Failures(request.model, self._secrets)
        answer = Answer(request.model, self._clock.now_ms(), failures)
        try:
            async with contextlib.aclosing(self._ask(request, answer, failures)) as events:
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
        self, request: ModelRequest, answer: Answer, failures: Failures
    ) -> AsyncGenerator[ModelEvent, None]:
        import httpx2  # noqa: PLC0415 - 0.1 s, for those who call a model

        body = CompletionBody(failures)
        call = self._client().stream(
            "POST",
            self._url,
            content=request_body(request, self._traits),
            headers=self._headers,
        )
        try:
            async with call as response:
                if not response.is_success:
                    raise await self._refusal(response, failures)
                async with contextlib.aclosing(_texts(response, body)) as texts:
                    async for text in texts:
                        for event in answer.feed_text(text):
                            yield event
            if not body.done and not answer.complete:
                raise self._too_soon(body, failures)
        except httpx2.RequestError as error:
            # After the finish reason, only usage could have been lost.
            if not answer.complete:
                raise self._broken(error, failures) from None
        for event in answer.finish():
            yield event

    def _client(self) -> httpx2.AsyncClient:
        import httpx2  # noqa: PLC0415 - see _ask

        if self._connected is None:
            timeout = httpx2.Timeout(self._idle_timeout_s, connect=self._connect_timeout_s)
            # A proxy of the environment must not get what goes to this machine.
            self._connected = httpx2.AsyncClient(timeout=timeout, trust_env=not self._is_here)
        return self._connected

    async def _refusal(self, response: httpx2.Response, failures: Failures) -> ModelError:
        """The error in a response that is no answer."""
        body = bytearray()
        async with contextlib.aclosing(response.aiter_bytes()) as pieces:
            async for piece in pieces:
                body += piece
                if len(body) > MAX_ERROR_BYTES:
                    break
        text = body[:MAX_ERROR_BYTES].decode("utf-8", "replace").strip()
        kind = response.headers.get("content-type", "")
        said = "" if text.startswith("<") or "html" in kind else text
        wait_s = _retry_after_s(response.headers, self._clock.now_ms())
        return failures.from_server(said, response.status_code, wait_s)

    def _too_soon(self, body: CompletionBody, failures: Failures) -> ModelError:
        if body.empty:
            return failures.network(
                f"sent no answer from {self._server}", "check that the base URL is right"
            )
        return failures.network("ended its answer too soon")

    def _broken(self, error: httpx2.RequestError, failures: Failures) -> ModelError:
        """The connection's failure in our words: the library's may hold what was sent."""
        import httpx2  # noqa: PLC0415 - see _ask

        match error:
            case httpx2.ConnectTimeout():
                what = f"did not take the connection within {self._connect_timeout_s:g} s"
            case httpx2.ConnectError() | httpx2.ProxyError() | httpx2.UnsupportedProtocol():
                what = f"cannot be reached at {self._server}"
                return failures.network(
                    what, "check that its server runs and the base URL is right"
                )
            case httpx2.TimeoutException():
                what = f"sent nothing for {self._idle_timeout_s:g} s"
            case _:
                what = "broke off the connection"
        return failures.network(what)


async def _texts(response: httpx2.Response, body: CompletionBody) -> AsyncGenerator[str, None]:
    """The JSON texts of an answer, as they come."""
    pieces = response.aiter_bytes()
    async for piece in pieces:
        for text in body.feed(piece):
            yield text
        if body.done:
            await _drain(pieces)
            return
    for text in body.end():
        yield text


async def _drain(pieces: AsyncIterator[bytes]) -> None:
    """Read the end of the body, so that the connection can serve the next call."""
    import httpx2  # noqa: PLC0415 - see _ask

    with contextlib.suppress(TimeoutError, httpx2.RequestError):
        async with asyncio.timeout(_DRAIN_S):
            async for _ in pieces:
                pass


def _address(base_url: str) -> SplitResult:
    text = base_url.strip()
    try:
        address = urlsplit(text)
        usable = address.scheme in {"http", "https"} and bool(address.hostname)
        usable = usable and address.port != 0 and text.isascii() and text.isprintable()
    except ValueError:
        usable = False
    if not usable:
        raise ConfigError(
            "the base URL of a model provider is not an address",
            remedy="write it like https://api.openai.com/v1",
        )
    return address


def _is_loopback(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


def _headers(api_key: str, extra: Mapping[str, str]) -> dict[str, str]:
    """The headers of every request."""
    headers = {
        "accept": "text/event-stream, application/json",
        "accept-encoding": "identity",  # compression holds back the first words
        "content-type": "application/json",
        "user-agent": "strandline",
    }
    if api_key:
        headers["authorization"] = f"Bearer {api_key}"
    headers |= {name.lower(): value for name, value in extra.items()}
    for name, value in headers.items():
        if not (name.isascii() and value.isascii() and value.isprintable()):
            raise ConfigError(
                f"the header {name!a} of a model provider has characters that cannot be sent",
                remedy="look for a line break or a typographic quote in the API key or header",
            )
    return headers


def _require_json(extra_body: Mapping[str, object]) -> None:
    try:
        json.dumps(dict(extra_body), allow_nan=False)
    except (TypeError, ValueError):
        raise ConfigError(
            "the extra body of a model provider is not JSON", remedy="use JSON's own values"
        ) from None


def _retry_after_s(headers: Mapping[str, str], now_ms: int) -> float | None:
    """How long the server asks to wait: in milliseconds, in seconds or until a date."""
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        with contextlib.suppress(KeyError, ValueError):
            wait_s = float(headers[name]) * scale
            if math.isfinite(wait_s):
                return max(wait_s, 0.0)
    with contextlib.suppress(KeyError, ValueError, TypeError, OverflowError):
        until = email.utils.parsedate_to_datetime(headers["retry-after"])
        return max(until.timestamp() - now_ms / 1000, 0.0)
    return None
