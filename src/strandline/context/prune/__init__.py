"""Pruning: which messages of a path a model sees, by the rules of its agent.

`prune` is a pure function; `strandline.context.prune.pruning` says what of.
"""

from strandline.context.prune.fold import CONTEXT_LIMIT, recorded_limit
from strandline.context.prune.memo import PruneMemo
from strandline.context.prune.moment import Moment, Pruned
from strandline.context.prune.pruning import prune
from strandline.context.prune.summaries import LayerSummary, SummaryWanted, rules_digest

__all__ = [
    "CONTEXT_LIMIT",
    "LayerSummary",
    "Moment",
    "PruneMemo",
    "Pruned",
    "SummaryWanted",
    "prune",
    "recorded_limit",
    "rules_digest",
]
