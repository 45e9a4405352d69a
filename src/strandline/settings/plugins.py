"""The settings of plugins: which are loaded, and which fill a slot (spec 3, Engine slot)."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, Secret

from strandline.context.engine import LEGACY
from strandline.settings.parts import Name, Names, Part, Words


class PluginSlots(Part):
    """What only one plugin at a time can be."""

    context_engine: Name = Field(
        default=LEGACY,
        description="The id of the context engine, as its plugin registers it.",
    )


class PluginEntry(Part):
    """One plugin. What its `config` says is its own business, and may be secret."""

    enabled: bool = Field(default=True, description="Whether it is loaded.")
    config: Annotated[Secret[dict[str, Any]] | None, Words("object")] = Field(
        default=None, description="What the plugin itself is told; shown nowhere."
    )

    @property
    def told(self) -> dict[str, Any]:
        """What the plugin itself is told; empty where nothing is."""
        return {} if self.config is None else self.config.get_secret_value()


class PluginLoad(Part):
    """Plugins that are no installed packages."""

    paths: Names = Field(default=[], description="Folders of plugins that are linked.")


class PluginSettings(Part):
    """The plugins."""

    enabled: bool = Field(default=True, description="Whether any plugin is loaded.")
    slots: PluginSlots = Field(default=PluginSlots(), description="Who fills which slot.")
    entries: dict[str, PluginEntry] = Field(default={}, description="Plugins, by their id.")
    load: PluginLoad = Field(default=PluginLoad(), description="Plugins that are linked.")
