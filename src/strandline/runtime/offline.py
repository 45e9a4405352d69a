"""The summariser that needs no model and no network, kept off the event loop."""

from __future__ import annotations

import asyncio

from strandline.context.extractive import extract_summary
from strandline.context.summarize import SummaryRequest
from strandline.context.tokens import TokenCounter


class OfflineSummarizer:
    """A `Summarizer` that chooses from what was said. A long history takes seconds, in a thread."""

    name = "extractive"

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter

    async def summarize(self, request: SummaryRequest) -> str:
        """The summary, never longer than `request.max_tokens`."""
        return await asyncio.to_thread(extract_summary, request, self._counter)
