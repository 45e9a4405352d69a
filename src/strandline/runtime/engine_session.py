"""A context engine on one session: what it is told of it, and what it is asked.

The engine hears of every message of the path once, in order, by the id of its entry; where
the path became another one (a branch, a compaction, a reset, a restart) it hears of all of it
and why. What it may use of the runtime is put together here. Source: spec 3, Engine slot.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Literal

from strandline.context.budget import Budget
from strandline.context.engine import (
    AfterTurn,
    Assemble,
    AssembleResult,
    Bootstrap,
    BootstrapReason,
    Compact,
    CompactionOutcome,
    CompactResult,
    ContextEngine,
    Ingest,
    IngestBatch,
    Ingested,
    Maintain,
    RuntimeContext,
    SessionRef,
)
from strandline.errors import CompactionRefused
from strandline.runtime.agent import Agent
from strandline.runtime.compacting import Compactor
from strandline.runtime.engine_host import (
    EngineHost,
    nothing_wrong,
    wrong_assembled,
    wrong_compact,
    wrong_ingested,
)
from strandline.runtime.events import CompactionReceipt, Listener
from strandline.runtime.lanes import Lane
from strandline.runtime.lent import Delegated, Lender
from strandline.runtime.path_news import (
    PathTokens,
    added_since,
    grew,
    is_of_heartbeat,
    prompt,
    stretches,
)
from strandline.runtime.rotation import CannotFollow, Rotate, cannot_rotate
from strandline.transcript.context import PathMessage
from strandline.transcript.messages import Usage
from strandline.transcript.session import Session

MOST_TELLINGS = 3
"""So often in a row an engine that rewrites what it is told is told what became of it."""


@dataclass
class EngineSession:
    """The engine of `agent` on `session`, under `key`.

    `agent` is replaced where the conversation's is. `reason` says why the session is new to the
    engine. `spent` hears what the engine's own questions used.
    """

    session: Session
    agent: Agent
    compactor: Compactor
    key: str = ""
    reason: BootstrapReason = "opened"
    spent: Callable[[Usage], None] = lambda _: None
    rotate: Rotate = cannot_rotate
    _told: Sequence[PathMessage] | None = None
    _counted: PathTokens = field(default_factory=PathTokens)

    @property
    def host(self) -> EngineHost:
        """Who calls the engine."""
        return self.agent.engine

    @property
    def ref(self) -> SessionRef:
        """The session, as engines know it."""
        return SessionRef(self.session.session_id, self.key, self.session.log_name)

    def go_on_from(self, before: EngineSession) -> None:
        """Go on where another left off: of the same engine on the same session."""
        if before.host is self.host and before.session is self.session:
            self._told = before._told

    # -- telling it ------------------------------------------------------------------------

    async def catch_up(self, budget: Budget, lane: Lane = nullcontext) -> None:
        """Tell the engine what it has not heard of the path as it is now.

        It is told in the lane, so that it hears of everything once and in order: `lane` takes
        it, by default the caller holds it. Raises `EngineError`, and `SessionBusy`.
        """
        if self.host.is_legacy or await asyncio.to_thread(self._is_told):
            return
        async with lane():
            for _ in range(MOST_TELLINGS):  # what it is told may let it rewrite the path
                await self._tell(await asyncio.to_thread(self._path), budget)
                if await asyncio.to_thread(self._is_told):
                    return

    def _path(self) -> Sequence[PathMessage]:
        return self.session.build_context().items

    def _is_told(self) -> bool:
        items, told = self._path(), self._told
        return told is not None and len(told) == len(items) and grew(told, items)

    async def _tell(self, items: Sequence[PathMessage], budget: Budget) -> None:
        told = self._told
        if told is None:
            reason = self.reason if items or self.reason != "opened" else "new"
            await self._bootstrap(items, reason, budget)
            self._told = items
            await self.maintain("bootstrap", budget)
        elif await asyncio.to_thread(grew, told, items):
            await self._ingest(items, len(told))
            self._told = items
        else:
            reason = await asyncio.to_thread(self._why_another, told, items)
            await self._bootstrap(items, reason, budget)
            self._told = items
            if reason == "compaction":
                await self.maintain("compaction", budget)

    def _why_another(
        self, told: Sequence[PathMessage], items: Sequence[PathMessage]
    ) -> BootstrapReason:
        """Why the path is not what was told with more behind it."""
        first = items[0] if items else None
        if first is None or first.message.get("role") != "compactionSummary":
            return "branch"
        behind = not told or told[-1].entry_id in self.session.path(first.entry_id)
        return "compaction" if behind else "branch"

    async def _bootstrap(
        self, items: Sequence[PathMessage], reason: BootstrapReason, budget: Budget
    ) -> None:
        lent = await asyncio.to_thread(self._lent, budget, items)
        request = Bootstrap(self.ref, items, reason, lent)
        ask = self.host.ask
        await ask("bootstrap", self.key, lambda engine: engine.bootstrap(request), nothing_wrong)

    async def _ingest(self, items: Sequence[PathMessage], known: int) -> None:
        """Tell what came behind the `known` first; what is of a heartbeat by itself."""
        ask, beat = self.host.ask, is_of_heartbeat(items, known - 1)
        for is_beat, stretch in stretches(items[known:], beat=beat):
            if len(stretch) == 1:
                one = Ingest(self.ref, stretch[0], is_beat)
                await ask("ingest", self.key, _ingesting(one), wrong_ingested)
            else:
                many = IngestBatch(self.ref, stretch, is_beat)
                await ask("ingest_batch", self.key, _ingesting_all(many), wrong_ingested)

    # -- asking it -------------------------------------------------------------------------

    async def assemble(
        self, items: Sequence[PathMessage], budget: Budget, model: str, lane: Lane = nullcontext
    ) -> AssembleResult:
        """What the model is to see of a path that it was told. Raises `EngineError`."""
        lent = await asyncio.to_thread(self._lent, budget, items, lane)
        request = Assemble(
            self.ref,
            items,
            budget.view_limit,
            lent,
            available_tools=tuple(self.agent.toolbox.names),
            citations_mode=self.agent.citations_mode,
            model=model,
            prompt=prompt(items),
        )

        def wrong(answer: AssembleResult) -> str | None:
            problem = wrong_assembled(answer)
            if problem is None and items and not answer.messages:
                return "it chose no message at all"
            return problem

        ask = self.host.ask
        return await ask("assemble", self.key, lambda engine: engine.assemble(request), wrong)

    async def after_turn(
        self, newest_before: str | None, budget: Budget, *, compacted: bool
    ) -> None:
        """Tell it that a turn was answered, which began behind the message `newest_before`.

        The caller holds the lane. Raises `EngineError`.
        """
        if self.host.is_legacy:
            return
        await self.catch_up(budget)
        items = await asyncio.to_thread(self._path)
        lent = await asyncio.to_thread(self._lent, budget, items)
        new = added_since(items, newest_before)
        beat = bool(new) and is_of_heartbeat(items, len(items) - 1)
        request = AfterTurn(self.ref, items, new, lent, is_heartbeat=beat, compacted=compacted)
        ask = self.host.ask
        await ask("after_turn", self.key, lambda engine: engine.after_turn(request), nothing_wrong)

    async def maintain(
        self,
        reason: Literal["bootstrap", "turn", "compaction"],
        budget: Budget,
        lane: Lane = nullcontext,
    ) -> None:
        """Let it do its own upkeep. Raises `EngineError`."""
        if self.host.is_legacy:
            return
        items = await asyncio.to_thread(self._path)
        lent = await asyncio.to_thread(self._lent, budget, items, lane)
        request = Maintain(self.ref, reason, lent)
        ask = self.host.ask
        await ask("maintain", self.key, lambda engine: engine.maintain(request), nothing_wrong)

    async def compact(
        self,
        budget: Budget,
        trigger: Literal["manual", "overflow"],
        listener: Listener,
        instructions: str | None = None,
        lane: Lane = nullcontext,
    ) -> CompactionReceipt | None:
        """Let the engine compact; None where it has made its own things smaller.

        `lane` takes the session's lane for what is appended; by default the caller holds it.
        Raises `EngineError`, and `CompactionRefused` where it compacted nothing.
        """
        await self.catch_up(budget, lane)
        items = await asyncio.to_thread(self._path)
        delegated = Delegated(listener)
        lent = await asyncio.to_thread(self._lent, budget, items, lane, delegated)
        request = Compact(
            self.ref,
            budget.limit,
            lent,
            force=True,
            current_token_count=lent.current_token_count,
            custom_instructions=instructions,
            trigger=trigger,
        )
        ask = self.host.ask
        answer = await ask(
            "compact", self.key, lambda engine: engine.compact(request), wrong_compact
        )
        if not (answer.ok and answer.compacted):
            raise await self._declined(answer, delegated)
        if delegated.receipt is not None:
            return delegated.receipt
        receipt = await self._take(answer.result, budget, trigger, listener, lane)
        if receipt is None and self._told is not None:
            await self.maintain("compaction", budget, lane)
        return receipt

    async def _declined(self, answer: CompactResult, delegated: Delegated) -> CompactionRefused:
        """The error for a compaction that an engine did not make."""
        if delegated.refusal is not None:
            return delegated.refusal
        if not self.host.owns_compaction:
            await self.host.declined(self.key)
        said = answer.reason[:300] or "it gave no reason"
        return CompactionRefused(
            f"nothing was compacted: the engine {self.host.id} declined ({said})",
            remedy="the context can stay as it is; `strandline doctor` knows the engine",
        )

    async def _take(
        self,
        outcome: CompactionOutcome | None,
        budget: Budget,
        trigger: Literal["manual", "overflow"],
        listener: Listener,
        lane: Lane,
    ) -> CompactionReceipt | None:
        """Do what the engine's compaction says: move to a successor, or append its summary."""
        if outcome is None:
            return None
        if outcome.session_id not in {None, self.session.session_id}:
            async with lane():
                await self._rotate(outcome)
                self._told, self.reason = None, "rotation"
            return None
        if outcome.entry_id or not outcome.summary.strip() or outcome.first_kept_entry_id is None:
            return None
        async with lane():
            append = self.compactor.append_supplied
            return await append(outcome, self.host.id, budget, trigger, listener)

    async def _rotate(self, outcome: CompactionOutcome) -> None:
        try:
            await self.rotate(outcome)
        except CannotFollow as why:
            problem = f"its transcript cannot be followed: {why}"
            raise await self.host.failed("compact", self.key, problem) from why

    # -- what it may use -------------------------------------------------------------------

    def _lent(
        self,
        budget: Budget,
        items: Sequence[PathMessage],
        lane: Lane = nullcontext,
        delegated: Delegated | None = None,
    ) -> RuntimeContext:
        lender = Lender(self.session, self.agent, self.compactor, self.spent, lane, self._counted)
        return lender.lend(budget, items, delegated or Delegated())


def _ingesting(one: Ingest) -> Callable[[ContextEngine], Awaitable[Ingested]]:
    return lambda engine: engine.ingest(one)


def _ingesting_all(many: IngestBatch) -> Callable[[ContextEngine], Awaitable[Ingested]]:
    return lambda engine: engine.ingest_batch(many)
