"""Models behind Google's Gemini API: ``generateContent``, streamed as server-sent events.

The base URL ends with the version of the API (``…googleapis.com/v1beta``).
Source: spec 4, Models.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Unpack
from urllib.parse import quote

from strandline.models.failures import Failures
from strandline.models.gemini_answer import GeminiAnswer
from strandline.models.gemini_cache import Beginning, CachedContents, beginning_of
from strandline.models.gemini_wire import request_body
from strandline.models.http import HttpModel, HttpOptions
from strandline.models.surrogates import whole_text
from strandline.runtime.model import Failed, ModelEvent, ModelRequest

API = "google-generative-ai"
"""The name of this format in transcripts and in the catalog."""


@dataclass(frozen=True, slots=True)
class GeminiDialect:
    """Gemini's own format. `cached_content`: what the server has the beginning under."""

    cached_content: str = ""

    def path(self, request: ModelRequest) -> str:
        """The model's address. A name is data: no character of it changes the path."""
        name = quote(whole_text(request.model.id), safe="")
        return f"/models/{name}:streamGenerateContent?alt=sse"

    def headers(self, api_key: str) -> Mapping[str, str]:
        """The key in Google's own header; in the query it would end up in logs."""
        return {"x-goog-api-key": api_key} if api_key else {}

    def body(self, request: ModelRequest) -> bytes:
        """See `strandline.models.gemini_wire`."""
        return request_body(request, self.cached_content)

    def answer(self, request: ModelRequest, timestamp_ms: int, failures: Failures) -> GeminiAnswer:
        """See `strandline.models.gemini_answer`."""
        return GeminiAnswer(request.model, timestamp_ms, failures)


class GeminiModel(HttpModel):
    """`HttpModel` for Gemini's own format.

    Google caches beginnings by itself, for minutes. Where they are to be kept for long, it is
    told to (`strandline.models.gemini_cache`).
    """

    def __init__(self, base_url: str, api_key: str = "", **options: Unpack[HttpOptions]) -> None:
        super().__init__(base_url, api_key, GeminiDialect(), **options)
        self._contents = CachedContents(options["clock"])

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """The events of one call (`strandline.runtime.model.Model`)."""
        beginning, name = beginning_of(request), ""
        if beginning is not None:
            name = await self._contents.name_of(beginning, partial(self._told, request.model))
        async with contextlib.aclosing(self._stream(request, GeminiDialect(name))) as events:
            async for event in events:
                if beginning is not None and name and self._is_refusal(event, beginning, name):
                    break
                yield event
            else:
                return
        async with contextlib.aclosing(self._stream(request, GeminiDialect())) as events:
            async for event in events:
                yield event

    def _is_refusal(self, event: ModelEvent, beginning: Beginning, name: str) -> bool:
        """Whether the call ended, with nothing said, by its cached content."""
        if not isinstance(event, Failed) or event.partial is not None:
            return False
        return self._contents.refused(beginning, name, event.error)
