"""The settings that there are, their types, defaults and meaning.

Names in a file are camelCase (`baseUrl`), attributes snake_case. A class says what its keys
mean; `listing` prints them, so the documentation can be checked against them. Source: spec 2
and 3.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel

from strandline.errors import ConfigError, InvalidSessionKey
from strandline.sessions.keys import check_agent_id
from strandline.settings.units import DURATION_WORDS, duration_ms

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def _duration(value: object) -> int:
    try:
        return duration_ms(value, "")
    except ConfigError:
        raise ValueError(f"expected {DURATION_WORDS}") from None


@dataclass(frozen=True, slots=True)
class Words:
    """What the listing calls a type that is more than its Python type."""

    text: str


DurationMs = Annotated[int, BeforeValidator(_duration), Words("duration")]
"""Milliseconds, written as text or as a number."""

ModelRef = Annotated[str, Field(pattern=r"^[^/\s]+/\S+$"), Words("provider/model")]
Tokens = Annotated[int, Field(ge=0)]
Price = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Name = Annotated[str, Field(min_length=1)]


class Part(BaseModel):
    """Strict: no text is taken for a number, no key is ignored, nothing is changed later."""

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        alias_generator=to_camel,
        hide_input_in_errors=True,
        protected_namespaces=(),
    )


class ModelCost(Part):
    """US dollars for a million tokens."""

    input: Price = Field(default=0.0, description="Price of a million input tokens, in US dollars.")
    output: Price = Field(
        default=0.0, description="Price of a million output tokens, in US dollars."
    )
    cache_read: Price = Field(
        default=0.0, description="Price of a million tokens read from the cache."
    )
    cache_write: Price = Field(
        default=0.0, description="Price of a million tokens written to the cache."
    )


class ModelSettings(Part):
    """One model of a provider."""

    id: Name = Field(description="The model's name at its provider.")
    name: str | None = Field(default=None, description="What people call it.")
    context_window: Annotated[int, Field(gt=0)] = Field(
        description="Tokens that fit in one request and its answer."
    )
    max_tokens: Annotated[int, Field(gt=0)] = Field(description="Tokens of the longest answer.")
    cost: ModelCost = Field(default=ModelCost(), description="What it costs.")
    input: list[Literal["text", "image"]] = Field(
        default=["text"], description="What it understands."
    )


class ProviderSettings(Part):
    """A server that answers for models."""

    base_url: Name = Field(description="Where it is, without the path of a method.")
    api_key: SecretStr | None = Field(
        default=None, description='Its key, or "${NAME}" for an environment variable.'
    )
    api: Name = Field(default="openai-completions", description="The protocol that it speaks.")
    models: list[ModelSettings] = Field(default=[], description="Its models.")

    @field_validator("api_key", mode="before")
    @classmethod
    def _from_environment(cls, value: object, info: ValidationInfo) -> object:
        """A key as it stands, or the environment's. The text of an error shows the name only."""
        name = _variable_in(value)
        if name is None:
            return value
        environ: Mapping[str, str] = (info.context or {}).get("environ", {})
        if not environ.get(name):
            raise ValueError(f"the environment variable {name} is not set")
        return environ[name]


def _variable_in(value: object) -> str | None:
    """The NAME of ``"${NAME}"``, or of OpenClaw's ``{source: "env", id: "NAME"}``."""
    match value:
        case str():
            found = _VARIABLE.fullmatch(value.strip())
            return found[1] if found else None
        case {"source": "env", "id": str(name)}:
            return name
    return None


class Models(Part):
    """The models that can be used."""

    providers: dict[str, ProviderSettings] = Field(
        default={}, description="Servers, by a name of yours."
    )


class ModelChoiceSettings(Part):
    """Which model answers."""

    primary: ModelRef | None = Field(default=None, description="The model, as provider/model.")


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

    @field_validator("mode", mode="before")
    @classmethod
    def _openclaw_words(cls, value: object) -> object:
        return "auto" if value in ("default", "safeguard") else value

    @property
    def effective_mode(self) -> Literal["auto", "off", "error"]:
        """The mode, with `enabled` taken into account."""
        return self.mode if self.enabled else "off"


class AgentSettings(Part):
    """What one agent is given; `agents.defaults` holds it for all."""

    model: ModelChoiceSettings = Field(
        default=ModelChoiceSettings(), description="Which model answers."
    )
    workspace: Name | None = Field(default=None, description="The folder in which it works.")
    compaction: CompactionSettings = Field(
        default=CompactionSettings(), description="How its conversations are kept short."
    )

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
    token_counter: Literal["tiktoken", "heuristic"] = Field(
        default="tiktoken",
        description="How tokens are counted: with a vocabulary, or by a rule of thumb.",
    )
    gateway: GatewaySettings = Field(default=GatewaySettings(), description="Who owns the state.")

    def agent(self, agent_id: str) -> AgentSettings:
        """The settings of an agent: its own over the defaults, key by key; lists replace."""
        own = self.agents.by_id().get(agent_id.lower())
        if own is None:
            return self.agents.defaults
        merged = _merged(_written(self.agents.defaults), _written(own))
        merged.pop("id", None)
        return AgentSettings.model_validate(merged)


def _written(part: AgentSettings) -> dict[str, Any]:
    """The keys that stand in the file."""
    return part.model_dump(by_alias=True, exclude_unset=True)


def _merged(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    merged = {**under, **over}
    for key, value in over.items():
        if isinstance(value, dict) and isinstance(under.get(key), dict):
            merged[key] = _merged(under[key], value)
    return merged
