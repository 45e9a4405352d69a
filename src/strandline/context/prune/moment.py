"""What pruning is given besides a path and a policy, and what it answers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from strandline.context.prune.summaries import LayerSummary, SummaryWanted
from strandline.context.view import View


@dataclass(frozen=True, slots=True)
class Moment:
    """Everything besides path and policy that determines the result.

    `now_ms` is when the call is made (Unix ms), `limit` what its messages may take
    (`Budget.view_limit`), `pins` the entries with the label "pin", `summaries` those of layer 4
    that were made before.
    """

    now_ms: int
    limit: int
    pins: frozenset[str] = frozenset()
    summaries: Sequence[LayerSummary] = ()


@dataclass(frozen=True, slots=True)
class Pruned:
    """The pruned view.

    `wanted` is a summary without which the view is not yet as configured: it shows the messages
    themselves for the time being. `valid_until_ms` is from when on the clock alone may change
    the result for the same path (Unix ms, infinite where it cannot).
    """

    view: View
    wanted: SummaryWanted | None = None
    valid_until_ms: float = math.inf


def just_after(moment_ms: float) -> float:
    """The first moment after one that still counts: boundaries belong to what is younger."""
    return math.nextafter(moment_ms, math.inf)
