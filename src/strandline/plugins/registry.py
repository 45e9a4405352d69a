"""The plugins of a state directory: found, the enabled ones loaded, their engines made.

Nothing happens before something is asked for, and nothing twice. A plugin that fails is
recorded and breaks nothing but itself, unless its engine is the selected one.
Source: spec 3, Engine slot (Plugins).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import cached_property
from threading import RLock
from typing import Literal

from strandline.context.engine import (
    LEGACY,
    ContextEngine,
    EngineContext,
    EngineFactory,
    LegacyEngine,
)
from strandline.errors import EngineUnavailable, PluginError
from strandline.plugins.api import PluginApi
from strandline.plugins.engines import contested, create, unknown
from strandline.plugins.finding import Findings, FoundPlugin, NotFound, installed, linked
from strandline.plugins.loading import PluginFailure, load
from strandline.plugins.reports import PluginChoices, PluginReport, Status
from strandline.runtime.hooks import Hooks
from strandline.runtime.tools import Tool

Kind = Literal["engines", "tools"]


class PluginRegistry:
    """Plugins by their ids, and engines by theirs. Any thread may ask.

    `taken_tools` are names that no plugin's tool can have; `find_installed` is the search
    among the installed packages.
    """

    def __init__(
        self,
        choices: PluginChoices,
        *,
        taken_tools: AbstractSet[str] = frozenset(),
        find_installed: Callable[[], Findings] = installed,
    ) -> None:
        self.choices = choices
        self._taken_tools = taken_tools
        self._find_installed = find_installed
        self._lock = RLock()

    # -- what there is ---------------------------------------------------------------------

    def reports(self) -> Sequence[PluginReport]:
        """Every plugin that is found, or that the settings enable, by id."""
        with self._lock:
            return self._reports

    def tools(self) -> list[Tool]:
        """The tools of the loaded plugins, by name; one that two of them offer is left out."""
        owners = self._owners("tools")
        tools = [tool for each in self._loaded() for tool in each.tools]
        return sorted((t for t in tools if len(owners[t.name]) == 1), key=lambda tool: tool.name)

    def hooks(self) -> Hooks:
        """The hooks of the loaded plugins, in the order of the plugins' ids."""
        every = Hooks()
        for each in self._loaded():
            every.session_before_compact += each.hooks.session_before_compact
            every.session_before_tree += each.hooks.session_before_tree
        return every

    def engine_ids(self) -> list[str]:
        """The engines that can be selected."""
        return [LEGACY, *sorted(self._owners("engines"))]

    def try_out(self, found: FoundPlugin) -> PluginReport:
        """Load a plugin that need not be enabled, to see whether it can be."""
        return self._load(found)

    def but_for(self, ids: AbstractSet[str]) -> Sequence[PluginReport]:
        """The reports of the other plugins; those of these ids are not loaded for it."""
        found = [self._report(each) for each in self.found if each.id not in ids]
        return [*found, *(each for each in self._missing() if each.id not in ids)]

    # -- engines -----------------------------------------------------------------------------

    def engine_factory(self, engine_id: str) -> EngineFactory:
        """What makes the engine. Raises `EngineUnavailable` with the ways out."""
        if engine_id == LEGACY:
            return lambda _: LegacyEngine()
        return self._owner(engine_id).engines[engine_id]

    def make_engine(
        self, engine_id: str, context: EngineContext, abilities: AbstractSet[str]
    ) -> ContextEngine:
        """A new engine that is what it should be; its `config` is that of its plugin.

        `abilities` are what the host can do (`HOST_ABILITIES`). Raises `EngineUnavailable`.
        """
        factory = self.engine_factory(engine_id)
        if engine_id != LEGACY:
            context = replace(context, config=self._owner(engine_id).config)
        return create(engine_id, factory, context, abilities)

    def engine_error(self) -> str | None:
        """Why the selected engine cannot be used, as far as that shows before it is made."""
        try:
            self.engine_factory(self.choices.engine)
        except EngineUnavailable as error:
            return str(error)
        return None

    def _owner(self, engine_id: str) -> PluginApi:
        owners = self._owners("engines").get(engine_id, [])
        if len(owners) > 1:
            raise contested(engine_id, owners)
        if not owners:
            raise unknown(engine_id, self.choices, self.reports(), self.engine_ids())
        return next(each for each in self._loaded() if each.id == owners[0])

    # -- finding and loading, once -------------------------------------------------------------

    @cached_property
    def found(self) -> Findings:
        """What is installed and linked; nothing of it is loaded. Each id stands here once."""
        folders = [linked(folder, link) for link, folder in self.choices.folders]
        sources: dict[str, list[FoundPlugin | NotFound]] = {}
        for each in [*self._find_installed(), *folders]:
            sources.setdefault(each.id, []).append(each)
        return [
            group[0] if len(group) == 1 else _twice(group) for _, group in sorted(sources.items())
        ]

    @cached_property
    def _reports(self) -> Sequence[PluginReport]:
        reports = [*(self._report(each) for each in self.found), *self._missing()]
        return sorted(_with_clashes(reports), key=lambda each: each.id)

    def _missing(self) -> list[PluginReport]:
        known = {each.id for each in self.found}
        return [
            PluginReport(plugin_id, "missing", error=_missing(plugin_id), phase="find")
            for plugin_id in self.choices.entries
            if plugin_id not in known and self.choices.wants(plugin_id)
        ]

    def _report(self, found: FoundPlugin | NotFound) -> PluginReport:
        is_wanted = self.choices.wants(found.id)
        if isinstance(found, NotFound):
            is_off = found.id in self.choices.entries and not is_wanted
            status: Status = "disabled" if is_off else "failed"
            return PluginReport(found.id, status, found, error=found.error, phase="find")
        if not is_wanted:
            return PluginReport(found.id, "disabled", found)
        disable = f"`strandline plugins disable {found.id}`"
        try:
            report = self._load(found)
        except KeyboardInterrupt as stop:
            raise KeyboardInterrupt(f"{stop}: {disable} if it hangs") from None
        if report.error is None:
            return report
        error = PluginError(report.error.what, remedy=f"{report.error.remedy}, or {disable}")
        return replace(report, error=error)

    def _load(self, found: FoundPlugin) -> PluginReport:
        made = load(found, self.choices.of(found.id).config, self._taken_tools)
        if isinstance(made, PluginFailure):
            return PluginReport(found.id, "failed", found, error=made.error, phase=made.phase)
        return PluginReport(found.id, "loaded", found, made)

    def _loaded(self) -> list[PluginApi]:
        """What the enabled plugins registered. Where none is, nothing is looked for."""
        if not any(map(self.choices.wants, self.choices.entries)):
            return []
        return [each.registered for each in self.reports() if each.registered]

    def _owners(self, kind: Kind) -> dict[str, list[str]]:
        return _owners(self._loaded(), kind)


