"""The doctor on what conversations show: results, silence, compactions, caches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from strandline.errors import InvalidSessionKey
from strandline.runtime.silence import TOKEN, Occasion, deliverable
from strandline.sessions.keys import SessionKey
from strandline.sessions.rows import SessionRow
from strandline.wiring.doctor.finding import Finding
from strandline.wiring.doctor.patient import Patient, TranscriptFile
from strandline.wiring.doctor.transcript_look import NEWEST_ENTRIES, TranscriptLook
from strandline.wiring.policies import model_resolver, policy_of

BLOATED_SHARE = 0.5
BLOATED_TOKENS = 10_000

MOST_REQUESTS_A_COMPACTION = 2
FEWEST_COMPACTIONS = 3

LOW_CACHE_PERCENT = 30
CACHE_TOKENS = 100_000
"""Of fewer tokens the share of a cache says nothing."""


def check_conversations(patient: Patient) -> Iterator[Finding]:
    """The live conversations among the newest transcripts."""
    live = [(file, look) for file, look in patient.read if file.row and not look.error]
    for file, look in live:
        yield from _bloated(patient, file, look)
        yield from _silence(file, look)
        yield from _compacting(file, look)
    for agent_id, store in patient.stores.items():
        for key, row in store.rows.items():
            yield from _cache(patient, agent_id, key, row)
    yield Finding("conversations.looked", "ok", f"conversations looked at: {len(live):,}")


def _bloated(patient: Patient, file: TranscriptFile, look: TranscriptLook) -> Iterator[Finding]:
    own = patient.state.settings.agent(file.agent_id)
    large = look.tool_tokens > max(BLOATED_TOKENS, look.tokens * BLOATED_SHARE)
    if large and own.context_pruning.mode == "off":
        share = look.tool_tokens / look.tokens
        yield Finding(
            "conversations.bloated_results",
            "warning",
            f"{file.key}: {share:.0%} of its context, about {look.tool_tokens:,} tokens, are "
            "results of tools, and none is ever trimmed",
            "set contextPruning.mode of the agent to 'cache-ttl'",
        )


def _silence(file: TranscriptFile, look: TranscriptLook) -> Iterator[Finding]:
    """Replies that were to be silent and were delivered all the same."""
    chat = chat_type_of(file.key or "", file.row)
    shown = [deliverable(text, Occasion(chat_type=chat)) for text in look.tokenish]
    leaked = [text for text in shown if _has_token_at_an_end(text)]
    cut = [
        text
        for text, told in zip(look.tokenish, shown, strict=True)
        if told and told != text and chat == "direct"
    ]
    if leaked:
        yield Finding(
            "conversations.leaking_silence",
            "warning",
            f"{file.key}: delivered with {TOKEN} at an end: {len(leaked):,} replies",
            f"tell the agent to answer {TOKEN} and nothing else where it has nothing to say",
        )
    if cut:
        yield Finding(
            "conversations.half_silent",
            "info",
            f"{file.key}: delivered without the {TOKEN} that ended them, as this is a direct "
            f"chat: {len(cut):,} replies",
            f"tell the agent to answer {TOKEN} and nothing else where it has nothing to say",
        )


def _has_token_at_an_end(text: str) -> bool:
    bare = text.strip(" \t\r\n.!,;:*_`\"'()[]").upper()
    return bare.startswith(TOKEN) or bare.endswith(TOKEN)


def chat_type_of(key: str, row: SessionRow | None) -> Literal["direct", "group", "room"]:
    """What kind of chat a session is: what its row says, else what its key is."""
    said = row.chat_type if row else None
    if said == "group":
        return "group"
    if said in {"room", "channel"}:
        return "room"
    try:
        kind = SessionKey.parse(key).kind
    except InvalidSessionKey:
        return "direct"
    if said is None and kind in {"channel", "room"}:
        return "room"
    return "group" if said is None and kind == "group" else "direct"


def _compacting(file: TranscriptFile, look: TranscriptLook) -> Iterator[Finding]:
    few = look.requests <= look.compactions * MOST_REQUESTS_A_COMPACTION
    if look.compactions >= FEWEST_COMPACTIONS and few:
        yield Finding(
            "conversations.compacts_often",
            "warning",
            f"{file.key}: {look.compactions:,} compactions for {look.requests:,} messages of a "
            f"person among its newest {NEWEST_ENTRIES:,} entries",
            "lower compaction.reserveTokens and keepRecentTokens, trim tool results "
            "(contextPruning), or use a larger window",
        )


def _cache(patient: Patient, agent_id: str, key: str, row: SessionRow) -> Iterator[Finding]:
    read, fresh = row.cache_read or 0, (row.input_tokens or 0) + (row.cache_write or 0)
    if read + fresh < CACHE_TOKENS or read * 100 >= (read + fresh) * LOW_CACHE_PERCENT:
        return
    own = patient.state.settings.agent(agent_id)
    resolver = model_resolver(patient.state.settings.models)
    policy = policy_of(own, chat_type=chat_type_of(key, row), resolve_model=resolver)
    if policy.prunes and not policy.cache_aware.enabled:
        yield Finding(
            "conversations.cache_misses",
            "info",
            f"{key}: of {read + fresh:,} tokens sent, {read / (read + fresh):.0%} were read from "
            "the provider's cache, and rules move the beginning of its context",
            "`strandline context replay FILE` tells what context.cacheAware would save",
        )
