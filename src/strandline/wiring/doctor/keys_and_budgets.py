"""The doctor on what works and is hardly meant so: keys not in use, windows, reserves."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from strandline.context.budget import Budget
from strandline.errors import InvalidSessionKey, StrandlineError
from strandline.sessions.keys import SessionKey
from strandline.wiring.doctor.files import named
from strandline.wiring.doctor.finding import Finding
from strandline.wiring.doctor.patient import Patient, StoreLook
from strandline.wiring.explaining import with_builtin_engine

SMALL_LIMIT_TOKENS = 4_000
"""With less for messages than this, a conversation is summarised after a few of them."""

SMALL_ROOM_TOKENS = 2_000
"""With less room than this after a compaction, nearly every turn compacts."""


# -- keys ------------------------------------------------------------------------------------


def check_keys(patient: Patient) -> Iterator[Finding]:
    """Rows under keys that nothing writes to any more."""
    for agent_id, store in patient.stores.items():
        yield from _unreachable(agent_id, store)
        if patient.config_error is None:
            yield from _other_buckets(patient, agent_id, store)


def _unreachable(agent_id: str, store: StoreLook) -> Iterator[Finding]:
    no_keys, of_others, unread = [], [], []
    for key in store.rows:
        try:
            parsed = SessionKey.parse(key)
        except InvalidSessionKey:
            no_keys.append(ascii(key))
            continue
        if parsed.agent_id not in {None, agent_id}:
            of_others.append(key)
        elif str(parsed) != key and (str(parsed).lower() != key or str(parsed) in store.rows):
            unread.append(f"{key} (in use: {parsed})")
    for kind, keys, why in (
        ("no_key", no_keys, "can be no session key"),
        ("other_agent", of_others, f"is of another agent than {agent_id}"),
        ("unread", unread, "is not the spelling that is looked up"),
    ):
        if keys:
            yield Finding(
                f"keys.{kind}",
                "warning",
                f"{store.path}: {named(keys)} {why}: nothing writes to it",
                "give the row the key that is in use, or take it out",
            )


def _other_buckets(patient: Patient, agent_id: str, store: StoreLook) -> Iterator[Finding]:
    """Direct chats under another main key than the settings make."""
    in_use = patient.state.main_key(agent_id)
    others = [key for key in store.rows if key != in_use and _is_main(key)]
    if not others or in_use in store.rows:
        others = [key for key in others if key == f"agent:{agent_id}:main"]
    if others:
        yield Finding(
            "keys.other_main",
            "warning" if f"agent:{agent_id}:main" in others else "info",
            f"{store.path}: direct chats go to {in_use} (session.mainKey), not to {named(others)}",
            "set session.mainKey to the last part of the key whose conversation is to go on, or "
            "name the key with --session-key",
        )


def _is_main(key: str) -> bool:
    try:
        parsed = SessionKey.parse(key)
    except InvalidSessionKey:
        return False
    return parsed.kind == "main" and not parsed.is_thread and not parsed.id.startswith("tui-")


# -- budgets ---------------------------------------------------------------------------------


def check_budgets(patient: Patient) -> Iterator[Finding]:
    """Windows that hold too little, reserves that leave too little."""
    for agent_id in patient.agent_ids:
        yield from _budget_of(patient, agent_id)


def _budget_of(patient: Patient, agent_id: str) -> Iterator[Finding]:
    try:
        agent = with_builtin_engine(patient.state).agent_for(agent_id, None, offline=True)
    except StrandlineError:
        return  # its model is a finding already
    try:
        budget = agent.budget()
    except StrandlineError as error:
        yield Finding("budget.no_room", "error", f"agent {agent_id}: {error.what}", error.remedy)
        return
    finally:
        asyncio.run(agent.aclose())
    ref = agent.info.ref
    if agent.info.api == "local":
        yield Finding(
            "budget.local_model",
            "info",
            f"agent {agent_id}: {ref} is there to try things out: messages may take "
            f"{budget.limit:,} of its {budget.window:,} tokens, so it compacts often",
            "set agents.defaults.model to another model for more",
        )
        return
    if budget.limit < SMALL_LIMIT_TOKENS:
        yield Finding(
            "budget.small_window",
            "warning",
            f"agent {agent_id}: of the {budget.window:,} tokens of {ref}, messages may take "
            f"{budget.limit:,}",
            "use a model with a larger window, or a shorter system prompt and fewer tools",
        )
    yield from _reserve(patient, agent_id, budget)
    room = budget.limit - budget.keep_recent - budget.summary_cap
    if agent.compaction.effective_mode == "auto" and room < SMALL_ROOM_TOKENS:
        yield Finding(
            "budget.compacts_often",
            "warning",
            f"agent {agent_id}: a compaction leaves room for {max(0, room):,} tokens before the "
            "next one: nearly every turn compacts",
            "lower compaction.keepRecentTokens and reserveTokens, or use a larger window",
        )
    what = f"agent {agent_id}: messages may take {budget.limit:,} of {budget.window:,} tokens"
    yield Finding("budget.resolved", "ok", what)


def _reserve(patient: Patient, agent_id: str, budget: Budget) -> Iterator[Finding]:
    own = patient.state.settings.agent(agent_id).compaction
    wanted = max(own.reserve_tokens, own.reserve_tokens_floor)
    if wanted <= budget.reserve:
        return
    is_written = bool({"reserve_tokens", "reserve_tokens_floor"} & own.model_fields_set)
    yield Finding(
        "budget.high_reserve",
        "warning" if is_written else "info",
        f"agent {agent_id}: a reserve of {wanted:,} tokens is too high for a window of "
        f"{budget.window:,}; {budget.reserve:,} are kept free instead",
        "set compaction.reserveTokens to a quarter of the window or less, reserveTokensFloor to 0",
    )
