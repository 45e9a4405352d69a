"""What the doctor finds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from strandline.wiring.doctor.patient import Patient

Severity = Literal["ok", "info", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found: `what`, and the `remedy` where there is something to do.

    `id` is ``group.kind`` and the same for the same kind of finding, for programs.
    """

    id: str
    severity: Severity
    what: str
    remedy: str = ""

    @property
    def group(self) -> str:
        """What it is about, in one word."""
        return self.id.partition(".")[0]


Check = Callable[[Patient], Iterable[Finding]]
"""Looks at one thing. What it raises is a finding too."""
