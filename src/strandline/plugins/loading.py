"""Importing a plugin and letting it register; whatever goes wrong becomes a `PluginFailure`.

A linked folder is imported under a name of its own, so two of them may hold modules of the
same name. While that happens the folder is on the import path, for what its modules import
absolutely; afterwards such modules are known to the plugin alone.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from strandline.errors import PluginError, StrandlineError
from strandline.plugins.api import PluginApi
from strandline.plugins.finding import FoundPlugin, module_file

Phase = Literal["find", "import", "register"]
MAX_SAID_CHARS = 500
FEWEST_OF_A_SECRET = 6
"""Shorter texts are no secrets, and may be parts of any word."""

_PRIVATE = "_strandline_plugin_"
_importing = threading.RLock()


@dataclass(frozen=True, slots=True)
class PluginFailure:
    """Why a plugin is not used: in which phase it failed, what was said, and the remedy."""

    plugin: str
    phase: Phase
    said: str
    remedy: str

    @property
    def error(self) -> PluginError:
        """The failure as an error."""
        return PluginError(
            f"the plugin {self.plugin} failed ({self.phase}): {self.said}", remedy=self.remedy
        )


def load(
    plugin: FoundPlugin, config: Mapping[str, Any], taken_tools: AbstractSet[str]
) -> PluginApi | PluginFailure:
    """Import a plugin and call its `register`; what it registered, or why not.

    What it prints meanwhile goes to standard error: standard output is the command's. Where it
    hangs, Ctrl-C raises a `KeyboardInterrupt` that names it.
    """
    with redirect_stdout(sys.stderr):
        register = _caught(plugin, "import", config, lambda: _register_of(plugin))
        if isinstance(register, PluginFailure):
            return register
        api = PluginApi(plugin.id, config, taken_tools=taken_tools)
        failed = _caught(plugin, "register", config, lambda: _call(register, api))
        return failed if isinstance(failed, PluginFailure) else api


def words(error: BaseException, config: object) -> str:
    """What an exception of somebody's code says, bounded and on one line.

    What the plugin is told in its `config` is left out of it: that may be secret.
    """
    try:
        text = discreet(" ".join(str(error).split()), config)
    except Exception:  # noqa: BLE001 - the error's own code fails too
        text = "it cannot be told"
    return f"{type(error).__name__}: {text[:MAX_SAID_CHARS]}".removesuffix(": ")


def discreet(text: str, config: object) -> str:
    """A text without the texts of a config."""
    for told in sorted(_texts(config), key=len, reverse=True):
        text = text.replace(told, "…")
    return text


def _texts(config: object) -> Iterator[str]:
    if isinstance(config, str) and len(config) >= FEWEST_OF_A_SECRET:
        yield config
    elif isinstance(config, Mapping):
        for each in config.values():
            yield from _texts(each)
    elif isinstance(config, list):
        for each in config:
            yield from _texts(each)


def _caught(
    plugin: FoundPlugin, phase: Phase, config: Mapping[str, Any], run: Callable[[], Any]
) -> Any:
    try:
        return run()
    except StrandlineError as error:
        said, remedy = (discreet(text, config) for text in (error.what, error.remedy))
        return PluginFailure(plugin.id, phase, said, remedy or "correct it")
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"stopped in the {phase} of the plugin {plugin.id}") from None
    except BaseException as error:  # noqa: BLE001 - a plugin is anybody's code
        return PluginFailure(plugin.id, phase, words(error, config), "correct it")


def _call(register: Callable[[PluginApi], object], api: PluginApi) -> None:
    given = register(api)
    if inspect.isawaitable(given):
        if inspect.iscoroutine(given):
            given.close()
        raise PluginError("register is a coroutine", remedy="make it a plain function")
    if given is not None:
        raise PluginError(
            f"register returned a {type(given).__name__}",
            remedy="let it return nothing, and call api.register_context_engine",
        )


def _register_of(plugin: FoundPlugin) -> Callable[[PluginApi], object]:
    found = plugin.entry.load() if plugin.entry else _import_linked(plugin)
    if isinstance(found, ModuleType):
        found = getattr(found, "register", None)
    if not callable(found):
        raise PluginError(
            "it has no function `register`", remedy="write `def register(api): …` in it"
        )
    register: Callable[[PluginApi], object] = found
    return register


# -- linked folders ------------------------------------------------------------------------


def _import_linked(plugin: FoundPlugin) -> ModuleType:
    folder = plugin.folder or Path()
    path = module_file(folder, plugin.module)
    if path is None:
        raise PluginError(f"there is no module {plugin.module} in {folder}", remedy="restore it")
    steps = plugin.module.split(".")
    root = path.parents[len(steps) - (path.name != "__init__.py")]
    private = _PRIVATE + sha256(f"{plugin.id}\n{folder}".encode()).hexdigest()[:16]
    holder = ModuleType(private, f"The modules of the plugin {plugin.id}.")
    holder.__path__ = [str(root)]
    with _importing, _importable(root):
        importlib.invalidate_caches()  # it may have been written a moment ago
        _forget(private)
        sys.modules[private] = holder
        try:
            return importlib.import_module(f"{private}.{plugin.module}")
        except BaseException:
            _forget(private)
            raise


@contextmanager
def _importable(root: Path) -> Iterator[None]:
    """The modules of a folder can be imported by their own names, for a while."""
    before = set(sys.modules)
    sys.path.insert(0, str(root))
    try:
        yield
    finally:
        with suppress(ValueError):
            sys.path.remove(str(root))
        for name in set(sys.modules) - before:
            if not name.startswith(_PRIVATE) and _is_below(sys.modules[name], root):
                del sys.modules[name]


def _is_below(module: ModuleType, root: Path) -> bool:
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and Path(file).is_relative_to(root)


def _forget(private: str) -> None:
    for name in [each for each in sys.modules if each.partition(".")[0] == private]:
        del sys.modules[name]
