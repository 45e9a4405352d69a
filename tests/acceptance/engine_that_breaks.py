"""A plugin whose engine fails in the phase, and in the way, that ``broken.json`` beside it says.

The tests copy it into folders of plugins (`test_engines_broken_on_purpose`).
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from strandline.context.engine import ContextEngine, EngineContext, EngineInfo, LegacyEngine
from strandline.plugins.api import PluginApi

HERE = Path(__file__).with_name("broken.json")
ANSWERING = {"ingest", "ingest_batch", "assemble", "compact", "prepare_subagent_spawn"}
SILENT = {"bootstrap", "after_turn", "maintain", "on_subagent_ended", "dispose"}


def how(phase: str) -> str | None:
    """In which way this phase is to fail, if it is."""
    wanted = json.loads(HERE.read_text())
    return str(wanted["how"]) if wanted["phase"] == phase else None


def fail(phase: str) -> Any:
    """Fail at once, where that is wanted; an answer of no type where that is."""
    match how(phase):
        case "raise":
            raise RuntimeError("no such\ntable")
        case "exit":
            raise SystemExit(3)
        case "type":
            return 7
    return None


class Fragile(LegacyEngine):
    """The built-in engine, until it breaks."""

    info = EngineInfo("fragile", "Fragile")


def breakable(name: str) -> Any:
    """A method that may fail; those whose answer nobody looks at are no coroutines then."""
    sound: Any = getattr(LegacyEngine, name)

    async def call(self: Fragile, *request: Any) -> Any:
        if how(name) == "hang":
            await asyncio.Event().wait()
        return fail(name) or await sound(self, *request)

    def now_and_then(self: Fragile, *request: Any) -> Any:
        if name == "maintain" and request[0].reason != json.loads(HERE.read_text())["reason"]:
            return sound(self, *request)
        return 7 if name in SILENT and how(name) == "type" else call(self, *request)

    return now_and_then


for each in ANSWERING | SILENT:
    setattr(Fragile, each, breakable(each))


def create(context: EngineContext) -> ContextEngine:
    """The factory."""
    del context
    odd: ContextEngine | None = fail("create")
    engine = Fragile()
    if how("requirements"):
        engine.info = replace(Fragile.info, host_requirements=("teleport",))
    if how("info"):
        engine.info = replace(Fragile.info, id="robust")
    return odd or engine


def register(api: PluginApi) -> None:
    """What the plugin brings."""
    if fail("register"):
        api.register_context_engine("fragile", 7)  # type: ignore[arg-type]  # that is the point
    api.register_context_engine("fragile", create)
