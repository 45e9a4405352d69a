"""Explaining a context: for every message of the path what became of it, why, and what it cost.

`explain` joins a `View` with the path that it was made of. The totals of what the rules chose
from are sums over the view and over pieces that know their own sums, so that they can be had
at every request; a row for each message is made when somebody looks.
Source: spec 3, The way of a message (Coverage); Watching.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from strandline.context.budget import Budget
from strandline.context.sanitize import sanitize
from strandline.context.tokens import MessageTokens
from strandline.context.turns import is_summary
from strandline.context.view import Decision, Outcome, View, ViewMessage
from strandline.transcript.context import PathMessage, SessionContext
from strandline.transcript.messages import Message
from strandline.transcript.session import Session

COMPACTION = "compaction"
"""The layer of what a compaction summarised."""

_OWN = Decision("added", "engine", "own_message", "the engine says it")


class Sum(NamedTuple):
    """So many messages, and their tokens."""

    messages: int = 0
    tokens: int = 0

    def plus(self, messages: int, tokens: int) -> Sum:
        """With so many more."""
        return Sum(self.messages + messages, self.tokens + tokens)


@dataclass(frozen=True)
class Totals:
    """Messages and tokens, by what became of them and by the layer that decided.

    A message about which nothing was decided is under no layer.
    """

    by_outcome: Mapping[Outcome, Sum]
    by_layer: Mapping[str, Sum]

    @property
    def all(self) -> Sum:
        """All of them together."""
        return Sum().plus(
            sum(each.messages for each in self.by_outcome.values()),
            sum(each.tokens for each in self.by_outcome.values()),
        )


@dataclass(frozen=True, slots=True)
class Room:
    """The budget of a request. `window` and `reserve` are the provider's tokens, of which one
    of ours is `scale`; the others are ours.

    The messages may take `limit` (`maxTokens` counted, where that is less) and take `used`.
    """

    window: int
    reserve: int
    system_prompt: int
    tools: int
    limit: int
    used: int
    scale: float = 1.0

    @property
    def free(self) -> int:
        """What the messages could take yet; below 0 where they are too large."""
        return self.limit - self.used


@dataclass(frozen=True, slots=True)
class Row:
    """What became of one message, and the decision that made it so.

    `role` and `message` are those of the transcript. `tokens` are what it takes in the view,
    or took before it was left out. `layer`, `rule` and `reason` are the deciding decision's
    (None, None and an empty text where there was nothing to decide); `decisions` are the
    others. `entry_id` is None for what no entry holds.
    """

    entry_id: str | None
    role: str
    tokens: int
    outcome: Outcome
    layer: str | None
    rule: str | None
    reason: str
    decisions: tuple[Decision, ...] = ()
    message: Message = field(default_factory=dict, compare=False)


class Compacted(NamedTuple):
    """Messages that one compaction put into its summary."""

    compaction_id: str
    items: Sequence[PathMessage]


@dataclass(frozen=True, slots=True)
class WholePath:
    """All entries of a path by id, from the root, and what compactions on it summarised."""

    ids: Sequence[str]
    compacted: Sequence[Compacted]


def whole_path(session: Session, context: SessionContext) -> WholePath:
    """The path of a context with what is older than the summary at its beginning.

    Reads the whole path; nothing is changed.
    """
    if context.leaf_id is None:
        return WholePath((), ())
    ids = session.path(context.leaf_id)
    place_of = {entry_id: place for place, entry_id in enumerate(ids)}
    found: list[Compacted] = []
    later = context.items
    seen = {item.entry_id for item in later}
    while (summary := _summary_first(later)) is not None and place_of.get(summary, 0) > 0:
        before = session.build_context(ids[place_of[summary] - 1]).items
        gone = [item for item in before if item.entry_id not in seen]
        seen.update(item.entry_id for item in gone)
        found.append(Compacted(summary, gone))
        later = before
    return WholePath(ids, found[::-1])


def _summary_first(items: Sequence[PathMessage]) -> str | None:
    """The compaction whose summary the messages begin with."""
    if not items or not isinstance(items[0].message, dict):
        return None
    return items[0].entry_id if items[0].message.get("role") == "compactionSummary" else None


@dataclass(frozen=True)
class Explanation:
    """A view explained; made by `explain`."""

    view: View
    items: Sequence[PathMessage]
    room: Room
    engine: str
    find_whole: Callable[[], WholePath]
    tokens: MessageTokens

    @cached_property
    def in_context(self) -> Totals:
        """The totals of what the rules chose from: the path since the last compaction."""
        counting = _Counting()
        plain = [s.tokens for s in self.view.messages if not s.decisions and s.entry_id is not None]
        if plain:
            counting.count("kept", None, len(plain), sum(plain))
        for said in self.view.messages:
            if said.decisions or said.entry_id is None:
                counting.add(said, _sent(said))
        for piece in self.view.left_out.pieces:
            counting.add_piece(piece)
        return counting.totals

    @cached_property
    def totals(self) -> Totals:
        """The totals of the whole path: those of all rows."""
        counting = _Counting()
        for row in self.rows:
            counting.count(row.outcome, row.layer, 1, row.tokens)
        return counting.totals

    @cached_property
    def rows(self) -> Sequence[Row]:
        """One row for every message of the path, in its order.

        What no entry holds stands where it stood among the others.
        """
        whole = self.find_whole()
        place_of = {entry_id: place for place, entry_id in enumerate(whole.ids)}
        items = [item for each in whole.compacted for item in each.items] + [*self.items]
        told = {item.entry_id: item.message for item in items}
        placed = [
            (place, _row(said, _sent(said), told))
            for place, said in _placed(self.view.messages, place_of)
        ]
        placed += [
            (place, _row(said, _decider(said), told))
            for piece in [*self.view.left_out.pieces, *self._compacted(whole)]
            for place, said in _placed(piece, place_of)
        ]
        placed.sort(key=lambda pair: pair[0])
        return [row for _, row in placed]

    def _compacted(self, whole: WholePath) -> Iterator[Sequence[ViewMessage]]:
        """What the rules were not asked about, because it was compacted before."""
        for compacted in whole.compacted:
            reason = f"it is in the summary of the compaction {compacted.compaction_id}"
            why = Decision("summarised", COMPACTION, COMPACTION, reason)
            yield _noted(compacted.items, why, self.tokens)


def _noted(
    items: Sequence[PathMessage], why: Decision, tokens: MessageTokens
) -> Sequence[ViewMessage]:
    """The messages as models would take them, with what became of those that they would."""
    view = sanitize(items, tokens)
    return [*(said.noted(why) for said in view.messages), *view.left_out]


Place = tuple[int, int]
"""Where a row stands: at an entry of the path, and so far behind it."""


def _placed(
    messages: Sequence[ViewMessage], place_of: Mapping[str, int]
) -> Iterator[tuple[Place, ViewMessage]]:
    """Messages with their places. One that no entry holds stands behind the one before it,
    unless that is the summary of a compaction, whose entry is younger than what follows.
    """
    before: int | None = None
    for number, said in enumerate(messages):
        here = _place(said, place_of)
        if here is not None:
            before = before if is_summary(said) else here
            yield (here, 0), said
        elif before is not None:
            yield (before, number + 1), said
        else:
            after = (_place(later, place_of) for later in messages[number:])
            yield (next((p for p in after if p is not None), 0), number - len(messages)), said


def _place(said: ViewMessage, place_of: Mapping[str, int]) -> int | None:
    return None if said.entry_id is None else place_of.get(said.entry_id)


def _decider(said: ViewMessage) -> Decision | None:
    """The decision that made a message what it is: the last that changed anything."""
    changing = (each for each in reversed(said.decisions) if each.outcome != "kept")
    return next(changing, said.decisions[-1] if said.decisions else None)


def _sent(said: ViewMessage) -> Decision | None:
    """The same for a message that the model sees; what no entry holds was added to it."""
    if said.entry_id is not None:
        return _decider(said)
    added = (each for each in said.decisions if each.outcome == "added")
    return next(added, _OWN)


def _row(said: ViewMessage, why: Decision | None, told: Mapping[str, Message]) -> Row:
    message = said.message if said.entry_id is None else told.get(said.entry_id, said.message)
    role = message.get("role") if isinstance(message, dict) else None
    return Row(
        said.entry_id,
        role if isinstance(role, str) else "",
        said.tokens,
        why.outcome if why else "kept",
        why.step if why else None,
        why.rule if why else None,
        why.reason if why else "",
        tuple(each for each in said.decisions if each is not why),
        message if isinstance(message, dict) else {},
    )


def explain(
    view: View,
    context: SessionContext,
    *,
    budget: Budget,
    system_tokens: int,
    engine: str,
    tokens: MessageTokens,
    find_whole: Callable[[], WholePath],
) -> Explanation:
    """The explanation of a view that was made of `context` for a request of that budget.

    `system_tokens` are what the system prompt takes of `budget.fixed`; the rest are the tools.
    `find_whole` is asked when rows are wanted, or totals of the whole path (`whole_path`).
    """
    room = Room(
        window=budget.window,
        reserve=budget.reserve,
        system_prompt=system_tokens,
        tools=budget.fixed - system_tokens,
        limit=budget.view_limit,
        used=view.tokens,
        scale=budget.scale,
    )
    return Explanation(view, context.items, room, engine, find_whole, tokens)


class _Counting:
    """Totals as they grow."""

    def __init__(self) -> None:
        self._by_outcome: dict[Outcome, Sum] = {}
        self._by_layer: dict[str, Sum] = {}

    @property
    def totals(self) -> Totals:
        return Totals(dict(self._by_outcome), dict(self._by_layer))

    def count(self, outcome: Outcome, layer: str | None, messages: int, tokens: int) -> None:
        so_far = self._by_outcome.get(outcome, Sum())
        self._by_outcome[outcome] = so_far.plus(messages, tokens)
        if layer is not None:
            self._by_layer[layer] = self._by_layer.get(layer, Sum()).plus(messages, tokens)

    def add(self, said: ViewMessage, why: Decision | None) -> None:
        """One message, and the decision about it."""
        self.count(why.outcome if why else "kept", why.step if why else None, 1, said.tokens)

    def add_piece(self, piece: Sequence[ViewMessage]) -> None:
        """A piece of what was left out, by its own sums where it knows them."""
        tokens: int | None = getattr(piece, "tokens", None)
        why: Decision | None = getattr(piece, "decision", None)
        if tokens is not None and why is not None:
            self.count(why.outcome, why.step, len(piece), tokens)
            return
        for said in piece:
            self.add(said, _decider(said))
