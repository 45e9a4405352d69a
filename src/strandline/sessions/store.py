"""The seam to where rows are kept: a map from session key to row.

Keys are texts here, because a store holds whatever it was given; `SessionKey` makes and
reads them. The in-memory store is the oracle of the others. Source: spec 2, Store entry;
architecture, Seams.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Protocol, TypeVar

from strandline.sessions.rows import SessionRow

Changed = TypeVar("Changed", bound=SessionRow | None)
"""What a change returns: a row, or None to leave things as they stand."""


class RowStore(Protocol):
    """Rows by session key. Every method sees what all processes wrote before it.

    A key that has no row is looked up in lower case too, as OpenClaw wrote them. Raises
    `StoreError` where storage fails, `SessionBusy` where another process does not let go.
    """

    def get(self, key: str) -> SessionRow | None:
        """The row of a key, or None."""
        ...

    def list(self) -> dict[str, SessionRow]:
        """Every row by its stored key, in the store's order."""
        ...

    def patch(
        self,
        key: str,
        change: Callable[[SessionRow | None], Changed],
        expected: SessionRow | None = None,
    ) -> Changed:
        """Change one row, alone with the store; returns what `change` returned.

        `change` gets the row as it is now, or None, and is called once. When it returns
        None, or the row as it was, nothing is written. When `expected` is given and the row
        is another by now, `StoreWriteFailed` is raised instead. On return the row lasts.
        """
        ...

    def delete(self, key: str) -> bool:
        """Take the row of a key out; False when there is none. Transcripts stay."""
        ...


def stored_key(key: str, keys: Container[str]) -> str:
    """The spelling under which a store has `key`: itself, else in lower case, else itself."""
    lowered = key.lower()
    return lowered if key not in keys and lowered in keys else key
