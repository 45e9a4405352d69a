"""``strandline plugins``: install, list and switch plugins (spec 3, Engine slot)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from strandline.cli.notices import warn
from strandline.cli.output import json_option, print_json, print_lines, slow_notice
from strandline.cli.row_text import columns_of
from strandline.cli.words import one_line

if TYPE_CHECKING:
    from strandline.wiring import State
    from strandline.wiring.plugin_switch import PluginSwitch
    from strandline.wiring.plugins import PluginRegistry, PluginReport

select_option = click.option(
    "--select", is_flag=True, help="Let its context engine be the one that is used."
)


@click.group()
def plugins() -> None:
    """Install, list and switch plugins: packages, or folders that are linked.

    A plugin adds context engines, tools and hooks. It runs with all rights of Strandline:
    install what you trust.
    """


@plugins.command("list")
@json_option
@click.pass_obj
def list_plugins(state_dir: Path, *, as_json: bool) -> None:
    """What is installed and linked, what of it is used, and what is wrong with it."""
    state = _state(state_dir)
    registry = state.plugins
    if as_json:
        print_json(_report(state, registry))
    else:
        print_lines(_lines(registry))


@plugins.command()
@click.argument("name", required=False)
@click.option(
    "-l",
    "--link",
    metavar="PATH",
    type=click.Path(path_type=Path),
    help="Link the plugin in a folder, where it stays.",
)
@select_option
@click.pass_obj
def install(state_dir: Path, name: str | None, link: Path | None, *, select: bool) -> None:
    """Install the package NAME with pip, or link the folder PATH, and enable its plugins.

    NAME is a package with, if need be, its version: name>=1.2
    """
    if (name is None) == (link is None):
        raise click.UsageError("give the NAME of a package, or -l PATH")
    switch = _switch(state_dir)
    if link is not None:
        _tell(switch.link(link, select=select))
    else:
        slow_notice.expect(f"pip installs {name}")
        try:
            _tell(switch.install(name or "", select=select))
        finally:
            slow_notice.done()


@plugins.command()
@click.argument("plugin_id", metavar="ID")
@select_option
@click.pass_obj
def enable(state_dir: Path, plugin_id: str, *, select: bool) -> None:
    """Use a plugin that is installed or linked."""
    _tell(_switch(state_dir).enable(plugin_id, select=select))


@plugins.command()
@click.argument("plugin_id", metavar="ID")
@click.pass_obj
def disable(state_dir: Path, plugin_id: str) -> None:
    """Stop using a plugin; where its context engine was selected, the built-in one is."""
    _tell(_switch(state_dir).disable(plugin_id))


@plugins.command()
@click.argument("plugin_id", metavar="ID")
@click.pass_obj
def uninstall(state_dir: Path, plugin_id: str) -> None:
    """Remove a plugin: its package with pip, or its link (ID, or the folder)."""
    _tell(_switch(state_dir).uninstall(plugin_id))


# -- doing and telling -----------------------------------------------------------------------


def _state(state_dir: Path) -> State:
    from strandline.wiring import open_state  # noqa: PLC0415 - settings are heavy

    return open_state(state_dir, os.environ, warn=warn)


def _switch(state_dir: Path) -> PluginSwitch:
    from strandline.wiring.plugin_switch import PluginSwitch  # noqa: PLC0415 - heavy

    return PluginSwitch(lambda: _state(state_dir))


def _tell(said: Sequence[str]) -> None:
    print_lines(map(one_line, said))


def _report(state: State, registry: PluginRegistry) -> dict[str, Any]:
    return {
        "settings": str(state.settings_path) if state.settings_path else None,
        "enabled": registry.choices.enabled,
        "contextEngine": registry.choices.engine,
        "contextEngineError": registry.engine_error(),
        "engines": registry.engine_ids(),
        "plugins": [_plugin_report(registry, each) for each in registry.reports()],
    }


def _plugin_report(registry: PluginRegistry, plugin: PluginReport) -> dict[str, Any]:
    found = plugin.found
    return {
        "id": plugin.id,
        "name": getattr(found, "name", ""),
        "version": getattr(found, "version", ""),
        "description": getattr(found, "description", ""),
        "source": plugin.source,
        "package": plugin.package or None,
        "link": plugin.link or None,
        "enabled": registry.choices.wants(plugin.id),
        "status": plugin.status,
        "engines": plugin.engines,
        "tools": plugin.tools,
        "phase": plugin.phase or None,
        "error": str(plugin.error) if plugin.error else None,
    }


def _lines(registry: PluginRegistry) -> Iterator[str]:
    reports = registry.reports()
    if not reports:
        yield "no plugins here: `strandline plugins install NAME` or `-l PATH` adds one"
    else:
        titles = ("plugin", "from", "status", "engines", "tools")
        yield from columns_of([titles, *map(_cells, reports)])
    for each in reports:
        if each.error:
            yield one_line(f"{each.id}: {each.error}")
    if not registry.choices.enabled:
        yield "no plugin is used while plugins.enabled is false"
    yield one_line(f"context engine: {registry.choices.engine}")
    wrong = registry.engine_error()
    if wrong:
        yield one_line(wrong)


def _cells(plugin: PluginReport) -> Sequence[str]:
    engines, tools = (", ".join(names) or "-" for names in (plugin.engines, plugin.tools))
    return (plugin.id, plugin.source, plugin.status, engines, tools)
