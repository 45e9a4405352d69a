"""Where the state directory and its settings file are (spec 2, On disk)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

STATE_DIR_VARIABLE = "STRANDLINE_STATE_DIR"
OWN_FILE = "strandline.json"
OPENCLAW_FILE = "openclaw.json"


def resolve_state_dir(option: str | Path | None, environ: Mapping[str, str]) -> Path:
    """The state directory, absolute: ``--state-dir``, else the variable, else ``~/.strandline``.

    An empty option or variable counts as absent; a leading ``~`` is the home directory.
    """
    chosen = str(option or "") or environ.get(STATE_DIR_VARIABLE, "") or "~/.strandline"
    home = environ.get("HOME")
    if home and (chosen == "~" or chosen.startswith("~/")):
        chosen = home + chosen[1:]
    return Path(chosen).expanduser().absolute()


def settings_file(state_dir: Path) -> Path | None:
    """The settings file of a state directory: ours, else OpenClaw's in its place, else none."""
    for name in (OWN_FILE, OPENCLAW_FILE):
        path = state_dir / name
        if path.exists() or path.is_symlink():
            return path
    return None
