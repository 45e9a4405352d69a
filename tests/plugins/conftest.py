"""Plugins in folders and as installed packages, written by the tests that use them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from strandline.plugins.registry import PluginRegistry
from strandline.plugins.reports import PluginChoices, PluginEntry

ENGINE = """
from strandline.context.engine import EngineInfo, LegacyEngine


class Engine(LegacyEngine):
    info = EngineInfo("{engine}", "An engine", "1")


def register(api):
    api.register_context_engine("{engine}", lambda context: Engine())
"""
"""A module with an engine; its id is to be filled in."""

Link = Callable[..., Path]
Package = Callable[..., Path]
Registry = Callable[..., PluginRegistry]


@pytest.fixture
def link(tmp_path: Path) -> Link:
    """Writes the folder of a plugin: `code` of its module, or `files` by their paths."""

    def write(
        plugin_id: str,
        code: str = "",
        *,
        files: dict[str, str] | None = None,
        manifest: Any = None,
    ) -> Path:
        folder = tmp_path / "linked" / plugin_id
        folder.mkdir(parents=True)
        for name, text in (files or {"engine_of_it.py": code}).items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        told = {"id": plugin_id, "module": "engine_of_it"} if manifest is None else manifest
        if told is not False:
            (folder / "strandline-plugin.json").write_text(json.dumps(told))
        return folder

    return write


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder of installed packages."""
    folder = tmp_path / "site"
    folder.mkdir()
    return folder


@pytest.fixture
def package(site: Path) -> Package:
    """Installs a package with a module of its name; `entries` are ``id = module:object``."""

    def write(name: str, code: str = "", *, entries: str | None = None, version: str = "1") -> Path:
        module = name.replace("-", "_")
        (site / f"{module}.py").write_text(code or ENGINE.format(engine=name))
        info = site / f"{module}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nSummary: About {name}\n"
        )
        lines = f"{name} = {module}:register" if entries is None else entries
        (info / "entry_points.txt").write_text(f"[strandline.plugins]\n{lines}\n")
        return info

    return write


@pytest.fixture
def registry() -> Registry:
    """A registry of linked folders, all of them enabled but for those in `disabled`."""

    def make(*folders: Path, disabled: tuple[str, ...] = (), **more: Any) -> PluginRegistry:
        configs = more.pop("configs", {})
        entries = {
            path.name: PluginEntry(path.name not in disabled, configs.get(path.name, {}))
            for path in folders
        }
        tools = more.pop("taken_tools", frozenset())
        find = more.pop("find_installed", list)
        choices = PluginChoices(
            entries=entries | more.pop("entries", {}),
            folders=[(str(path), path) for path in folders],
            **more,
        )
        return PluginRegistry(choices, taken_tools=tools, find_installed=find)

    return make
