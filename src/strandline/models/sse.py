"""The body of a completion, cut into pieces anywhere: server-sent events, or one JSON document.

Pure: bytes go in, the texts of JSON objects come out. `httpx2.EventSource` reads events too,
but refuses a body with another content type and drops a last event that no empty line ends;
servers do both.
"""

from __future__ import annotations

import re

from strandline.models.failures import Failures

MAX_EVENT_BYTES = 8 * 1024 * 1024
"""The longest event and the longest body of one JSON document."""

_DONE = "[DONE]"
_LINE_END = re.compile(rb"\r\n|\n|\r")


class CompletionBody:
    """Feed it the bytes as they come, then `end` it.

    `done` is True once the server said ``[DONE]``, or sent a document; `empty` is True until
    the first text.
    """

    def __init__(self, failures: Failures, limit_bytes: int = MAX_EVENT_BYTES) -> None:
        self.done = False
        self.empty = True
        self._failures = failures
        self._limit_bytes = limit_bytes
        self._events: bool | None = None  # None: nothing but white space came so far
        self._rest = bytearray()
        self._searched = 0
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[str]:
        """The texts that `data` completes. Raises `ModelError` where one is too long."""
        self._rest += data
        if self._events is None:
            self._sniff()
        texts = self._read_lines() if self._events else []
        if len(self._rest) + self._size > self._limit_bytes:
            raise self._failures.refused(
                f"sent more than {self._limit_bytes} bytes without an end",
                "see whether the base URL is that of a model server",
            )
        return texts

    def end(self) -> list[str]:
        """The texts that the end of the body completes."""
        if not self._events:
            self.done = bool(self._rest)
            self.empty = not self._rest
            return [self._rest.decode("utf-8", "replace")] if self.done else []
        last = self._take_line(bytes(self._rest.rstrip(b"\r"))) if self._rest else None
        self._rest.clear()
        return [text for text in (last, self._take_line(b"")) if text is not None]

    def _sniff(self) -> None:
        """A document begins with a brace or bracket; no line of an event stream does."""
        del self._rest[: len(self._rest) - len(self._rest.lstrip(b"\xef\xbb\xbf \t\r\n"))]
        if self._rest:
            self._events = not self._rest.startswith((b"{", b"["))

    def _read_lines(self) -> list[str]:
        texts, start = [], 0
        for match in _LINE_END.finditer(self._rest, self._searched):
            if match.end() == len(self._rest) and match.group() == b"\r":
                break  # a line feed may follow, and they would be one line's end
            if (text := self._take_line(bytes(self._rest[start : match.start()]))) is not None:
                texts.append(text)
            start = match.end()
        del self._rest[:start]
        self._searched = max(len(self._rest) - 1, 0)
        return texts

    def _take_line(self, line: bytes) -> str | None:
        """The event that the line ends, if it is empty and there is one."""
        if not line:
            return self._take_event()
        field, _, value = line.partition(b":")
        # "error" is no field of the standard; old llama.cpp servers write it.
        if field in {b"data", b"error"}:
            self._data.append(value.removeprefix(b" "))
            self._size += len(line)
        return None

    def _take_event(self) -> str | None:
        text = b"\n".join(self._data).decode("utf-8", "replace").strip()
        self._data.clear()
        self._size = 0
        if self.done or not text:
            return None
        self.done = text == _DONE
        self.empty = False
        return None if self.done else text
