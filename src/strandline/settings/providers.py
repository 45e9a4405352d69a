"""The settings of the servers that answer for models (spec 4, Models)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, SecretStr, ValidationInfo, field_validator

from strandline.settings.parts import DurationMs, Name, Part, Price

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


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
    reasoning: bool = Field(default=False, description="Whether it can be asked to think.")
    tools: bool = Field(default=True, description="Whether it is offered tools.")


class ProviderSettings(Part):
    """A server that answers for models."""

    base_url: Name = Field(description="Where it is, without the path of a method.")
    api_key: SecretStr | None = Field(
        default=None, description='Its key, or "${NAME}" for an environment variable.'
    )
    api: Name = Field(default="openai-completions", description="The protocol that it speaks.")
    headers: dict[str, SecretStr] = Field(
        default={}, description="More headers of every request; kept secret like the key."
    )
    models: list[ModelSettings] = Field(default=[], description="Its models.")

    @field_validator("headers", mode="before")
    @classmethod
    def _headers_from_environment(cls, value: object, info: ValidationInfo) -> object:
        if not isinstance(value, dict):
            return value
        return {name: _resolved(header, info) for name, header in value.items()}

    @field_validator("api_key", mode="before")
    @classmethod
    def _from_environment(cls, value: object, info: ValidationInfo) -> object:
        return _resolved(value, info)


def _resolved(value: object, info: ValidationInfo) -> object:
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


class RetrySettings(Part):
    """Calls that failed for a reason that may pass."""

    attempts: Annotated[int, Field(ge=1, le=10)] = Field(
        default=3, description="As often a model is asked in all."
    )
    min_delay_ms: DurationMs = Field(
        default=500, description="The first wait; each further one is twice as long."
    )
    max_delay_ms: DurationMs = Field(
        default=30_000,
        description="The longest wait; a server that asks for more is not waited for.",
    )


class Models(Part):
    """The models that can be used."""

    providers: dict[str, ProviderSettings] = Field(
        default={}, description="Servers, by a name of yours."
    )
    retry: RetrySettings = Field(
        default=RetrySettings(), description="When a call that failed is made again."
    )
