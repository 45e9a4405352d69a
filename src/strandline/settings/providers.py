"""The settings of the servers that answer for models (spec 4, Models)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from strandline.settings.parts import DurationMs, Name, Part, Price
from strandline.settings.secrets import SecretText


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
    cache_write_1h: Price | None = Field(
        default=None,
        alias="cacheWrite1h",
        description="The same where they are kept for an hour; unset, cacheWrite.",
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
    api_key: SecretText | None = Field(
        default=None, description='Its key, or "${NAME}" for an environment variable.'
    )
    api: Name = Field(default="openai-completions", description="The protocol that it speaks.")
    headers: dict[str, SecretText] = Field(
        default={}, description="More headers of every request; kept secret like the key."
    )
    prompt_cache: bool | None = Field(
        default=None,
        description="Whether it takes OpenAI's keys about its prompt cache; unset, OpenAI's do.",
    )
    models: list[ModelSettings] = Field(default=[], description="Its models.")


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
