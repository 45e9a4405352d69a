"""The doctor on context engines and the plugins that bring them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from strandline.context.engine import (
    HOST_ABILITIES,
    LEGACY,
    THREADS,
    ContextEngine,
    EngineContext,
)
from strandline.errors import TWO_WAYS_OUT, ConfigError, EngineError
from strandline.plugins.registry import PluginRegistry
from strandline.plugins.reports import PluginReport
from strandline.runtime.engine_health import EngineFailure
from strandline.wiring.doctor.finding import Finding, Severity
from strandline.wiring.doctor.patient import Patient
from strandline.wiring.health import engine_health

DISPOSE_S = 10.0

MOST_FAILURES = 5
"""So many failures are told, the newest."""


def check_engine(patient: Patient) -> Iterator[Finding]:
    """The selected engine can be made for every agent, and what failed lately."""
    selected = patient.state.settings.plugins.slots.context_engine
    if patient.config_error is None:
        yield from _can_be_made(patient, selected)
    yield from _failures(patient, selected)


def _can_be_made(patient: Patient, selected: str) -> Iterator[Finding]:
    if selected == LEGACY:
        yield Finding("engine.usable", "ok", "the built-in engine is selected")
        return
    registry = patient.state.plugins
    for agent_id in patient.agent_ids:
        try:
            engine = _made(patient, registry, selected, agent_id)
        except EngineError as error:
            yield Finding("engine.unusable", "error", error.what, error.remedy)
            return
        owns = "owns compaction" if engine.info.owns_compaction else "does not own compaction"
        what = f"agent {agent_id}: the engine {selected} can be made; it {owns}"
        yield Finding("engine.usable", "ok", what)
        yield from _disposed(selected, engine)


def _made(
    patient: Patient, registry: PluginRegistry, selected: str, agent_id: str
) -> ContextEngine:
    """The engine as the agent would get it. Raises `EngineUnavailable`."""
    try:
        threads = patient.state.model_info(patient.state.model_ref(agent_id)).threads
    except ConfigError:
        threads = False
    folder, workspace = patient.folder / "agents" / agent_id, patient.state.workspace(agent_id)
    context = EngineContext(agent_dir=str(folder), workspace_dir=str(workspace))
    abilities = HOST_ABILITIES | ({THREADS} if threads else frozenset())
    return registry.make_engine(selected, context, abilities)


def _disposed(selected: str, engine: ContextEngine) -> Iterator[Finding]:
    try:
        asyncio.run(asyncio.wait_for(engine.dispose(), DISPOSE_S))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - an engine is anybody's code
        what = f"the engine {selected} failed in dispose ({type(error).__name__}: {error})"
        yield Finding("engine.failing", "error", what, TWO_WAYS_OUT)


def _failures(patient: Patient, selected: str) -> Iterator[Finding]:
    warnings: list[str] = []
    failures = engine_health(patient.folder, patient.clock, warnings.append).recent()
    for failure in failures[:MOST_FAILURES]:
        yield _failure(failure, patient.clock.now_ms(), is_selected=failure.engine == selected)
    for warning in warnings:
        yield Finding("engine.no_records", "warning", warning, "remove the file")


def _failure(failure: EngineFailure, now_ms: int, *, is_selected: bool) -> Finding:
    where = f" on {failure.session_key}" if failure.session_key else ""
    minutes = max(0, now_ms - failure.at_ms) // 60_000
    when = f"{failure.times:,} times, last {minutes // 60:,} h {minutes % 60} min ago"
    severity: Severity = "warning" if is_selected else "info"
    if failure.declined:
        return Finding(
            "engine.declines_compaction",
            severity,
            f"the engine {failure.engine}, which does not own compaction, did nothing when it was "
            f"asked to compact{where} ({when})",
            "let its compact call delegate_compaction_to_runtime, or own compaction",
        )
    what = f"the engine {failure.engine} failed in {failure.phase}{where}: {failure.what} ({when})"
    remedy = TWO_WAYS_OUT if is_selected else "it is not selected any more: nothing has to be done"
    return Finding("engine.failed", severity, what, remedy)


def check_plugins(patient: Patient) -> Iterator[Finding]:
    """The plugins that are there, and those that fail."""
    reports = patient.state.plugins.reports()
    for report in reports:
        yield _plugin(report)
    if not reports:
        yield Finding("plugins.none", "ok", "there is no plugin")


def _plugin(report: PluginReport) -> Finding:
    if report.error is not None:
        is_fatal = report.status in {"failed", "missing"}
        severity: Severity = "error" if is_fatal else "warning"
        return Finding("plugins.broken", severity, report.error.what, report.error.remedy)
    if report.status == "disabled":
        remedy = f"`strandline plugins enable {report.id}` if it is wanted"
        what = f"the plugin {report.id} ({report.source}) is not enabled"
        return Finding("plugins.disabled", "info", what, remedy)
    has = [*(f"engine {name}" for name in report.engines), *(f"tool {n}" for n in report.tools)]
    what = f"the plugin {report.id} ({report.source}) has {', '.join(has) or 'nothing of its own'}"
    return Finding("plugins.loaded", "ok", what)
