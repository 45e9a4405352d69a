"""Who summarises: models in their order, and in the end the one that needs none.

A model that failed is left alone for a while (`strandline.runtime.cooldowns`); that the
next one took over is told in one sentence. An abort is not a failure. Source: spec 3,
Budget and compaction (Summaries).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from strandline.context.summarize import Summarizer, Summary, SummaryRequest
from strandline.errors import ModelError, ModelErrorKind, StrandlineError
from strandline.runtime.cooldowns import Cooldowns, CoolingDown
from strandline.runtime.model_summarizer import UnfinishedSummary
from strandline.runtime.offline import OfflineSummarizer
from strandline.runtime.spending import usage_sum
from strandline.transcript.messages import Usage

Got = TypeVar("Got")

_WHY: dict[ModelErrorKind, str] = {
    "rate": "it had too many requests",
    "network": "it could not be reached or did not answer",
    "auth": "its key was not accepted",
    "refused": "it refused the request",
}


class SummaryLadder:
    """A `Summarizer` that always has one: the first of `rungs` that writes it, else `last`.

    `rungs` are models' summarisers, the preferred first, each named ``provider/model``.
    """

    def __init__(
        self, rungs: Sequence[Summarizer], last: OfflineSummarizer, cooldowns: Cooldowns
    ) -> None:
        self.name = rungs[0].name if rungs else last.name
        self._rungs = tuple({rung.name: rung for rung in rungs}.values())
        self._last = last
        self._cooldowns = cooldowns

    async def summarize(self, request: SummaryRequest) -> Summary:
        """The summary; its notes say which models did not write it and why.

        Its usage includes what was spent on models that failed in the middle. Raises
        `ModelError` only where the call was aborted.
        """
        attempt = _Attempt(self._cooldowns)
        for rung in self._rungs:
            summary = await attempt.by(rung, request)
            if summary is not None:
                return attempt.told(summary, rung.name)
        return attempt.told(await self._last.summarize(request), "the offline summariser")


class _Attempt:
    """One summary on its way down the ladder."""

    def __init__(self, cooldowns: Cooldowns) -> None:
        self._cooldowns = cooldowns
        self._failures: list[str] = []
        self._asides: list[str] = []
        self._usage: Usage | None = None

    async def by(self, rung: Summarizer, request: SummaryRequest) -> Summary | None:
        """The summary by `rung`; None where it is left alone or fails."""
        cooling = await self._recorded(lambda: self._cooldowns.remaining_ms(rung.name))
        if cooling is not None:
            self._failures.append(f"{rung.name} is not asked {_told(cooling)}")
            return None
        try:
            summary = await rung.summarize(request)
        except StrandlineError as error:
            if isinstance(error, ModelError) and error.kind == "aborted":
                raise
            await self._failed(rung.name, error)
            return None
        await self._recorded(lambda: self._cooldowns.note_success(rung.name))
        return summary

    def told(self, summary: Summary, by: str) -> Summary:
        """The summary with the notes and the usage of those that did not write it."""
        failures = [f"{failure}; {by} did" for failure in self._failures]
        return replace(
            summary,
            notes=(*failures, *self._asides, *summary.notes),
            usage=usage_sum(self._usage, summary.usage),
        )

    async def _failed(self, name: str, error: StrandlineError) -> None:
        kind: ModelErrorKind = error.kind if isinstance(error, ModelError) else "refused"
        after_s = error.retry_after_s if isinstance(error, ModelError) else None
        if isinstance(error, UnfinishedSummary):
            self._usage = usage_sum(self._usage, error.usage)
        why = error.what.removeprefix(f"{name} ")
        self._failures.append(f"{name} did not summarise ({why})")
        await self._recorded(lambda: self._cooldowns.note_failure(name, kind, after_s))

    async def _recorded(self, act: Callable[[], Got]) -> Got | None:
        """What the records say. A summary does not wait for records that are away."""
        try:
            return await asyncio.to_thread(act)
        except StrandlineError as error:
            note = f"cool-downs of models are not recorded: {error}"
            if note not in self._asides:
                self._asides.append(note)
            return None


def _told(cooling: CoolingDown) -> str:
    seconds = -(-cooling.ms // 1000)
    length = f"{seconds} s" if seconds < 120 else f"{-(-seconds // 60)} min"
    return f"for another {length}, because {_WHY[cooling.kind]}"
