"""From ``provider/model`` to what is known of it, and to something that can be asked.

What is picked is imported when it is picked. Source: spec 4, Models.
"""
# ruff: noqa: PLC0415 - see above

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from strandline.clock import Clock
from strandline.errors import ConfigError

if TYPE_CHECKING:
    from strandline.models.http import HttpModel
    from strandline.runtime.model import Model, ModelInfo
    from strandline.settings.providers import Models, ModelSettings, ProviderSettings


@dataclass(frozen=True, slots=True)
class KnownProvider:
    """A provider that can be used with nothing but a key in the environment."""

    url: str
    variables: tuple[str, ...]
    api: str

    def is_at(self, url: str) -> bool:
        """Whether that is the provider's own address: its key goes nowhere else by itself."""
        return urlsplit(url.strip()).hostname == urlsplit(self.url).hostname


KNOWN: Mapping[str, KnownProvider] = {
    "openai": KnownProvider("https://api.openai.com/v1", ("OPENAI_API_KEY",), "openai-completions"),
    "anthropic": KnownProvider(
        "https://api.anthropic.com", ("ANTHROPIC_API_KEY",), "anthropic-messages"
    ),
    "google": KnownProvider(
        "https://generativelanguage.googleapis.com/v1beta",
        ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        "google-generative-ai",
    ),
}


def _chat() -> type[HttpModel]:
    from strandline.models.openai_chat import OpenAIChatModel

    return OpenAIChatModel


def _responses() -> type[HttpModel]:
    from strandline.models.openai_responses import OpenAIResponsesModel

    return OpenAIResponsesModel


def _anthropic() -> type[HttpModel]:
    from strandline.models.anthropic import AnthropicModel

    return AnthropicModel


def _gemini() -> type[HttpModel]:
    from strandline.models.gemini import GeminiModel

    return GeminiModel


APIS: Mapping[str, Callable[[], Callable[..., HttpModel]]] = {
    "openai-completions": _chat,
    "openai-responses": _responses,
    "anthropic-messages": _anthropic,
    "google-generative-ai": _gemini,
}
"""The formats that are spoken, by their names in settings and transcripts."""

TAKE_PROMPT_CACHE = frozenset({"openai-completions", "openai-responses"})
"""Those whose servers may or may not know OpenAI's keys about the prompt cache."""


@dataclass(frozen=True)
class Providers:
    """The models that can be used here, from the settings, the catalog and the environment."""

    settings: Models
    environ: Mapping[str, str] = field(repr=False)  # it holds keys
    clock: Clock

    def refs(self) -> list[str]:
        """The models that can be used, as provider/model."""
        from strandline.models import catalog

        configured = [
            f"{name}/{model.id}"
            for name, provider in self.settings.providers.items()
            for model in provider.models
        ]
        reachable = [info.ref for info in catalog.known() if self._can_reach(info)]
        return list(dict.fromkeys([*configured, *reachable]))

    def can_use(self, ref: str) -> bool:
        """Whether a model of that name can be asked here."""
        try:
            return self.info(ref).api in {*APIS, "local"}
        except ConfigError:
            return False

    def info(self, ref: str) -> ModelInfo:
        """What is known of a model: the configuration first, then the catalog.

        Raises `ConfigError` for one that cannot be used, with the nearest names.
        """
        from strandline.models import catalog

        provider_id, _, model_id = ref.partition("/")
        provider = self.settings.providers.get(provider_id)
        for model in provider.models if provider else ():
            if provider and model.id == model_id:
                return _info(provider_id, provider, model)
        known = catalog.find(ref)
        if known is not None and self._can_reach(known):
            return replace(known, api=_api(provider_id, provider, known.api))
        if known is not None and known.provider in KNOWN:
            variables = " or ".join(KNOWN[known.provider].variables)
            raise ConfigError(
                f"there is no key for {ref}", remedy=f"set {variables} in the environment"
            )
        near = difflib.get_close_matches(ref, self.refs(), n=1) or self.refs()[:12]
        raise ConfigError(
            f"no model {ref!r} can be used here",
            remedy=f"add it to models.providers, or use one of: {', '.join(near)}",
        )

    def model(self, info: ModelInfo) -> Model:
        """Something that answers. Raises `ConfigError` for a format that is not spoken."""
        if info.api == "local":
            from strandline.models.local import LocalModel

            return LocalModel(clock=self.clock, context_window=info.context_window)
        load = APIS.get(info.api)
        if load is None:
            raise ConfigError(
                f"{info.ref} speaks {info.api}, which is not spoken here",
                remedy=f"set models.providers.{info.provider}.api to one of "
                f"{', '.join(APIS)} if the server speaks that too",
            )
        provider = self.settings.providers.get(info.provider)
        if provider is None:
            return load()(KNOWN[info.provider].url, self._key_of(info.provider), clock=self.clock)
        key = provider.api_key.get_secret_value() if provider.api_key else ""
        known = KNOWN.get(info.provider)
        if provider.api_key is None and known is not None and known.is_at(provider.base_url):
            key = self._key_of(info.provider)
        headers = {name: value.get_secret_value() for name, value in provider.headers.items()}
        own: dict[str, Any] = {}
        if info.api in TAKE_PROMPT_CACHE and provider.prompt_cache is not None:
            own["prompt_cache"] = provider.prompt_cache
        return load()(provider.base_url, key, clock=self.clock, headers=headers, **own)

    def _can_reach(self, info: ModelInfo) -> bool:
        if info.provider == "local" or info.provider in self.settings.providers:
            return True
        return bool(self._key_of(info.provider))

    def _key_of(self, provider_id: str) -> str:
        known = KNOWN.get(provider_id)
        found = (self.environ.get(name, "") for name in (known.variables if known else ()))
        return next(filter(None, found), "")


def _api(provider_id: str, provider: ProviderSettings | None, usual: str) -> str:
    """The format to speak: what the settings say, else the `usual` one at the provider's own
    address, else what most servers speak.
    """
    if provider is None:
        return usual
    known = KNOWN.get(provider_id)
    if "api" in provider.model_fields_set or known is None or not known.is_at(provider.base_url):
        return provider.api
    return usual


def _info(provider_id: str, provider: ProviderSettings, model: ModelSettings) -> ModelInfo:
    from strandline.runtime.model import ModelInfo, Prices

    cost = model.cost
    return ModelInfo(
        provider_id,
        model.id,
        _api(provider_id, provider, KNOWN[provider_id].api if provider_id in KNOWN else ""),
        model.context_window,
        model.max_tokens,
        Prices(cost.input, cost.output, cost.cache_read, cost.cache_write, cost.cache_write_1h),
        reasoning=model.reasoning,
        images="image" in model.input,
        tools=model.tools,
    )
