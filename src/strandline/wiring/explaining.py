"""Explaining the context of a session: what its next request would be made of, and why.

The context is assembled as a turn would do it, at any time, and nothing is sent or written:
where a summary of layer 4 is not at hand, the offline summariser's stands in its place, so that
sizes are honest. Source: spec 3, Watching.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from strandline.context.assemble import within
from strandline.context.budget import Budget
from strandline.context.engine import LEGACY
from strandline.context.explain import Explanation, explain, whole_path
from strandline.context.policy import ContextPolicy
from strandline.context.view import View
from strandline.errors import ContextOverflow, SessionNotFound
from strandline.runtime.agent import Agent
from strandline.runtime.assembling import Assembled, Assembling
from strandline.runtime.compacting import Compactor
from strandline.runtime.engine_host import EngineHost
from strandline.runtime.engine_session import EngineSession
from strandline.runtime.events import LayerSummarised, Notice, TurnEvent
from strandline.runtime.layer_summaries import (
    LayerSummarizing,
    MemorySummaryMemo,
    Records,
    SummaryMemo,
)
from strandline.runtime.model import ModelInfo
from strandline.runtime.offline import OfflineSummarizer
from strandline.runtime.registry import OpenSession
from strandline.runtime.standing import chat_type_of
from strandline.sessions.rows import SessionRow
from strandline.settings.loading import load_context_file
from strandline.settings.plugins import PluginSlots
from strandline.stores.rows_file import transcript_path
from strandline.stores.session_records import SessionRecords
from strandline.transcript.session import Session
from strandline.wiring.looked_at import LookedAt
from strandline.wiring.policies import model_resolver, policy_of
from strandline.wiring.state import State


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of a session: for which agent, at which moment (Unix ms), by which rules.

    `key` is that of a session of the store, None for a transcript alone. `config` is a settings
    file whose rules hold instead of the agent's. `window` takes the place of the model's.
    """

    agent_id: str
    now_ms: int
    key: str | None = None
    config: Path | None = None
    model_ref: str | None = None
    window: int | None = None


@dataclass(frozen=True, slots=True)
class Explained:
    """An explanation, the model it is for, and what a person should know besides."""

    explanation: Explanation
    model: ModelInfo
    notes: Sequence[str]


def transcript_of(state: State, question: Question) -> Path:
    """The transcript of the session that is asked about. Raises `SessionNotFound`."""
    return transcript_path(state.sessions_folder(question.agent_id), _row_of(state, question))


async def explained(state: State, session: Session, question: Question) -> Explained:
    """The context of the next request on `session`, explained.

    The selected engine is asked for a session of the store; for a transcript alone there are
    the rules only. Raises `ConfigError`, `EngineError`.
    """
    notes: list[str] = []
    selected = state.settings.plugins.slots.context_engine
    if question.key is None and selected != LEGACY:
        state = with_builtin_engine(state)
        notes.append(f"the rules alone: the engine {selected} is asked with --session-key only")
    agent = state.agent_for(
        question.agent_id,
        session.build_context().model,
        question.model_ref or _chosen_model(state, question),
        offline=True,
        window=question.window,
    )
    try:
        agent = _standing_still(state, session, agent, question)
        scale = _scale(session, agent, question)
        explanation = await _explained(session, agent, question.key or "", scale, notes)
    finally:
        await agent.aclose()
        disposed = await agent.engine.take().release()
    if disposed is not None:
        notes.append(str(disposed))
    return Explained(explanation, agent.info, notes)


def _scale(session: Session, agent: Agent, question: Question) -> float:
    """How many of the provider's tokens one of ours is, by its newest report.

    A transcript alone was not sent by our rules, nor a session by those of another file.
    """
    if question.key is None or question.config is not None:
        agent = replace(agent, policy=ContextPolicy())
    return _assembling(session, agent, "").scale(agent.info)


def _assembling(session: Session, agent: Agent, key: str) -> Assembling:
    return Assembling(EngineSession(session, agent, Compactor(session, agent), key))


async def _explained(
    session: Session, agent: Agent, key: str, scale: float, notes: list[str]
) -> Explanation:
    assembling = _assembling(session, agent, key)
    looked = await assembling.look(agent.budget(scale=scale), agent.info, _noting(notes))
    budget = agent.budget(scale=scale, addition_tokens=assembling.addition_tokens)
    context = session.build_context()
    return explain(
        _in_the_end(looked, agent, budget, notes),
        context,
        budget=budget,
        system_tokens=agent.prompt_tokens + assembling.addition_tokens,
        engine=agent.engine.id,
        tokens=agent.tokens,
        find_whole=lambda: whole_path(session, context),
    )


