"""Models behind OpenAI's Chat Completions: OpenAI itself and every server that speaks alike.

Ollama, vLLM, llama.cpp, LM Studio, OpenRouter and others differ in small ways; those that
were seen are borne (`strandline.models.sse`, `strandline.models.openai_chat_answer`) or
chosen by `ServerTraits`. Source: spec 4, A turn.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Unpack

from strandline.errors import ConfigError
from strandline.models.address import Address
from strandline.models.failures import Failures
from strandline.models.http import HttpModel, HttpOptions
from strandline.models.openai_chat_answer import Answer
from strandline.models.openai_chat_wire import ServerTraits, request_body
from strandline.runtime.model import ModelRequest

API = "openai-completions"
"""The name of this format in transcripts and in the catalog."""


@dataclass(frozen=True, slots=True)
class ChatDialect:
    """Chat Completions, as a server with these traits wants it."""

    traits: ServerTraits

    def path(self, request: ModelRequest) -> str:
        """The one address."""
        del request
        return "/chat/completions"

    def headers(self, api_key: str) -> Mapping[str, str]:
        """A bearer key."""
        return {"authorization": f"Bearer {api_key}"} if api_key else {}

    def body(self, request: ModelRequest) -> bytes:
        """See `strandline.models.openai_chat_wire`."""
        return request_body(request, self.traits)

    def answer(self, request: ModelRequest, timestamp_ms: int, failures: Failures) -> Answer:
        """See `strandline.models.openai_chat_answer`."""
        return Answer(request.model, timestamp_ms, failures)


class OpenAIChatModel(HttpModel):
    """`HttpModel` for Chat Completions.

    `traits`: what the server wants differently, by default what its host is known for.
    `prompt_cache`: whether it takes OpenAI's keys about the prompt cache.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str = "",
        *,
        traits: ServerTraits | None = None,
        prompt_cache: bool | None = None,
        **options: Unpack[HttpOptions],
    ) -> None:
        traits = traits or ServerTraits.of_host(Address.of(base_url).host)
        if prompt_cache is not None:
            traits = replace(traits, prompt_cache=prompt_cache)
        _require_json(traits.extra_body)
        super().__init__(base_url, api_key, ChatDialect(traits), **options)


def _require_json(extra_body: Mapping[str, object]) -> None:
    try:
        json.dumps(dict(extra_body), allow_nan=False)
    except (TypeError, ValueError):
        raise ConfigError(
            "the extra body of a model provider is not JSON", remedy="use JSON's own values"
        ) from None
