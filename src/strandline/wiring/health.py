"""Where what went wrong with context engines is kept in a state directory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from strandline.clock import Clock
from strandline.runtime.engine_health import EngineHealth, RecordedEngineHealth
from strandline.stores.engine_health_file import NAME, EngineHealthFile


def engine_health(folder: Path, clock: Clock, warn: Callable[[str], None]) -> EngineHealth:
    """The failures of the state directory `folder`; `warn` hears of a damaged file."""
    return RecordedEngineHealth(EngineHealthFile(folder / NAME, warn=warn), clock)
