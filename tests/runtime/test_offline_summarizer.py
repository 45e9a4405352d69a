"""The offline summariser behind its seam."""

from __future__ import annotations

from strandline.context.summarize import SummaryRequest
from strandline.context.tokens import HeuristicCounter
from strandline.runtime.offline import OfflineSummarizer


async def test_it_summarises_without_a_model_and_keeps_a_path() -> None:
    summarizer = OfflineSummarizer(HeuristicCounter())
    assert summarizer.name == "extractive"
    messages = [{"role": "user", "content": "Fix /srv/app.py, please."}]
    summary = await summarizer.summarize(SummaryRequest(messages, 500))
    assert "/srv/app.py" in summary.text
    assert summary.by == "extractive"
    assert summary.usage is None
    assert summary.audit is not None
    assert summary.audit.named == summary.audit.kept == 2
