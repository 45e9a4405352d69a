"""Models behind OpenAI's Responses API, without anything stored at the provider.

Source: spec 4, Models and A turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Unpack

from strandline.models.failures import Failures
from strandline.models.http import HttpModel, HttpOptions
from strandline.models.openai_responses_answer import Answer
from strandline.models.openai_responses_wire import request_body
from strandline.runtime.model import ModelInfo, ModelRequest

API = "openai-responses"
"""The name of this format in transcripts and in the catalog."""


class ResponsesDialect:
    """The Responses API."""

    def path(self, request: ModelRequest) -> str:
        """The one address."""
        del request
        return "/responses"

    def headers(self, api_key: str) -> Mapping[str, str]:
        """A bearer key."""
        return {"authorization": f"Bearer {api_key}"} if api_key else {}

    def body(self, request: ModelRequest) -> bytes:
        """See `strandline.models.openai_responses_wire`."""
        return request_body(request)

    def answer(self, model: ModelInfo, timestamp_ms: int, failures: Failures) -> Answer:
        """See `strandline.models.openai_responses_answer`."""
        return Answer(model, timestamp_ms, failures)


class OpenAIResponsesModel(HttpModel):
    """`HttpModel` for the Responses API."""

    def __init__(self, base_url: str, api_key: str = "", **options: Unpack[HttpOptions]) -> None:
        super().__init__(base_url, api_key, ResponsesDialect(), **options)
