"""What an agent's context is made with: engine, rules, caches and the summaries of layers."""
# ruff: noqa: PLC0415 - what is picked is imported when it is picked

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from strandline import __version__
from strandline.clock import Clock
from strandline.errors import EngineUnavailable, StrandlineError
from strandline.wiring.policies import context_cache_of, model_resolver, model_warning, policy_of

if TYPE_CHECKING:
    from strandline.context.cache import ContextCache
    from strandline.context.policy import ContextPolicy
    from strandline.plugins.registry import PluginRegistry
    from strandline.runtime.context_caching import ContextCaching
    from strandline.runtime.engine_host import EngineHost
    from strandline.runtime.kept_prompts import KeptPrompts
    from strandline.settings.model import AgentSettings, Settings
    from strandline.wiring.policies import CacheChoice


@dataclass
class Contexts:
    """Makes them, each engine and each cache once for all conversations of an agent.

    `plugins` gives the registry when an engine is picked.
    """

    folder: Path
    settings: Settings
    clock: Clock
    warn: Callable[[str], None]
    plugins: Callable[[], PluginRegistry]
    _hosts: dict[str, EngineHost] = field(default_factory=dict)
    _caches: dict[CacheChoice, ContextCache] = field(default_factory=dict)

    def engine(self, agent_id: str, workspace: Path) -> EngineHost:
        """The engine that the settings select. Raises `EngineUnavailable`."""
        from strandline.context.engine import HOST_ABILITIES, LEGACY, THREADS, EngineContext
        from strandline.runtime.engine_host import EngineHost
        from strandline.wiring.health import engine_health

        selected = self.settings.plugins.slots.context_engine
        if selected == LEGACY:
            return EngineHost()
        host = self._hosts.get(agent_id)
        if host is None or host.is_closed:
            agent_dir = self.folder / "agents" / agent_id
            context = EngineContext({}, str(agent_dir), str(workspace))
            abilities = HOST_ABILITIES | {THREADS}  # whether the model has them is seen later
            health = engine_health(self.folder, self.clock, self.warn)
            try:
                engine = self.plugins().make_engine(selected, context, abilities)
            except EngineUnavailable as error:
                with suppress(StrandlineError):  # the failure itself is the one to tell
                    health.note(selected, error.phase, error.what, None)
                raise
            host = self._hosts[agent_id] = EngineHost(engine, health)
        return host

    def policy(self, agent_id: str, own: AgentSettings) -> Callable[[str], ContextPolicy]:
        """The rules of an agent, for a kind of chat."""
        resolve = model_resolver(self.settings.models)
        warning = model_warning(own, resolve)
        if warning is not None:
            self.warn(f"agent {agent_id}: {warning}")
        return lambda chat_type: policy_of(own, chat_type=chat_type, resolve_model=resolve)

    def cache(self, own: AgentSettings) -> ContextCaching | None:
        """Where built contexts are kept, if they are."""
        from strandline.runtime.context_caching import ContextCaching

        choice = context_cache_of(own)
        if not choice.enabled:
            return None
        cache = self._caches.get(choice)
        if cache is None:
            cache = self._caches[choice] = self._make_cache(choice)
        return ContextCaching(cache, choice.drop_on_new_message, __version__)

    def prompts(self) -> KeptPrompts:
        """System prompts of sessions, beyond this process."""
        from strandline.runtime.kept_prompts import RecordedPrompts
        from strandline.stores.session_records import SessionRecords

        return RecordedPrompts(
            SessionRecords(self.folder / "cache" / "prompts", self.clock, warn=self.warn)
        )

    def _make_cache(self, choice: CacheChoice) -> ContextCache:
        from strandline.stores.context_cache_memory import MemoryContextCache

        if choice.storage == "memory":
            return MemoryContextCache(self.clock, choice.max_entries)
        from strandline.stores.context_cache_redis import RedisContextCache

        return RedisContextCache(choice.redis_url or "", choice.max_entries, self.warn)