def _owners(loaded: Sequence[PluginApi], kind: Kind) -> dict[str, list[str]]:
    """Which plugins registered a name: engines or tools by theirs."""
    owners: dict[str, list[str]] = {}
    for each in loaded:
        names = each.engines if kind == "engines" else [tool.name for tool in each.tools]
        for name in names:
            owners.setdefault(name, []).append(each.id)
    return owners


def _with_clashes(reports: Sequence[PluginReport]) -> list[PluginReport]:
    """The reports, with an error where two plugins registered one name."""
    loaded = [each.registered for each in reports if each.registered]
    clashes = [
        (kind, name, ids)
        for kind in ("engines", "tools")
        for name, ids in _owners(loaded, kind).items()
        if len(ids) > 1
    ]
    said = {
        plugin_id: PluginError(
            f"the plugins {' and '.join(ids)} register the same name among their {kind}, {name}",
            remedy="`strandline plugins disable` one of them",
        )
        for kind, name, ids in clashes
        for plugin_id in ids
    }
    return [
        replace(each, error=said[each.id], phase="register") if each.id in said else each
        for each in reports
    ]


def _twice(group: Sequence[FoundPlugin | NotFound]) -> NotFound:
    """Two plugins of one id are none."""
    sources = " and ".join(each.source for each in group)
    error = PluginError(
        f"two plugins are called {group[0].id}: {sources}",
        remedy="remove one: a package with pip, a folder from plugins.load.paths",
    )
    return NotFound(group[0].id, sources, error, next((e.link for e in group if e.link), ""))


def _missing(plugin_id: str) -> PluginError:
    return PluginError(
        f"the plugin {plugin_id} is enabled and not installed",
        remedy=f"install it, or `strandline plugins uninstall {plugin_id}`",
    )