# -- for whom ------------------------------------------------------------------------------


def with_builtin_engine(state: State) -> State:
    """The same state directory with the built-in engine selected."""
    plugins = state.settings.plugins.model_copy(update={"slots": PluginSlots()})
    return replace(state, settings=state.settings.model_copy(update={"plugins": plugins}))


def _row_of(state: State, question: Question) -> SessionRow:
    key = question.key or ""
    row = state.rows(question.agent_id, read_only=True).get(key)
    if row is None:
        raise SessionNotFound(
            f"agent {question.agent_id} has no session {key}",
            remedy="`strandline sessions` lists them",
        )
    return row


def _chosen_model(state: State, question: Question) -> str | None:
    row = _row_of(state, question) if question.key else None
    if row is None or not row.provider_override or not row.model_override:
        return None
    return f"{row.provider_override}/{row.model_override}"


def _policy(state: State, session: Session, agent: Agent, question: Question) -> ContextPolicy:
    """The rules that hold, of the settings file that was named or of the agent."""
    chat_type = "direct"
    if question.key:
        row = _row_of(state, question)
        chat_type = chat_type_of(OpenSession(question.key, row, session, began=False))
    if question.config is None:
        return agent.policy_for(chat_type) if agent.policy_for else agent.policy
    loaded = load_context_file(question.config, state.environ)
    for warning in loaded.warnings:
        state.warn(warning)
    own = loaded.settings.agent(question.agent_id)
    resolve = model_resolver(loaded.settings.models)
    return policy_of(own, chat_type=chat_type, resolve_model=resolve)


@dataclass(frozen=True, slots=True)
class _At:
    """A clock that stands still."""

    at_ms: int

    def now_ms(self) -> int:
        return self.at_ms


def _standing_still(state: State, session: Session, agent: Agent, question: Question) -> Agent:
    """The agent at one moment, which asks no model and keeps nothing."""
    policy, counter = _policy(state, session, agent, question), agent.tokens.counter
    clock = _At(question.now_ms)
    kept = SessionRecords(state.folder / "cache" / "layer-summaries", clock)
    layers = LayerSummarizing(
        OfflineSummarizer(counter),
        counter,
        _ReadOnly(kept),
        clock,
        replace(policy.summaries, cached=True),  # in memory, for this explanation
    )
    return replace(
        agent,
        policy=policy,
        clock=clock,
        engine=EngineHost(LookedAt(agent.engine.engine)),
        layer_summaries=layers,
        context_cache=None,
    )


class _ReadOnly(MemorySummaryMemo):
    """Summaries that were kept, and in memory those that are made now."""

    def __init__(self, kept: SummaryMemo) -> None:
        super().__init__()
        self._kept = kept

    def read(self, session_id: str) -> Records:
        return [*self._kept.read(session_id), *super().read(session_id)]


# -- what comes of it ----------------------------------------------------------------------


def _noting(notes: list[str]) -> Callable[[TurnEvent], None]:
    """Hears what goes on, as notes for a person."""

    def hear(event: TurnEvent) -> None:
        if isinstance(event, LayerSummarised):
            notes.append(
                f"{event.messages:,} messages would be summarised now; the words of the offline "
                f"summariser stand here for the summary ({event.tokens_after:,} tokens)"
            )
        elif isinstance(event, Notice):
            notes.append(event.text)

    return hear


def _in_the_end(looked: Assembled, agent: Agent, budget: Budget, notes: list[str]) -> View:
    """The view that is sent; where a compaction would come first, the view before it."""
    mode = agent.compaction.effective_mode
    if looked.is_final:
        return looked.view
    if budget.is_over(looked.compared_tokens) and mode != "off":
        then = "compacts first" if mode == "auto" else "is refused (compaction.mode is error)"
        notes.append(f"the context is larger than it may be: the next turn {then}")
        return looked.view
    try:
        return within(looked.view, budget=budget, tokens=agent.tokens, limit="oldest_turns")
    except ContextOverflow as overflow:
        notes.append(str(overflow))
        return looked.view
