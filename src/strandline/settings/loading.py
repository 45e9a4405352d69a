"""Reading the settings of a state directory.

``strandline.json`` is ours and read strictly: a key that does not exist is an error. An
``openclaw.json`` in its place is another program's, which knows keys that we do not: those
are warnings. A message says where (file, line, column), which key and what was expected,
and never what stood there, because that may be a secret. Source: spec 2, On disk.
"""

from __future__ import annotations

import copy
import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyjson5
from pydantic import ValidationError

from strandline.errors import ConfigError
from strandline.settings.checks import KeyPath, doubtful, impossible
from strandline.settings.listing import names_at
from strandline.settings.model import Settings
from strandline.settings.places import OPENCLAW_FILE, settings_file

_OPENCLAW_DEFAULTS = {"contextWindow": 200_000, "maxTokens": 8_192}
"""What OpenClaw takes for a model that does not tell its limits."""

MOST_BYTES = 4 * 1024 * 1024
"""A larger file, or what never ends, is no settings file."""

_BARE = {"context", "contextPruning", "cacheRetention"}
_DEFAULTS = ("agents", "defaults")

_EXPECTED = {
    "string_type": "expected text",
    "string_too_short": "expected text that is not empty",
    "string_pattern_mismatch": "expected provider/model",
    "int_type": "expected a whole number",
    "int_from_float": "expected a whole number",
    "float_type": "expected a number",
    "finite_number": "expected a number",
    "bool_type": "expected true or false",
    "literal_error": "expected {expected}",
    "greater_than_equal": "expected a number of at least {ge}",
    "greater_than": "expected a number above {gt}",
    "less_than_equal": "expected a number of at most {le}",
    "too_long": "expected at most {max_length} items",
    "model_type": "expected an object",
    "dict_type": "expected an object",
    "list_type": "expected a list",
    "value_error": "{error}",
}


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """Settings, the file that they came from (None: defaults alone), and what to mention."""

    settings: Settings
    path: Path | None
    warnings: tuple[str, ...] = ()


class _Problem(NamedTuple):
    """`path` leads to it; `is_unknown` for a key that does not exist."""

    path: KeyPath
    said: str
    remedy: str
    is_unknown: bool = False
    is_missing: bool = False


@dataclass(frozen=True, slots=True)
class _Source:
    """A file that was read; its text is what stands below `under`."""

    path: Path
    text: str
    under: tuple[str, ...] = ()

    def written(self, path: KeyPath) -> KeyPath:
        """A path as it leads through the text."""
        return path[len(self.under) :]

    def key(self, path: KeyPath) -> str:
        """A path as a person reads it."""
        return _dotted(self.written(path))


def load(state_dir: Path, environ: Mapping[str, str]) -> LoadedSettings:
    """The settings of a state directory; the defaults where it has no file.

    `environ` supplies what ``"${NAME}"`` stands for. Raises `ConfigError`.
    """
    path = settings_file(state_dir)
    if path is None:
        return LoadedSettings(Settings(), None)
    if path.exists() and not path.is_file():  # what is none may keep a reader waiting for ever
        raise ConfigError(f"{path} cannot be read (not a regular file)", remedy="write a new one")
    text = _read(path)
    return _loaded(_Source(path, text), _parse(path, text), environ)


def load_context_file(path: Path, environ: Mapping[str, str]) -> LoadedSettings:
    """The settings of any file: a whole configuration, or what `agents.defaults` would hold.

    The latter is a file with `context`, `contextPruning` or `cacheRetention` at its top.
    Raises `ConfigError`.
    """
    text = _read(path)
    data = _parse(path, text)
    if not _BARE & set(data):
        return _loaded(_Source(path, text), data, environ)
    return _loaded(_Source(path, text, _DEFAULTS), {"agents": {"defaults": data}}, environ)


def _loaded(source: _Source, data: dict[str, Any], environ: Mapping[str, str]) -> LoadedSettings:
    settings, problems = _validate(data, environ)
    warnings: tuple[str, ...] = ()
    if source.path.name == OPENCLAW_FILE and problems:
        data, warnings = _forgive(source, data, problems)
        settings, problems = _validate(data, environ)
    if settings is None:
        raise _error(source, problems)
    doubts = (
        f"{source.path}: {source.key(doubt.path)} {doubt.said}" for doubt in doubtful(settings)
    )
    return LoadedSettings(settings, source.path, (*warnings, *doubts))


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            found = file.read(MOST_BYTES + 1)
        if len(found) > MOST_BYTES:
            raise ConfigError(
                f"{path} has more than {MOST_BYTES:,} bytes", remedy="make it shorter"
            )
        return found.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}:{line}: not UTF-8 text", remedy="save it as UTF-8") from None
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read ({error.strerror})",
            remedy="correct the path or its permissions",
        ) from None


# -- JSON5 -----------------------------------------------------------------------------


