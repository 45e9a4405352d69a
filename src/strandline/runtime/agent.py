"""An agent at work: a model, what it is told first, and how its context is kept small."""

from __future__ import annotations

from dataclasses import dataclass, field

from strandline.clock import Clock
from strandline.context.budget import Budget, CompactionSettings, resolve_budget
from strandline.context.summarize import Summarizer
from strandline.context.tokens import MessageTokens
from strandline.runtime.model import Model, ModelInfo

DEFAULT_SYSTEM_PROMPT = "You are a helpful assistant. Answer plainly and briefly."


@dataclass(frozen=True)
class Agent:
    """Everything that a turn needs beside the session it runs on.

    `tokens` remembers counts across turns, so that a message is counted once. The system
    prompt is the same at every call, so that a provider's cache can hold it.
    """

    id: str
    model: Model
    info: ModelInfo
    summarizer: Summarizer
    tokens: MessageTokens
    clock: Clock
    compaction: CompactionSettings = field(default_factory=CompactionSettings)
    system_prompt: str = DEFAULT_SYSTEM_PROMPT

    @property
    def fixed_tokens(self) -> int:
        """What the system prompt takes, ours."""
        return self.tokens.counter.count(self.system_prompt)

    def budget(self, *, scale: float, window: int | None = None) -> Budget:
        """The budget of a request, with `scale` of the provider's tokens for one of ours.

        `window` is the provider's own word on its window, where it gave one. Raises
        `ContextOverflow` when the system prompt leaves no room.
        """
        return resolve_budget(
            min(window or self.info.context_window, self.info.context_window),
            self.compaction,
            system_tokens=self.fixed_tokens,
            scale=scale,
        )
