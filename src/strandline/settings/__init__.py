"""Settings: typed configuration from ``strandline.json`` or an ``openclaw.json`` (spec 2, 3).

Light to import: what needs pydantic is imported when it is first asked for, because its
import alone costs more than a local command may take.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from strandline.settings.places import resolve_state_dir, settings_file
from strandline.settings.units import duration_ms, size_bytes

if TYPE_CHECKING:
    from strandline.settings.listing import SettingKey, setting_keys
    from strandline.settings.loading import LoadedSettings, load, load_context_file
    from strandline.settings.model import AgentSettings, CompactionSettings, Settings

__all__ = [
    "AgentSettings",
    "CompactionSettings",
    "LoadedSettings",
    "SettingKey",
    "Settings",
    "duration_ms",
    "load",
    "load_context_file",
    "resolve_state_dir",
    "setting_keys",
    "settings_file",
    "size_bytes",
]

_HOMES = {
    "AgentSettings": "model",
    "CompactionSettings": "model",
    "LoadedSettings": "loading",
    "SettingKey": "listing",
    "Settings": "model",
    "load": "loading",
    "load_context_file": "loading",
    "setting_keys": "listing",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - only where something heavy is wanted

    return getattr(import_module(f"{__name__}.{home}"), name)
