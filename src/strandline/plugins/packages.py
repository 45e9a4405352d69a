"""Installing and removing packages: pip does it, in the Python that runs."""

from __future__ import annotations

import importlib
import importlib.util
import re
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import distributions

from strandline.errors import PluginError
from strandline.plugins.finding import normalized

OWN_PACKAGE = "strandline"
MAX_CHARS = 200
TIMEOUT_S = 1800
_CROSS = "\u00d7"
"""What pip puts before its newer errors."""

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_VERSION = r"(?:===?|~=|!=|<=?|>=?) *[A-Za-z0-9][A-Za-z0-9.*+!_-]*"
_REQUIREMENT = re.compile(
    rf"(?P<name>{_NAME})(?: *\[ *{_NAME}(?: *, *{_NAME})* *\])?"
    rf" *(?:{_VERSION}(?: *, *{_VERSION})*)?"
)


def package_of(requirement: str) -> str:
    """The name in a requirement such as ``name>=1.2``. Raises `PluginError` for anything else.

    >>> package_of("Strandline.Recall >= 1.2, < 2")
    'strandline-recall'
    """
    found = _REQUIREMENT.fullmatch(requirement) if len(requirement) <= MAX_CHARS else None
    if found is None:
        raise PluginError(
            f"{requirement[:MAX_CHARS]!a} is not the name of a package",
            remedy="give a name, with a version if need be (name>=1.2); link a folder with -l PATH",
        )
    return normalized(found["name"])


def install(requirement: str) -> None:
    """Install a package with what it needs. Raises `PluginError` with what pip says."""
    package_of(requirement)
    _pip(["install", requirement], f"{requirement} was not installed")


def uninstall(package: str) -> None:
    """Remove a package. Raises `PluginError`; Strandline itself is not removed."""
    if normalized(package) == OWN_PACKAGE:
        raise PluginError(
            "the plugin is a part of Strandline itself", remedy="`strandline plugins disable` it"
        )
    _pip(["uninstall", "--yes", package], f"{package} was not removed")
    if any(True for _ in distributions(name=package)):  # pip leaves alone what is not its own
        raise PluginError(
            f"{package} was not removed: it is not among the packages of {sys.prefix}",
            remedy="remove it as it was installed, or `strandline plugins disable` it",
        )


def _pip(words: Sequence[str], failed: str) -> None:
    if importlib.util.find_spec("pip") is None:
        raise PluginError(
            f"{failed}: there is no pip for {sys.executable}",
            remedy="`python -m ensurepip` adds it; or use another installer, then "
            "`strandline plugins enable`",
        )
    command = [sys.executable, "-m", "pip", *words]
    quiet = ["--disable-pip-version-check", "--no-input", "--no-color"]
    try:
        done = subprocess.run(
            [*command, *quiet],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise PluginError(
            f"{failed}: pip did not end in {TIMEOUT_S // 60} minutes", remedy="try again"
        ) from None
    importlib.invalidate_caches()
    if done.returncode:
        said = _reason(done.stderr) or _reason(done.stdout) or f"pip ended with {done.returncode}"
        raise PluginError(f"{failed}: {said}", remedy="correct the name, or what pip says")


def _reason(output: str) -> str:
    """The line of pip's output that says what went wrong: its last error, else its last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith(("error:", _CROSS))]
    return re.sub(rf"^(error:|{_CROSS})\s*", "", (errors or lines or [""])[-1], flags=re.IGNORECASE)
