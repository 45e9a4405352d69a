"""A view as the value of the context cache: told relative to the clean path it was made of.

What is in the view as it is on the path is a range of places; only what was changed or added
is there in full. Reading trusts nothing: a value that is damaged, was made for another key,
does not fit the path or is not of this age window is as good as none. Source: spec 3, Caches.

A value is a line with the format's name and the checksum of what follows, then one JSON
object: ``key``, ``from`` and ``until`` (Unix ms), ``places`` (how many the path has),
``decisions`` (each one once), ``shown``, ``left_first`` (lengths of the pieces that cleaning
left out) and ``left``. In the last lists a range of the path is an array, any other message an
object.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, TypeVar, get_args

from strandline.context.cache import LARGEST_VALUE_BYTES, Digest
from strandline.context.clean_path import Clean
from strandline.context.prune.compose import Omitted
from strandline.context.view import Decision, LeftOut, Outcome, View, ViewMessage
from strandline.transcript.messages import JsonObject

FORMAT = b"strandline-view-1 "
"""Changes with the format: values of another one are not read."""

_OUTCOMES = frozenset(get_args(Outcome))
_ROLES = frozenset({"user", "assistant", "toolResult"})
_CHECKSUM_CHARS = 64

MOST_MS = 1e18
"""No time is later; comparing leaves out what is no number as well."""

Checked = TypeVar("Checked")


def encode(
    view: View, clean: Clean, key: Digest, *, from_ms: int, until_ms: float | None
) -> bytes | None:
    """The value of a view that holds from `from_ms` until before `until_ms` (None: for ever).

    None where it would be too large, or holds what JSON cannot give back as it was.
    """
    writer = _Writer(clean)
    first, rest = writer.pieces(view.left_out)
    document = {
        "key": key,
        "from": from_ms,
        "until": None if until_ms is None or math.isinf(until_ms) else until_ms,
        "places": len(clean.messages),
        "shown": writer.items(view.messages),
        "left_first": first,
        "left": [item for piece in rest for item in writer.items(piece)],
        "decisions": [[why.outcome, why.step, why.rule, why.reason] for why in writer.decisions],
    }
    try:
        text = json.dumps(document, separators=(",", ":"), allow_nan=False)
        is_same = json.loads(text) == document
    except (TypeError, ValueError, RecursionError):
        return None
    body = text.encode()
    value = FORMAT + _checksum(body) + b"\n" + body
    return value if is_same and len(value) <= LARGEST_VALUE_BYTES else None


def decode(value: bytes, clean: Clean, key: Digest, now_ms: int) -> View | None:
    """The view that was put under `key` for this path; None for a value that does not fit."""
    try:
        return _Reader(_document(value), clean).view(key, now_ms)
    except _Unfit:
        return None


class _Unfit(Exception):
    """The value is none for this key, path and time."""


def _checksum(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode()


def _document(value: bytes) -> JsonObject:
    start = len(FORMAT) + _CHECKSUM_CHARS
    body = value[start + 1 :]
    _require(len(value) <= LARGEST_VALUE_BYTES)
    _require(value[: start + 1] == FORMAT + _checksum(body) + b"\n")
    try:
        return _of(dict, json.loads(body))
    except (ValueError, RecursionError) as error:
        raise _Unfit from error


# -- writing --------------------------------------------------------------------------------


@dataclass(slots=True)
class _Run:
    """The messages of the path from `start` to before `stop`, with `noted` added to each."""

    start: int
    stop: int
    noted: tuple[Decision, ...]


class _Writer:
    """Tells messages by their places. `decisions` are those that were told, by number."""

    def __init__(self, clean: Clean) -> None:
        self._clean = clean
        self.decisions: dict[Decision, int] = {}

    def pieces(self, left_out: LeftOut) -> tuple[list[int], Sequence[Sequence[ViewMessage]]]:
        """The lengths of the pieces that cleaning left out already, and the other pieces."""
        ours, before = left_out.pieces, self._clean.left_out.pieces
        if len(ours) >= len(before) and all(map(_is, ours, before)):
            return [len(piece) for piece in before], ours[len(before) :]
        return [], ours

    def items(self, messages: Sequence[ViewMessage]) -> list[Any]:
        """Each message, those that follow each other on the path together."""
        omitted = self._omitted(messages)
        every = self._told(messages) if omitted is None else [omitted]
        return [self._range(told) if isinstance(told, _Run) else told for told in every]

    def _omitted(self, piece: Sequence[ViewMessage]) -> _Run | None:
        """What pruning left out in one range, told by its ends: it may be most of a long path."""
        if not isinstance(piece, Omitted):
            return None
        messages, first, last = self._clean.messages, piece[0], piece[-1]
        start = self._place(first, 0)
        stop = 0 if start is None else start + len(piece)
        if start is None or stop > len(messages):
            return None
        # Its places rise, so that it has no gap when its ends are so far apart.
        is_range = _is_of(messages[stop - 1], last)
        noted = _noted(messages[start], first)
        return _Run(start, stop, noted) if is_range and noted is not None else None

    def _told(self, messages: Iterable[ViewMessage]) -> Iterator[_Run | JsonObject]:
        run: _Run | None = None
        following = 0
        for said in messages:
            place = self._place(said, following)
            following = following if place is None else place + 1
            noted = None if place is None else _noted(self._clean.messages[place], said)
            if run and run.stop == place and run.noted == noted:
                run.stop += 1
                continue
            if run:
                yield run
            run = None if place is None or noted is None else _Run(place, place + 1, noted)
            if run is None:
                yield self._whole(place, said)
        if run:
            yield run

    def _place(self, said: ViewMessage, following: int) -> int | None:
        """Where on the path the message is; those without an entry only where it goes on."""
        messages = self._clean.messages
        if following < len(messages) and _is_of(messages[following], said):
            return following
        return None if said.entry_id is None else self._clean.place_of.get(said.entry_id)

    def _range(self, run: _Run) -> list[Any]:
        clean = self._clean
        first, last = clean.messages[run.start], clean.messages[run.stop - 1]
        tokens = clean.tokens_to[run.stop] - clean.tokens_to[run.start]
        noted = self._numbers(run.noted)
        return [run.start, run.stop, first.entry_id, last.entry_id, tokens, noted]

    def _whole(self, place: int | None, said: ViewMessage) -> JsonObject:
        return {
            "at": place,
            "id": said.entry_id,
            "ms": said.said_ms,
            "tokens": said.tokens,
            "decisions": self._numbers(said.decisions),
            "message": said.message,
        }

    def _numbers(self, decisions: Iterable[Decision]) -> list[int]:
        return [self.decisions.setdefault(why, len(self.decisions)) for why in decisions]


def _is(one: object, other: object) -> bool:
    return one is other


def _is_of(base: ViewMessage, said: ViewMessage) -> bool:
    """Whether `said` is what stands there, with or without more decisions."""
    return base.message is said.message and base.entry_id == said.entry_id


def _noted(base: ViewMessage, said: ViewMessage) -> tuple[Decision, ...] | None:
    """The decisions that `said` has more than `base`; None where more than that differs."""
    if said is base:
        return ()
    known = len(base.decisions)
    if replace(said, decisions=said.decisions[:known]) != base or said.said_ms != base.said_ms:
        return None
    return said.decisions[known:]


# -- reading --------------------------------------------------------------------------------


def _require(fits: bool) -> None:  # noqa: FBT001 - the condition is all it takes
    if not fits:
        raise _Unfit


def _of(kind: type[Checked], value: Any) -> Checked:
    """The value, which must be of exactly this type."""
    _require(type(value) is kind)
    return value  # type: ignore[no-any-return]  # just checked


def _number(value: Any) -> float:
    _require(type(value) in {int, float} and abs(value) < MOST_MS)
    return value  # type: ignore[no-any-return]  # just checked


def _or_none(check: Callable[[Any], Checked], value: Any) -> Checked | None:
    return None if value is None else check(value)


class _Reader:
    """Makes a view of a document. Raises `_Unfit` at the first thing that is not as it was."""

    def __init__(self, document: JsonObject, clean: Clean) -> None:
        self._document = document
        self._clean = clean
        self._decisions = [_decision(told) for told in self._list("decisions")]

    def view(self, key: Digest, now_ms: int) -> View:
        """The view, if it is the one for `key` at `now_ms`."""
        get, clean = self._document.get, self._clean
        _require(get("key") == key and get("places") == len(clean.messages))
        until = _or_none(_number, get("until"))
        _require(_number(get("from")) <= now_ms and (until is None or now_ms < until))
        first = clean.left_out.pieces if self._list("left_first") else ()
        _require(self._list("left_first") == [len(piece) for piece in first])
        shown = tuple(said for piece in self._pieces("shown") for said in piece)
        return View(shown, LeftOut([*first, *self._pieces("left")]))

    def _list(self, name: str) -> list[Any]:
        return _of(list, self._document.get(name))

    def _pieces(self, name: str) -> Iterator[Sequence[ViewMessage]]:
        for is_range, items in groupby(self._list(name), lambda item: type(item) is list):
            if is_range:
                yield from map(self._range, items)
            else:
                yield tuple(map(self._whole, items))

    def _range(self, item: list[Any]) -> Sequence[ViewMessage]:
        clean = self._clean
        _require(len(item) == 6)
        start, stop, first, last, tokens, noted = item
        _require(0 <= _of(int, start) < _of(int, stop) <= len(clean.messages))
        _require(clean.messages[start].entry_id == first)
        _require(clean.messages[stop - 1].entry_id == last)
        _require(clean.tokens_to[stop] - clean.tokens_to[start] == tokens)
        why = self._decided(noted)
        if len(why) == 1:
            return Omitted(clean, range(start, stop), why[0])
        messages = clean.messages[start:stop]
        return tuple(
            replace(said, decisions=(*said.decisions, *why)) if why else said for said in messages
        )

    def _whole(self, item: Any) -> ViewMessage:
        told = _of(dict, item)
        message = _message(told.get("message"))
        place = _or_none(lambda value: _of(int, value), told.get("at"))
        entry_id = _or_none(lambda value: _of(str, value), told.get("id"))
        if place is not None:
            _require(0 <= place < len(self._clean.messages))
            _require(self._clean.messages[place].entry_id == entry_id)
        tokens = _of(int, told.get("tokens"))
        _require(tokens >= 0)
        said_ms = _or_none(_number, told.get("ms"))
        return ViewMessage(entry_id, message, tokens, self._decided(told.get("decisions")), said_ms)

    def _decided(self, numbers: Any) -> tuple[Decision, ...]:
        known = range(len(self._decisions))
        _require(all(type(number) is int and number in known for number in _of(list, numbers)))
        return tuple(self._decisions[number] for number in numbers)


def _decision(told: Any) -> Decision:
    _require(len(_of(list, told)) == 4 and all(type(text) is str for text in told))
    _require(told[0] in _OUTCOMES)
    return Decision(*told)


def _message(told: Any) -> JsonObject:
    """A message that a model can be sent: a role that models know, and text or blocks."""
    message: JsonObject = _of(dict, told)
    role, content = message.get("role"), message.get("content")
    _require(type(role) is str and role in _ROLES)
    is_blocks = type(content) is list and all(
        type(block) is dict and type(block.get("type")) is str for block in content
    )
    _require(is_blocks or type(content) is str)
    return message
