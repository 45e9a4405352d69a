"""``strandline doctor``: what is wrong in a state directory, each thing with its remedy."""

from __future__ import annotations

import os
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from strandline.cli.output import (
    bold,
    dim,
    json_option,
    print_json,
    print_lines,
    slow_notice,
)
from strandline.cli.signs import Page, page
from strandline.cli.words import amount, one_line

if TYPE_CHECKING:
    from strandline.wiring.doctor import Finding, Severity

_SIGNS = {
    "ok": ("✓", "ok", "green"),
    "info": ("·", "info", None),
    "warning": ("!", "warning", "yellow"),
    "error": ("✗", "error", "red"),
}
MOST_OF_A_KIND = 5
"""So many findings of one kind are printed; `--json` has them all."""


@click.command()
@json_option
@click.option("--agent", "agent_id", metavar="ID", help="Look at one agent only.")
@click.option("--fix-nothing", is_flag=True, help="Change nothing, which is what it always does.")
@click.pass_obj
def doctor(state_dir: Path, *, agent_id: str | None, fix_nothing: bool, as_json: bool) -> int:
    """Find what is wrong here, with the remedy.

    Looks and changes nothing; no model is asked. Exit code 1 is with errors.
    """
    del fix_nothing
    from strandline.wiring.doctor import diagnose  # noqa: PLC0415 - what it needs is heavy

    slow_notice.expect("looking")
    try:
        with redirect_stdout(sys.stderr):  # what an engine prints is no part of the answer
            findings = list(diagnose(state_dir, os.environ, agent_id=agent_id))
    finally:
        slow_notice.done()
    counts = Counter(finding.severity for finding in findings)
    if as_json:
        print_json(_report(findings, counts))
    else:
        print_lines(_lines(findings, counts))
    return 1 if counts["error"] else 0


def _report(findings: Sequence[Finding], counts: Counter[Severity]) -> dict[str, Any]:
    return {
        "findings": [
            {"id": each.id, "severity": each.severity, "what": each.what, "remedy": each.remedy}
            for each in findings
        ],
        "errors": counts["error"],
        "warnings": counts["warning"],
    }


def _lines(findings: Sequence[Finding], counts: Counter[Severity]) -> Iterator[str]:
    paper = page()
    for group, found in groupby(findings, key=lambda finding: finding.group):
        yield bold(group)
        for _, same in groupby(sorted(found, key=_order), key=lambda finding: finding.id):
            kind = list(same)
            for finding in kind[:MOST_OF_A_KIND]:
                yield from _told(finding, paper)
            if len(kind) > MOST_OF_A_KIND:
                yield dim(f"  and {len(kind) - MOST_OF_A_KIND:,} more like these")
    errors, warnings = amount(counts["error"], "error"), amount(counts["warning"], "warning")
    yield bold(f"{errors}, {warnings}")


def _order(finding: Finding) -> tuple[int, str]:
    """The worst first, findings of one kind together."""
    return -list(_SIGNS).index(finding.severity), finding.id


def _told(finding: Finding, paper: Page) -> Iterator[str]:
    sign, word, colour = _SIGNS[finding.severity]
    mark, arrow = (sign, "→ ") if paper.has_signs else (word, "> ")
    indent = " " * (len(mark) + 3)
    for line in _folded(paper, f"  {mark} ", indent, finding.what):
        yield dim(line) if finding.severity == "ok" else click.style(line, fg=colour)
    if finding.remedy:
        yield from map(dim, _folded(paper, indent + arrow, indent + "  ", finding.remedy))


def _folded(paper: Page, first: str, later: str, text: str) -> list[str]:
    """The text in lines that fit; a path or a key is never broken."""
    return textwrap.wrap(
        one_line(text),
        paper.width,
        initial_indent=first,
        subsequent_indent=later,
        break_long_words=False,
        break_on_hyphens=False,
    )
