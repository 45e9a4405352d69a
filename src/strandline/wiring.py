"""The one place that picks implementations: stores, models, counters, for a state directory.

Everything below takes what it needs as a value; here a state directory and its settings
become an `Agent` and a `SessionRegistry`. What is picked is imported when it is picked, so
that a command that lists rows does not load what a turn needs.
"""
# ruff: noqa: PLC0415 - see above

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from strandline.clock import Clock, IdSource, RandomIds, SystemClock
from strandline.errors import ConfigError
from strandline.sessions.keys import check_agent_id, main_key
from strandline.sessions.rows import SessionRow
from strandline.stores.jsonl import JsonlStore
from strandline.stores.rows_file import RowsFile

if TYPE_CHECKING:
    from strandline.runtime.agent import Agent
    from strandline.runtime.conversation import Conversation
    from strandline.runtime.model import Model, ModelInfo
    from strandline.runtime.registry import SessionRegistry
    from strandline.settings.model import ModelSettings, ProviderSettings, Settings

OPENAI_URL = "https://api.openai.com/v1"
SPOKEN_APIS = ("openai-completions",)


def ignore(warning: str) -> None:
    """Hears warnings and does nothing."""
    del warning


@dataclass(frozen=True)
class State:
    """A state directory with its settings; opens what lies in it.

    `warn` hears what a person should know and that stops nothing.
    """

    folder: Path
    settings: Settings
    settings_path: Path | None
    environ: Mapping[str, str]
    warn: Callable[[str], None]
    clock: Clock
    ids: IdSource

    @property
    def cache(self) -> Path:
        """Where derived look-ups are kept; may be deleted at any time."""
        return self.folder / "cache"

    def sessions_folder(self, agent_id: str) -> Path:
        """Where an agent's rows and transcripts are."""
        return self.folder / "agents" / check_agent_id(agent_id) / "sessions"

    def agent_ids(self) -> list[str]:
        """The agents that have sessions here, and those that the settings name."""
        found = {path.parent.name for path in self.folder.glob("agents/*/sessions")}
        return sorted(found | set(self.settings.agents.by_id()) | {"main"})

    def model_ref(self, agent_id: str) -> str:
        """The model that answers for an agent, as provider/model."""
        from strandline.models import catalog

        return self.settings.agent(agent_id).model.primary or catalog.LOCAL.ref

    def rows(self, agent_id: str, *, read_only: bool = False) -> RowsFile:
        """The rows of an agent."""
        path = self.sessions_folder(agent_id) / "sessions.json"
        return RowsFile(path, clock=self.clock, read_only=read_only, warn=self.warn)

    def registry(self, agent_id: str) -> SessionRegistry:
        """The conversations of an agent."""
        from strandline.runtime.registry import SessionRegistry

        workspace = self.settings.agent(agent_id).workspace
        return SessionRegistry(
            agent_id,
            self.rows(agent_id),
            JsonlStore(self.sessions_folder(agent_id), cache=self.cache),
            cwd=str(Path(workspace).expanduser()) if workspace else str(Path.cwd()),
            clock=self.clock,
            ids=self.ids,
        )

    def agent(self, agent_id: str, model_ref: str | None = None) -> Agent:
        """An agent with the model of that name, else its own, else the local one.

        Raises `ConfigError` for a model that cannot be used, with the nearest names.
        """
        from strandline.context.budget import CompactionSettings
        from strandline.context.tokens import MessageTokens
        from strandline.models.tokenizer import counter
        from strandline.runtime.agent import Agent
        from strandline.runtime.offline import OfflineSummarizer

        own = self.settings.agent(agent_id)
        info = self.model_info(model_ref or self.model_ref(agent_id))
        if own.compaction.model:
            self.warn(f"summaries are made offline: {own.compaction.model} is not asked for them")
        counts = counter(self.settings.token_counter)
        return Agent(
            id=agent_id,
            model=self._model(info),
            info=info,
            summarizer=OfflineSummarizer(counts),
            tokens=MessageTokens(counts),
            clock=self.clock,
            compaction=CompactionSettings(**own.compaction.model_dump()),
        )

    def main_key(self, agent_id: str) -> str:
        """The key of an agent's direct chats."""
        return str(main_key(agent_id, self.settings.session.main_key))

    def conversation(
        self, agent_id: str, key: str, model_ref: str | None = None, *, holder: str
    ) -> Conversation:
        """The conversation of a key, with the model that is asked for, or that was chosen."""
        from strandline.runtime.conversation import Conversation

        registry = self.registry(agent_id)
        return Conversation(
            registry,
            self.agent(agent_id, model_ref or registry.chosen_model(key)),
            key,
            holder=holder,
            lock_timeout_ms=self.settings.session.write_lock.acquire_timeout_ms,
        )

    # -- models ----------------------------------------------------------------------------

    def model_refs(self) -> list[str]:
        """The models that can be used here, as provider/model."""
        from strandline.models import catalog

        configured = [
            f"{name}/{model.id}"
            for name, provider in self.settings.models.providers.items()
            for model in provider.models
        ]
        return [*configured, catalog.LOCAL.ref]

    def model_info(self, ref: str) -> ModelInfo:
        """What is known of a model: the configuration first, then the catalog."""
        from strandline.models import catalog

        provider_id, _, model_id = ref.partition("/")
        provider = self.settings.models.providers.get(provider_id)
        for model in provider.models if provider else ():
            if provider and model.id == model_id:
                return _info(provider_id, provider, model)
        known = catalog.find(ref)
        if known is not None and (known.provider == "local" or self._can_reach(known)):
            return known
        near = difflib.get_close_matches(ref, self.model_refs(), n=1) or self.model_refs()
        raise ConfigError(
            f"no model {ref!r} can be used here",
            remedy=f"add it to models.providers, or use one of: {', '.join(near)}",
        )

    def _can_reach(self, info: ModelInfo) -> bool:
        configured = info.provider in self.settings.models.providers
        return configured or (info.provider == "openai" and "OPENAI_API_KEY" in self.environ)

    def _model(self, info: ModelInfo) -> Model:
        if info.api == "local":
            from strandline.models.local import LocalModel

            return LocalModel(clock=self.clock, context_window=info.context_window)
        if info.api not in SPOKEN_APIS:
            raise ConfigError(
                f"{info.ref} speaks {info.api}, which is not spoken here",
                remedy=f"set models.providers.{info.provider}.api to {SPOKEN_APIS[0]} if the "
                "server speaks that too",
            )
        from strandline.models.openai_chat import OpenAIChatModel

        provider = self.settings.models.providers.get(info.provider)
        if provider is None:
            return OpenAIChatModel(OPENAI_URL, self.environ["OPENAI_API_KEY"], clock=self.clock)
        key = provider.api_key.get_secret_value() if provider.api_key else ""
        return OpenAIChatModel(provider.base_url, key, clock=self.clock)


