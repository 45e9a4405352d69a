"""Models behind Google's Gemini API: ``generateContent``, streamed as server-sent events.

The base URL ends with the version of the API (``…googleapis.com/v1beta``).
Source: spec 4, Models.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Unpack
from urllib.parse import quote

from strandline.models.failures import Failures
from strandline.models.gemini_answer import GeminiAnswer
from strandline.models.gemini_wire import request_body
from strandline.models.http import HttpModel, HttpOptions
from strandline.models.surrogates import whole_text
from strandline.runtime.model import ModelInfo, ModelRequest

API = "google-generative-ai"
"""The name of this format in transcripts and in the catalog."""


class GeminiDialect:
    """Gemini's own format."""

    def path(self, request: ModelRequest) -> str:
        """The model's address. A name is data: no character of it changes the path."""
        name = quote(whole_text(request.model.id), safe="")
        return f"/models/{name}:streamGenerateContent?alt=sse"

    def headers(self, api_key: str) -> Mapping[str, str]:
        """The key in Google's own header; in the query it would end up in logs."""
        return {"x-goog-api-key": api_key} if api_key else {}

    def body(self, request: ModelRequest) -> bytes:
        """See `strandline.models.gemini_wire`."""
        return request_body(request)

    def answer(self, model: ModelInfo, timestamp_ms: int, failures: Failures) -> GeminiAnswer:
        """See `strandline.models.gemini_answer`."""
        return GeminiAnswer(model, timestamp_ms, failures)


class GeminiModel(HttpModel):
    """`HttpModel` for Gemini's own format."""

    def __init__(self, base_url: str, api_key: str = "", **options: Unpack[HttpOptions]) -> None:
        super().__init__(base_url, api_key, GeminiDialect(), **options)
