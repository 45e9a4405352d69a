"""Finding plugins: what is installed, and what is linked. Nothing of them is imported.

An installed plugin is an entry point of the group `GROUP`; its name is the plugin's id. A
linked one is a folder with the manifest `MANIFEST`, or with exactly one module or package
that has `register`, after which it is called then. Source: spec 3, Engine slot (Plugins).
"""

from __future__ import annotations

import ast
import json
import keyword
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution, EntryPoint, distributions
from pathlib import Path
from typing import Any

from strandline.errors import PluginError
from strandline.plugins.api import ID, ID_WORDS

GROUP = "strandline.plugins"
MANIFEST = "strandline-plugin.json"
MAX_MANIFEST_BYTES = 64 * 1024
MAX_MODULES = 200
"""As many modules of a folder without a manifest are looked at."""

MAX_MODULE_BYTES = 1024 * 1024
MAX_WORDS_CHARS = 500
_NAMES = re.compile(r"[-_.]+")


@dataclass(frozen=True, slots=True)
class FoundPlugin:
    """A plugin that is there: installed (`package`, `entry`) or linked (`folder`, `module`).

    `link` is the text of ``plugins.load.paths`` that led to it.
    """

    id: str
    name: str = ""
    version: str = ""
    description: str = ""
    package: str = ""
    entry: EntryPoint | None = None
    folder: Path | None = None
    module: str = ""
    link: str = ""

    @property
    def source(self) -> str:
        """Where it is from, for people."""
        return str(self.folder) if self.folder else f"{self.package} {self.version}".strip()


@dataclass(frozen=True, slots=True)
class NotFound:
    """Something that should be a plugin and cannot be one; the words are a `FoundPlugin`'s."""

    id: str
    source: str
    error: PluginError
    link: str = ""
    package: str = ""


Findings = Sequence[FoundPlugin | NotFound]


def normalized(package: str) -> str:
    """The name of a distribution as its index compares it."""
    return _NAMES.sub("-", package).lower()


# -- installed ---------------------------------------------------------------------------


def installed(packages: Iterable[Distribution] | None = None) -> Findings:
    """The plugins among the installed packages, or among `packages`."""
    found: list[FoundPlugin | NotFound] = []
    seen: set[str] = set()
    for package in distributions() if packages is None else packages:
        text = _entry_points_text(package)
        if GROUP not in text:
            continue
        name = _named(package)
        if normalized(name) not in seen:  # a second one is hidden by the first, as on import
            seen.add(normalized(name))
            found += _of_package(package, name)
    return found


def _entry_points_text(package: Distribution) -> str:
    try:
        return package.read_text("entry_points.txt") or ""
    except (OSError, ValueError):
        return ""


def _named(package: Distribution) -> str:
    try:
        return _header(package, "Name") or "?"
    except Exception:  # noqa: BLE001 - anybody's metadata; what it names is told as it can be
        return "?"


def _header(package: Distribution, key: str) -> str:
    return str(package.metadata[key]) if key in package.metadata else ""


def _of_package(package: Distribution, name: str) -> Iterator[FoundPlugin | NotFound]:
    try:
        entries = [each for each in package.entry_points if each.group == GROUP]
        version, told = _header(package, "Version"), _header(package, "Summary")
    except Exception as error:  # noqa: BLE001 - broken metadata of one package breaks no other
        yield NotFound(
            name,
            name,
            PluginError(
                f"the metadata of the package {name} cannot be read ({type(error).__name__})",
                remedy="install it again, or remove it",
            ),
            package=name,
        )
        return
    for entry in entries:
        if ID.fullmatch(entry.name):
            yield FoundPlugin(entry.name, name, version, _words(told), package=name, entry=entry)
        else:
            yield NotFound(
                entry.name,
                f"{name} {version}",
                PluginError(
                    f"the package {name} calls a plugin {entry.name!a}",
                    remedy=f"the name of its entry point has to be {ID_WORDS}",
                ),
                package=name,
            )


# -- linked --------------------------------------------------------------------------------


