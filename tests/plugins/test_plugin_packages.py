"""pip is asked for names only, and what it says is told on one line."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from strandline.errors import PluginError
from strandline.plugins import packages

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("requirement", "name"),
    [
        ("strandline-recall", "strandline-recall"),
        ("A.b__C", "a-b-c"),
        ("x", "x"),
        ("x>=1.2,<2", "x"),
        ("x ~= 1.0 , != 1.3", "x"),
        ("x===1", "x"),
        ("x[redis, local]==2.*", "x"),
    ],
)
def test_a_name_with_a_version_is_a_requirement(requirement: str, name: str) -> None:
    assert packages.package_of(requirement) == name


@pytest.mark.parametrize(
    "requirement",
    [
        "",
        "-r requirements.txt",
        "--index-url=http://x",
        "-e.",
        ".",
        "./x",
        "/x/y",
        "x/y",
        "@scope/package",
        "x @ http://somewhere/x.whl",
        "git+http://somewhere/x",
        "http://somewhere/x",
        "x; python_version > '3'",
        "x --pre",
        "x y",
        "x>=1\n--pre",
        "x\n",
        "x>=",
        "x-",
        "ü",
        "x" * 201,
    ],
)
def test_anything_else_is_none_and_reaches_no_pip(
    requirement: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(PluginError, match="is not the name of a package") as caught:
        packages.install(requirement)
    assert "-l PATH" in caught.value.remedy


def test_strandline_itself_is_not_uninstalled() -> None:
    with pytest.raises(PluginError, match="part of Strandline itself"):
        packages.uninstall("Strandline")


def test_where_there_is_no_pip_that_is_said(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['pip'] = None\n"
        "import importlib.util as u; u.find_spec = lambda name: None\n"
        "from strandline.plugins import packages\n"
        "from strandline.errors import PluginError\n"
        "try: packages.install('x')\n"
        "except PluginError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert "x was not installed: there is no pip" in done.stdout
    assert "ensurepip" in done.stdout


pip_is_here = pytest.mark.skipif(importlib.util.find_spec("pip") is None, reason="pip is not here")


@pip_is_here
def test_what_pip_cannot_find_is_told_on_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(PluginError) as caught:
        packages.install("strandline-no-such-plugin")
    assert "strandline-no-such-plugin was not installed: " in caught.value.what
    assert "o matching distribution" in caught.value.what
    assert "\n" not in str(caught.value)


@pip_is_here
def test_a_package_that_is_not_pips_to_remove_is_told(
    site: Path, package: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    package("first-engine")
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv("PYTHONPATH", str(site))
    with pytest.raises(PluginError, match="first-engine was not removed"):
        packages.uninstall("first-engine")
    assert (site / "first_engine.py").exists()


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("Collecting x\nERROR: none\nERROR: No match for x\n\n", "No match for x"),
        ("error: managed\n\n\u00d7 This is managed\n╰─> To\nhint: see", "This is managed"),
        ("something\nelse", "else"),
        ("\n", ""),
    ],
)
def test_of_what_pip_says_one_line_is_told(output: str, said: str) -> None:
    assert packages._reason(output) == said


def _can_build() -> bool:
    try:
        version = importlib.metadata.version("setuptools")
    except importlib.metadata.PackageNotFoundError:
        return False
    has_wheel = importlib.util.find_spec("wheel") is not None
    return tuple(map(int, version.split(".")[:2])) >= (70, 1) or has_wheel


@pip_is_here
@pytest.mark.skipif(not _can_build(), reason="setuptools 70.1 or newer is not here to build with")
def test_the_example_installs_as_a_package_and_is_found(tmp_path: Path) -> None:
    source, target = tmp_path / "engine", tmp_path / "site"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "strandline_recall.py"):
        (source / name).write_bytes((ROOT / "examples" / "engine" / name).read_bytes())
    offline = ["--no-index", "--no-build-isolation", "--no-deps", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "install", *offline, "--target", str(target)]
    subprocess.run([*command, str(source)], check=True, capture_output=True)
    code = (
        "from strandline.plugins.registry import PluginRegistry\n"
        "from strandline.plugins.reports import PluginChoices, PluginEntry\n"
        "from strandline.context.engine import EngineContext, HOST_ABILITIES\n"
        "entries = {'strandline-recall': PluginEntry(True, {'share': 0.5})}\n"
        "made = PluginRegistry(PluginChoices(entries=entries))\n"
        "engine = made.make_engine('recall', EngineContext(), HOST_ABILITIES)\n"
        "print(type(engine).__name__, made.reports()[0].source)\n"
    )
    environ = {**os.environ, "PYTHONPATH": str(target)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environ
    )
    assert done.stdout == "RecallEngine strandline-recall 0.1.0\n"
