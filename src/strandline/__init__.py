"""Strandline: durable conversations and well-chosen context for AI agents.

The names here are the public ones. They are loaded when they are first used, so that
`import strandline` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from strandline.async_manager import AsyncSessionManager as AsyncSessionManager
    from strandline.errors import StrandlineError as StrandlineError
    from strandline.manager import SessionManager as SessionManager
    from strandline.transcript.context import SessionContext as SessionContext

__version__ = "0.1.0"
_HOMES = {
    "AsyncSessionManager": "strandline.async_manager",
    "SessionContext": "strandline.transcript.context",
    "SessionManager": "strandline.manager",
    "StrandlineError": "strandline.errors",
}
__all__ = ["AsyncSessionManager", "SessionContext", "SessionManager", "StrandlineError"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'strandline' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
