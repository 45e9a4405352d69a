"""Plugins are found without being imported, and what cannot be one says why."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import pytest

from strandline.plugins.finding import (
    MAX_MANIFEST_BYTES,
    MAX_MODULES,
    FoundPlugin,
    NotFound,
    installed,
    linked,
)

BOOM = "raise ZeroDivisionError('it was imported')\n"
REGISTER = BOOM + "def register(api): pass\n"
Write = Callable[..., Path]


def found_in(folder: Path) -> FoundPlugin:
    found = linked(folder, str(folder))
    assert isinstance(found, FoundPlugin), found
    return found


def not_found_in(folder: Path) -> NotFound:
    found = linked(folder, str(folder))
    assert isinstance(found, NotFound), found
    assert found.error.remedy
    assert found.link == str(folder)
    return found


# -- linked ----------------------------------------------------------------------------------


def test_a_manifest_says_what_the_folder_is(link: Write) -> None:
    told = {"id": "mine", "module": "pkg.sub", "name": "Mine", "version": "2", "more": 1}
    files = {"src/pkg/__init__.py": BOOM, "src/pkg/sub.py": REGISTER}
    found = found_in(link("any", files=files, manifest=told))
    assert (found.id, found.module, found.name, found.version) == ("mine", "pkg.sub", "Mine", "2")
    assert found.source.endswith("any")


@pytest.mark.parametrize(
    "files",
    [
        {"my_engine.py": REGISTER, "setup.py": BOOM, "test_it.py": "x = 1"},
        {"my_engine/__init__.py": "from .inside import register\n", "my_engine/inside.py": BOOM},
        {"src/my_engine/__init__.py": "import x as register\n", "tests/test_it.py": REGISTER},
        {"my_engine.py": "register = make()\n", "broken.py": "def register(:\n"},
    ],
)
def test_without_a_manifest_the_one_module_with_register_is_the_plugin(
    link: Write, files: dict[str, str]
) -> None:
    found = found_in(link("any", files=files, manifest=False))
    assert (found.id, found.module) == ("my-engine", "my_engine")


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"a.py": "x = 1"}, "none has `register`"),
        ({"README.md": "hello"}, "none has `register`"),
        ({"a.py": REGISTER, "b/__init__.py": REGISTER}, "not one but a, b has `register`"),
        ({f"m{n}.py": "" for n in range(MAX_MODULES + 1)}, "201 modules"),
    ],
)
def test_a_folder_that_leaves_it_open_needs_a_manifest(
    link: Write, files: dict[str, str], said: str
) -> None:
    error = not_found_in(link("any", files=files, manifest=False)).error
    assert said in error.what
    assert "strandline-plugin.json" in error.remedy


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        ([], "not a JSON object"),
        ({"module": "engine_of_it"}, "id is not a text"),
        ({"id": "x", "module": 7}, "module is not a text"),
        ({"id": "X Y", "module": "engine_of_it"}, "cannot be the id"),
        ({"id": "x" * 65, "module": "engine_of_it"}, "cannot be the id"),
        ({"id": "x", "module": "nothing"}, "no module nothing"),
        ({"id": "x", "module": "../outside"}, "no module"),
        ({"id": "x", "module": "..outside"}, "no module"),
        ({"id": "x", "module": "/etc/passwd"}, "no module"),
        ({"id": "x", "module": "class"}, "no module"),
        ({"id": "x", "module": "engine_of_it", "name": "y" * MAX_MANIFEST_BYTES}, "bytes"),
    ],
)
def test_a_manifest_that_is_wrong_says_what_is(link: Write, manifest: Any, said: str) -> None:
    assert said in not_found_in(link("any", REGISTER, manifest=manifest)).error.what


def test_a_manifest_that_is_no_json_is_refused(link: Write) -> None:
    folder = link("any", REGISTER)
    for text in ("{", "[" * 60_000, "\xff"):
        (folder / "strandline-plugin.json").write_bytes(text.encode("latin-1"))
        assert "not a JSON object" in not_found_in(folder).error.what


def test_a_link_out_of_the_folder_is_no_module_of_it(link: Write, tmp_path: Path) -> None:
    (tmp_path / "outside.py").write_text(REGISTER)
    folder = link("any", files={"x.txt": ""}, manifest={"id": "x", "module": "outside"})
    (folder / "outside.py").symlink_to(tmp_path / "outside.py")
    assert "no module outside" in not_found_in(folder).error.what


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    assert "there is no plugin folder" in not_found_in(tmp_path / "gone").error.what


# -- installed -------------------------------------------------------------------------------


def found_at(*folders: Path) -> list[FoundPlugin | NotFound]:
    return list(installed(distributions(path=[str(folder) for folder in folders])))


def test_an_entry_point_is_a_plugin_of_its_name(site: Path, package: Write) -> None:
    package("one-engine", BOOM, version="3.1")
    package("no-plugin", BOOM, entries="")
    (site / "no_plugin-1.dist-info" / "entry_points.txt").write_text("[console_scripts]\na = b:c\n")
    (found,) = found_at(site)
    assert isinstance(found, FoundPlugin)
    assert (found.id, found.source) == ("one-engine", "one-engine 3.1")
    assert found.description == "About one-engine"
    assert "one_engine" not in sys.modules


def test_a_package_that_is_hidden_by_one_of_its_name_is_not_found_twice(
    site: Path, package: Write, tmp_path: Path
) -> None:
    package("one-engine", version="2")
    other = tmp_path / "other"
    other.mkdir()
    (site / "one_engine-2.dist-info").rename(other / "one_engine-2.dist-info")
    package("one-engine", version="1")
    assert [each.source for each in found_at(site, other)] == ["one-engine 1"]


def test_broken_metadata_of_one_package_breaks_no_other(site: Path, package: Write) -> None:
    package("good")
    package("nameless-entry", entries="no equals sign")
    package("bad-name", entries="Not An Id = bad_name:register")
    package("no-metadata")
    (site / "no_metadata-1.dist-info" / "METADATA").write_bytes(b"\xff\xfe")
    package("no-text")
    (site / "no_text-1.dist-info" / "entry_points.txt").write_bytes(b"[strandline.plugins]\xff")
    found = {each.id: each for each in found_at(site)}
    assert isinstance(found.pop("good"), FoundPlugin)
    assert all(isinstance(each, NotFound) for key, each in found.items() if key != "no-metadata")
    assert {"nameless-entry", "Not An Id"} <= set(found)


def test_what_is_installed_here_can_be_looked_through() -> None:
    assert all(isinstance(each, FoundPlugin) for each in installed())