def _parse(path: Path, text: str) -> dict[str, Any]:
    try:
        data = pyjson5.decode(text)
    except pyjson5.Json5DecoderException as error:
        raise _syntax_error(path, text, str(error.args[0])) from None
    if not isinstance(data, dict):
        raise ConfigError(f"{path}:1:1: expected an object", remedy="begin with { and end with }")
    return data


def _syntax_error(path: Path, text: str, said: str) -> ConfigError:
    """The parser counts characters up to where it stopped, that one included."""
    near = re.search(r"near (\d+)", said)
    offset = max(int(near[1]) - 1, 0) if near else 0
    if "Extra data" in said:  # it counts the characters before, white space not among them
        offset = len(text) - len(text[offset + 1 :].lstrip())
    line = text.count("\n", 0, offset) + 1
    column = offset - (text.rfind("\n", 0, offset) + 1) + 1
    return ConfigError(
        f"{path}:{line}:{column}: not JSON5: {_in_words(said)}",
        remedy="write {} into it" if "No JSON data" in said else "correct it here or just before",
    )


def _in_words(said: str) -> str:
    """What the parser said, without anything out of the file."""
    opened = re.search(r"Unclosed b'(\w+)'", said)
    if opened and opened[1] == "NumericLiteral":
        return "the number here is too large, or none"
    if opened:
        return f"the {opened[1]} that starts here does not end properly"
    if "No JSON data" in said:
        return "the file is empty"
    if "Extra data" in said:
        return "there is more text after the end"
    if "nesting" in said:
        return "it is nested too deep"
    return "a comma or bracket is missing" if "comma" in said else "a value or key is expected"


# -- validation ------------------------------------------------------------------------


def _validate(
    data: dict[str, Any], environ: Mapping[str, str]
) -> tuple[Settings | None, list[_Problem]]:
    try:
        settings = Settings.model_validate(data, context={"environ": environ})
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
        return None, [_problem(each["loc"], each["type"], each.get("ctx", {})) for each in details]
    problems = [_Problem(each.path, each.said, "correct it") for each in impossible(settings)]
    return (None if problems else settings), problems


def _problem(path: KeyPath, kind: str, context: dict[str, Any]) -> _Problem:
    if kind == "extra_forbidden":
        return _Problem(path, "unknown key", _nearest(path), is_unknown=True)
    if kind == "missing":
        return _Problem(path, "missing", "add it", is_missing=True)
    said = _EXPECTED.get(kind, "not usable").format(**context)
    return _Problem(path, said, "correct it")


def _nearest(path: Sequence[str | int]) -> str:
    known = names_at(path[:-1])
    at_top = len(path) == 1
    lowered = {name.lower(): name for name in [*known, *(sorted(_BARE) if at_top else [])]}
    near = difflib.get_close_matches(str(path[-1]).lower(), lowered, n=1, cutoff=0.6)
    if at_top and path[0] in _BARE:
        return "put it below agents.defaults, or below an agent"
    if near:
        return f"did you mean {lowered[near[0]]!r}?"
    return "known here: " + ", ".join(known)


def _forgive(
    source: _Source, data: dict[str, Any], problems: Sequence[_Problem]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """A copy without the keys that only OpenClaw knows, with the limits that it implies."""
    data, warnings = copy.deepcopy(data), []
    for problem in problems:
        *steps, last = problem.path
        default = _OPENCLAW_DEFAULTS.get(str(last))
        holder: Any = data
        for step in steps:
            holder = holder[step]
        if problem.is_unknown:
            del holder[last]
            warnings.append(f"{source.path}: {source.key(problem.path)} is not used by Strandline")
        elif problem.is_missing and default is not None:
            holder[last] = default
            warnings.append(
                f"{source.path}: {source.key(problem.path)} is missing; taken as {default}"
            )
    return data, tuple(warnings)


# -- messages --------------------------------------------------------------------------


def _error(source: _Source, problems: Sequence[_Problem]) -> ConfigError:
    """The problem that stands first in the file, and how many there are besides.

    What is missing comes last: it may be there under an unknown key.
    """
    from strandline.settings.locate import Locator  # noqa: PLC0415 - slow, and only for errors

    locator = Locator(source.text)
    placed = [
        (locator.find(source.written(one.path), key=one.is_unknown) or (0, 0), one)
        for one in problems
    ]
    (line, column), first = min(placed, key=lambda pair: (pair[1].is_missing, pair[0]))
    where = f"{source.path}:{line}:{column}" if line else str(source.path)
    more = len(problems) - 1
    others = "" if not more else f" (and {more} more problem{'s' if more > 1 else ''})"
    said = f"{where}: {source.key(first.path)}: {first.said}{others}"
    return ConfigError(said, remedy=first.remedy)


def _dotted(path: Sequence[str | int]) -> str:
    dotted = ""
    for step in path:
        if isinstance(step, int):
            dotted += f"[{step}]"
        elif re.fullmatch(r"[\w-]+", step):
            dotted += f".{step}"
        else:
            dotted += f"[{step!r}]"
    return dotted.removeprefix(".")
