"""What a replay found: as JSON for programs, as a table with bars for people."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from strandline.cli.output import bold, dim
from strandline.cli.replay_setup import Setup
from strandline.cli.signs import page
from strandline.cli.words import amount, cut, one_line, padded
from strandline.replay.outcome import Outcome, Summaries, added_up
from strandline.transcript.messages import JsonObject

BAR_COLUMNS = 24
POLICY_COLUMNS = 24

_SIGNS = ("█▓░", "#=-")
"""The parts of a bar: input, output, summaries; and the same in ASCII."""


@dataclass(frozen=True, slots=True)
class Report:
    """`outcomes` has for each file one outcome for each policy of the setup."""

    setup: Setup
    files: Sequence[str]
    outcomes: Sequence[Sequence[Outcome]]

    @property
    def names(self) -> list[str]:
        """The policies by name."""
        return [policy.name for policy in self.setup.policies]

    @property
    def totals(self) -> list[Outcome]:
        """All files together, policy by policy."""
        return [added_up(of_policy) for of_policy in zip(*self.outcomes, strict=True)]


# -- JSON ----------------------------------------------------------------------------------


def report_json(report: Report) -> JsonObject:
    """The report; tokens are ours, money is US dollars, prices are for a million tokens."""
    setup = report.setup
    rates = setup.scene.rates
    return {
        "model": setup.model.ref,
        "contextWindow": setup.scene.window,
        "systemTokens": setup.scene.system_tokens,
        "providerCache": setup.cache,
        "cacheLifetimeMs": setup.cache_lifetime_ms,
        "prices": {
            "input": rates.fresh,
            "cacheWrite": rates.written,
            "cacheRead": rates.read,
            "output": rates.output,
        },
        "rules": setup.rules,
        "policies": _outcomes_json(report.names, report.totals),
        "files": [
            {"file": file, "policies": _outcomes_json(report.names, outcomes)}
            for file, outcomes in zip(report.files, report.outcomes, strict=True)
        ],
    }


def _outcomes_json(names: Sequence[str], outcomes: Sequence[Outcome]) -> list[JsonObject]:
    return [
        {"policy": name, **_outcome_json(outcome)}
        for name, outcome in zip(names, outcomes, strict=True)
    ]


def _outcome_json(outcome: Outcome) -> JsonObject:
    use, cost = outcome.use, outcome.cost
    return {
        "calls": outcome.calls,
        "inputTokens": use.tokens,
        "freshTokens": use.fresh,
        "cacheWriteTokens": use.written,
        "cacheReadTokens": use.read,
        "cachedShare": round(outcome.cached_share, 6),
        "outputTokens": outcome.output_tokens,
        "cost": {
            "input": round(cost.input, 9),
            "output": round(cost.output, 9),
            "summaries": round(cost.summaries, 9),
            "total": round(cost.total, 9),
        },
        "largestContextTokens": outcome.largest_context,
        "compactions": _summaries_json(outcome.compactions),
        "layerSummaries": _summaries_json(outcome.layer_summaries),
        "cutsMoved": outcome.cuts_moved,
        "cutsMovedWarm": outcome.cuts_moved_warm,
        "messages": outcome.said,
        "leftOut": outcome.left_out,
        "leftOutShare": round(outcome.left_out_share, 6),
    }


def _summaries_json(made: Summaries) -> JsonObject:
    return {
        "made": made.made,
        "inputTokens": made.input_tokens,
        "outputTokens": made.output_tokens,
    }


# -- a table -------------------------------------------------------------------------------


def report_lines(report: Report, *, each: bool) -> Iterator[str]:
    """The totals, before them each file where that is wanted, and what the columns mean."""
    yield from _setup_lines(report.setup)
    if each and len(report.files) > 1:
        for file, outcomes in zip(report.files, report.outcomes, strict=True):
            yield ""
            yield from _table(one_line(file), report.names, outcomes)
    yield ""
    files = amount(len(report.files), "file")
    title = files if len(report.files) > 1 else one_line(report.files[0])
    yield from _table(title, report.names, report.totals)
    yield ""
    yield from map(dim, textwrap.wrap(_LEGEND, min(LEGEND_COLUMNS, page().width)))


def _setup_lines(setup: Setup) -> Iterator[str]:
    for line in _setup_words(setup):
        yield from textwrap.wrap(line, page().width)


def _setup_words(setup: Setup) -> Iterator[str]:
    rates, scene = setup.scene.rates, setup.scene
    yield (
        f"{one_line(setup.model.ref)}, window {scene.window:,}, of which system prompt and tools "
        f"{scene.system_tokens:,}; rules: {one_line(setup.rules)}"
    )
    lifetime = "" if setup.cache == "none" else f" ({_minutes(setup.cache_lifetime_ms)})"
    yield (
        f"cache: {setup.cache}{lifetime}; dollars for a million tokens: input {rates.fresh:g}, "
        f"cache write {rates.written:g}, cache read {rates.read:g}, output {rates.output:g}"
    )


def _minutes(milliseconds: int) -> str:
    return f"{milliseconds / 60_000:g} min"


LEGEND_COLUMNS = 90
_LEGEND = (
    "cached: input read from the cache. largest: input of the largest call. cuts: calls that did "
    "not begin with all of the call before, and those among them while the cache knew it. "
    "summaries: of compactions + of layer 4. left out: what a call did not see as messages, on "
    "average; and how many messages at the last. The bar: input, output, summaries."
)

_TITLES = ("policy", "input", "cached", "largest", "cuts (warm)", "summaries", "left out", "cost")


def _table(title: str, names: Sequence[str], outcomes: Sequence[Outcome]) -> Iterator[str]:
    calls = amount(outcomes[0].calls if outcomes else 0, "call")
    yield bold(f"{title}: {calls}")
    rows = [_TITLES, *(_cells(n, o) for n, o in zip(names, outcomes, strict=True))]
    sizes = [max(len(row[place]) for row in rows) for place in range(len(_TITLES))]
    room = min(BAR_COLUMNS, page().width - sum(sizes) - 2 * len(sizes))
    yield dim(_line(_TITLES, sizes).rstrip())
    most = max((outcome.cost.total for outcome in outcomes), default=0.0)
    for row, outcome in zip(rows[1:], outcomes, strict=True):
        yield f"{_line(row, sizes)}  {_bar(outcome, most, room)}".rstrip()


def _cells(name: str, outcome: Outcome) -> tuple[str, ...]:
    return (
        cut(one_line(name), POLICY_COLUMNS),
        f"{outcome.use.tokens:,}",
        f"{outcome.cached_share:.0%}",
        f"{outcome.largest_context:,}",
        f"{outcome.cuts_moved:,} ({outcome.cuts_moved_warm:,})",
        f"{outcome.compactions.made:,} + {outcome.layer_summaries.made:,}",
        f"{outcome.left_out_share:.0%}, {outcome.left_out:,}",
        dollars(outcome.cost.total),
    )


def _line(cells: Sequence[str], sizes: Sequence[int]) -> str:
    first = padded(cells[0], sizes[0])
    return "  ".join(
        [first, *(f"{c:>{size}}" for c, size in zip(cells[1:], sizes[1:], strict=True))]
    )


def dollars(amount_of: float) -> str:
    """Money to the cent, and finer where a cent is much.

    >>> dollars(1234.567), dollars(0.012345), dollars(0)
    ('$1,234.57', '$0.0123', '$0.00')
    """
    if 0 < amount_of < 1:
        return f"${amount_of:.4f}"
    return f"${amount_of:,.2f}"


def _bar(outcome: Outcome, most: float, room: int) -> str:
    """The cost, as long as its share of the dearest policy's."""
    if most <= 0 or room < 4:
        return ""
    signs = _SIGNS[0] if page().has_signs else _SIGNS[1]
    parts = (outcome.cost.input, outcome.cost.output, outcome.cost.summaries)
    ends = [round(sum(parts[: place + 1]) / most * room) for place in range(3)]
    sizes = [ends[0], ends[1] - ends[0], ends[2] - ends[1]]
    return "".join(sign * size for sign, size in zip(signs, sizes, strict=True))
