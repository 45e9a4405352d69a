"""The summaries of layer 4 at run time: made when pruning wants them, remembered for a while.

The same text is used again as long as it may be, after a restart too, so that what is sent
keeps its bytes. Who writes it is a `Summarizer`'s business, where it is kept that of a
`SummaryMemo`; without its memo a summary is made again, which is all that is lost.
Source: spec 3, Pruning in four layers (layer 4).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, Protocol

from strandline.clock import Clock
from strandline.context.audit import audit
from strandline.context.policy import LayerSummaries
from strandline.context.prune.summaries import LayerSummary, SummaryWanted
from strandline.context.shorten import shorten_text
from strandline.context.summarize import Summarizer, Summary, SummaryRequest
from strandline.context.tokens import TokenCounter
from strandline.errors import StrandlineError
from strandline.transcript.messages import JsonObject

MOST_KEPT = 8
"""As many of the newest are kept of a session."""

SMALLEST_TOKENS = 64
"""A summary may be as long as this, however little it tells of."""

MOST_SESSIONS = 256
"""So many sessions' summaries are held in memory; the memo has the others."""

Records = Sequence[JsonObject]
"""Summaries as they are kept, oldest first: ``{"covers", "text", "by", "madeMs", "rules"}``."""


class SummaryMemo(Protocol):
    """Where summaries are kept. It may hold anything: what makes no sense is ignored.

    Both may raise `StrandlineError`, and may wait for a disk.
    """

    def read(self, session_id: str) -> Records:
        """Those of a session."""
        ...

    def update(self, session_id: str, change: Callable[[Records], Records]) -> None:
        """Put `change` of them in their place; nobody else changes them meanwhile."""
        ...


class MemorySummaryMemo:
    """Summaries of this process only."""

    def __init__(self) -> None:
        self._records: dict[str, Records] = {}

    def read(self, session_id: str) -> Records:
        return self._records.get(session_id, ())

    def update(self, session_id: str, change: Callable[[Records], Records]) -> None:
        self._records[session_id] = change(self.read(session_id))


@dataclass(slots=True)
class _Making:
    """A summary in the making, and how many wait for it. One of them hears what it cost."""

    task: asyncio.Task[tuple[LayerSummary, Summary]]
    waiting: int = 0
    is_told: bool = False


