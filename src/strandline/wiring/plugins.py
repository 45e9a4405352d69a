"""From the settings of a state directory to its plugins. Source: spec 3, Engine slot."""
# ruff: noqa: PLC0415 - what is picked is imported when it is picked

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from strandline.clock import Clock
from strandline.plugins.registry import PluginRegistry
from strandline.plugins.reports import PluginChoices, PluginEntry, PluginReport
from strandline.settings.places import OPENCLAW_FILE

if TYPE_CHECKING:
    from strandline.settings.model import Settings

__all__ = ["PluginRegistry", "PluginReport", "choices_of", "plugins_of"]


class Opened(Protocol):
    """A state directory with its settings, as far as plugins need one."""

    @property
    def folder(self) -> Path:
        """The state directory."""
        ...

    @property
    def settings(self) -> Settings:
        """What its settings say."""
        ...

    @property
    def settings_path(self) -> Path | None:
        """The file that they are from."""
        ...

    @property
    def clock(self) -> Clock:
        """The time."""
        ...


def choices_of(settings: Settings, folder: Path, settings_path: Path | None) -> PluginChoices:
    """What the settings of the state directory `folder` say of plugins."""
    plugins = settings.plugins
    folders = {_folder(text, folder): text for text in plugins.load.paths}
    is_openclaw = settings_path is not None and settings_path.name == OPENCLAW_FILE
    return PluginChoices(
        enabled=plugins.enabled,
        engine=plugins.slots.context_engine,
        entries={
            plugin_id: PluginEntry(entry.enabled, entry.told)
            for plugin_id, entry in plugins.entries.items()
        },
        folders=[(text, path) for path, text in folders.items()],
        openclaw_file=settings_path if is_openclaw else None,
        extensions=folder / "extensions",
    )


def plugins_of(state: Opened) -> PluginRegistry:
    """The plugins of a state directory; nothing is loaded yet."""
    from strandline.tools.builtin import builtin_tools
    from strandline.tools.spawning import NAME as SPAWN

    builtin = builtin_tools(state.folder, "rw", state.clock)
    return PluginRegistry(
        choices_of(state.settings, state.folder, state.settings_path),
        taken_tools={SPAWN, *(tool.name for tool in builtin)},
    )


def _folder(text: str, state_dir: Path) -> Path:
    """A folder as the settings name it: from the state directory on, ``~`` is the home."""
    return (state_dir / Path(text).expanduser()).absolute()
