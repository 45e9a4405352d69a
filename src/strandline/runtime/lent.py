"""What the runtime lends an engine beside the transcript: its model, and facts of the cache.

Source: spec 3, Engine slot (the runtime context).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import cast

from strandline.context.engine import PromptCacheFacts
from strandline.errors import ModelError
from strandline.runtime.agent import Agent
from strandline.runtime.answers import text_of
from strandline.runtime.model import Failed, Finished, ModelRequest
from strandline.transcript.context import PathMessage
from strandline.transcript.messages import Message, Usage


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
    kept = agent.provider_cache
    newest = next((i.message for i in reversed(items) if _is_answer(i.message)), None)
    usage = newest.get("usage") if newest else None
    said_ms = newest.get("timestamp") if newest else None
    expires = None
    if isinstance(said_ms, int) and kept.retention != "none":
        expires = said_ms + agent.policy.cache_lifetime_ms
    used = cast("Usage", usage) if isinstance(usage, dict) else None
    return PromptCacheFacts(kept.retention, used, expires)


def _is_answer(message: object) -> bool:
    return isinstance(message, dict) and message.get("role") == "assistant"
