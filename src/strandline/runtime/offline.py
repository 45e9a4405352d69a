"""The summariser that needs no model and no network, kept off the event loop."""

from __future__ import annotations

import asyncio

from strandline.context.audit import repaired
from strandline.context.extractive import extract_summary
from strandline.context.summarize import Summary, SummaryRequest
from strandline.context.tokens import TokenCounter


class OfflineSummarizer:
    """A `Summarizer` that chooses from what was said. A long history takes seconds, in a thread."""

    name = "extractive"

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter

    async def summarize(self, request: SummaryRequest) -> Summary:
        """The summary, audited. It never fails."""
        return await asyncio.to_thread(self._summary, request)

    def _summary(self, request: SummaryRequest) -> Summary:
        chosen = extract_summary(request, self._counter)
        text, audit = repaired(request, chosen, self._counter)
        return Summary(text, self.name, audit=audit)
