"""One session's way from its path to the view of a request.

The engine chooses, what it chose is cleaned, and unless the engine owns compaction the rules
of the agent prune it. What a growing path lets be remembered is remembered here, so that one
more message costs one message; everything else is a function of the path, the rules, the
clock, the summaries and the recorded times of the calls. Source: spec 3, The way of a message.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field

from strandline.context.budget import Budget, calibrated, newest_report
from strandline.context.chosen import TokensOfForms, chosen_path, explained
from strandline.context.clean_path import Clean, CleanPath
from strandline.context.engine import AssembleResult, ContextProjection
from strandline.context.prune import (
    LayerSummary,
    Moment,
    Pruned,
    PruneMemo,
    SummaryWanted,
    prune,
    recorded_limit,
)
from strandline.context.view import View
from strandline.errors import ContextOverflow
from strandline.runtime.agent import Agent
from strandline.runtime.context_caching import key_of
from strandline.runtime.engine_session import EngineSession
from strandline.runtime.events import LayerSummarised, Listener, Notice
from strandline.runtime.lanes import Lane
from strandline.runtime.model import ModelInfo
from strandline.transcript.context import PathMessage
from strandline.transcript.session import Session

PIN = "pin"
"""The label of an entry that no layer leaves out."""

MOST_SUMMARIES = 3
"""As many summaries of layer 4 are made for one request; what is left over stays verbatim."""

REMEMBERED_CALLS = 16


@dataclass(frozen=True, slots=True)
class Assembled:
    """What a request may be made of, before anything makes room.

    `call_ms` is the time at which it was assembled, which becomes that of the answer; `limit` is
    what its messages might take. `addition`
    goes before the system prompt. `compared_tokens` is what the check before sending looks at.
    `is_final`: the engine owns compaction, and nothing may be cut.
    """

    view: View
    call_ms: int
    compared_tokens: int
    limit: int
    addition: str = ""
    projection: ContextProjection | None = None
    is_final: bool = False


@dataclass
class Assembling:
    """Assembles the contexts of the session of `engine`, for its agent as it is set up now.

    `addition_tokens` is what the engine put before the system prompt last time, ours.
    """

    engine: EngineSession
    addition_tokens: int = field(default=0, init=False)
    _path: CleanPath = field(init=False)
    _memo: PruneMemo = field(default_factory=PruneMemo)
    _sent: OrderedDict[str, int] = field(default_factory=OrderedDict)
    _cap: int = field(init=False)
    _addition: str = ""

    def __post_init__(self) -> None:
        self._path = CleanPath(self.agent.tokens)
        try:
            self._cap = self.agent.budget().message_cap
        except ContextOverflow:  # which the request tells
            self._cap = self.agent.info.context_window

    @property
    def session(self) -> Session:
        """The transcript."""
        return self.engine.session

    @property
    def agent(self) -> Agent:
        """Who answers."""
        return self.engine.agent

    # -- the view --------------------------------------------------------------------------

    async def look(
        self, budget: Budget, info: ModelInfo, listener: Listener, lane: Lane = nullcontext
    ) -> Assembled:
        """The context as it stands. Raises `EngineError`.

        `lane` takes the session's lane for what an engine is told or writes; by default the
        caller holds it.
        """
        now_ms = self.agent.clock.now_ms()
        if self.engine.host.is_legacy:
            pruned = await self._pruned(None, budget, now_ms, listener)
            return Assembled(pruned.view, now_ms, pruned.view.tokens, budget.view_limit)
        await self.engine.catch_up(budget, lane)
        items = await asyncio.to_thread(self._items)
        answer = await self.engine.assemble(items, budget, info.ref, lane)
        await self._make_room(answer.system_prompt_addition or "", budget, info)
        if self.engine.host.owns_compaction:
            view = await asyncio.to_thread(self._final, answer, items, budget)
        else:
            # What goes on as it came is followed like a path without an engine.
            chosen = None if answer.messages is items else (answer, items)
            view = (await self._pruned(chosen, budget, now_ms, listener)).view
        compared = view.tokens
        if answer.prompt_authority == "preassembly_may_overflow":
            compared = max(compared, await asyncio.to_thread(self._whole_tokens, budget))
        return Assembled(
            view,
            now_ms,
            compared,
            budget.view_limit,
            self._addition,
            answer.context_projection,
            self.engine.host.owns_compaction,
        )

    async def _make_room(self, addition: str, budget: Budget, info: ModelInfo) -> None:
        """Let that go before the system prompt. Raises `EngineError` where it leaves no room."""
        tokens = self.addition_tokens
        if addition != self._addition:
            count = self.agent.tokens.counter.count
            tokens = await asyncio.to_thread(count, addition) if addition else 0
        try:
            self.agent.budget(
                info, scale=budget.scale, window=budget.window, addition_tokens=tokens
            )
        except ContextOverflow:
            problem = f"its system_prompt_addition of {tokens:,} tokens leaves no room for messages"
            raise await self.engine.host.failed("assemble", self.engine.key, problem) from None
        self._addition, self.addition_tokens = addition, tokens

    def _items(self) -> Sequence[PathMessage]:
        return self.session.build_context().items

    def _final(self, answer: AssembleResult, items: Sequence[PathMessage], budget: Budget) -> View:
        """What the engine chose, cleaned and paired, and nothing else."""
        tokens = TokensOfForms(self.agent.tokens)
        chosen = chosen_path(answer.messages)
        clean = CleanPath(tokens).follow(chosen, budget.window)
        return explained(clean.view, chosen, items, self.engine.host.id, self.agent.tokens)

    def _whole_tokens(self, budget: Budget) -> int:
        with self._path.lock:
            return self._path.follow(self._items(), budget.message_cap).tokens_to[-1]

    # -- the rules -------------------------------------------------------------------------

    async def _pruned(
        self,
        chosen: tuple[AssembleResult, Sequence[PathMessage]] | None,
        budget: Budget,
        now_ms: int,
        listener: Listener,
    ) -> Pruned:
        """The path, or what an engine chose of it, pruned; summaries are made as wanted."""
        made: list[LayerSummary] = []
        while True:
            pruned = await asyncio.to_thread(self._prune, chosen, budget, now_ms, made)
            if pruned.wanted is None or len(made) == MOST_SUMMARIES:
                return pruned
            summary = await self._summarised(pruned.wanted, listener)
            if summary is None:
                return pruned
            made.append(summary)

    def _prune(
        self,
        chosen: tuple[AssembleResult, Sequence[PathMessage]] | None,
        budget: Budget,
        now_ms: int,
        made: Sequence[LayerSummary],
    ) -> Pruned:
        moment = self._moment(budget, now_ms, made)
        if chosen is None:
            return self._prune_path(budget, moment)
        return self._prune_chosen(*chosen, budget, moment)

    def _prune_path(self, budget: Budget, moment: Moment) -> Pruned:
        self._cap, agent = budget.message_cap, self.agent
        context = self.session.build_context()
        with self._path.lock:
            clean = self._path.follow(context.items, self._cap)

            def compute() -> Pruned:
                return prune(clean, agent.policy, moment, agent.tokens, memo=self._memo)

            if agent.context_cache is None or not agent.policy.prunes:
                return compute()
            key = key_of(
                self.session.session_id,
                context.leaf_id,
                [self.engine.host.id, agent.policy],
                agent.info.ref,
                self._cap,
                agent.tokens.counter.name,
                moment,
            )
            return agent.context_cache.pruned(key, clean, moment, compute)

    def _prune_chosen(
        self,
        answer: AssembleResult,
        items: Sequence[PathMessage],
        budget: Budget,
        moment: Moment,
    ) -> Pruned:
        tokens = TokensOfForms(self.agent.tokens)
        chosen = chosen_path(answer.messages)
        clean = CleanPath(tokens).follow(chosen, budget.message_cap)
        pruned = prune(clean, self.agent.policy, moment, tokens)
        view = explained(pruned.view, chosen, items, self.engine.host.id, self.agent.tokens)
        return Pruned(view, pruned.wanted, pruned.valid_until_ms)

    def _moment(self, budget: Budget, now_ms: int, made: Sequence[LayerSummary]) -> Moment:
        if not self.agent.policy.prunes:
            return Moment(now_ms, budget.view_limit)
        pins = frozenset(i for i, label in self.session.labels().items() if label == PIN)
        layer = self.agent.layer_summaries
        known = layer.known(self.session.session_id) if layer else ()
        return Moment(now_ms, budget.view_limit, pins, (*known, *made))

    async def _summarised(self, wanted: SummaryWanted, listener: Listener) -> LayerSummary | None:
        """Make a summary of layer 4; None where nobody can."""
        layer = self.agent.layer_summaries
        if layer is None:
            return None
        made, summary = await layer.make(self.session.session_id, wanted)
        if summary.usage is not None:
            self.engine.spent(summary.usage)
        for note in summary.notes:
            listener(Notice(note))
        after = self.agent.tokens.counter.count(made.text)
        listener(
            LayerSummarised(
                len(wanted.covers), wanted.tokens, after, made.by, summary.usage, summary.audit
            )
        )
        return made

    # -- how the provider counts -------------------------------------------------------------

    def sent(self, entry_id: str, tokens: int) -> None:
        """Note what was sent, in our tokens, for the answer in an entry."""
        self._sent[entry_id] = tokens
        while len(self._sent) > REMEMBERED_CALLS:
            self._sent.popitem(last=False)

    def scale(self, info: ModelInfo) -> float:
        """How many of the provider's tokens one of ours is, by its newest report; 1.0 without."""
        items = self._items()
        with self._path.lock:
            clean = self._path.follow(items, self._cap)
            report = newest_report(clean, (info.provider, info.id))
            if report is None:
                return 1.0
            sent = self._sent.get(clean.messages[report.place].entry_id or "")
            if sent is None:
                sent = self._sent_at(clean, report.place)
        if sent is None:
            return 1.0
        return calibrated(1.0, self.agent.fixed_tokens(info) + sent, report.prompt_tokens)

    def _sent_at(self, clean: Clean, place: int) -> int | None:
        """What the rules made of the path at an earlier call; None where an engine chose."""
        if not self.engine.host.is_legacy:
            return None
        if not self.agent.policy.prunes:
            return clean.tokens_to[place]
        answer = clean.messages[place]
        limit = recorded_limit(answer.message) or self.agent.info.context_window
        moment = Moment(int(answer.said_ms or 0), limit)
        pruned = prune(clean, self.agent.policy, moment, self.agent.tokens, end=place)
        return pruned.view.tokens
