"""Tools as a model uses them: through a Toolbox, with its check of the arguments."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from strandline.runtime.access import WorkspaceAccess
from strandline.runtime.tools import Toolbox, ToolCall
from strandline.testing.clock import SimulatedClock
from strandline.tools.builtin import builtin_tools

CLOCK = SimulatedClock()


@dataclass(frozen=True)
class Answer:
    content: list[dict[str, Any]]
    is_error: bool

    @property
    def text(self) -> str:
        return "\n".join(block["text"] for block in self.content if block["type"] == "text")


Use = Callable[..., Answer]


def _user_of(folder: Path, access: WorkspaceAccess = "rw") -> Use:
    box = Toolbox(builtin_tools(folder, access, CLOCK))

    def use(name: str, **arguments: Any) -> Answer:
        call = ToolCall("call-1", name, arguments, "main", "agent:main:main", 0)
        message = asyncio.run(box.answer(call))
        return Answer(message["content"], message["isError"])

    return use


@pytest.fixture(scope="session")
def user_of() -> Callable[..., Use]:
    """What makes, from a folder, the function that uses its tools: ``use(name, **arguments)``."""
    return _user_of


@pytest.fixture
def den(tmp_path: Path) -> Path:
    """A workspace."""
    folder = tmp_path / "den"
    folder.mkdir()
    return folder


@pytest.fixture
def use(den: Path) -> Use:
    """Uses the tools of `den`."""
    return _user_of(den)
