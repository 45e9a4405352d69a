"""The settings that there are, their types, defaults and meaning.

Names in a file are camelCase (`baseUrl`), attributes snake_case. A class says what its keys
mean; `listing` prints them, so the documentation can be checked against them. Source: spec 2
and 3.
"""

from __future__ import annotations

import difflib
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, field_validator, model_validator

from strandline.errors import InvalidSessionKey
from strandline.runtime.access import WorkspaceAccess, stricter
from strandline.sessions.keys import check_agent_id
from strandline.settings.context import ContextSettings, TokenCounter
from strandline.settings.parts import DurationMs, ModelRef, Name, Part, Tokens
from strandline.settings.plugins import PluginSettings
from strandline.settings.providers import Models
from strandline.settings.pruning import ContextPruningSettings
from strandline.transcript.messages import ThinkingLevel


class ModelChoiceSettings(Part):
    """Which model answers."""

    primary: ModelRef | None = Field(default=None, description="The model, as provider/model.")
    fallbacks: list[ModelRef] = Field(
        default=[], description="Models that are asked, in this order, where it fails."
    )


class MemoryFlushSettings(Part):
    """The silent turn before a compaction, in which an agent writes down what lasts."""

    enabled: bool = Field(default=True, description="Whether there is one.")
    soft_threshold_tokens: Tokens = Field(
        default=4000, description="Tokens before the compaction at which it comes."
    )
    prompt: Name | None = Field(default=None, description="What it is asked; unset, our words.")
    system_prompt: Name | None = Field(
        default=None, description="What is added to its system prompt; unset, our words."
    )


class CompactionSettings(Part):
    """When and how a long conversation is summarised."""

    enabled: bool = Field(default=True, description="False is the same as mode off.")
    mode: Literal["auto", "off", "error"] = Field(
        default="auto", description="What happens when the window is nearly full."
    )
    reserve_tokens: Tokens = Field(default=16_384, description="Tokens kept free for the answer.")
    keep_recent_tokens: Tokens = Field(
        default=20_000, description="The newest tokens that stay verbatim."
    )
    reserve_tokens_floor: Tokens = Field(
        default=20_000, description="A lower reserve is raised to this; 0 switches that off."
    )
    model: Name | None = Field(
        default=None, description="The model that summarises; unset, the session's."
    )

    timeout_ms: DurationMs = Field(
        default=180_000, description="How long one call for a summary may take."
    )
    memory_flush: MemoryFlushSettings = Field(
        default=MemoryFlushSettings(), description="Writing down what lasts, before."
    )

    @field_validator("mode", mode="before")
    @classmethod
    def _openclaw_words(cls, value: object) -> object:
        return "auto" if value in ("default", "safeguard") else value


class ToolSettings(Part):
    """Which tools an agent is offered, by name."""

    allow: list[Name] | None = Field(
        default=None, description="Only these; unset, all that there are."
    )
    deny: list[Name] = Field(default=[], description="Not these.")


class SandboxSettings(Part):
    """What an OpenClaw configuration says of its sandbox."""

    workspace_access: WorkspaceAccess | None = Field(
        default=None, description="As workspaceAccess; of the two, the stricter holds."
    )


class SubagentSettings(Part):
    """The sub-agents that an agent's conversations may have."""

    max_spawn_depth: Annotated[int, Field(ge=0, le=2)] = Field(
        default=1, description="0 for none, 1 for children, 2 for their children too."
    )
    max_concurrent: Annotated[int, Field(ge=1, le=100)] = Field(
        default=8, description="So many at a time for one conversation."
    )
    run_timeout: DurationMs = Field(
        default=600_000, description="How long each may work, unless it is told otherwise."
    )
    allow_agents: list[Name] = Field(
        default=[], description="Other agents that may be asked, by id."
    )


class AgentSettings(Part):
    """What one agent is given; `agents.defaults` holds it for all."""

    model: ModelChoiceSettings = Field(
        default=ModelChoiceSettings(), description="Which model answers."
    )
    workspace: Name | None = Field(default=None, description="The folder in which it works.")
    sandbox: SandboxSettings = Field(
        default=SandboxSettings(), description="Its sandbox in OpenClaw."
    )
    workspace_access: WorkspaceAccess = Field(
        default="rw", description="What its tools may do there: read and write, read, nothing."
    )
    tools: ToolSettings = Field(default=ToolSettings(), description="Which tools it is offered.")
    system_prompt: Name | None = Field(
        default=None, description="What it is told first; unset, a sentence of ours."
    )
    bootstrap_max_chars: Annotated[int, Field(ge=0)] = Field(
        default=20_000, description="Characters of one workspace file that enter the prompt."
    )
    bootstrap_total_max_chars: Annotated[int, Field(ge=0)] = Field(
        default=60_000, description="Characters of all workspace files together."
    )
    subagents: SubagentSettings = Field(
        default=SubagentSettings(), description="What it may have done beside a conversation."
    )
    thinking_default: ThinkingLevel = Field(
        default="low",
        description="How hard a model that can thinks in a new session.",
    )
    compaction: CompactionSettings = Field(
        default=CompactionSettings(), description="How its conversations are kept short."
    )
    context: ContextSettings = Field(
        default=ContextSettings(), description="What the model sees of a conversation."
    )
    context_pruning: ContextPruningSettings = Field(
        default=ContextPruningSettings(), description="Trimming old tool results."
    )
    cache_retention: Literal["none", "short", "long"] = Field(
        default="short",
        description="How long the provider keeps what it was sent: not, minutes, an hour or more.",
    )

    @property
    def access(self) -> WorkspaceAccess:
        """What its tools may do in the workspace: the stricter of what was said."""
        return stricter(self.workspace_access, self.sandbox.workspace_access or "rw")

    @field_validator("model", mode="before")
    @classmethod
    def _plain_name(cls, value: object) -> object:
        return {"primary": value} if isinstance(value, str) else value


