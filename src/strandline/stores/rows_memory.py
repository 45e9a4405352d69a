"""Rows in memory: for one process, and the oracle of the other row stores."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from threading import Lock

from strandline.errors import StoreWriteFailed
from strandline.sessions.rows import SessionRow
from strandline.sessions.store import Changed, stored_key


class RowsMemory:
    """Satisfies `RowStore`; what it holds goes with it."""

    def __init__(self) -> None:
        self._rows: dict[str, SessionRow] = {}
        self._lock = Lock()

    def get(self, key: str) -> SessionRow | None:
        return self._rows.get(stored_key(key, self._rows))

    def list(self) -> builtins.dict[str, SessionRow]:
        return dict(self._rows)

    def patch(
        self,
        key: str,
        change: Callable[[SessionRow | None], Changed],
        expected: SessionRow | None = None,
    ) -> Changed:
        with self._lock:
            name = stored_key(key, self._rows)
            current = self._rows.get(name)
            require_expected(name, current, expected)
            changed = change(current)
            if changed is not None:
                self._rows[name] = changed
            return changed

    def delete(self, key: str) -> bool:
        with self._lock:
            return self._rows.pop(stored_key(key, self._rows), None) is not None


def require_expected(key: str, current: SessionRow | None, expected: SessionRow | None) -> None:
    """Raise `StoreWriteFailed` when a row is not what the caller had seen of it."""
    if expected is not None and current != expected:
        raise StoreWriteFailed(
            f"the row of {key!r} was changed by somebody else",
            remedy="read the row again and repeat the change",
        )
