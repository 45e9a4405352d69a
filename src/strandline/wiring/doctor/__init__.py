"""The doctor: finds what is wrong with a state directory, each thing with its remedy.

It looks, and changes nothing. A check is a function from a `Patient` to findings; one that
fails is a finding itself, so that a damaged state never keeps the others from being told.
Source: spec 3, Watching.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from strandline.clock import Clock, SystemClock
from strandline.errors import StrandlineError
from strandline.sessions.keys import check_agent_id
from strandline.wiring.doctor.conversations import check_conversations
from strandline.wiring.doctor.engines import check_engine, check_plugins
from strandline.wiring.doctor.files import (
    check_locks,
    check_permissions,
    check_store,
    check_transcripts,
)
from strandline.wiring.doctor.finding import Check, Finding, Severity
from strandline.wiring.doctor.keys_and_budgets import check_budgets, check_keys
from strandline.wiring.doctor.patient import Patient
from strandline.wiring.doctor.setup import check_config, check_models

__all__ = ["CHECKS", "Finding", "Severity", "diagnose"]

CHECKS: Mapping[str, Check] = {
    "config": check_config,
    "engine": check_engine,
    "plugins": check_plugins,
    "models": check_models,
    "store": check_store,
    "transcripts": check_transcripts,
    "locks": check_locks,
    "permissions": check_permissions,
    "keys": check_keys,
    "budget": check_budgets,
    "conversations": check_conversations,
}
"""Every check by its group, in the order in which they are told."""

NEED_SETTINGS = frozenset({"plugins", "models", "budget", "conversations"})
"""Groups that have nothing to look at where the settings cannot be used."""


def diagnose(
    folder: Path,
    environ: Mapping[str, str],
    *,
    agent_id: str | None = None,
    clock: Clock | None = None,
) -> Iterator[Finding]:
    """Everything that is found in the state directory `folder`, of one agent or of all.

    Raises `InvalidSessionKey` for what can be no agent's id, and nothing else.
    """
    only = None if agent_id is None else check_agent_id(agent_id)
    patient = Patient(folder, environ, clock or SystemClock(), only)
    for group, check in CHECKS.items():
        yield from _survived(group, check, patient)


def _survived(group: str, check: Check, patient: Patient) -> Iterator[Finding]:
    """What a check finds; that there is nothing to find; that it failed, if it did."""
    if group in NEED_SETTINGS and patient.config_error is not None:
        what = f"{group}: not looked at, because the settings cannot be used"
        yield Finding(f"{group}.not_looked", "info", what, "correct the settings first")
        return
    told = False
    try:
        for finding in check(patient):
            told = True
            yield finding
    except StrandlineError as error:
        yield Finding(f"{group}.not_checked", "error", error.what, error.remedy)
    except Exception as error:  # noqa: BLE001 - what is damaged in any way must not end the others
        what = f"not all of {group} could be checked ({type(error).__name__}: {error})"
        yield Finding(f"{group}.not_checked", "error", what, "correct what is named, or report it")
    else:
        if not told:
            yield Finding(f"{group}.well", "ok", "nothing is wrong here")