class ListedAgent(AgentSettings):
    """An agent in `agents.list`."""

    id: Name = Field(description="The agent's id.")


class Agents(Part):
    """The agents: a map by id, or `list`. An agent's settings override the defaults' keys."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, AgentSettings] = Field(init=False)

    defaults: AgentSettings = Field(
        default=AgentSettings(), description="What every agent starts from."
    )
    listed: list[ListedAgent] = Field(
        default=[], alias="list", description="Agents, each with its id."
    )

    @model_validator(mode="after")
    def _ids_are_names(self) -> Agents:
        for agent_id in self._written_ids():
            try:
                check_agent_id(agent_id)
            except InvalidSessionKey as error:
                raise ValueError(str(error)) from None
        for agent_id in self._mapped():
            if difflib.get_close_matches(agent_id.lower(), ["defaults"], cutoff=0.8):
                raise ValueError(f"{agent_id!r} would be an agent; 'defaults' is for all of them")
        return self

    def by_id(self) -> dict[str, AgentSettings]:
        """Every agent that is named, by its id in lower case, without the defaults."""
        listed = {agent.id.lower(): agent for agent in self.listed}
        return {name.lower(): agent for name, agent in self._mapped().items()} | listed

    def places(self) -> dict[str, tuple[str | int, ...]]:
        """Where the settings of every agent of `by_id` stand below `agents`."""
        places: dict[str, tuple[str | int, ...]] = {
            name.lower(): (name,) for name in self._mapped()
        }
        for at, agent in enumerate(self.listed):
            places[agent.id.lower()] = ("list", at)
        return places

    def _mapped(self) -> dict[str, AgentSettings]:
        return self.__pydantic_extra__ or {}

    def _written_ids(self) -> list[str]:
        return [*self._mapped(), *(agent.id for agent in self.listed)]


class WriteLock(Part):
    """Waiting for a session that another turn holds."""

    acquire_timeout_ms: DurationMs = Field(
        default=60_000, description="How long a second turn waits."
    )


class SessionSettings(Part):
    """How conversations are addressed and held."""

    main_key: Name = Field(default="main", description="The bucket of direct chats.")
    write_lock: WriteLock = Field(default=WriteLock(), description="Waiting for a busy session.")
    parent_fork_max_tokens: Tokens = Field(
        default=100_000, description="The largest context that is forked, in tokens; 0: any."
    )


class MemorySettings(Part):
    """What agents are told of their memory."""

    citations: Literal["auto", "on", "off"] = Field(
        default="auto", description="Whether context engines let an agent name where it found it."
    )


class GatewaySettings(Part):
    """The process that owns the state."""

    mode: Literal["local", "remote"] = Field(default="local", description="Whose state is used.")


class Settings(Part):
    """All settings."""

    models: Models = Field(default=Models(), description="The models that can be used.")
    agents: Agents = Field(default=Agents(), description="The agents.")
    session: SessionSettings = Field(
        default=SessionSettings(), description="How conversations are held."
    )
    token_counter: TokenCounter = Field(
        default="tiktoken",
        description="How tokens are counted: with a vocabulary, or by a rule of thumb.",
    )
    memory: MemorySettings = Field(
        default=MemorySettings(), description="What agents are told of their memory."
    )
    gateway: GatewaySettings = Field(default=GatewaySettings(), description="Who owns the state.")
    plugins: PluginSettings = Field(default=PluginSettings(), description="The plugins.")

    def agent(self, agent_id: str) -> AgentSettings:
        """The settings of an agent: its own over the defaults, key by key; lists replace."""
        own = self.agents.by_id().get(agent_id.lower())
        if own is None:
            return self.agents.defaults
        merged = _merged(_written(self.agents.defaults), _written(own))
        merged.pop("id", None)
        return AgentSettings.model_validate(merged)

    def counter_of(self, agent_id: str) -> TokenCounter:
        """How an agent's tokens are counted."""
        return self.agent(agent_id).context.token_counter or self.token_counter


def _written(part: AgentSettings) -> dict[str, Any]:
    """The keys that stand in the file."""
    return part.model_dump(by_alias=True, exclude_unset=True)


def _merged(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    merged = {**under, **over}
    for key, value in over.items():
        if isinstance(value, dict) and isinstance(under.get(key), dict):
            merged[key] = _merged(under[key], value)
    return merged
