"""What `cacheAware` keeps beyond the plain rules, said of each such message."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from strandline.context.prune.compose import Range
from strandline.context.prune.path import Path
from strandline.context.view import Decision


def extended(path: Path, plain: Sequence[Range], out: Iterable[Range]) -> dict[int, Decision]:
    """Notes on messages that are in `plain` ranges, and not in those that are `out`."""
    starts = [start for start, _, _ in plain]
    whys = [_kept_although(why) for _, _, why in plain]
    notes: dict[int, Decision] = {}
    place = 0
    for start, stop, _ in [*out, (path.request, path.request, None)]:
        for kept in range(place, start):
            number = bisect_right(starts, kept) - 1
            if number >= 0 and kept < plain[number][1] and kept not in path.spared.all:
                notes[kept] = whys[number]
        place = stop
    return notes


def _kept_although(why: Decision) -> Decision:
    return Decision(
        "kept",
        "cacheAware",
        "cacheAware",
        f"the provider's cache still has it; the plain rules would leave it out ({why.rule})",
    )
