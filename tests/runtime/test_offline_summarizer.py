"""The offline summariser behind its seam."""

from __future__ import annotations

from strandline.context.summarize import SummaryRequest
from strandline.context.tokens import HeuristicCounter
from strandline.runtime.offline import OfflineSummarizer


async def test_it_summarises_without_a_model_and_keeps_a_path() -> None:
    summarizer = OfflineSummarizer(HeuristicCounter())
    assert summarizer.name == "extractive"
    messages = [{"role": "user", "content": "Fix /srv/app.py, please."}]
    assert "/srv/app.py" in await summarizer.summarize(SummaryRequest(messages, 500))