def linked(folder: Path, link: str = "") -> FoundPlugin | NotFound:
    """The plugin in a folder."""
    try:
        return _linked(folder, link)
    except PluginError as error:
        return NotFound(folder.name, str(folder), error, link)
    except OSError as error:
        said = PluginError(
            f"the plugin folder {folder} cannot be read ({error.strerror})",
            remedy=f"correct its permissions, or `strandline plugins uninstall {folder}`",
        )
        return NotFound(folder.name, str(folder), said, link)


def _linked(folder: Path, link: str) -> FoundPlugin:
    if not folder.is_dir():
        raise PluginError(
            f"there is no plugin folder {folder}",
            remedy=f"restore it, or `strandline plugins uninstall {folder}`",
        )
    if (folder / MANIFEST).is_file():
        told = _manifest(folder / MANIFEST)
        plugin_id, module = told["id"], told["module"]
        if module_file(folder, module) is None:
            raise PluginError(
                f"{folder / MANIFEST}: there is no module {module} in the folder",
                remedy="name a module or a package that is in it",
            )
    else:
        told, module = {}, _only_module(folder)
        plugin_id = module.replace("_", "-").lower()
    if not ID.fullmatch(plugin_id):
        raise PluginError(
            f"{plugin_id!a} of {folder} cannot be the id of a plugin", remedy=f"use {ID_WORDS}"
        )
    name, version, description = (
        _words(told.get(key)) for key in ("name", "version", "description")
    )
    return FoundPlugin(
        plugin_id, name, version, description, folder=folder, module=module, link=link
    )


def _manifest(path: Path) -> dict[str, Any]:
    if path.stat().st_size > MAX_MANIFEST_BYTES:
        raise PluginError(
            f"{path} has more than {MAX_MANIFEST_BYTES:,} bytes", remedy="make it shorter"
        )
    try:
        told = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict):
        raise PluginError(f"{path} is not a JSON object", remedy="correct it")
    for key in ("id", "module"):
        if not isinstance(told.get(key), str) or not told[key]:
            raise PluginError(f"{path}: {key} is not a text", remedy="write it as one")
    return told


def module_file(folder: Path, module: str) -> Path | None:
    """The file of a module, as a dotted name, in a folder or its ``src``; None if not there."""
    steps = module.split(".")
    if not all(step.isidentifier() and not keyword.iskeyword(step) for step in steps):
        return None
    for root in (folder, folder / "src"):
        place = root.joinpath(*steps)
        for path in (place / "__init__.py", place.with_name(place.name + ".py")):
            if path.is_file() and path.resolve().is_relative_to(folder.resolve()):
                return path
    return None


def _only_module(folder: Path) -> str:
    """The one module or package of a folder that has `register`."""
    names = {
        path.parent.name if path.name == "__init__.py" else path.stem: path
        for root in (folder, folder / "src")
        for path in (*root.glob("*.py"), *root.glob("*/__init__.py"))
    }
    if len(names) > MAX_MODULES:
        raise PluginError(
            f"{folder} has {len(names)} modules", remedy=f"name one of them in a {MANIFEST}"
        )
    found, unread = [], []
    for name in sorted(names):
        path = module_file(folder, name)
        try:
            if path is not None and _has_register(path):
                found.append(name)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            unread.append(name)
    if len(found) == 1:
        return found[0]
    which = f"not one but {', '.join(found)}" if found else "none"
    also = f" ({', '.join(unread)}: no Python that can be read)" if unread else ""
    raise PluginError(
        f"{folder} has no {MANIFEST}, and of its modules {which} has `register`{also}",
        remedy=f'write {MANIFEST} with "id" and "module", or correct a module',
    )


def _has_register(path: Path) -> bool:
    """Whether a module names `register` at its top, found without running it.

    Raises what parsing raises, and `ValueError` for a module that is too large.
    """
    if path.stat().st_size > MAX_MODULE_BYTES:
        raise ValueError(path)
    return any("register" in _top_names(node) for node in ast.parse(path.read_bytes()).body)


def _top_names(node: ast.stmt) -> Iterator[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            yield name
        case ast.ImportFrom(names=names) | ast.Import(names=names):
            yield from (each.asname or each.name for each in names)
        case ast.Assign(targets=targets):
            yield from (each.id for each in targets if isinstance(each, ast.Name))


def _words(told: object) -> str:
    return told[:MAX_WORDS_CHARS] if isinstance(told, str) else ""