class LayerSummarizing:
    """Makes and remembers the summaries of any number of sessions, as `settings` say."""

    def __init__(
        self,
        summarizer: Summarizer,
        counter: TokenCounter,
        memo: SummaryMemo,
        clock: Clock,
        settings: LayerSummaries,
    ) -> None:
        self._summarizer = summarizer
        self._counter = counter
        self._memo = memo
        self._clock = clock
        self._settings = settings
        self._known: OrderedDict[str, list[LayerSummary]] = OrderedDict()
        self._lock = Lock()
        self._making: dict[tuple[str, tuple[str, ...], str], _Making] = {}

    def known(self, session_id: str) -> Sequence[LayerSummary]:
        """The summaries that may be used again; none where `cached` is off. Safe for threads.

        It may wait for a disk the first time that a session is asked for.
        """
        if not self._settings.cached:
            return ()
        now_ms = self._clock.now_ms()
        # A clock that was set back neither loses a summary nor keeps it for ever.
        return [
            summary
            for summary in self._remembered(session_id)
            if abs(now_ms - summary.made_ms) < self._settings.cache_ttl_ms
        ]

    async def make(self, session_id: str, wanted: SummaryWanted) -> tuple[LayerSummary, Summary]:
        """The summary that is wanted; whoever asks for the same meanwhile gets the same.

        What it used is in the `Summary` of one of them. Raises what the summariser raises.
        When the last who waits is cancelled, nothing is made.
        """
        key = (session_id, wanted.covers, wanted.rules)
        making = self._making.get(key)
        if making is None:
            making = _Making(asyncio.create_task(self._make(session_id, wanted)))
            self._making[key] = making
        making.waiting += 1
        try:
            layer, summary = await asyncio.shield(making.task)
        finally:
            making.waiting -= 1
            if not making.waiting:
                del self._making[key]
                await _stopped(making.task)
        if making.is_told:
            return layer, replace(summary, usage=None, notes=())
        making.is_told = True
        return layer, summary

    async def _make(self, session_id: str, wanted: SummaryWanted) -> tuple[LayerSummary, Summary]:
        known = await asyncio.to_thread(self.known, session_id)
        for layer in known:
            if layer.covers == wanted.covers and layer.rules == wanted.rules:
                return layer, Summary(layer.text, layer.by)
        request = self._request(wanted)
        summary = await self._summarizer.summarize(request)
        summary = await asyncio.to_thread(self._checked, request, summary)
        made_ms = self._clock.now_ms()
        layer = LayerSummary(wanted.covers, summary.text, summary.by, made_ms, wanted.rules)
        if self._settings.cached:
            note = await asyncio.to_thread(self._keep, session_id, layer)
            summary = replace(summary, notes=(*summary.notes, *note))
        return layer, summary

    def _request(self, wanted: SummaryWanted) -> SummaryRequest:
        previous = wanted.previous if self._settings.cached else None
        return SummaryRequest(
            wanted.new_messages() if previous else wanted.messages,
            min(self._settings.max_tokens, max(SMALLEST_TOKENS, wanted.tokens)),
            previous_summary=previous.text if previous else None,
            split_turn=True,  # the conversation goes on behind it
        )

    def _checked(self, request: SummaryRequest, summary: Summary) -> Summary:
        """The summary within its bound and audited, whoever wrote it."""
        text = shorten_text(summary.text, request.max_tokens, self._counter)
        if text == summary.text and summary.audit is not None:
            return summary
        return replace(summary, text=text, audit=audit(request, text, self._counter))

    # -- what is kept ------------------------------------------------------------------------

    def _remembered(self, session_id: str) -> list[LayerSummary]:
        with self._lock:
            known = self._known.get(session_id)
            if known is None:
                known = self._read(session_id)
                self._hold(session_id, known)
            return list(known)

    def _read(self, session_id: str) -> list[LayerSummary]:
        try:
            return _understood(self._memo.read(session_id))
        except StrandlineError:  # it is told where the next one cannot be kept either
            return []

    def _hold(self, session_id: str, summaries: list[LayerSummary]) -> None:
        self._known[session_id] = summaries
        self._known.move_to_end(session_id)
        while len(self._known) > MOST_SESSIONS:
            self._known.popitem(last=False)

    def _keep(self, session_id: str, layer: LayerSummary) -> tuple[str, ...]:
        """Keep the summary; a sentence for a person where it is kept in memory only."""
        with self._lock:
            self._hold(session_id, with_summary(self._known.get(session_id, ()), layer))
        try:
            self._memo.update(
                session_id,
                lambda records: [
                    _record(kept) for kept in with_summary(_understood(records), layer)
                ],
            )
        except StrandlineError as error:
            return (f"the summary of older messages is kept for this process only: {error}",)
        return ()


def with_summary(kept: Sequence[LayerSummary], layer: LayerSummary) -> list[LayerSummary]:
    """The newest summaries, this one among them and in the place of an older one like it."""
    others = [each for each in kept if (each.covers, each.rules) != (layer.covers, layer.rules)]
    return [*others, layer][-MOST_KEPT:]


async def _stopped(task: asyncio.Task[Any]) -> None:
    """Stop what nobody waits for any more, and see it end."""
    if not task.done():
        task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.wait([task])
    if task.done() and not task.cancelled():
        task.exception()  # whoever waited has heard of it


def _understood(records: Records) -> list[LayerSummary]:
    return [layer for layer in map(_layer, records) if layer is not None]


def _record(layer: LayerSummary) -> JsonObject:
    return {
        "covers": list(layer.covers),
        "text": layer.text,
        "by": layer.by,
        "madeMs": layer.made_ms,
        "rules": layer.rules,
    }


def _layer(record: Any) -> LayerSummary | None:
    """A summary as it was kept, None for what is none."""
    if not isinstance(record, dict):
        return None
    covers, made_ms = record.get("covers"), record.get("madeMs")
    texts = [record.get(name) for name in ("text", "by", "rules")]
    if not isinstance(covers, list | tuple) or type(made_ms) is not int:
        return None
    if not all(isinstance(text, str) and text for text in (*covers, *texts)):
        return None
    text, by, rules = (str(told) for told in texts)
    return LayerSummary(tuple(covers), text, by, made_ms, rules)
