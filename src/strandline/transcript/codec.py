"""Lines to values and back, losing nothing.

The standard `json` reads and writes what Node wrote: lone surrogates and integers of any
size included. `msgspec` reads the head of a well-behaved line twenty times as fast; any
line that it refuses goes to `json` before it is called malformed. Source: spec 1, File
and Damage; the measurements are in docs/adr/0003-line-bytes-are-the-truth.md.
"""

from __future__ import annotations

import json
import re
import threading
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import UNSET

from strandline.errors import InvalidEntry
from strandline.transcript.entries import Head, MessageHead
from strandline.transcript.messages import JsonObject

BOM = b"\xef\xbb\xbf"
PADDING = b" \t\r\x00"
"""What may surround the object on a line: white space, and the NULs that a power cut leaves."""

_head_decoder = msgspec.json.Decoder(Head)
_fast_decoder = msgspec.json.Decoder()
_HEAD_TEXTS = (
    "timestamp",
    "append_mode",
    "first_kept_entry_id",
    "thinking_level",
    "provider",
    "model_id",
    "name",
    "label",
)


class MalformedLine(ValueError):
    """A line that holds no JSON object; the text says why, for a person."""


def decode_head(line: bytes) -> Head:
    """The head of a line. Raises `MalformedLine`."""
    try:
        head = _head_decoder.decode(line)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return _head_of(_decode_slowly(line))
    return head if head.id != "" else msgspec.structs.replace(head, id=None)


def decode_object(line: bytes) -> JsonObject:
    """All keys of a line. Raises `MalformedLine`."""
    try:
        value = _fast_decoder.decode(line)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return _decode_slowly(line)
    if not isinstance(value, dict):
        raise MalformedLine(f"a JSON {_json_type(value)}, not an object")
    return value


def encode_object(value: JsonObject) -> bytes:
    """The line for an object, as Node would write it, without the line end.

    Raises `InvalidEntry` for what JSON cannot carry (NaN, bytes, dates, sets), before
    anything is written.
    """
    try:
        text = _encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidEntry(
            f"this entry cannot be written as JSON ({error})",
            remedy="use text, finite numbers, true, false, null, lists and objects only",
        ) from error
    try:
        return text.encode()
    except UnicodeEncodeError:
        return _SURROGATE.sub(lambda half: f"\\u{ord(half[0]):04x}", text).encode()


_SURROGATE = re.compile("[\ud800-\udfff]")
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


def _refuse_constant(name: str) -> Any:
    raise MalformedLine(f"{name} is not JSON")


def _read_int(digits: str) -> int | float:
    try:
        return int(digits)
    except ValueError:  # longer than Python converts; Node reads it as a number all the same
        return float(digits)


_decoder = json.JSONDecoder(parse_constant=_refuse_constant, parse_int=_read_int)


def _decode_slowly(line: bytes) -> JsonObject:
    try:
        value = _decoder.decode(line.decode("utf-8", "replace"))
    except MalformedLine:
        raise
    except json.JSONDecodeError as error:
        raise MalformedLine(f"not JSON: {error.msg} (character {error.pos + 1})") from error
    except RecursionError:
        value = _decode_on_fresh_stack(line)
    if not isinstance(value, dict):
        raise MalformedLine(f"a JSON {_json_type(value)}, not an object")
    return value


def _decode_on_fresh_stack(line: bytes) -> Any:
    """Decode deep nesting, so that how deep may be does not depend on who asks from where."""
    outcome: list[Any] = []

    def decode() -> None:
        with suppress(ValueError, RecursionError):
            outcome.append(_decoder.decode(line.decode("utf-8", "replace")))

    thread = threading.Thread(target=decode)
    thread.start()
    thread.join()
    if not outcome:
        raise MalformedLine("JSON nested deeper than can be read")
    return outcome[0]


def _json_type(value: object) -> str:
    names = {list: "array", str: "string", bool: "boolean", type(None): "null"}
    return names.get(type(value), "number")


def _head_of(data: JsonObject) -> Head:
    """A head from a line of odd shape: what has the wrong type counts as absent."""
    kind = data.get("type")
    if not isinstance(kind, str):
        raise MalformedLine("an object without a type")
    values: dict[str, Any] = {"type": kind}
    entry_id = data.get("id")
    values["id"] = entry_id if isinstance(entry_id, str) and entry_id else None
    for name in ("parent_id", "target_id", "append_parent_id"):
        value = data.get(_camel(name), UNSET)
        values[name] = value if value is None or isinstance(value, str) else UNSET
    for name in _HEAD_TEXTS:
        value = data.get(_camel(name))
        values[name] = value if isinstance(value, str) else None
    message = data.get("message")
    if isinstance(message, dict):
        parts = (message.get(key) for key in ("role", "provider", "model"))
        values["message"] = MessageHead(*(p if isinstance(p, str) else None for p in parts))
    return Head(**values)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
