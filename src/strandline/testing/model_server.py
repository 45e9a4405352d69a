"""A model server on the loopback interface that answers as a script says.

`ScriptedModelServer` speaks OpenAI's Chat Completions, streamed or not, over real HTTP; it
counts tokens and remembers prompts, so that its cache counters and its overflow errors are
the consequences of what it was sent. It can be slow, refuse, break off and lie half way.
Source: spec 3 (cache, overflow) and spec 4 (models), seen from the other side.
"""

from __future__ import annotations

import json
import math
import socket
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from types import TracebackType
from typing import Any, Self

from strandline.testing import chat_wire
from strandline.testing.chat_wire import Envelope, OverflowStyle, Reply
from strandline.testing.prompt_cache import PromptCache
from strandline.transcript.messages import JsonObject


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """A call of the server: the path, the headers (names in lower case), the parsed body."""

    path: str
    headers: dict[str, str]
    body: JsonObject


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

    `script`: see `Script`; after the last reply of a list, and without one, the server says
    how many characters it heard. `context_window` in tokens (None: no limit) and `overflow`,
    the words for a prompt above it; such a request takes nothing from the script.
    `count` counts the tokens of a text, times `token_factor`. All of these are attributes that
    a test may change between requests. `models` are the ids that it lists; it answers to any.

    `requests` has every call of ``/v1/chat/completions`` in the order of arrival,
    `hung_up` counts clients that left before the end of an answer, `failures` has what the
    script raised.
    """

    def __init__(
        self,
        script: Script = (),
        *,
        context_window: int | None = None,
        overflow: OverflowStyle = "openai",
        count: Callable[[str], int] = chars_over_four,
        token_factor: float = 1.0,
        models: Sequence[str] = ("scripted",),
    ) -> None:
        self.script = script
        self.context_window = context_window
        self.overflow: OverflowStyle = overflow
        self.count = count
        self.token_factor = token_factor
        self.models = models
        self.requests: list[RecordedRequest] = []
        self.hung_up = 0
        self.failures: list[BaseException] = []
        self.closing = Event()
        self._lock = Lock()
        self._step = 0
        self._cache = PromptCache()
        self._http = _HttpServer(self)
        self._thread = Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def base_url(self) -> str:
        """Where clients connect: ``http://127.0.0.1:PORT/v1``."""
        return f"http://127.0.0.1:{self._http.server_port}/v1"

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
        without a socket.
        """
        with self._lock:
            self.requests.append(request)
            number = len(self.requests)
        model = str(request.body.get("model", ""))
        prompt = chat_wire.prompt_text(request.body)
        prompt_tokens = self.tokens(prompt)
        refusal = self._overflow_refusal(prompt_tokens)
        reply = refusal or self._scripted(request)
        answered = refusal is None and reply.status == 200
        cached = self._cached_tokens(model, prompt) if answered else 0
        usage = chat_wire.usage_object(prompt_tokens, cached, self.tokens(reply.output))
        return reply, Envelope(f"chatcmpl-{number:08d}", model, usage)

    def tokens(self, text: str) -> int:
        """The tokens of a text as this server counts them."""
        # Rounded first: 1.1 * 10 is a little more than 11.
        return math.ceil(round(self.count(text) * self.token_factor, 6))

    def _overflow_refusal(self, prompt_tokens: int) -> Reply | None:
        if self.context_window is None or prompt_tokens <= self.context_window:
            return None
        return chat_wire.overflow_reply(self.overflow, prompt_tokens, self.context_window)

    def _cached_tokens(self, model: str, prompt: str) -> int:
        with self._lock:
            known = self._cache.common_prefix(model, prompt)
            self._cache.remember(model, prompt)
        return self._cache.credited(self.tokens(known))

    def _scripted(self, request: RecordedRequest) -> Reply:
        if callable(self.script):
            return self.script(request)
        with self._lock:
            step, self._step = self._step, self._step + 1
        if step < len(self.script):
            return self.script[step]
        heard = len(chat_wire.last_user_text(request.body))
        return Reply(f"I heard {heard} characters.")

    def failed(self, error: BaseException) -> None:
        """A handler's error: kept, to be raised where the server is closed."""
        with self._lock:
            self.failures.append(error)

    def client_left(self) -> None:
        """A handler could not send the rest of an answer."""
        with self._lock:
            self.hung_up += not self.closing.is_set()


