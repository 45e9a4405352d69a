"""Planning a compaction: what is summarised, what is kept, and whether it helps.

A plan is a value: it serves a dry run, the real run and the explanation alike. Nothing is
lost by it: each message of the context is either told to the summariser or kept, those
that an earlier compaction kept included, and the request that is being worked on stays in
the person's own words. Source: spec 3, Budget and compaction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from strandline.context.assemble import prepare
from strandline.context.budget import Budget
from strandline.context.dialogue import is_answer, spoken_texts
from strandline.context.files import file_operations
from strandline.context.frames import COMPACTION_FRAME
from strandline.context.sections import (
    FILES,
    OPEN_REQUEST,
    parse_sections,
    quoted,
    render_sections,
    unquoted,
)
from strandline.context.shorten import shorten_message, shorten_text
from strandline.context.summarize import SummaryRequest
from strandline.context.tokens import MessageTokens, TokenCounter
from strandline.context.turns import (
    is_reference,
    is_summary,
    newest_request,
    turn_starts,
    unit_starts,
)
from strandline.context.view import ViewMessage
from strandline.errors import CompactionRefused
from strandline.transcript.context import PathMessage
from strandline.transcript.messages import JsonObject, Message

TOOL_RESULT_TOKENS = 500
"""As much of a tool's result (or a command's output) is told to the summariser."""

SMALLEST_SUMMARY_TOKENS = 32
"""A summary shorter than this says nothing."""

JOINT_TOKENS = 8
"""What joining the parts of a summary may cost beyond the parts."""


@dataclass(frozen=True, slots=True)
class NoCompaction:
    """There is nothing to gain, and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """A compaction to be.

    `summarised` and `kept` are entry ids in the order of the path. Tokens are ours, of
    the messages as they are in the view. `details` goes into the entry. `opening` and
    `files` are the sections that the plan itself adds to the summary.
    """

    request: SummaryRequest
    first_kept_entry_id: str
    summarised: tuple[str, ...]
    kept: tuple[str, ...]
    tokens_before: int
    tokens_kept: int
    tokens_summary_at_most: int
    details: JsonObject
    opening: tuple[str, ...] = ()
    files: tuple[str, ...] = ()

    def summary(self, body: str, counter: TokenCounter) -> str:
        """The text of the compaction entry: the summariser's `body`, bounded, and ours."""
        sections = parse_sections(shorten_text(body.strip(), self.request.max_tokens, counter))
        sections.pop(FILES, None)
        if self.opening:
            sections.pop(OPEN_REQUEST, None)
            sections = {OPEN_REQUEST: list(self.opening), **sections}
        return render_sections({**sections, FILES: list(self.files)})

    @property
    def tokens_after_at_most(self) -> int:
        """What the context takes at most once this is done, whatever the summary says."""
        return self.tokens_kept + self.tokens_summary_at_most

    def tokens_after(self, summary: str, tokens: MessageTokens) -> int:
        """Tokens of the messages once `summary` is written.

        Raises `CompactionRefused` when that would not be fewer than before: such a
        compaction must not be written.
        """
        after = self.tokens_kept + summary_tokens(summary, tokens)
        if not summary.strip() or after >= self.tokens_before:
            raise CompactionRefused(
                f"the compaction would leave {after:,} of {self.tokens_before:,} tokens"
                if summary.strip()
                else "the summary is empty",
                remedy="nothing was written; give the summariser another model, or start a new "
                "session",
            )
        return after


def summary_tokens(summary: str, tokens: MessageTokens) -> int:
    """What a summary takes in the view, its frame included."""
    blocks = [{"type": "text", "text": text} for text in (COMPACTION_FRAME, summary)]
    return tokens.count({"role": "user", "content": blocks})


def plan_compaction(
    items: Sequence[PathMessage],
    tokens: MessageTokens,
    budget: Budget,
    *,
    previous_details: Mapping[str, Any] | None = None,
    instructions: str | None = None,
    force: bool = False,
) -> CompactionPlan | NoCompaction:
    """The compaction of a context, or why there is none.

    `items` are the messages of the current context; the first may be the summary of the
    compaction before, whose `details` are `previous_details`. `force` compacts also what
    would fit (`/compact`, or a provider that refused).
    """
    said = prepare(items, budget=budget, tokens=tokens).messages
    first = 1 if said and is_summary(said[0]) else 0
    hard = force or budget.is_over(sum(message.tokens for message in said))
    tried = 0
    for cut in _cuts(said, first, budget, hard=hard):
        tried += 1
        draft = _Draft(said, first, cut, items, tokens, budget)
        if draft.room >= SMALLEST_SUMMARY_TOKENS:
            return draft.plan(previous_details, instructions)
    if tried:
        return NoCompaction("a summary would not be smaller than what it replaces")
    return NoCompaction("everything is recent: there is nothing older to summarise")


def _cuts(said: Sequence[ViewMessage], first: int, budget: Budget, *, hard: bool) -> Iterator[int]:
    """Where the kept part could begin, the best place first.

    Never at a tool result, and never at the very first message, except to rewrite a
    summary that has become too large for the window.
    """
    starts = [index for index in unit_starts(said) if index >= first]
    if starts:
        wanted = [_preferred_cut(said, starts, budget)]
        if hard:
            wanted += [_request_after(said, first) or 0, starts[-1]]
        yield from dict.fromkeys(cut for cut in wanted if cut > first)
        if hard and first and said[0].tokens > budget.summary_cap * 3 // 2:
            yield first


