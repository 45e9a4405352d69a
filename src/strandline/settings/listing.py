"""What settings there are: every key, its type, its default and one line about it.

Made from the model, so that documentation can be checked against it and error messages can
name what is known at a place.
"""

from __future__ import annotations

import json
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import SecretStr
from pydantic.fields import FieldInfo

from strandline.settings.model import Agents, AgentSettings, Settings
from strandline.settings.parts import Part, Words

_PLAIN = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "true or false",
    SecretStr: "secret text",
}


@dataclass(frozen=True, slots=True)
class SettingKey:
    """One key. `default` is JSON, or ``required``, or ``unset``; `<id>` stands for any name."""

    key: str
    type: str
    default: str
    doc: str


def setting_keys() -> list[SettingKey]:
    """Every key that a settings file may have, in the order of the model."""
    return list(_keys_of(Settings, ""))


def names_at(path: Sequence[str | int]) -> list[str]:
    """The keys that are known in the object at `path`."""
    part = _part_at(path)
    return [] if part is None else [name_of(name, field) for name, field in _fields(part)]


def name_of(attribute: str, field: FieldInfo) -> str:
    """The key of a field in a file."""
    return field.alias or attribute


def _keys_of(part: type[Part], prefix: str) -> Iterator[SettingKey]:
    for attribute, field in _fields(part):
        key = prefix + name_of(attribute, field)
        inner, shape = _inside(field.annotation)
        if inner is None or (issubclass(inner, AgentSettings) and shape):
            yield SettingKey(
                key + shape, _type_of(field), _default_of(field), field.description or ""
            )
        else:
            yield from _keys_of(inner, key + shape + ".")
    if part is Agents:
        doc = "One agent's settings: the keys of agents.defaults."
        yield SettingKey(prefix + "<id>", "object", "unset", doc)


def _fields(part: type[Part]) -> list[tuple[str, FieldInfo]]:
    return list(part.model_fields.items())


def _inside(annotation: Any) -> tuple[type[Part] | None, str]:
    """The part that an annotation holds, and how a key goes on from it to one."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is list:
        return _inside(arguments[0])[0], "[]"
    if origin is dict:
        return _inside(arguments[1])[0], ".<id>"
    if origin in (Union, types.UnionType):
        return _inside(arguments[0])
    if isinstance(annotation, type) and issubclass(annotation, Part):
        return annotation, ""
    return None, ""


def _part_at(path: Sequence[str | int]) -> type[Part] | None:
    part: type[Part] | None = Settings
    steps = iter(path)
    for step in steps:
        if part is None:
            break
        found = [field for name, field in _fields(part) if name_of(name, field) == step]
        if not found:
            part = AgentSettings if part is Agents else None
            continue
        part, shape = _inside(found[0].annotation)
        if shape:
            next(steps, None)  # the index or the name
    return part


def _type_of(field: FieldInfo) -> str:
    words = [one.text for one in field.metadata if isinstance(one, Words)]
    return words[0] if words else _type_words(field.annotation)


def _type_words(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return "one of " + ", ".join(map(str, arguments))
    if origin is list:
        return "list of " + _type_words(arguments[0])
    if origin is dict:
        return _type_words(arguments[1])
    if origin in (Union, types.UnionType):
        return _type_words(arguments[0])
    if origin is Annotated:
        words = [one.text for one in arguments[1:] if isinstance(one, Words)]
        return words[0] if words else _type_words(arguments[0])
    return _PLAIN.get(annotation, "object")


def _default_of(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    if field.default == {}:
        return "unset"
    return "unset" if field.default is None else json.dumps(field.default)