class _HttpServer(ThreadingHTTPServer):
    """A thread for each connection; all of them are waited for when it is closed."""

    daemon_threads = False
    request_queue_size = 128

    def __init__(self, owner: ScriptedModelServer) -> None:
        self.owner = owner
        self._connections: set[socket.socket] = set()
        super().__init__(("127.0.0.1", 0), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._connections.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        """Wake every thread that waits for its client."""
        for connection in list(self._connections):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # it went by itself in this moment

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - inherited
        error = sys.exception()
        if error is not None and not isinstance(error, ConnectionError):
            self.owner.failed(error)


class _Handler(BaseHTTPRequestHandler):
    """Reads requests of one connection and sends what the server decides."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _HttpServer

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name
        """Say nothing: `requests` is the log."""

    def do_GET(self) -> None:
        if self.path == "/v1/models":
            self._send_json(200, chat_wire.model_list(self.server.owner.models))
        else:
            self._send_json(404, chat_wire.error_object(404))

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path != "/v1/chat/completions":
            self._send_json(404, chat_wire.error_object(404))
            return
        try:
            body = json.loads(raw)
        except ValueError:
            body = None
        if not isinstance(body, dict) or not isinstance(body.get("messages"), list):
            message = "the body is not a JSON object with a list of messages"
            self._send_json(400, chat_wire.error_object(400, message))
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        try:
            self._answer(RecordedRequest(self.path, headers, body))
        except ConnectionError:
            self.close_connection = True
            self.server.owner.client_left()

    def _answer(self, request: RecordedRequest) -> None:
        try:
            reply, envelope = self.server.owner.answer(request)
        except Exception as error:  # noqa: BLE001 - a script is anybody's code
            self.server.owner.failed(error)
            self._send_json(500, chat_wire.error_object(500, "the script failed"))
            return
        if reply.status != 200:
            self._send_error(reply)
        elif request.body.get("stream"):
            options = request.body.get("stream_options") or {}
            wanted = bool(options.get("include_usage"))
            self._stream(reply, chat_wire.stream_payloads(reply, envelope, include_usage=wanted))
        else:
            self._send_whole(reply, json.dumps(chat_wire.completion(reply, envelope)).encode())

    def _send_error(self, reply: Reply) -> None:
        wait_s = reply.retry_after_s
        headers = {} if wait_s is None else {"Retry-After": f"{wait_s:g}"}
        error = reply.error or chat_wire.error_object(reply.status)
        self._send_json(reply.status, error, headers)

    def _send_whole(self, reply: Reply, body: bytes) -> None:
        if reply.stall_after is not None:
            self._pause(reply.stall_s)
        if reply.disconnect_after == 0:
            self.close_connection = True
            return
        if reply.truncate_after is not None:
            body = body[: len(body) // 2]
        self._send_head(200, {"Content-Type": "application/json", "Content-Length": str(len(body))})
        if reply.disconnect_after is not None:
            self.close_connection = True
            body = body[: len(body) // 2]
        self.wfile.write(body)

    def _stream(self, reply: Reply, payloads: Iterable[str]) -> None:
        for number, payload in enumerate(payloads):
            self._pause(reply.delay_s if number else 0)
            if number == reply.stall_after:
                self._pause(reply.stall_s)
            if number == reply.disconnect_after:
                self.close_connection = True
                return
            if number == 0:
                kind = {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"}
                self._send_head(200, kind)
            if number == reply.truncate_after:
                self._send_event(payload[: len(payload) // 2])
                break
            self._send_event(payload)
        self.wfile.write(b"0\r\n\r\n")

    def _send_event(self, payload: str) -> None:
        event = f"data: {payload}\n\n".encode()
        self.wfile.write(f"{len(event):x}\r\n".encode() + event + b"\r\n")

    def _send_json(
        self, status: int, body: JsonObject, headers: Mapping[str, str] | None = None
    ) -> None:
        data = json.dumps(body).encode()
        length = {"Content-Type": "application/json", "Content-Length": str(len(data))}
        self._send_head(status, {**length, **(headers or {})})
        self.wfile.write(data)

    def _send_head(self, status: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _pause(self, seconds: float) -> None:
        if seconds and self.server.owner.closing.wait(seconds):
            raise ConnectionAbortedError("the server is closing")
