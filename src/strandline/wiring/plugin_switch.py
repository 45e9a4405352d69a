"""Changing which plugins a state directory uses.

The settings say which plugins are linked, enabled and selected; a change is a change of
``strandline.json``, made with its comments left as they are. OpenClaw's file is never written.
Source: spec 3, Engine slot (Plugins).
"""
# ruff: noqa: PLC0415 - what is heavy is imported when it is needed

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strandline.context.engine import LEGACY
from strandline.errors import ConfigError, PluginError, StoreWriteFailed
from strandline.plugins.reports import PluginReport
from strandline.settings.places import OPENCLAW_FILE, OWN_FILE

if TYPE_CHECKING:
    from strandline.wiring.state import State

Key = tuple[str | int, ...]
Change = Mapping[Key, Any]
SLOT_KEY: Key = ("plugins", "slots", "contextEngine")


class PluginSwitch:
    """Installs, links, switches and removes the plugins of a state directory.

    `reopen` reads its settings; they change under it. Methods return lines for a person, the
    first of what was asked for. They raise `PluginError` and `ConfigError`, and then nothing
    was changed, but for packages that pip installed. A plugin is got rid of without being
    loaded, as far as that goes: it may be one that hangs.
    """

    def __init__(self, reopen: Callable[[], State]) -> None:
        self._reopen = reopen
        self._read()

    def install(self, requirement: str, *, select: bool = False) -> list[str]:
        """Install a package and enable its plugins."""
        from strandline.plugins import packages
        from strandline.plugins.finding import FoundPlugin, normalized

        name = packages.package_of(requirement)
        with self._changing():
            packages.install(requirement)
            self._read()
            found = [each for each in self._registry.found if isinstance(each, FoundPlugin)]
            own = [each for each in found if normalized(each.package) == name]
            if not own:
                raise PluginError(
                    f"the package {name} is installed and has no plugin",
                    remedy=f"`pip uninstall {name}`, unless it is of use by itself",
                )
            return self._enable([self._tried(each.id) for each in own], select=select)

    def link(self, folder: Path, *, select: bool = False) -> list[str]:
        """Link a folder and enable the plugin in it."""
        from strandline.plugins.finding import NotFound, linked

        if not folder.is_dir():
            raise PluginError(
                f"there is no folder {folder}", remedy="give the folder that the plugin is in"
            )
        found = linked(folder.absolute(), str(folder.absolute()))
        if isinstance(found, NotFound):
            raise found.error
        with self._changing():
            there = next((each for each in self._registry.found if each.id == found.id), None)
            if there is not None and there.source != found.source:
                raise PluginError(
                    f"there is a plugin {found.id} already: {there.source}",
                    remedy=f"`strandline plugins uninstall {found.id}` first",
                )
            report = _usable(self._registry.try_out(found))
            place = len(self._state.settings.plugins.load.paths)
            changes: Change = {} if there else {("plugins", "load", "paths", place): found.link}
            return self._enable([report], select=select, more=changes)

    def enable(self, plugin_id: str, *, select: bool = False) -> list[str]:
        """Enable a plugin that is there, if it can be loaded."""
        with self._changing():
            return self._enable([self._tried(plugin_id)], select=select)

    def disable(self, plugin_id: str) -> list[str]:
        """Disable a plugin; the slot of its engine goes back to the built-in one."""
        with self._changing():
            report = self._known(plugin_id)
            slot, said = self._slot_without([report])
            self._change({("plugins", "entries", report.id, "enabled"): False, **slot})
            return [f"{report.id} is disabled", *said]

    def uninstall(self, name: str) -> list[str]:
        """Remove a plugin by its id, or a linked folder by its path."""
        from strandline.plugins import packages

        with self._changing():
            report = self._known(name)
            package = report.package
            gone = [each for each in self._unloaded() if each.package == package != ""]
            gone = gone or [report]
            slot, said = self._slot_without(gone)
            links = {each.link for each in gone}
            if package:
                packages.uninstall(package)
            paths = enumerate(self._state.settings.plugins.load.paths)
            removals: list[Key] = [
                *(("plugins", "load", "paths", place) for place, text in paths if text in links),
                *(("plugins", "entries", each.id) for each in gone),
            ]
            self._change(slot, removals)
            what = f"the package {package} is removed" if package else "its files stay"
            return [f"{report.id} is uninstalled: {what}", *said]

    # -- one change --------------------------------------------------------------------------

    def _read(self) -> None:
        self._state = self._reopen()
        self._registry = self._state.plugins

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """One at a time, on settings that were read since. Raises where they are OpenClaw's."""
        from strandline.stores.disk import RealDisk
        from strandline.stores.whole_file import open_lock

        own = self._state.folder / OWN_FILE
        theirs = self._state.settings_path
        if theirs is not None and theirs.name == OPENCLAW_FILE:
            raise ConfigError(
                f"{theirs} is OpenClaw's and is not written",
                remedy=f"create {own} with the settings that are to hold: it takes its place",
            )
        try:
            lock = open_lock(RealDisk(), own)
        except OSError as error:
            raise _unwritten(own, error) from error
        with closing(lock):
            lock.lock(wait=True)
            self._read()
            yield

    def _change(self, changes: Change, removals: Sequence[Key] = ()) -> None:
        from strandline.settings.editing import check_loads, edited
        from strandline.stores.disk import RealDisk
        from strandline.stores.whole_file import replace_whole

        path = (self._state.folder / OWN_FILE).resolve()  # a link stays one
        try:
            text = path.read_bytes().decode() if path.exists() else ""
            new = edited(text, changes, removals)
            if new != text:
                check_loads(new, self._state.environ, str(path))
                replace_whole(RealDisk(), path, new.encode())
        except OSError as error:
            raise _unwritten(path, error) from error

    def _enable(
        self,
        reports: Sequence[PluginReport],
        *,
        select: bool,
        more: Change | None = None,
    ) -> list[str]:
        engines = [engine for each in reports for engine in each.engines]
        ids = ", ".join(each.id for each in reports)
        self._check_clashes(reports)
        if select and len(engines) != 1:
            raise PluginError(
                f"{ids} has {len(engines)} context engines, so none is the one to select",
                remedy="leave out --select, and write the one that is wanted into the slot",
            )
        changes = dict(more or {})
        for each in reports:
            changes["plugins", "entries", each.id, "enabled"] = True
        if select:
            changes[SLOT_KEY] = engines[0]
        self._change(changes)
        chosen = engines[0] if select else self._registry.choices.engine
        said = [f"{ids} is enabled", *_engine_words(engines, chosen, reports[0].id)]
        if not self._registry.choices.enabled:
            said.append("no plugin is used while plugins.enabled is false")
        return said

    def _check_clashes(self, reports: Sequence[PluginReport]) -> None:
        for other in self._registry.but_for({each.id for each in reports}):
            for each in reports:
                same = {*each.engines, *each.tools} & {*other.engines, *other.tools}
                if same:
                    raise PluginError(
                        f"{each.id} registers {', '.join(sorted(same))}, and so does {other.id}",
                        remedy=f"`strandline plugins disable {other.id}` first",
                    )

    def _slot_without(self, gone: Sequence[PluginReport]) -> tuple[dict[Key, Any], list[str]]:
        """The change of the slot, if it named an engine of these, and words about it."""
        selected = self._registry.choices.engine
        if selected == LEGACY:
            return {}, []
        others = self._registry.but_for({each.id for each in gone})
        if any(selected in each.engines for each in others):
            return {}, []
        may_be_theirs = any(each.status in {"failed", "missing"} for each in others)
        if may_be_theirs and not any(self._has(each, selected) for each in gone):
            return {}, []
        back = f"the context engine is {LEGACY!r} again, because {selected!r} was selected"
        return {SLOT_KEY: LEGACY}, [back]

    # -- which plugin is meant -----------------------------------------------------------------

    def _tried(self, plugin_id: str) -> PluginReport:
        """The plugin, loaded. Raises `PluginError` where it cannot be."""
        return _usable(self._loaded(self._known(plugin_id)))

    def _loaded(self, report: PluginReport) -> PluginReport:
        from strandline.plugins.finding import FoundPlugin

        if isinstance(report.found, FoundPlugin):
            return self._registry.try_out(report.found)
        if report.found is not None:
            raise report.found.error
        return report

    def _has(self, report: PluginReport, engine_id: str) -> bool:
        """Whether the plugin has the engine, or would have it if it could be loaded."""
        if report.id == engine_id:
            return True
        try:
            return engine_id in self._loaded(report).engines
        except PluginError:
            return False

    def _unloaded(self) -> list[PluginReport]:
        """Every plugin that is found, without a look into it."""
        return [PluginReport(each.id, "disabled", each) for each in self._registry.found]

    def _known(self, name: str) -> PluginReport:
        """The plugin of that id, or of the linked folder of that path, without a look into it."""
        reports = self._unloaded()
        path = str(Path(name).absolute())
        for each in reports:
            if each.id == name or (each.link and each.source == path):
                return each
        if name in self._registry.choices.entries:
            return PluginReport(name, "missing", error=None)
        owner = next((e.id for e in self._registry.reports() if name in e.engines), None)
        if owner is not None:
            raise PluginError(
                f"{name!a} is a context engine, and no plugin",
                remedy=f"name the plugin that has it: {owner}",
            )
        near = difflib.get_close_matches(name, [each.id for each in reports], n=1)
        meant = f"did you mean {near[0]!r}? " if near else ""
        raise PluginError(
            f"there is no plugin {name!a}",
            remedy=f"{meant}`strandline plugins list` shows what there is",
        )


def _usable(report: PluginReport) -> PluginReport:
    if report.registered is not None:
        return report
    raise report.error or PluginError(
        f"the plugin {report.id} is not installed", remedy="install it first"
    )


def _engine_words(engines: Sequence[str], chosen: str, plugin_id: str) -> list[str]:
    """How to select an engine, or that it is selected."""
    if chosen in engines:
        return [f"the context engine is {chosen!r}"]
    if len(engines) == 1:
        select = f"`strandline plugins enable {plugin_id} --select`"
        return [f"it has the context engine {engines[0]!r}: {select} selects it"]
    if engines:
        names = ", ".join(engines)
        return [f"it has the context engines {names}: plugins.slots.contextEngine selects one"]
    return []


def _unwritten(path: Path, error: OSError) -> StoreWriteFailed:
    return StoreWriteFailed(
        f"{path} was not written ({error.strerror})",
        remedy="make room or correct the permissions; nothing was changed",
    )
