"""From the settings of an agent to the agent: models, tools, summarisers, system prompt."""
# ruff: noqa: PLC0415 - what is picked is imported when it is picked

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from strandline.clock import Clock
from strandline.errors import ConfigError
from strandline.sessions.keys import check_agent_id

if TYPE_CHECKING:
    from strandline.context.policy import ContextPolicy
    from strandline.context.tokens import MessageTokens
    from strandline.plugins.registry import PluginRegistry
    from strandline.runtime.agent import Agent, Backend
    from strandline.runtime.engine_host import EngineHost
    from strandline.runtime.hooks import Hooks
    from strandline.runtime.layer_summaries import LayerSummarizing
    from strandline.runtime.model_summarizer import ModelSummarizer
    from strandline.runtime.retrying import RetrySettings
    from strandline.runtime.summarizing import SummaryLadder
    from strandline.runtime.tools import Tool, Toolbox
    from strandline.settings.model import AgentSettings, Settings
    from strandline.transcript.context import ModelChoice
    from strandline.wiring.contexts import Contexts
    from strandline.wiring.providers import Providers

CHARS_A_TOKEN = 4
PROMPT_SHARE = 8
"""Workspace files take at most this fraction (an eighth) of the window, whatever the bounds."""


@dataclass(frozen=True)
class AgentMaker:
    """Makes agents of one state directory. `extra_tools` and `hooks` are what was registered.

    `contexts` makes what their contexts need, `plugins` gives the plugins that are enabled.
    """

    folder: Path
    settings: Settings
    providers: Providers
    clock: Clock
    warn: Callable[[str], None]
    extra_tools: Sequence[Tool]
    hooks: Hooks
    contexts: Contexts
    plugins: Callable[[], PluginRegistry]

    def make(self, agent_id: str, model_ref: str, token_counter: str) -> Agent:
        """An agent with that model. Raises `ConfigError` for a model that cannot be used."""
        from strandline.context.tokens import MessageTokens
        from strandline.models.tokenizer import counter
        from strandline.runtime.agent import Agent
        from strandline.runtime.model_summarizer import ModelSummarizer
        from strandline.wiring.policies import compaction_of, flush_of, provider_cache_of

        own, workspace = self.settings.agent(agent_id), self.workspace(agent_id)
        first = self._backend(model_ref)
        engine = self.contexts.engine(agent_id, workspace)
        engine.check(first.info)
        fallbacks = self._fallbacks(agent_id, own, first, engine)
        tokens = MessageTokens(counter(own.context.token_counter or token_counter))
        policy_for = self.contexts.policy(agent_id, own)
        policy = policy_for("direct")
        layers = self._layer_backend(agent_id, policy)
        summarizers = self._summarizers(agent_id, own, first)
        rung = partial(ModelSummarizer, timeout_ms=own.compaction.timeout_ms)
        prompt = partial(self._system_prompt, own, workspace, first.info.context_window)
        return Agent(
            id=agent_id,
            model=first.model,
            info=first.info,
            summarizer=self._ladder(rung, [*summarizers, first], tokens),
            tokens=tokens,
            clock=self.clock,
            compaction=compaction_of(own),
            system_prompt=prompt(),
            fallbacks=tuple(fallbacks),
            toolbox=self.toolbox(agent_id),
            retry=self._retry(),
            flush=flush_of(own),
            hooks=self.hooks,
            thinking=own.thinking_default,
            renew_prompt=prompt,
            prompt_settings=self._prompt_settings(own, workspace),
            citations_mode=self.settings.memory.citations,
            only_for_summaries=tuple(each.model for each in [*summarizers, *layers]),
            engine=engine,
            policy=policy,
            policy_for=policy_for,
            provider_cache=provider_cache_of(own),
            layer_summaries=self._layer_summaries(policy, layers, tokens),
            context_cache=self.contexts.cache(own),
            prompts=self.contexts.prompts(),
        )

    def make_for(
        self,
        agent_id: str,
        answered: ModelChoice | None,
        model_ref: str | None,
        token_counter: str,
        *,
        offline: bool,
        window: int | None,
    ) -> Agent:
        """An agent for a transcript of others; see `State.agent_for`."""
        from strandline.models import catalog
        from strandline.runtime.offline import OfflineSummarizer

        spoke = f"{answered['provider']}/{answered['modelId']}" if answered else None
        ref, known = model_ref, None
        if ref is None and spoke is not None:
            reachable = self.providers.can_use(spoke)
            ref, known = (spoke, None) if reachable else (None, catalog.find(spoke))
            offline = offline or not reachable
        own = self.settings.agent(agent_id).model.primary or catalog.LOCAL.ref
        agent = self.make(agent_id, ref or own, token_counter)
        if known is not None:
            agent = replace(agent, info=known)
        if window is not None:
            agent = replace(agent, info=replace(agent.info, context_window=window))
        if offline:
            layers = self._layer_summaries(agent.policy, [], agent.tokens)
            summarizer = OfflineSummarizer(agent.tokens.counter)
            agent = replace(agent, summarizer=summarizer, layer_summaries=layers)
        return agent

    def workspace(self, agent_id: str) -> Path:
        """The folder in which an agent's tools work; one in the state directory by default."""
        own = self.settings.agent(agent_id).workspace
        if own:
            return Path(own).expanduser().absolute()
        name = check_agent_id(agent_id)
        folder = "workspace" if name == "main" else f"workspace-{name}"
        return (self.folder / folder).absolute()

    def toolbox(self, agent_id: str) -> Toolbox:
        """The tools of an agent: the built-in ones that its access allows, and what came later."""
        from strandline.runtime.access import allows
        from strandline.runtime.tools import Toolbox
        from strandline.tools.builtin import builtin_tools
        from strandline.tools.spawning import NAME as SPAWN

        own = self.settings.agent(agent_id)
        access = own.access
        everything = Toolbox(builtin_tools(self.workspace(agent_id), access, self.clock)).plus(
            [*self.extra_tools, *self.plugins().tools()]
        )
        allow, deny = own.tools.allow, set(own.tools.deny)
        for name in sorted({*(allow or ()), *deny} - set(everything.names) - {SPAWN}):
            if access == "rw":  # otherwise it may be one that is not allowed to write
                self.warn(f"agent {agent_id}: there is no tool {name!r} to allow or deny")
        allowed = set(everything.names) if allow is None else set(allow)
        return everything.only(
            lambda tool: tool.name in allowed - deny and allows(access, tool.needs)
        )

    def _backend(self, ref: str) -> Backend:
        from strandline.runtime.agent import Backend

        info = self.providers.info(ref)
        return Backend(self.providers.model(info), info)

    def _fallbacks(
        self, agent_id: str, own: AgentSettings, first: Backend, engine: EngineHost
    ) -> list[Backend]:
        """The models that are asked where the first fails, each once."""
        found = []
        for ref in dict.fromkeys(own.model.fallbacks):
            backend = self._if_usable(agent_id, "model.fallbacks", ref)
            if backend is None or backend.info == first.info:
                continue
            if engine.fits(backend.info):
                found.append(backend)
            else:
                self.warn(f"{ref} of model.fallbacks is passed over (it has no threads)")
        return found

    def _summarizers(self, agent_id: str, own: AgentSettings, first: Backend) -> list[Backend]:
        """The model that is asked for summaries alone, if there is one."""
        if own.compaction.model is None:
            return []
        backend = self._if_usable(agent_id, "compaction.model", own.compaction.model)
        return [backend] if backend and backend.info != first.info else []

    def _if_usable(self, agent_id: str, key: str, ref: str) -> Backend | None:
        """A model that a turn can do without: where it cannot be used that is told, no more."""
        try:
            return self._backend(ref)
        except ConfigError as error:
            self.warn(f"agent {agent_id}: {ref} of {key} is passed over ({error})")
            return None

    def _layer_backend(self, agent_id: str, policy: ContextPolicy) -> list[Backend]:
        """The model that writes summaries of layer 4, if one is set and can be used."""
        wanted = policy.summaries
        if policy.ttl is None or not wanted.enabled or wanted.model is None:
            return []
        backend = self._if_usable(agent_id, "context.compaction.model", wanted.model)
        return [backend] if backend else []

    def _layer_summaries(
        self, policy: ContextPolicy, backends: Sequence[Backend], tokens: MessageTokens
    ) -> LayerSummarizing | None:
        if policy.ttl is None or not policy.summaries.enabled:
            return None
        from strandline.runtime.layer_summaries import LayerSummarizing
        from strandline.runtime.layer_summarizer import LayerSummarizer
        from strandline.stores.session_records import SessionRecords

        folder = self.folder / "cache" / "layer-summaries"
        memo = SessionRecords(folder, self.clock, warn=self.warn)
        rung = partial(LayerSummarizer, prompt=policy.summaries.prompt)
        ladder = self._ladder(rung, backends, tokens)
        return LayerSummarizing(ladder, tokens.counter, memo, self.clock, policy.summaries)

    def _ladder(
        self,
        rung: Callable[..., ModelSummarizer],
        backends: Sequence[Backend],
        tokens: MessageTokens,
    ) -> SummaryLadder:
        """The models of `backends` as rungs, and below them the summariser that needs none."""
        from strandline.runtime.cooldowns import RecordedCooldowns
        from strandline.runtime.offline import OfflineSummarizer
        from strandline.runtime.summarizing import SummaryLadder
        from strandline.stores.cooldowns_file import CooldownsFile

        rungs = [
            rung(each.model, each.info, tokens, self.clock, retry=self._retry())
            for each in backends
            if each.info.api != "local"  # it summarises badly, and takes a minute for it
        ]
        records = CooldownsFile(self.folder / "cooldowns.json", warn=self.warn)
        cooldowns = RecordedCooldowns(records, self.clock)
        return SummaryLadder(rungs, OfflineSummarizer(tokens.counter), cooldowns)

    def _retry(self) -> RetrySettings:
        from strandline.runtime.retrying import RetrySettings

        return RetrySettings(**self.settings.models.retry.model_dump())

    def _prompt_settings(self, own: AgentSettings, workspace: Path) -> str:
        """What stands for the settings that a system prompt is made of."""
        from strandline.context.cache import digest_of

        bounds = [own.bootstrap_max_chars, own.bootstrap_total_max_chars]
        return digest_of(own.system_prompt, own.access, str(workspace), bounds)[:16]

    def _system_prompt(self, own: AgentSettings, workspace: Path, window: int) -> str:
        from strandline.runtime.agent import DEFAULT_SYSTEM_PROMPT
        from strandline.tools.prompt import workspace_prompt

        told = own.system_prompt or DEFAULT_SYSTEM_PROMPT
        if own.access == "none":
            return told
        most = min(own.bootstrap_total_max_chars, window * CHARS_A_TOKEN // PROMPT_SHARE)
        today = datetime.fromtimestamp(self.clock.now_ms() / 1000, tz=UTC).astimezone().date()
        files = workspace_prompt(
            workspace, max_chars_per_file=own.bootstrap_max_chars, max_chars=most, today=today
        )
        return "\n\n".join(filter(None, [told, files.text]))
