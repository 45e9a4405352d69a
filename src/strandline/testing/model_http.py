"""The HTTP side of the scripted model server: reads requests, sends what it is told to.

It knows how an answer is streamed, delayed and broken off, and nothing of what it says.
"""

from __future__ import annotations

import itertools
import json
import socket
import sys
from collections.abc import Iterable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event as Flag
from typing import Any, Protocol

from strandline.testing import chat_wire, gemini_contents, gemini_wire
from strandline.testing.reply import Reply
from strandline.testing.wire import Envelope, Event, Problem, RecordedRequest, Wire
from strandline.testing.wires import find_wire, is_streamed
from strandline.transcript.messages import JsonObject


class Answering(Protocol):
    """Who decides what is answered (`strandline.testing.model_server`)."""

    closing: Flag
    models: Sequence[str]

    def answer(self, request: RecordedRequest) -> tuple[Reply, Envelope]:
        """The answer to a request; what it raises becomes a 500."""
        ...

    def keep_content(self, request: RecordedRequest) -> JsonObject | Problem:
        """The answer to a request to keep a content for later ones."""
        ...

    def list_contents(self, path: str) -> JsonObject:
        """The answer to a request for a page of the list of what is kept."""
        ...

    def failed(self, error: BaseException) -> None:
        """Something was raised."""
        ...

    def client_left(self) -> None:
        """The rest of an answer could not be sent."""
        ...


class ModelHttpServer(ThreadingHTTPServer):
    """A thread for each connection; all of them are waited for when it is closed."""

    daemon_threads = False
    request_queue_size = 128

    def __init__(self, owner: Answering) -> None:
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
    server: ModelHttpServer

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name
        """Say nothing: `requests` is the log."""

    def do_GET(self) -> None:
        if self.path == "/v1/models":
            self._send_json(200, chat_wire.model_list(self.server.owner.models))
        elif gemini_contents.PATH.match(self.path):
            self._send_json(200, self.server.owner.list_contents(self.path))
        else:
            self._send_json(404, chat_wire.error_body(Problem(404), 0))

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        wire = find_wire(self.path)
        to_keep = gemini_contents.PATH.match(self.path) is not None
        if wire is None and not to_keep:
            self._send_json(404, chat_wire.error_body(Problem(404), 0))
            return
        wire = wire or gemini_wire
        try:
            body = json.loads(raw)
        except ValueError:
            body = None
        if not isinstance(body, dict) or not (to_keep or wire.is_request(body)):
            message = f"the body is not a JSON object with {wire.ASKED!r}"
            self._send_json(400, wire.error_body(Problem(400, message), 0))
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = RecordedRequest(self.path, headers, body)
        try:
            if to_keep:
                self._keep(wire, request)
            else:
                self._answer(wire, request)
        except ConnectionError:
            self.close_connection = True
            self.server.owner.client_left()

    def _keep(self, wire: Wire, request: RecordedRequest) -> None:
        answer = self.server.owner.keep_content(request)
        if isinstance(answer, Problem):
            self._send_json(answer.status, wire.error_body(answer, 0))
        else:
            self._send_json(200, answer)

    def _answer(self, wire: Wire, request: RecordedRequest) -> None:
        try:
            reply, envelope = self.server.owner.answer(request)
        except Exception as error:  # noqa: BLE001 - a script is anybody's code
            self.server.owner.failed(error)
            self._send_json(500, wire.error_body(Problem(500, "the script failed"), 0))
            return
        streamed = is_streamed(request)
        if reply.status != 200 and not (streamed and reply.error_after is not None):
            self._send_error(wire, reply, envelope)
        elif streamed:
            self._stream(reply, _events(wire, reply, envelope), wire.headers(envelope.number, None))
        else:
            body = json.dumps(wire.whole(reply, envelope)).encode()
            self._send_whole(reply, body, wire.headers(envelope.number, None))

    def _send_error(self, wire: Wire, reply: Reply, envelope: Envelope) -> None:
        headers = wire.headers(envelope.number, reply.retry_after_s)
        self._send_json(reply.status, _error(wire, reply, envelope), headers)

    def _send_whole(self, reply: Reply, body: bytes, headers: Mapping[str, str]) -> None:
        if reply.stall_after is not None:
            self._pause(reply.stall_s)
        if reply.disconnect_after == 0:
            self.close_connection = True
            return
        if reply.truncate_after is not None:
            body = body[: len(body) // 2]
        length = {"Content-Type": "application/json", "Content-Length": str(len(body))}
        self._send_head(200, {**length, **headers})
        if reply.disconnect_after is not None:
            self.close_connection = True
            body = body[: len(body) // 2]
        self.wfile.write(body)

    def _stream(self, reply: Reply, events: Iterable[Event], headers: Mapping[str, str]) -> None:
        for number, event in enumerate(events):
            self._pause(reply.delay_s if number else 0)
            if number == reply.stall_after:
                self._pause(reply.stall_s)
            if number == reply.disconnect_after:
                self.close_connection = True
                return
            if number == 0:
                kind = {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"}
                self._send_head(200, {**kind, **headers})
            if number == reply.truncate_after:
                self._send_event(event._replace(data=event.data[: len(event.data) // 2]))
                break
            self._send_event(event)
        self.wfile.write(b"0\r\n\r\n")

    def _send_event(self, event: Event) -> None:
        named = f"event: {event.name}\n" if event.name else ""
        data = f"{named}data: {event.data}\n\n".encode()
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

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


def _error(wire: Wire, reply: Reply, envelope: Envelope) -> JsonObject:
    problem = Problem(reply.status, retry_after_s=reply.retry_after_s)
    return reply.error or wire.error_body(problem, envelope.number)


def _events(wire: Wire, reply: Reply, envelope: Envelope) -> Iterable[Event]:
    """The events of an answer, up to the error if there is one."""
    sent = itertools.islice(wire.events(reply, envelope), reply.error_after)
    position = -1
    for position, event in enumerate(sent):  # noqa: B007 - the last is used below
        yield event
    if reply.error_after is not None:
        yield wire.error_event(_error(wire, reply, envelope), envelope, position + 1)
