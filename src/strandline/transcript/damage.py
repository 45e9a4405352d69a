"""What is wrong with a transcript, as values: reported, never repaired in passing.

Source: spec 1, Damage. A finding says where, what, and what the reader made of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FindingKind = Literal[
    "malformed-line",
    "torn-line",
    "blank-line",
    "nul-bytes",
    "byte-order-mark",
    "carriage-returns",
    "invalid-utf8",
    "missing-header",
    "second-header",
    "missing-id",
    "duplicate-id",
    "missing-parent",
    "late-parent",
    "parent-cycle",
    "unknown-leaf-target",
    "damaged-entry",
]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be.

    `line` counts from 1 and is None where only a part of the file was read; `offset` is
    the byte at which the line starts.
    """

    kind: FindingKind
    offset: int
    detail: str
    line: int | None = None
    entry_id: str | None = None

    def __str__(self) -> str:
        where = f"line {self.line}" if self.line is not None else f"byte {self.offset}"
        return f"{where}: {self.kind}: {self.detail}"
