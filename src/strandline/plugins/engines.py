"""Making the selected engine, and saying exactly why it cannot be made.

There is no fallback: every failure is an `EngineUnavailable` with the engine, the phase and
the ways out. Source: spec 3, Engine slot (No silent fallback).
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from strandline.context.engine import ContextEngine, EngineContext, EngineFactory, EngineInfo
from strandline.errors import EngineUnavailable, StrandlineError
from strandline.plugins.api import ID
from strandline.plugins.loading import discreet, words
from strandline.plugins.reports import PluginChoices, PluginReport

SLOT = "plugins.slots.contextEngine"
_MODES = ("foreground", "background")


def create(
    engine_id: str, factory: EngineFactory, context: EngineContext, abilities: AbstractSet[str]
) -> ContextEngine:
    """A new engine that is what it should be. Raises `EngineUnavailable`."""
    try:
        engine: object = factory(context)
    except StrandlineError as error:
        said, remedy = (discreet(text, context.config) for text in (error.what, error.remedy))
        raise unavailable(engine_id, "create", said, remedy) from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - an engine is anybody's code
        raise unavailable(engine_id, "create", words(error, context.config)) from None
    if inspect.iscoroutine(engine):
        engine.close()
    if not isinstance(engine, ContextEngine):
        said = f"its factory gave a {type(engine).__name__}, not a ContextEngine"
        raise unavailable(engine_id, "create", said)
    wrong = _what_is_wrong(engine_id, getattr(engine, "info", None))
    if wrong:
        raise unavailable(engine_id, "create", wrong)
    missing = sorted(set(engine.info.host_requirements) - abilities)
    if missing:
        said = f"it needs of its host what there is not: {', '.join(missing)}"
        raise unavailable(engine_id, "requirements", said, "use a model or version that has it")
    return engine


def _what_is_wrong(engine_id: str, info: object) -> str:
    """What the `info` of an engine lacks, or nothing."""
    if not isinstance(info, EngineInfo):
        return f"its info is a {type(info).__name__}, not an EngineInfo"
    needs = info.host_requirements
    wrong = [
        (info.id != engine_id, f"it calls itself {info.id!a} in its info"),
        (not isinstance(info.name, str) or not info.name, "the name in its info is not a text"),
        (not isinstance(info.version, str), "the version in its info is not a text"),
        (not isinstance(info.owns_compaction, bool), "owns_compaction in its info is no bool"),
        (
            info.turn_maintenance_mode not in _MODES,
            f"turn_maintenance_mode in its info is neither {' nor '.join(_MODES)}",
        ),
        (
            not isinstance(needs, tuple) or not all(isinstance(each, str) for each in needs),
            "host_requirements in its info is not a tuple of texts",
        ),
    ]
    return next((said for is_so, said in wrong if is_so), "")


def contested(engine_id: str, plugins: Sequence[str]) -> EngineUnavailable:
    """The error for an engine that more than one plugin registered."""
    return unavailable(
        engine_id,
        "register",
        f"the plugins {' and '.join(plugins)} both register it",
        "`strandline plugins disable` one of them",
    )


def unknown(
    engine_id: str,
    choices: PluginChoices,
    reports: Sequence[PluginReport],
    engine_ids: Sequence[str],
) -> EngineUnavailable:
    """The error for an engine that nobody registered, with all that may explain it."""
    own = next((each for each in reports if each.id == engine_id), None)
    if own is not None and own.status == "disabled":
        if choices.enabled:
            said, remedy = f"the plugin {own.id} is not enabled", "`strandline plugins enable`"
            return unavailable(engine_id, "find", said, f"{remedy} {own.id}")
        return unavailable(engine_id, "find", "plugins.enabled is false", "set it to true")
    if (own is None or own.status == "missing") and _is_javascript(engine_id, choices):
        said = "it is an engine in JavaScript for OpenClaw, which cannot run here"
        return unavailable(engine_id, "find", said, "install a context engine for Strandline")
    failed = [each for each in reports if each.error and _is_wanted(each, choices)]
    culprits = [own] if own in failed else failed
    if culprits and culprits[0] is not None:
        said = "; ".join(each.error.what for each in culprits if each and each.error)
        return unavailable(engine_id, culprits[0].phase or "find", said, "correct the plugin")
    return _nowhere(engine_id, reports, engine_ids)


def _nowhere(
    engine_id: str, reports: Sequence[PluginReport], engine_ids: Sequence[str]
) -> EngineUnavailable:
    said = f"there is none of that id; registered: {', '.join(engine_ids)}"
    disabled = [each.id for each in reports if each.status == "disabled"]
    if disabled:
        said += f"; plugins that are not enabled: {', '.join(disabled)}"
    near = difflib.get_close_matches(engine_id, engine_ids, n=1)
    meant = f"write {near[0]!r} if that is meant, or " if near else ""
    remedy = f"{meant}`strandline plugins install` the plugin that has it"
    return unavailable(engine_id, "find", said, remedy)


def _is_wanted(report: PluginReport, choices: PluginChoices) -> bool:
    """Whether somebody counts on the plugin: it is enabled, or its folder linked."""
    return report.status != "disabled" and bool(report.link or choices.wants(report.id))


def _is_javascript(engine_id: str, choices: PluginChoices) -> bool:
    """Whether the id is most likely that of a plugin of OpenClaw."""
    if choices.openclaw_file is not None:
        return True
    if choices.extensions is None or not ID.fullmatch(engine_id):
        return False
    folder = choices.extensions / engine_id
    return any((folder / name).exists() for name in ("openclaw.plugin.json", "package.json"))


def unavailable(
    engine_id: str, phase: str, said: str, remedy: str = "correct the engine"
) -> EngineUnavailable:
    """The error: what cannot be used and why, and both ways out."""
    return EngineUnavailable(
        f"the context engine {engine_id[:64]!r} cannot be used ({phase}): {said}",
        engine=engine_id,
        phase=phase,
        remedy=f"{remedy or 'correct the engine'}, or set {SLOT} to 'legacy'",
    )