def _preferred_cut(said: Sequence[ViewMessage], starts: Sequence[int], budget: Budget) -> int:
    """The longest end of the context within `keep_recent`, and the newest turn with it.

    A newest turn that takes more than half of the limit is cut itself.
    """
    sums = list(accumulate((message.tokens for message in reversed(said)), initial=0))
    after = sums[::-1]  # after[i]: tokens from message i on
    recent = next((i for i in starts if after[i] <= budget.keep_recent), starts[-1])
    # The beginning of a turn close behind is better than a cut within the turn before.
    near = after[recent] * 3 // 4
    recent = next((i for i in turn_starts(said) if i >= recent and after[i] >= near), recent)
    request = _request_after(said, starts[0])
    if request is None or after[request] > budget.limit // 2:
        return recent
    return min(recent, request)


def _request_after(said: Sequence[ViewMessage], first: int) -> int | None:
    request = newest_request(said)
    return request if request is not None and request >= first else None


@dataclass(frozen=True, slots=True)
class _Draft:
    """A cut, worked out: messages before `cut` are summarised, `first` tells whether the
    message at 0 is the summary before.
    """

    said: Sequence[ViewMessage]
    first: int
    cut: int
    items: Sequence[PathMessage]
    tokens: MessageTokens
    budget: Budget

    @property
    def room(self) -> int:
        """Tokens that the whole summary may take.

        At most half of the new messages that it replaces and all of the summary before,
        so that every compaction gains at least the other half.
        """
        before = sum(message.tokens for message in self.said[: self.first])
        new = sum(message.tokens for message in self.said[self.first : self.cut])
        return min(self.budget.summary_cap, before + new // 2) - summary_tokens("", self.tokens)

    def plan(
        self, previous_details: Mapping[str, Any] | None, instructions: str | None
    ) -> CompactionPlan:
        """The plan of this cut."""
        place = [item.entry_id for item in self.items].index(self._first_kept)
        late = {message.entry_id for message in self.said[: self.cut]}
        before = [item.entry_id for item in self.items[:place]]
        after = [item.entry_id for item in self.items[place:]]
        details = file_operations((item.message for item in self.items[:place]), previous_details)
        opening = self._opening()
        files = self._files(details)
        return CompactionPlan(
            request=self._request(opening, files, instructions),
            first_kept_entry_id=self._first_kept,
            summarised=(*before, *(entry for entry in after if entry in late)),
            kept=tuple(entry for entry in after if entry not in late),
            tokens_before=sum(message.tokens for message in self.said),
            tokens_kept=sum(message.tokens for message in self.said[self.cut :]),
            tokens_summary_at_most=self.room + summary_tokens("", self.tokens),
            details=details,
            opening=opening,
            files=files,
        )

    @property
    def _first_kept(self) -> str:
        # Units begin with messages of the path; only results are added by pairing.
        return str(self.said[self.cut].entry_id)

    def _request(
        self, opening: Sequence[str], files: Sequence[str], instructions: str | None
    ) -> SummaryRequest:
        ours = render_sections({OPEN_REQUEST: list(opening), FILES: list(files)})
        raw = {item.entry_id: item.message for item in self.items}
        told = self.said[self.first : self.cut]
        return SummaryRequest(
            messages=tuple(_for_summary(m, raw, self.budget, self.tokens) for m in told),
            max_tokens=self.room - self.tokens.counter.count(ours) - JOINT_TOKENS,
            previous_summary=self._previous(),
            instructions=instructions,
            split_turn=self.cut > self.first and self.cut not in turn_starts(self.said),
            tells_request=not opening,
        )

    def _previous(self) -> str | None:
        """The summary before, without what the plan will add again."""
        if not self.first:
            return None
        sections = self._previous_sections()
        sections.pop(FILES, None)
        return render_sections(sections) or None

    def _previous_sections(self) -> dict[str, list[str]]:
        summary = self.items[0].message.get("summary") if self.first else None
        return parse_sections(summary if isinstance(summary, str) else "")

    def _opening(self) -> tuple[str, ...]:
        """The request that is being worked on, when the cut takes it out of the view."""
        request = _request_after(self.said, self.first)
        if request is None or (request < self.cut and is_reference(self.said[request])):
            text = unquoted(self._previous_sections().get(OPEN_REQUEST, []))
        elif request < self.cut and not any(is_answer(m.message) for m in self.said[request:]):
            text = "\n".join(spoken_texts(self.said[request].message))
        else:
            return ()
        return tuple(quoted(shorten_text(text, self.room // 5, self.tokens.counter)))

    def _files(self, details: JsonObject) -> tuple[str, ...]:
        """The files by name, as many as a small share of the summary holds."""
        left = self.room // 8
        lines = []
        for title, key in (("modified", "modifiedFiles"), ("read", "readFiles")):
            told: list[str] = []
            for path in details[key]:
                left -= self.tokens.counter.count(path) + 2
                if left < 0:
                    break
                told.append(path)
            untold = len(details[key]) - len(told)
            told += [f"and {untold} more"] if untold else []
            lines += [f"- {title}: {', '.join(told)}"] if told else []
        return tuple(lines)


def _for_summary(
    said: ViewMessage, raw: Mapping[str, Message], budget: Budget, tokens: MessageTokens
) -> Message:
    """A message as the summariser gets it: in its own role, tool results shortened."""
    message = said.message
    if is_reference(said) and said.entry_id is not None:
        original = raw[said.entry_id]
        text = "\n".join(spoken_texts(original))
        cap = TOOL_RESULT_TOKENS if "command" in original else budget.message_cap
        kept: Message = {key: original[key] for key in ("role", "customType") if key in original}
        return {**kept, "content": shorten_text(text, cap, tokens.counter)}
    if message["role"] == "toolResult" and said.tokens > TOOL_RESULT_TOKENS:
        return shorten_message(message, TOOL_RESULT_TOKENS, tokens)
    return message
