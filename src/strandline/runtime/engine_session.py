"""A context engine on one session: what it is told of it, and what it is asked.

The engine hears of every message of the path once, in order, by the id of its entry; where
the path became another one (a branch, a compaction, a reset, a restart) it hears of all of it
and why. What it may use of the runtime is put together here. Source: spec 3, Engine slot.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from dataclasses import dataclass
from typing import Literal, cast

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
    Ingest,
    IngestBatch,
    Maintain,
    PromptCacheFacts,
    Rewrite,
    Rewritten,
    RuntimeContext,
    SessionRef,
)
from strandline.errors import CompactionRefused, EngineError, ModelError
from strandline.runtime.agent import Agent
from strandline.runtime.answers import text_of
from strandline.runtime.compacting import Compactor
from strandline.runtime.engine_host import (
    EngineHost,
    nothing_wrong,
    wrong_assembled,
    wrong_compact,
    wrong_ingested,
)
from strandline.runtime.events import CompactionReceipt, Listener, nobody
from strandline.runtime.finishing import to_the_end
from strandline.runtime.inbound import is_heartbeat
from strandline.runtime.model import Failed, Finished, ModelRequest
from strandline.runtime.rewriting import rewrite
from strandline.transcript.context import PathMessage
from strandline.transcript.live_context import MessagesSoFar
from strandline.transcript.messages import Message, Usage
from strandline.transcript.session import Session

Lane = Callable[[], AbstractAsyncContextManager[None]]


@dataclass
class EngineSession:
    """The engine of `agent` on `session`, under `key`.

    `agent` is replaced where the conversation's is. `reason` says why the session is new to the
    engine. `spent` hears what the engine's own questions used. `rotate` makes another
    transcript the session's (None where that cannot be done).
    """

    session: Session
    agent: Agent
    compactor: Compactor
    key: str = ""
    reason: BootstrapReason = "opened"
    spent: Callable[[Usage], None] = lambda _: None
    rotate: Callable[[CompactionOutcome], Awaitable[None]] | None = None
    _told: Sequence[PathMessage] | None = None

    @property
    def host(self) -> EngineHost:
        """Who calls the engine."""
        return self.agent.engine

    @property
    def ref(self) -> SessionRef:
        """The session, as engines know it."""
        return SessionRef(self.session.session_id, self.key, self.session.log_name)

    # -- telling it ------------------------------------------------------------------------

    async def catch_up(self, items: Sequence[PathMessage], budget: Budget) -> None:
        """Tell the engine what it has not heard of the path. Raises `EngineError`."""
        if self.host.is_legacy:
            return
        told = self._told
        if told is None:
            reason = self.reason if items or self.reason != "opened" else "new"
            await self._bootstrap(items, reason, budget)
        elif _grew(told, items):
            await self._ingest(items[len(told) :])
        else:
            compacted = bool(items) and items[0].message.get("role") == "compactionSummary"
            await self._bootstrap(items, "compaction" if compacted else "branch", budget)
        self._told = items

    async def _bootstrap(
        self, items: Sequence[PathMessage], reason: BootstrapReason, budget: Budget
    ) -> None:
        request = Bootstrap(self.ref, items, reason, self._lent(budget, items))
        ask = self.host.ask
        await ask("bootstrap", self.key, lambda engine: engine.bootstrap(request), nothing_wrong)
        if self._told is None:
            await self.maintain("bootstrap", items, budget)

    async def _ingest(self, new: Sequence[PathMessage]) -> None:
        if not new:
            return
        ask, heartbeat = self.host.ask, any(is_heartbeat(item.message) for item in new)
        if len(new) == 1:
            one = Ingest(self.ref, new[0], heartbeat)
            await ask("ingest", self.key, lambda engine: engine.ingest(one), wrong_ingested)
            return
        many = IngestBatch(self.ref, new, heartbeat)
        await ask(
            "ingest_batch", self.key, lambda engine: engine.ingest_batch(many), wrong_ingested
        )

    # -- asking it -------------------------------------------------------------------------

    async def assemble(
        self, items: Sequence[PathMessage], budget: Budget, model: str
    ) -> AssembleResult:
        """What the model is to see. Raises `EngineError`."""
        await self.catch_up(items, budget)
        request = Assemble(
            self.ref,
            items,
            budget.view_limit,
            self._lent(budget, items),
            available_tools=tuple(self.agent.toolbox.names),
            model=model,
            prompt=_prompt(items),
        )
        ask = self.host.ask
        return await ask(
            "assemble", self.key, lambda engine: engine.assemble(request), wrong_assembled
        )

    async def after_turn(
        self,
        items: Sequence[PathMessage],
        newest_before: str | None,
        budget: Budget,
        *,
        compacted: bool,
    ) -> None:
        """Tell it that a turn was answered, which began behind the entry `newest_before`.

        Raises `EngineError`.
        """
        if self.host.is_legacy:
            return
        await self.catch_up(items, budget)
        new = added_since(items, newest_before)
        request = AfterTurn(
            self.ref,
            items,
            new,
            self._lent(budget, items),
            is_heartbeat=any(is_heartbeat(item.message) for item in new),
            compacted=compacted,
        )
        ask = self.host.ask
        await ask("after_turn", self.key, lambda engine: engine.after_turn(request), nothing_wrong)

    async def maintain(
        self,
        reason: Literal["bootstrap", "turn", "compaction"],
        items: Sequence[PathMessage],
        budget: Budget,
    ) -> None:
        """Let it do its own upkeep. Raises `EngineError`."""
        if self.host.is_legacy:
            return
        request = Maintain(self.ref, reason, self._lent(budget, items))
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
        items = await asyncio.to_thread(lambda: self.session.build_context().items)
        await self.catch_up(items, budget)
        receipts: list[CompactionReceipt] = []
        lent = self._lent(budget, items, listener, receipts, lane)
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
            await self.host.declined(self.key)
            raise CompactionRefused(
                f"nothing was compacted: the engine {self.host.id} says "
                f"{answer.reason[:300] or 'nothing'!r}",
                remedy="the context can stay as it is; `strandline doctor` knows the engine",
            )
        if receipts:
            return receipts[-1]
        return await self._take(answer.result, budget, trigger, listener, lane)

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
        if outcome.session_id is not None:
            async with lane():
                await self._rotate(outcome)
            self._told = None
            self.reason = "rotation"
            return None
        if not outcome.summary.strip() or outcome.first_kept_entry_id is None:
            return None
        async with lane():
            append = self.compactor.append_supplied
            return await append(outcome, self.host.id, budget, trigger, listener)

    async def _rotate(self, outcome: CompactionOutcome) -> None:
        if self.rotate is None:
            raise EngineError(
                f"the context engine {self.host.id} failed in compact (it moved the session to "
                "another transcript, which can only be followed in a conversation)",
                engine=self.host.id,
                phase="compact",
            )
        await self.rotate(outcome)

    # -- what it may use -------------------------------------------------------------------

    def _lent(
        self,
        budget: Budget,
        items: Sequence[PathMessage],
        listener: Listener = nobody,
        receipts: list[CompactionReceipt] | None = None,
        lane: Lane = nullcontext,
    ) -> RuntimeContext:
        tokens = self.agent.tokens

        async def rewriting(rewrites: Sequence[Rewrite]) -> Rewritten:
            async with lane():
                return await to_the_end(asyncio.to_thread(rewrite, self.session, rewrites))

        async def compacting(request: Compact) -> CompactResult:
            return await self._delegated(request, budget, listener, receipts, lane)

        return RuntimeContext(
            token_budget=budget.view_limit,
            current_token_count=sum(tokens.of(i.entry_id, i.message) for i in items),
            prompt_cache=self._cache_facts(items),
            llm=_Llm(self.agent, self.spent),
            count_tokens=tokens.count,
            rewrite_transcript_entries=rewriting,
            delegate_compaction=compacting,
        )

    async def _delegated(
        self,
        request: Compact,
        budget: Budget,
        listener: Listener,
        receipts: list[CompactionReceipt] | None,
        lane: Lane,
    ) -> CompactResult:
        try:
            async with lane():
                pending = await self.compactor.begin(
                    budget, request.trigger, listener, request.custom_instructions
                )
            receipt = await self.compactor.finish(pending, listener, lane)
        except CompactionRefused as refusal:
            return CompactResult(ok=True, compacted=False, reason=str(refusal))
        if receipts is not None:
            receipts.append(receipt)
        outcome = CompactionOutcome(
            tokens_before=receipt.tokens_before,
            tokens_after=receipt.tokens_after,
            entry_id=receipt.entry_id,
        )
        return CompactResult(ok=True, compacted=True, result=outcome)

    def _cache_facts(self, items: Sequence[PathMessage]) -> PromptCacheFacts:
        kept = self.agent.provider_cache
        newest = next((i.message for i in reversed(items) if _is_answer(i.message)), None)
        usage = newest.get("usage") if newest else None
        said_ms = newest.get("timestamp") if newest else None
        expires = None
        if isinstance(said_ms, int) and kept.retention != "none":
            expires = said_ms + self.agent.policy.cache_lifetime_ms
        used = cast("Usage", usage) if isinstance(usage, dict) else None
        return PromptCacheFacts(kept.retention, used, expires)


class _Llm:
    """The session's model for an engine's own questions; what they use is counted."""

    def __init__(self, agent: Agent, spent: Callable[[Usage], None]) -> None:
        self._agent = agent
        self._spent = spent

    async def complete(
        self, prompt: str, *, system_prompt: str = "", max_tokens: int = 1024
    ) -> str:
        """See `strandline.context.engine.Llm`."""
        info, now_ms = self._agent.info, self._agent.clock.now_ms()
        question: Message = {"role": "user", "content": prompt, "timestamp": now_ms}
        request = ModelRequest(info, system_prompt, [question], max_tokens)
        async with aclosing(self._agent.model.stream(request)) as events:
            async for event in events:
                if isinstance(event, Finished):
                    self._count(event.message)
                    return text_of(event.message)
                if isinstance(event, Failed):
                    self._count(event.partial)
                    raise event.error
        raise ModelError(f"{info.ref} ended its stream without an answer", kind="network")

    def _count(self, message: Message | None) -> None:
        usage = message.get("usage") if message else None
        if isinstance(usage, dict):
            self._spent(cast("Usage", usage))


def _grew(told: Sequence[PathMessage], items: Sequence[PathMessage]) -> bool:
    return isinstance(items, MessagesSoFar) and items.grew_from(told)


def added_since(items: Sequence[PathMessage], newest_before: str | None) -> list[PathMessage]:
    """What came behind the entry `newest_before`; all but a summary where that is gone."""
    added: list[PathMessage] = []
    for item in reversed(items):
        if item.entry_id == newest_before:
            break
        added.append(item)
    return [item for item in reversed(added) if item.message.get("role") != "compactionSummary"]


def _prompt(items: Sequence[PathMessage]) -> str | None:
    for item in reversed(items):
        if item.message.get("role") == "user":
            return text_of(item.message)
    return None


def _is_answer(message: object) -> bool:
    return isinstance(message, dict) and message.get("role") == "assistant"
