"""What the runtime lends an engine for one call: its model, its compaction, facts, rewriting.

Source: spec 3, Engine slot (the runtime context).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import cast

from strandline.context.budget import Budget
from strandline.context.engine import (
    Compact,
    CompactionOutcome,
    CompactResult,
    PromptCacheFacts,
    Rewrite,
    Rewritten,
    RuntimeContext,
)
from strandline.errors import CompactionRefused, ModelError
from strandline.runtime.agent import Agent
from strandline.runtime.answers import text_of
from strandline.runtime.compacting import Compactor
from strandline.runtime.events import CompactionReceipt, Listener, nobody
from strandline.runtime.finishing import to_the_end
from strandline.runtime.lanes import Lane
from strandline.runtime.model import Failed, Finished, ModelRequest
from strandline.runtime.path_news import PathTokens, newest
from strandline.runtime.rewriting import rewrite
from strandline.transcript.context import PathMessage
from strandline.transcript.messages import Message, Usage
from strandline.transcript.session import Session


@dataclass
class Delegated:
    """What came of the built-in compaction, where an engine delegated to it."""

    listener: Listener = nobody
    receipt: CompactionReceipt | None = None
    refusal: CompactionRefused | None = None


@dataclass(frozen=True)
class Lender:
    """Lends what an engine may use on a session; `lane` takes it for what is appended.

    `counted` remembers what the path takes.
    """

    session: Session
    agent: Agent
    compactor: Compactor
    spent: Callable[[Usage], None]
    lane: Lane
    counted: PathTokens

    def lend(
        self, budget: Budget, items: Sequence[PathMessage], delegated: Delegated
    ) -> RuntimeContext:
        """For a call about the path `items`. It may count them: call it off the event loop."""
        tokens = self.agent.tokens

        async def compact(request: Compact) -> CompactResult:
            return await self._compact(request, budget, delegated)

        return RuntimeContext(
            token_budget=budget.view_limit,
            current_token_count=self.counted.of(items, tokens),
            prompt_cache=cache_facts(self.agent, items),
            llm=SessionLlm(self.agent, self.spent),
            count_tokens=tokens.count,
            rewrite_transcript_entries=self._rewrite,
            delegate_compaction=compact,
        )

    async def _rewrite(self, rewrites: Sequence[Rewrite]) -> Rewritten:
        async with self.lane():
            return await to_the_end(asyncio.to_thread(rewrite, self.session, rewrites))

    async def _compact(
        self, request: Compact, budget: Budget, delegated: Delegated
    ) -> CompactResult:
        listener = delegated.listener
        try:
            async with self.lane():
                pending = await self.compactor.begin(
                    budget, request.trigger, listener, request.custom_instructions
                )
            receipt = await self.compactor.finish(pending, listener, self.lane)
        except CompactionRefused as refusal:
            delegated.refusal = refusal
            return CompactResult(ok=True, compacted=False, reason=str(refusal))
        delegated.receipt = receipt
        outcome = CompactionOutcome(
            tokens_before=receipt.tokens_before,
            tokens_after=receipt.tokens_after,
            entry_id=receipt.entry_id,
        )
        return CompactResult(ok=True, compacted=True, result=outcome)


class SessionLlm:
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


def cache_facts(agent: Agent, items: Sequence[PathMessage]) -> PromptCacheFacts:
    """What is known of the provider's cache, by the newest answer on the path."""
    kept, answer = agent.provider_cache, newest(items, "assistant")
    usage = answer.message.get("usage") if answer else None
    said_ms = answer.message.get("timestamp") if answer else None
    expires = None
    if isinstance(said_ms, int) and kept.retention != "none":
        expires = said_ms + agent.policy.cache_lifetime_ms
    used = cast("Usage", usage) if isinstance(usage, dict) else None
    return PromptCacheFacts(kept.retention, used, expires)
