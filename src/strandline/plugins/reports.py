"""What the settings say of plugins, and what became of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from strandline.context.engine import LEGACY
from strandline.errors import PluginError
from strandline.plugins.api import PluginApi
from strandline.plugins.finding import FoundPlugin, NotFound

Status = Literal["loaded", "disabled", "failed", "missing"]


@dataclass(frozen=True, slots=True)
class PluginEntry:
    """What the settings say of one plugin."""

    enabled: bool = False
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PluginChoices:
    """What the settings say of all.

    `folders` are linked, each with the text that names it in the settings. `openclaw_file`
    is the settings file where that is OpenClaw's; `extensions` is where OpenClaw keeps
    plugins of its own.
    """

    enabled: bool = True
    engine: str = LEGACY
    entries: Mapping[str, PluginEntry] = field(default_factory=dict)
    folders: Sequence[tuple[str, Path]] = ()
    openclaw_file: Path | None = None
    extensions: Path | None = None

    def of(self, plugin_id: str) -> PluginEntry:
        """What is said of one plugin: nothing said is not enabled."""
        return self.entries.get(plugin_id, PluginEntry())

    def wants(self, plugin_id: str) -> bool:
        """Whether a plugin is to be loaded."""
        return self.enabled and self.of(plugin_id).enabled


@dataclass(frozen=True, slots=True)
class PluginReport:
    """A plugin as it stands: `found` is None for one that only the settings know.

    `error` and `phase` say what is wrong with it; one that is loaded may have an error too,
    a name that another plugin registered as well.
    """

    id: str
    status: Status
    found: FoundPlugin | NotFound | None = None
    registered: PluginApi | None = None
    error: PluginError | None = None
    phase: str = ""

    @property
    def source(self) -> str:
        """Where it is from, for people."""
        return self.found.source if self.found else "-"

    @property
    def package(self) -> str:
        """The package that it is from, empty where it is from none."""
        return self.found.package if self.found else ""

    @property
    def link(self) -> str:
        """The text in the settings that links its folder, empty where none does."""
        return self.found.link if self.found else ""

    @property
    def engines(self) -> list[str]:
        """The engines that it registered."""
        return sorted(self.registered.engines) if self.registered else []

    @property
    def tools(self) -> list[str]:
        """The tools that it registered."""
        return sorted(tool.name for tool in self.registered.tools) if self.registered else []
