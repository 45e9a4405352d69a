"""Changing single keys of a JSON5 text; every other byte, comments too, stays as it is.

The text is cut and spliced at the places of its values; nothing is written anew but what is
changed. What comes out is read again and compared with what was asked for, so a text that is
stranger than the splicing knows is refused, never damaged. Source: spec 2, On disk.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyjson5
from json5.loader import ModelLoader, loads
from json5.model import JSONArray, JSONObject
from json5.tokenizer import tokenize
from pydantic import ValidationError

from strandline.errors import ConfigError
from strandline.settings.model import Settings

Path = tuple[str | int, ...]
"""Keys of objects and places in lists; the place after the last one appends."""

BY_HAND = "change it by hand with an editor"
_BOM = "\ufeff"
_STEP = "  "


def edited(text: str, changes: Mapping[Path, Any], removals: Iterable[Path] = ()) -> str:
    """The text with the values of `changes` set and the keys of `removals` gone.

    Objects that lead to a new key are made; a removal of what is not there does nothing. An
    empty text is an empty object. Raises `ConfigError` where that cannot be done safely.
    """
    mark, body = (_BOM, text[1:]) if text.startswith(_BOM) else ("", text)
    body = "{\n}\n" if body.strip() in {"", "{}"} else body
    wanted = _decoded(body)
    for path in sorted(removals, key=_last_place_first):
        _take_away(wanted, path)
        body = _without(body, path)
    for path, value in changes.items():
        _put(wanted, path, value)
        body = _with(body, path, value)
    if _decoded(body) != wanted:
        raise ConfigError("the settings file is too unusual to be changed safely", remedy=BY_HAND)
    return mark + body


def check_loads(text: str, environ: Mapping[str, str], where: str) -> None:
    """Raises `ConfigError` where the text would not load as settings; `where` names its file."""
    try:
        Settings.model_validate(_decoded(text.removeprefix(_BOM)), context={"environ": environ})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        key = ".".join(map(str, first["loc"]))
        raise ConfigError(
            f"{where} would not load with that change, for {key}", remedy="nothing was changed"
        ) from None


# -- the same on what was read -----------------------------------------------------------


def _decoded(text: str) -> Any:
    try:
        return pyjson5.decode(text)
    except pyjson5.Json5DecoderException:
        raise ConfigError("the settings file is not JSON5", remedy="correct it first") from None


def _last_place_first(path: Path) -> tuple[tuple[bool, int | str], ...]:
    """An order in which no removal moves what a later one means."""
    return tuple((isinstance(step, str), -step if isinstance(step, int) else step) for step in path)


def _take_away(data: Any, path: Path) -> None:
    *steps, last = path
    for step in steps:
        data = _at(data, step)
    if _at(data, last) is not _MISSING:
        del data[last]


def _put(data: Any, path: Path, value: Any) -> None:
    *steps, last = path
    for step, following in zip(steps, path[1:], strict=True):
        if _at(data, step) is _MISSING:
            _set(data, step, [] if isinstance(following, int) else {})
        data = data[step]
    _set(data, last, copy.deepcopy(value))


_MISSING = object()


def _at(data: Any, step: str | int) -> Any:
    if isinstance(data, list) and isinstance(step, int):
        return data[step] if step < len(data) else _MISSING
    return data.get(step, _MISSING) if isinstance(data, dict) else _MISSING


def _set(data: Any, step: str | int, value: Any) -> None:
    if isinstance(data, list) and step == len(data):
        data.append(value)
    elif (isinstance(data, dict) and isinstance(step, str)) or _at(data, step) is not _MISSING:
        data[step] = value
    else:
        raise ConfigError(f"the settings file has no object to hold {step!r}", remedy=BY_HAND)


# -- and on the text -----------------------------------------------------------------------


class _Span(NamedTuple):
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class _Holder:
    """An object or a list in the text: its span, and the spans of its items, keys included."""

    span: _Span
    items: Sequence[_Span]


def _with(text: str, path: Path, value: Any) -> str:
    """The text with `value` at `path`."""
    node = _root(text)
    for number, step in enumerate(path):
        found = _child(node, step)
        if found is None:
            return _inserted(text, _holder(node), path[number:], value)
        node = found[1]
    span = _span(node)
    return text[: span.start] + _written(text, value, _indent(text, span.start)) + text[span.end :]


def _without(text: str, path: Path) -> str:
    """The text without what is at `path`, as often as it stands there."""
    while True:
        holder = _root(text)
        for step in path[:-1]:
            found = _child(holder, step)
            if found is None:
                return text
            holder = found[1]
        last = _child(holder, path[-1])
        if last is None:
            return text
        text = _cut(text, _holder(holder), last[0])
        if isinstance(path[-1], int):
            return text


def _inserted(text: str, holder: _Holder, steps: Path, value: Any) -> str:
    """The text with one more item at the end of `holder`."""
    for step in reversed(steps[1:]):
        value = [value] if isinstance(step, int) else {step: value}
    begin = holder.items[-1].end if holder.items else holder.span.start + 1
    comma, line = _gap(text, begin, holder.span.end - 1, last=not holder.items)
    on_lines = line is not None
    first = holder.items[0].start if holder.items else holder.span.start
    indent = _indent(text, first)
    if "\n" not in text[holder.span.start : first]:
        indent += _STEP
    key = "" if isinstance(steps[0], int) else json.dumps(steps[0], ensure_ascii=False) + ": "
    item = key + _written(text, value, indent if on_lines else None)
    at = begin if line is None else line
    if comma is not None:
        at, item = max(at, comma + 1), item + ","
    lead = _line_end(text) + indent if on_lines else " " * bool(holder.items)
    text = text[:at] + lead + item + text[at:]
    if holder.items and comma is None:
        text = text[:begin] + "," + text[begin:]
    return text


def _cut(text: str, holder: _Holder, item: _Span) -> str:
    """The text without one item and the comma that goes with it."""
    index = holder.items.index(item)
    following = holder.items[index + 1 : index + 2]
    comma, _ = _gap(text, item.end, following[0].start if following else holder.span.end - 1)
    if comma is None and index:
        comma, _ = _gap(text, holder.items[index - 1].end, item.start)
    spans = [item] if comma is None else [item, _Span(comma, comma + 1)]
    for span in sorted(spans, reverse=True):
        text = text[: span.start] + text[span.end :]
    return _without_blank_line(text, item.start - (comma is not None and comma < item.start))


def _without_blank_line(text: str, at: int) -> str:
    """Take away the line at `at` if only white space is left on it."""
    start = text.rfind("\n", 0, at) + 1
    end = text.find("\n", at)
    if start == 0 or end < 0 or text[start:end].strip():
        return text
    return text[:start] + text[end + 1 :]


def _gap(text: str, start: int, end: int, *, last: bool = False) -> tuple[int | None, int | None]:
    """Between two items: where the comma is, and where the first (or last) line ends."""
    comma = line = None
    for token in tokenize(text[start:end]):
        if token.type == "COMMA":
            comma = start + token.index
        elif token.type == "WHITESPACE" and "\n" in token.value and (last or line is None):
            line = start + token.index + token.value.index("\n")
            line -= text[line - 1] == "\r"
    return comma, line


def _written(text: str, value: Any, indent: str | None) -> str:
    """The JSON of a value, in lines like those of `text` where `indent` says how far in."""
    if indent is None:
        return json.dumps(value, ensure_ascii=False)
    lines = json.dumps(value, ensure_ascii=False, indent=len(_STEP))
    return lines.replace("\n", _line_end(text) + indent)


def _indent(text: str, at: int) -> str:
    """The white space at the beginning of the line."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _line_end(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


