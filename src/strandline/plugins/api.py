"""What a plugin is handed when it registers, and what it registered.

A plugin is a function ``register(api)``. It says what it has and returns; nothing of it is
used if it fails. Source: spec 3, Engine slot (Plugins).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import Any

from strandline.context.engine import LEGACY, EngineFactory
from strandline.errors import PluginError
from strandline.runtime.access import ACCESSES
from strandline.runtime.hooks import Hooks
from strandline.runtime.tools import Tool, Toolbox

ID = re.compile(r"[a-z0-9_-]{1,64}")
ID_WORDS = "1 to 64 of a-z 0-9 - _"


class PluginApi:
    """The door through which a plugin says what it has.

    `id` is the plugin's, `config` its ``plugins.entries.<id>.config``, read only. To be asked
    before a session is compacted or moved, a plugin appends to the lists of `hooks`.
    """

    def __init__(
        self,
        plugin_id: str,
        config: Mapping[str, Any] | None = None,
        *,
        taken_tools: AbstractSet[str] = frozenset(),
    ) -> None:
        self.id = plugin_id
        self.config: Mapping[str, Any] = MappingProxyType(dict(config or {}))
        self.hooks = Hooks()
        self._taken_tools = taken_tools
        self._engines: dict[str, EngineFactory] = {}
        self._tools = Toolbox()
        self._registered: list[Tool] = []

    @property
    def engines(self) -> Mapping[str, EngineFactory]:
        """What `register_context_engine` was given, by engine id."""
        return self._engines

    @property
    def tools(self) -> list[Tool]:
        """What `register_tool` was given."""
        return self._registered

    def register_context_engine(self, engine_id: str, factory: EngineFactory) -> None:
        """Offer a context engine; `plugins.slots.contextEngine` selects it by this id.

        `factory` is called with an `EngineContext` for each agent that uses it. Raises
        `PluginError` for an id that cannot be one, or is taken.
        """
        if not isinstance(engine_id, str) or not ID.fullmatch(engine_id):
            raise PluginError(
                f"{engine_id!a} cannot be the id of an engine", remedy=f"use {ID_WORDS}"
            )
        if engine_id == LEGACY or engine_id in self._engines:
            whose = "the built-in engine's" if engine_id == LEGACY else "registered already"
            raise PluginError(f"the engine id {engine_id!r} is {whose}", remedy="take another one")
        if not callable(factory):
            raise PluginError(
                f"the factory of the engine {engine_id!r} is a {type(factory).__name__}",
                remedy="give a function or a class that takes an EngineContext",
            )
        self._engines[engine_id] = factory

    def register_tool(self, tool: Tool) -> None:
        """Offer a tool to all agents. Raises `PluginError`, `ConfigError` as for any tool."""
        if not isinstance(tool, Tool):
            raise PluginError(
                f"a tool is a strandline.runtime.tools.Tool, not a {type(tool).__name__}",
                remedy="make one",
            )
        if tool.needs not in ACCESSES:
            raise PluginError(
                f"the tool {tool.name} needs {tool.needs!r}, which is no access to a workspace",
                remedy=f"let it need one of {', '.join(ACCESSES)}",
            )
        if tool.name in self._taken_tools:
            raise PluginError(
                f"the tool {tool.name} is there already", remedy="give it another name"
            )
        self._tools = self._tools.plus([tool])
        self._registered.append(tool)


Register = Callable[[PluginApi], object]
"""What a plugin is: it returns nothing."""
