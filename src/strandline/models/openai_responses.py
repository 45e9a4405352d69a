"""Models behind OpenAI's Responses API: OpenAI itself and the servers that speak alike.

Nothing is stored at the provider, unless it is to keep the thread of a conversation.
Source: spec 4, Models and A turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Unpack

from strandline.models.address import Address
from strandline.models.failures import Failures
from strandline.models.http import HttpModel, HttpOptions
from strandline.models.openai_caching import is_openai
from strandline.models.openai_responses_answer import Answer
from strandline.models.openai_responses_wire import request_body
from strandline.runtime.model import ModelRequest

API = "openai-responses"
"""The name of this format in transcripts and in the catalog."""


@dataclass(frozen=True, slots=True)
class ResponsesDialect:
    """The Responses API. `prompt_cache`: the server takes OpenAI's keys about its cache."""

    prompt_cache: bool = False

    def path(self, request: ModelRequest) -> str:
        """The one address."""
        del request
        return "/responses"

    def headers(self, api_key: str) -> Mapping[str, str]:
        """A bearer key."""
        return {"authorization": f"Bearer {api_key}"} if api_key else {}

    def body(self, request: ModelRequest) -> bytes:
        """See `strandline.models.openai_responses_wire`."""
        return request_body(request, prompt_cache=self.prompt_cache)

    def answer(self, request: ModelRequest, timestamp_ms: int, failures: Failures) -> Answer:
        """See `strandline.models.openai_responses_answer`."""
        return Answer(request.model, timestamp_ms, failures, request.thread)


class OpenAIResponsesModel(HttpModel):
    """`HttpModel` for the Responses API.

    `prompt_cache`: the server takes OpenAI's keys about the prompt cache, by default where it
    is known to.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str = "",
        *,
        prompt_cache: bool | None = None,
        **options: Unpack[HttpOptions],
    ) -> None:
        if prompt_cache is None:
            prompt_cache = is_openai(Address.of(base_url).host)
        super().__init__(base_url, api_key, ResponsesDialect(prompt_cache), **options)
