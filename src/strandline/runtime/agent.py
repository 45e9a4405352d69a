"""An agent at work: models, tools, what it is told first, how its context is kept small."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import cached_property

from strandline.clock import Clock
from strandline.context.budget import Budget, CompactionSettings, resolve_budget
from strandline.context.engine import CitationsMode
from strandline.context.policy import ContextPolicy, ProviderCache
from strandline.context.summarize import Summarizer
from strandline.context.tokens import MessageTokens
from strandline.runtime.context_caching import ContextCaching
from strandline.runtime.engine_host import EngineHost
from strandline.runtime.flush_settings import FlushSettings
from strandline.runtime.hooks import Hooks
from strandline.runtime.kept_prompts import KeptPrompts
from strandline.runtime.layer_summaries import LayerSummarizing
from strandline.runtime.model import Model, ModelInfo
from strandline.runtime.retrying import RetrySettings
from strandline.runtime.tools import Toolbox
from strandline.transcript.messages import JsonObject, ThinkingLevel

DEFAULT_SYSTEM_PROMPT = "You are a helpful assistant. Answer plainly and briefly."


@dataclass(frozen=True, slots=True)
class Backend:
    """A model that can be asked, and what is known of it."""

    model: Model
    info: ModelInfo


@dataclass(frozen=True)
class Agent:
    """Everything that a turn needs beside the session it runs on.

    `model` answers; where it fails, `fallbacks` are asked in their order. `tokens` remembers
    counts across turns, so that a message is counted once; an agent that answers on several
    sessions needs one for each (a `Conversation` sees to it). The system prompt is the same at
    every call, so that a provider's cache can hold it; `renew_prompt` makes it anew, which
    is done where the cache is lost anyway, after a compaction; `prompt_settings` stands for what
    an operator set that it is made of. `thinking` is the level of
    new sessions. `only_for_summaries` are models that are closed with it. `engine` chooses the
    context, `policy` prunes it; `policy_for` gives the policy for a kind of chat (``direct``,
    ``group`` …). `provider_cache` is what providers are asked to keep. `layer_summaries` writes
    the summaries of layer 4, `context_cache` keeps contexts that were built, `prompts` the system
    prompts of sessions beyond this process.
    """

    id: str
    model: Model
    info: ModelInfo
    summarizer: Summarizer
    tokens: MessageTokens
    clock: Clock
    compaction: CompactionSettings = field(default_factory=CompactionSettings)
    system_prompt: str = DEFAULT_SYSTEM_PROMPT
    fallbacks: tuple[Backend, ...] = ()
    toolbox: Toolbox = field(default_factory=Toolbox)
    retry: RetrySettings = field(default_factory=RetrySettings)
    flush: FlushSettings = field(default_factory=FlushSettings)
    hooks: Hooks = field(default_factory=Hooks)
    thinking: ThinkingLevel = "off"
    renew_prompt: Callable[[], str] | None = None
    prompt_settings: str = ""
    citations_mode: CitationsMode = "auto"
    only_for_summaries: tuple[Model, ...] = ()
    engine: EngineHost = field(default_factory=EngineHost)
    policy: ContextPolicy = field(default_factory=ContextPolicy)
    policy_for: Callable[[str], ContextPolicy] | None = None
    provider_cache: ProviderCache = field(default_factory=ProviderCache)
    layer_summaries: LayerSummarizing | None = None
    context_cache: ContextCaching | None = None
    prompts: KeptPrompts | None = None

    @property
    def backends(self) -> tuple[Backend, ...]:
        """The model and its fallbacks, in the order in which they are asked."""
        return (Backend(self.model, self.info), *self.fallbacks)

    @cached_property
    def prompt_tokens(self) -> int:
        """What the system prompt takes, ours."""
        return self.tokens.counter.count(self.system_prompt)

    @cached_property
    def described_tools(self) -> list[JsonObject]:
        """The tools as they go into a request."""
        return self.toolbox.described()

    @cached_property
    def tool_tokens(self) -> int:
        """What the tools take, ours."""
        if not self.described_tools:
            return 0
        return self.tokens.counter.count(json.dumps(self.described_tools, ensure_ascii=False))

    def fixed_tokens(self, info: ModelInfo) -> int:
        """What a request to that model takes before its first message, ours."""
        return self.prompt_tokens + (self.tool_tokens if info.tools else 0)

    def budget(
        self,
        info: ModelInfo | None = None,
        *,
        scale: float = 1.0,
        window: int | None = None,
        addition_tokens: int = 0,
    ) -> Budget:
        """The budget of a request, with `scale` of the provider's tokens for one of ours.

        `info` is the model that is asked, by default the first. `window` is the provider's
        own word on its window, where it gave one. `addition_tokens` is what an engine puts before
        the system prompt. Raises `ContextOverflow` when that, the system prompt and the tools
        leave no room.
        """
        info = info or self.info
        return resolve_budget(
            min(window or info.context_window, info.context_window),
            self.compaction,
            reserved_output=self.policy.reserved_output_tokens,
            max_tokens=self.policy.max_tokens,
            system_tokens=self.prompt_tokens + addition_tokens,
            tool_tokens=self.tool_tokens if info.tools else 0,
            scale=scale,
        )

    async def aclose(self) -> None:
        """Give back every model, whatever becomes of the others."""
        async with AsyncExitStack() as models:
            for model in (*(each.model for each in self.backends), *self.only_for_summaries):
                models.push_async_callback(model.aclose)
