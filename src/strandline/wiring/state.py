"""A state directory with its settings: where agents, rows and conversations come from.

Everything below takes what it needs as a value; here a state directory and its settings
become an `Agent` and a `SessionRegistry`. What is picked is imported when it is picked, so
that a command that lists rows does not load what a turn needs.
"""
# ruff: noqa: PLC0415 - see above

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from strandline.clock import Clock, IdSource, RandomIds, SystemClock
from strandline.errors import ConfigError
from strandline.sessions.keys import check_agent_id, main_key
from strandline.sessions.rows import SessionRow
from strandline.stores.jsonl import JsonlStore
from strandline.stores.rows_file import RowsFile

if TYPE_CHECKING:
    from strandline.context.engine import BootstrapReason
    from strandline.plugins.registry import PluginRegistry
    from strandline.runtime.agent import Agent
    from strandline.runtime.conversation import Conversation
    from strandline.runtime.hooks import Hooks
    from strandline.runtime.model import ModelInfo
    from strandline.runtime.registry import SessionRegistry
    from strandline.runtime.tools import Tool, Toolbox
    from strandline.settings.model import Settings
    from strandline.transcript.context import ModelChoice
    from strandline.wiring.agents import AgentMaker
    from strandline.wiring.providers import Providers


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
    environ: Mapping[str, str] = field(repr=False)  # it holds keys
    warn: Callable[[str], None]
    clock: Clock
    ids: IdSource
    extra_tools: list[Tool] = field(default_factory=list)

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

    def transcripts(self, agent_id: str) -> JsonlStore:
        """The transcripts of an agent."""
        return JsonlStore(self.sessions_folder(agent_id), cache=self.cache)

    def cwd(self, agent_id: str) -> str:
        """The working directory that the headers of an agent's transcripts name."""
        workspace = self.settings.agent(agent_id).workspace
        return str(Path(workspace).expanduser() if workspace else Path.cwd())

    def registry(self, agent_id: str) -> SessionRegistry:
        """The conversations of an agent."""
        from strandline.runtime.registry import SessionRegistry

        return SessionRegistry(
            agent_id,
            self.rows(agent_id),
            self.transcripts(agent_id),
            cwd=self.cwd(agent_id),
            clock=self.clock,
            ids=self.ids,
        )

    def agent(self, agent_id: str, model_ref: str | None = None) -> Agent:
        """An agent with the model of that name, else its own, else the local one.

        Raises `ConfigError` for a model that cannot be used, with the nearest names.
        """
        ref = model_ref or self.model_ref(agent_id)
        return self._maker.make(agent_id, ref, self.settings.token_counter)

    def agent_for(
        self,
        agent_id: str,
        answered: ModelChoice | None,
        model_ref: str | None = None,
        *,
        offline: bool = False,
        window: int | None = None,
    ) -> Agent:
        """An agent for a transcript in which the model `answered` spoke last.

        Without `model_ref` that model's window holds, whether it can be reached from here or
        not; where it cannot, or `offline`, summaries are made without a model. `window`
        takes the place of the model's. Raises `ConfigError`.
        """
        return self._maker.make_for(
            agent_id,
            answered,
            model_ref,
            self.settings.token_counter,
            offline=offline,
            window=window,
        )

    def toolbox(self, agent_id: str) -> Toolbox:
        """The tools of an agent."""
        return self._maker.toolbox(agent_id)

    def workspace(self, agent_id: str) -> Path:
        """The folder in which an agent's tools work."""
        return self._maker.workspace(agent_id)

    def register_tool(self, tool: Tool) -> None:
        """Offer one more tool to the agents that are made from now on.

        Raises `ConfigError` for a name that is taken, parameters that are no JSON Schema, or
        needs that are no access.
        """
        from strandline.runtime.access import ACCESSES
        from strandline.runtime.tools import Toolbox
        from strandline.tools.builtin import builtin_tools
        from strandline.tools.spawning import NAME as SPAWN

        if tool.needs not in ACCESSES:
            raise ConfigError(
                f"the tool {tool.name} needs {tool.needs!r}, which is no access to a workspace",
                remedy=f"let it need one of {', '.join(ACCESSES)}",
            )
        builtin = builtin_tools(self.folder, "rw", self.clock)
        if tool.name == SPAWN:
            raise ConfigError(f"the tool {SPAWN} is there already", remedy="rename yours")
        Toolbox([*builtin, *self.extra_tools]).plus([tool])
        self.extra_tools.append(tool)

    @property
    def hooks(self) -> Hooks:
        """What is asked before a session is compacted or moved; append to its lists."""
        return self._maker.hooks

    @cached_property
    def _maker(self) -> AgentMaker:
        from strandline.wiring.agents import AgentMaker
        from strandline.wiring.contexts import Contexts

        warn = _once(self.warn)

        def plugins() -> PluginRegistry:
            return self.plugins

        return AgentMaker(
            self.folder,
            self.settings,
            self.providers,
            self.clock,
            warn,
            self.extra_tools,
            self.plugins.hooks(),
            Contexts(self.folder, self.settings, self.clock, warn, plugins),
            plugins,
        )

    @cached_property
    def plugins(self) -> PluginRegistry:
        """The plugins of the state directory; those that are enabled are loaded when needed."""
        from strandline.wiring.plugins import plugins_of

        return plugins_of(self)

    def main_key(self, agent_id: str) -> str:
        """The key of an agent's direct chats."""
        return str(main_key(agent_id, self.settings.session.main_key))

    def conversation(
        self, agent_id: str, key: str, model_ref: str | None = None, *, holder: str
    ) -> Conversation:
        """The conversation of a key, with the model that is asked for, or that was chosen."""
        chosen = self.registry(agent_id).chosen_model(key)
        return self._talk(agent_id, key, self.agent(agent_id, model_ref or chosen), holder)

    def _talk(
        self, agent_id: str, key: str, agent: Agent, holder: str, reason: BootstrapReason = "opened"
    ) -> Conversation:
        from strandline.runtime.conversation import Conversation
        from strandline.wiring.families import Families

        def open_child(child_agent_id: str, child_key: str, own: Agent) -> Conversation:
            return self._talk(child_agent_id, child_key, own, "a sub-agent", "new")

        return Conversation(
            self.registry(agent_id),
            agent,
            key,
            holder=holder,
            lock_timeout_ms=self.settings.session.write_lock.acquire_timeout_ms,
            children=Families(self, open_child).of(agent_id, key),
            reason=reason,
        )

    # -- models ----------------------------------------------------------------------------

    @cached_property
    def providers(self) -> Providers:
        """The models that can be used here."""
        from strandline.wiring.providers import Providers

        return Providers(self.settings.models, self.environ, self.clock)

    def model_refs(self) -> list[str]:
        """The models that can be used here, as provider/model."""
        return self.providers.refs()

    def model_info(self, ref: str) -> ModelInfo:
        """What is known of a model: the configuration first, then the catalog."""
        return self.providers.info(ref)


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


def _once(warn: Callable[[str], None]) -> Callable[[str], None]:
    """What is known is not told again, however often an agent is made."""
    told: set[str] = set()

    def tell(warning: str) -> None:
        if warning not in told:
            told.add(warning)
            warn(warning)

    return tell


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
