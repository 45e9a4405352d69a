"""Layer 4: one summary in the place of what the rule "summary" selected (`compaction`).

All that is selected, by one window or several, becomes one message in the user's role, framed
for reference, in the place of its first unit. A summary that covers exactly that is used,
whenever it was made. Where there is none, and summaries are cached, the newest one stands as
it is for what it covers until it is `summaryCacheTTL` old, also for what meanwhile grew too
old for its window; what is selected and not covered stays verbatim and waits. So the
beginning keeps its bytes for that long, and no model is asked. Otherwise a summary is wanted,
and the messages themselves stay for the time being: nothing is lost while none is there, or
where the making of one fails. What takes fewer than 64 tokens is not worth a summary and stays.
A summary that is not smaller than what it replaces is used (`summaryMaxTokens` bounds it).
What an engine says of its own has no entry to be known by, and stays verbatim.
Switched off, "summary" is as "none". Source: spec 3, Pruning in four layers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from strandline.context.blocks import text_block
from strandline.context.frames import LAYER_SUMMARY
from strandline.context.policy import ContextPolicy
from strandline.context.prune.ages import Run
from strandline.context.prune.moment import Moment
from strandline.context.prune.path import Path
from strandline.context.prune.summaries import LayerSummary, SummaryWanted, rules_digest
from strandline.context.prune.wording import messages
from strandline.context.tokens import MessageTokens
from strandline.context.view import Decision, ViewMessage
from strandline.transcript.messages import Message

SMALLEST_SUMMARISED_TOKENS = 64
"""What takes less than this stays verbatim."""

LAYER_FRAME = (
    "[For reference: a summary of an earlier part of this conversation. It is a record, not a "
    "request. Messages around it are verbatim.]"
)

STEP = "summary"

OFF = Decision(
    "left_out", STEP, "summary", 'keep "summary" is treated as "none": summaries are switched off'
)


@dataclass(frozen=True, slots=True)
class Compressed:
    """What became of the selected messages.

    `message` stands at the place of the first of the `covered`; `notes` are decisions about
    messages that stay; `left_out` says why all that was selected is out, where it is.
    """

    message: ViewMessage | None = None
    covered: tuple[int, ...] = ()
    notes: dict[int, Decision] = field(default_factory=dict)
    left_out: Decision | None = None
    wanted: SummaryWanted | None = None
    due_ms: float = math.inf


def compress(
    path: Path, runs: Iterable[Run], policy: ContextPolicy, moment: Moment, tokens: MessageTokens
) -> Compressed:
    """Layer 4 on what layer 3 selected."""
    spared = path.spared.all
    selected = [
        place
        for run in runs
        if run.selected
        for place in range(run.start, run.stop)
        if place not in spared and path.messages[path.unit_start(place)].entry_id
    ]
    if not selected:
        return Compressed()
    if not policy.summaries.enabled:
        return Compressed(left_out=OFF)
    return _Layer(path, selected, policy, moment).answer(tokens)


class _Layer:
    def __init__(
        self, path: Path, selected: Sequence[int], policy: ContextPolicy, moment: Moment
    ) -> None:
        self._path, self._selected, self._policy = path, selected, policy
        self._now_ms = moment.now_ms
        self._rules = rules_digest(policy)
        self._made = [each for each in moment.summaries if each.rules == self._rules]
        entries = (path.messages[place].entry_id for place in selected)
        self._covers = tuple(entry_id for entry_id in entries if entry_id)

    def answer(self, tokens: MessageTokens) -> Compressed:
        """The summary there is, or the one that is wanted."""
        for made in self._made:
            if made.covers == self._covers and made.text.strip():
                return self._standing(made, tuple(self._selected), math.inf, tokens)
        for made in self._newest_first() if self._policy.summaries.cached else ():
            until_ms = made.made_ms + self._policy.summaries.cache_ttl_ms
            covered = self._covered_by(made) if self._now_ms <= until_ms else ()
            if covered:
                return self._standing(made, covered, until_ms, tokens)
        return self._without()

    def _newest_first(self) -> list[LayerSummary]:
        return sorted(self._made, key=lambda made: made.made_ms, reverse=True)

    def _covered_by(self, made: LayerSummary) -> tuple[int, ...]:
        """The units whose messages a summary all tells of.

        None where a message that it tells of is not on the path before the running turn.
        """
        path, messages = self._path, self._path.messages
        told = {path.clean.place_of.get(entry_id, path.end) for entry_id in made.covers}
        if not made.text.strip() or any(place >= path.request for place in told):
            return ()
        covered: list[int] = []
        for start in sorted(set(map(path.unit_start, told))):
            unit = range(start, path.next_unit(start + 1))
            is_told = all(p in told or messages[p].entry_id is None for p in unit)
            if is_told and start not in path.spared.all:
                covered += unit
        return tuple(covered)

    def _standing(
        self, made: LayerSummary, covered: tuple[int, ...], until_ms: float, tokens: MessageTokens
    ) -> Compressed:
        told = set(covered)
        waits = Decision(
            "kept",
            STEP,
            "summary",
            f"verbatim until the next summary: the one that there is was made of "
            f"{messages(len(covered))} before",
        )
        notes = {place: waits for place in self._selected if place not in told}
        return Compressed(self._message(made, covered, tokens), covered, notes, due_ms=until_ms)

    def _message(
        self, made: LayerSummary, covered: Sequence[int], tokens: MessageTokens
    ) -> ViewMessage:
        message: Message = {
            "role": "user",
            "content": [text_block(LAYER_FRAME), text_block(made.text)],
        }
        why = Decision(
            "added",
            STEP,
            LAYER_SUMMARY,
            f"a summary of {messages(len(covered))} by {made.by}, told in the user's role",
        )
        counted = tokens.of(f"layer summary {made.text}", message)
        newest = self._path.messages[covered[-1]].said_ms
        return ViewMessage(None, message, counted, (why,), newest)

    def _without(self) -> Compressed:
        """The messages themselves, and the summary that is wanted of them."""
        said = [each for place in self._selected for each in self._path.said(place, place + 1)]
        taken = sum(each.tokens for each in said)
        if taken < SMALLEST_SUMMARISED_TOKENS:
            reason = f"verbatim: {taken:,} tokens are too few for a summary"
            return Compressed(notes=self._noted(reason))
        wanted = SummaryWanted(
            self._covers,
            tuple(each.message for each in said),
            taken,
            self._rules,
            self._previous(),
            tuple(each.entry_id for each in said),
        )
        return Compressed(notes=self._noted("verbatim until it is summarised"), wanted=wanted)

    def _noted(self, reason: str) -> dict[int, Decision]:
        why = Decision("kept", STEP, "summary", reason)
        return dict.fromkeys(self._selected, why)

    def _previous(self) -> LayerSummary | None:
        """The newest summary of nothing but what is selected now.

        One that also tells of what grew too old would carry that on for ever.
        """
        covers = set(self._covers)
        usable = (made for made in self._newest_first() if made.covers and made.text.strip())
        return next((made for made in usable if covers.issuperset(made.covers)), None)


def covered_note(covered: Sequence[int]) -> Decision:
    """Why a covered message is not in the view."""
    reason = f"it is told in the summary of {messages(len(covered))}"
    return Decision("summarised", STEP, "summary", reason)
