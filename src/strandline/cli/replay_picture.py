"""A replay as a picture: the size of each call's context, and what all of them cost.

One SVG for light and dark pages: its background is clear, and its ink follows the page's
preference. The same report gives the same bytes.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strandline.cli.replay_report import Report, dollars
from strandline.cli.words import amount, cut, one_line
from strandline.errors import MissingDependency
from strandline.replay.outcome import Outcome

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK, DARK_INK = "#24292f", "#d0d7de"
LINES, DARK_LINES = "#d8dee4", "#373e47"
COLOURS = ("#8b6fd8", "#d9822b", "#2a9d6f", "#3b82d6", "#c2557a", "#7a8b2e", "#1f9aa5", "#8a6d52")
"""Of the policies, in their order: each can be told from white and from black."""

PARTS = (("input", 1.0), ("output", 0.55), ("summaries", 0.3))
"""The parts of a cost, and how strong the policy's colour is for each."""

WIDTH_INCHES = 9.0
CURVES_INCHES = 3.2
BAR_INCHES = 0.36
NAME_COLUMNS = 28

_SETTINGS: dict[Any, Any] = {
    "svg.hashsalt": "strandline",  # names inside the file would be random otherwise
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.sans-serif": ["Helvetica", "Arial", "DejaVu Sans"],
    "font.size": 9,
    "text.parse_math": False,  # a file's name may hold dollar signs, and prices do
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": LINES,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": LINES,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
_DARK = f"""<style>@media (prefers-color-scheme: dark) {{
[style*="fill: {INK}"] {{ fill: {DARK_INK} !important; }}
[style*="stroke: {INK}"] {{ stroke: {DARK_INK} !important; }}
[style*="stroke: {LINES}"] {{ stroke: {DARK_LINES} !important; }}
}}</style>
"""


def check_can_draw() -> None:
    """Raise `MissingDependency` where the library for pictures is not installed."""
    if find_spec("matplotlib") is None:
        raise MissingDependency("a picture needs matplotlib", remedy="install strandline[picture]")


def picture_of(report: Report) -> bytes:
    """The SVG file."""
    import matplotlib as mpl  # noqa: PLC0415 - an extra, and heavy
    from matplotlib.figure import Figure  # noqa: PLC0415 - as above

    file = io.BytesIO()
    bars = BAR_INCHES * len(report.names)
    with mpl.rc_context(_SETTINGS):
        figure = Figure(figsize=(WIDTH_INCHES, CURVES_INCHES + bars + 1.2), layout="constrained")
        curves, costs = figure.subplots(
            2, 1, gridspec_kw={"height_ratios": [CURVES_INCHES, bars + 0.4]}
        )
        _draw(curves, costs, report)
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    head, tag, rest = file.getvalue().partition(b" <defs>")
    return head + _DARK.encode() + tag + rest


def _draw(curves: Axes, costs: Axes, report: Report) -> None:
    names = [cut(one_line(name), NAME_COLUMNS) for name in report.names]
    _draw_curves(curves, names, report.totals)
    _draw_costs(costs, names, report.totals)
    alone = len(report.files) == 1
    files = Path(report.files[0]).name if alone else amount(len(report.files), "file")
    setup = report.setup
    curves.set_title(
        f"{cut(one_line(files), 60)}, as {one_line(setup.model.ref)} (cache: {setup.cache})",
        loc="left",
        color=INK,
    )


def _draw_curves(axes: Axes, names: Sequence[str], outcomes: Sequence[Outcome]) -> None:
    for place, (name, outcome) in enumerate(zip(names, outcomes, strict=True)):
        colour = COLOURS[place % len(COLOURS)]
        calls = range(1, outcome.calls + 1)
        axes.plot(calls, outcome.contexts, color=colour, linewidth=1.4, label=name)
    axes.set_xlabel("call")
    axes.set_ylabel("tokens of the context")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_ylim(bottom=0)
    axes.margins(x=0.01)
    axes.grid(axis="y", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.legend(frameon=False, loc="upper left", ncols=4, labelcolor=INK)


def _draw_costs(axes: Axes, names: Sequence[str], outcomes: Sequence[Outcome]) -> None:
    """One bar for each policy, the first on top."""
    places = range(len(names))
    colours = [COLOURS[place % len(COLOURS)] for place in places]
    left = [0.0 for _ in places]
    for part, strength in PARTS:
        sizes = [getattr(outcome.cost, part) for outcome in outcomes]
        axes.barh(places, sizes, left=left, color=colours, alpha=strength, height=0.62)
        left = [start + size for start, size in zip(left, sizes, strict=True)]
    most = max(left, default=0) or 1
    for place, outcome in enumerate(outcomes):
        told = f"{dollars(outcome.cost.total)}, {outcome.cached_share:.0%} of the input cached"
        axes.text(left[place] + most / 100, place, told, va="center", color=INK)
    axes.set_yticks(list(places), names)
    axes.invert_yaxis()
    axes.set_xlim(0, most * 1.35)
    axes.set_xlabel("US dollars: input (strong), output (lighter), summaries (lightest)")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.2f}")
    axes.tick_params(axis="y", length=0)