# -- where things stand ----------------------------------------------------------------------


def _root(text: str) -> Any:
    try:
        return loads(text, loader=ModelLoader()).value
    except Exception:  # noqa: BLE001 - its own syntax errors, and limits of its own
        raise ConfigError(
            "the settings file is too unusual to be changed safely", remedy=BY_HAND
        ) from None


def _child(node: Any, step: str | int) -> tuple[_Span, Any] | None:
    """The span of an item with its key, and its value; of a key that stands twice, the last."""
    if isinstance(node, JSONArray) and isinstance(step, int):
        return (_span(node.values[step]), node.values[step]) if step < len(node.values) else None
    if isinstance(node, JSONObject):
        for key, value in reversed(node.key_value_pairs):
            name = getattr(key, "name", None) or getattr(key, "characters", None) or ""
            if name == step:
                return _Span(_span(key).start, _span(value).end), value
    return None


def _holder(node: Any) -> _Holder:
    if isinstance(node, JSONArray):
        return _Holder(_span(node), [_span(value) for value in node.values])
    if isinstance(node, JSONObject):
        pairs = [_Span(_span(key).start, _span(value).end) for key, value in node.key_value_pairs]
        return _Holder(_span(node), pairs)
    raise ConfigError("the settings file has a value where an object belongs", remedy=BY_HAND)


def _span(node: Any) -> _Span:
    """From the first character of a node to behind its last."""
    first, last = node._tok, node._end_tok  # noqa: SLF001 - the places have no other door
    return _Span(first.index, (last or first).end)
