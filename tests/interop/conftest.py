"""The real pi and the real OpenClaw, where they are installed; tests skip where they are not.

`STRANDLINE_PI_DIR` and `STRANDLINE_OPENCLAW_DIR` name folders that hold a node_modules;
install.sh makes them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

ANSWER_S = 60
"""A request that takes longer than this hangs."""

_PI_MODULE = "node_modules/@mariozechner/pi-coding-agent/dist/core/session-manager.js"
_OPENCLAW_MODULE = "node_modules/openclaw/dist/plugin-sdk/agent-sessions.js"
_OPENCLAW_NODE = "node_modules/node/bin"


class Original:
    """The session manager of pi or of OpenClaw in a Node process (original.mjs).

    Calling it opens a transcript, takes steps, and returns what the session looks like.
    """

    def __init__(self, command: Sequence[str | Path], environment: Mapping[str, str]) -> None:
        self._home = Path(environment["HOME"])
        self._said = (self._home / "stderr").open("w+", encoding="utf-8")
        self._node = subprocess.Popen(
            command,
            env=environment,
            cwd=self._home,
            encoding="utf-8",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
        )

    def __call__(self, file: str | Path, *steps: Sequence[Any]) -> dict[str, Any]:
        return self._ask({"file": str(file), "steps": steps})

    def sessions_in(self, folder: Path) -> list[dict[str, Any]]:
        """What it lists of a folder."""
        listed: list[dict[str, Any]] = self._ask({"folder": str(folder)})["sessions"]
        return listed

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        assert self._node.stdin is not None
        assert self._node.stdout is not None
        watchdog = threading.Timer(ANSWER_S, self._node.kill)
        watchdog.start()
        try:
            self._node.stdin.write(json.dumps(request) + "\n")
            self._node.stdin.flush()
            line = self._node.stdout.readline()
        finally:
            watchdog.cancel()
        assert line, f"no answer; see {self._said.name}"
        reply: dict[str, Any] = json.loads(line)
        assert "error" not in reply, reply["error"]
        return reply

    def close(self) -> None:
        self._node.communicate(timeout=ANSWER_S)
        self._said.close()


def installed(variable: str, module: str, what: str) -> Path:
    """The folder that an environment variable names; skips where there is none."""
    folder = os.environ.get(variable)
    if not folder:
        pytest.skip(
            f"{what} is not here: run `tests/interop/install.sh FOLDER` (npm install "
            f"{what}) and set {variable} to the folder that then holds its node_modules"
        )
    place = Path(folder).resolve()
    assert (place / module).is_file(), f"{variable} is {folder}, which has no {module}"
    return place


def environment_of(home: Path, *paths: Path) -> dict[str, str]:
    """An environment in which nothing of the user's is found."""
    path = os.pathsep.join([*map(str, paths), os.environ.get("PATH", os.defpath)])
    return {"PATH": path, "HOME": str(home), "OPENCLAW_STATE_DIR": str(home / "state")}


@pytest.fixture(scope="session")
def pi(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Original]:
    """pi's session manager."""
    folder = installed("STRANDLINE_PI_DIR", _PI_MODULE, "@mariozechner/pi-coding-agent@0.73.1")
    node = shutil.which("node")
    if node is None:
        pytest.skip("pi needs Node 20 or later on the PATH")
    script = Path(__file__).with_name("original.mjs")
    home = tmp_path_factory.mktemp("pi-home")
    original = Original([node, script, folder / _PI_MODULE], environment_of(home))
    yield original
    original.close()


@pytest.fixture(scope="session")
def openclaw_dir() -> Path:
    """Where OpenClaw and its Node are installed."""
    return installed("STRANDLINE_OPENCLAW_DIR", _OPENCLAW_MODULE, "openclaw@2026.6.10")


@pytest.fixture(scope="session")
def openclaw(openclaw_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Original]:
    """OpenClaw's session manager."""
    node = openclaw_dir / _OPENCLAW_NODE
    script = Path(__file__).with_name("original.mjs")
    home = tmp_path_factory.mktemp("openclaw-home")
    command = [node / "node", script, openclaw_dir / _OPENCLAW_MODULE]
    original = Original(command, environment_of(home, node))
    yield original
    original.close()


@pytest.fixture(params=["pi", "openclaw"])
def original(request: pytest.FixtureRequest) -> Original:
    """One original after the other."""
    chosen: Original = request.getfixturevalue(request.param)
    return chosen
