"""When old tool results are trimmed, and which (`contextPruning`, mode cache-ttl).

A result may be trimmed when it is older than the last `keepLastAssistants` answers. From
`softTrimRatio` of the limit on, long ones are shortened; from `hardClearRatio` on, where they
hold `minPrunableToolChars` in all, the oldest are replaced until the context is below it.
Ratios are of the limit rounded down to its four leading binary digits: a limit moves a little
from call to call, and what is trimmed should not.

It happens at a call that finds the provider's cache lost anyway: at the first, at one that
comes more than `ttl` after the call before, and where the messages are over the limit, so that
the beginning must change. What was trimmed once stays so, with the same bytes, because it
follows from the recorded times of the calls. Source: spec 3, Pruning in four layers (Tool results).
"""

from __future__ import annotations

from bisect import bisect_left

from strandline.context.policy import ToolResultPruning
from strandline.context.prune.path import Path
from strandline.context.prune.results import Results, Trims


def steady(limit: int) -> int:
    """A limit rounded down to four leading binary digits.

    >>> steady(200_000), steady(199_000), steady(1000)
    (196608, 196608, 960)
    """
    step = 1 << max(0, limit.bit_length() - 4)
    return limit // step * step


def trimmed(
    path: Path, start: int, rules: ToolResultPruning, results: Results, trims: Trims, limit: int
) -> Trims:
    """What is trimmed once the results of a path are looked at again.

    `start` is from where on messages take part in the context, `trims` what is trimmed already.
    """
    eligible = results.before(_recent(path, rules.keep_last_assistants))
    messages = path.messages
    raw = path.clean.tokens_to[path.end] - path.clean.tokens_to[start]
    taken = raw - results.saved(start, path.end, trims)
    if taken >= rules.soft_trim_ratio * limit and eligible > trims.soft:
        trims = trims._replace(soft=eligible)
        results.know(messages, trims)
        taken = raw - results.saved(start, path.end, trims)
    line = rules.hard_clear_ratio * limit
    if not rules.hard_clear or results.chars(trims, eligible) < rules.min_prunable_chars:
        return trims
    while taken >= line and trims.hard < eligible:
        place, saved = results.saved_by_next(messages, trims)
        taken -= saved if place >= start else 0
        trims = trims._replace(hard=trims.hard + 1)
    return trims


def _recent(path: Path, answers: int) -> int:
    """From where on results are too new to be trimmed: the last `answers` assistant messages."""
    if answers <= 0:
        return path.end
    calls = path.clean.calls
    count = bisect_left(calls, path.end)
    return calls[count - answers] if count >= answers else 0
