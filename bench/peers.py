"""pi as a peer, where Node and pi are there."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

_MODULE = "node_modules/@mariozechner/pi-coding-agent/dist/core/session-manager.js"
MISSING = "pi: not installed (tests/interop/install.sh FOLDER, then STRANDLINE_PI_DIR)"
PI_TIMEOUT_S = 300


def is_there() -> bool:
    """Whether pi can be measured."""
    return _command() is not None


def pi(task: str, file: Path, *more: str) -> float | None:
    """What pi.mjs measured; None where pi is missing or could not do it."""
    command = _command()
    if command is None:
        return None
    words = [*command, task, str(file), *more]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=PI_TIMEOUT_S)
    return float(done.stdout) if done.returncode == 0 else None


def _command() -> list[str] | None:
    folder, node = os.environ.get("STRANDLINE_PI_DIR"), shutil.which("node")
    if not folder or not node:
        return None
    module = Path(folder).resolve() / _MODULE
    script = Path(__file__).with_name("pi.mjs")
    return [node, str(script), str(module)] if module.is_file() else None
