"""Layers 1 and 2: the newest messages, as many as `maxMessages` and `maxTokens` allow.

Both keep whole units from the newest back: the first unit that does not fit whole is left out,
and so is everything older. What no layer touches is kept in any case and takes its part of the
limit first (`strandline.context.prune.path`), so that a limit of 0 keeps just that. Summaries
are not counted by layer 1; layer 2 counts them, but not the system prompt. Layer 2 sees what
layer 1 left. Source: spec 3, Pruning in four layers.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import NamedTuple

from strandline.context.policy import ContextPolicy
from strandline.context.prune.path import Path
from strandline.context.prune.wording import messages
from strandline.context.view import Decision


class Cut(NamedTuple):
    """From where on messages are kept: by layer 1 (`counted`), and by both layers (`place`)."""

    counted: int = 0
    place: int = 0


def limit_cut(path: Path, policy: ContextPolicy, share: float = 1.0) -> Cut:
    """Where the limits cut a path. A limit that it passes counts `share` of itself."""
    spared, request = path.spared, path.request

    def count(place: int) -> int:
        return request - place - spared.count(place, request)

    def tokens(place: int) -> int:
        return path.tokens(place, request) - spared.tokens(place, request)

    counted = 0
    if policy.max_messages is not None:
        fixed = path.count_from(request)
        room = _room(policy.max_messages, fixed + count(0), share) - fixed
        counted = _first_within(path, 0, room, count)
    place = counted
    if policy.max_tokens is not None:
        fixed = path.tokens_from(request)
        room = _room(policy.max_tokens, fixed + tokens(counted), share) - fixed
        place = _first_within(path, counted, room, tokens)
    return Cut(counted, place)


def _room(limit: int, taken: int, share: float) -> int:
    return limit if taken <= limit else int(limit * share)


def _first_within(path: Path, lowest: int, room: int, size: Callable[[int], int]) -> int:
    """The first unit from which on the messages of `size` are within the room."""
    if size(lowest) <= room:
        return lowest
    places = range(lowest, path.request)
    found = bisect_left(places, -room, key=lambda place: -size(place))
    return path.next_unit(lowest + found)


def passes(path: Path, policy: ContextPolicy, cut: int) -> bool:
    """Whether a path passes a limit where it is kept from `cut` on."""
    count, tokens = policy.max_messages, policy.max_tokens
    return (count is not None and path.count_from(cut) > count) or (
        tokens is not None and path.tokens_from(cut) > tokens
    )


def told(path: Path, policy: ContextPolicy, cut: Cut) -> Iterator[tuple[int, int, Decision]]:
    """What the limits leave out, from where to where, and why."""
    request, spared = path.request, path.spared
    if cut.counted:
        limit, kept = policy.max_messages or 0, path.count_from(cut.counted)
        turn = path.count_from(request) - spared.pins(0, request)
        why = _why(limit, kept, turn, "the running turn and the pins", messages)
        yield 0, cut.counted, _left_out("maxMessages", limit, why)
    if cut.place > cut.counted:
        limit, kept = policy.max_tokens or 0, path.tokens_from(cut.place)
        turn = path.tokens(request, path.end)
        why = _why(limit, kept, turn, "the running turn, pins and summaries", "{:,} tokens".format)
        yield cut.counted, cut.place, _left_out("maxTokens", limit, why)


def _why(limit: int, kept: int, turn: int, spared: str, amount: Callable[[int], str]) -> str:
    """Why there is no room: for more than is kept, or beside what no layer touches."""
    if turn > limit:
        return f"the running turn alone, {amount(turn)}, is more than {limit:,}"
    if kept > limit:
        return f"{spared}, {amount(kept)} together, are more than {limit:,}"
    return f"older than the newest {amount(kept)}, which are all that fit within {limit:,}"


def _left_out(layer: str, limit: int, why: str) -> Decision:
    return Decision("left_out", layer, f"{layer}: {limit}", why)
