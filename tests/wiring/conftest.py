"""A state directory with settings, opened as the command line opens it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from strandline.testing import CountingIds, SimulatedClock
from strandline.wiring import State, open_state

OpenState = Callable[..., State]


@pytest.fixture
def warnings() -> list[str]:
    """What the state that `opened` gives has warned of."""
    return []


@pytest.fixture
def opened(tmp_path: Path, warnings: list[str]) -> OpenState:
    """Opens a state directory with these settings; `environ` is the environment."""

    def open_with(environ: dict[str, str] | None = None, **settings: Any) -> State:
        folder = tmp_path / "state"
        folder.mkdir(exist_ok=True)
        (folder / "strandline.json").write_text(json.dumps(settings))
        return open_state(
            folder,
            environ or {},
            warn=warnings.append,
            clock=SimulatedClock(),
            ids=CountingIds(),
        )

    return open_with