def open_state(
    folder: Path,
    environ: Mapping[str, str],
    *,
    warn: Callable[[str], None] = ignore,
    clock: Clock | None = None,
    ids: IdSource | None = None,
) -> State:
    """The state directory `folder` with its settings. Raises `ConfigError`."""
    from strandline.settings import load

    loaded = load(folder, environ)
    for warning in loaded.warnings:
        warn(warning)
    return State(
        folder,
        loaded.settings,
        loaded.path,
        environ,
        warn,
        clock or SystemClock(),
        ids or RandomIds(),
    )


def rows_in(
    state_dir: Path,
    agent_id: str,
    *,
    all_agents: bool = False,
    store: Path | None = None,
    warn: Callable[[str], None] = ignore,
) -> list[tuple[Path, Mapping[str, SessionRow]]]:
    """The rows of one agent, of all, or of the file `store`, each with its path.

    Reads only, and needs no settings, so that a listing is quick. Raises `ConfigError` for
    a `store` that is not there.
    """
    if store is not None and not store.exists():
        raise ConfigError(f"there is no {store}", remedy="give the path of a sessions.json")
    if store is not None:
        paths = [store]
    elif all_agents:
        paths = sorted(state_dir.glob("agents/*/sessions/sessions.json"))
    else:
        paths = [state_dir / "agents" / check_agent_id(agent_id) / "sessions" / "sessions.json"]
    return [(path, RowsFile(path, read_only=True, warn=warn).list()) for path in paths]


def _info(provider_id: str, provider: ProviderSettings, model: ModelSettings) -> ModelInfo:
    from strandline.runtime.model import ModelInfo, Prices

    cost = model.cost
    prices = Prices(cost.input, cost.output, cost.cache_read, cost.cache_write)
    return ModelInfo(
        provider_id, model.id, provider.api, model.context_window, model.max_tokens, prices
    )
