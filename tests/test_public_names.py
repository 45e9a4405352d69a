"""What `import strandline` gives, what it costs, and that everything public says what it is for."""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import strandline

SOURCE = Path(strandline.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))
HEAVY = ["pydantic", "msgspec", "httpx2", "bpe_openai", "rich", "click", "sqlite3", "asyncio"]


def test_every_public_name_is_there_documented_and_where_it_says() -> None:
    assert strandline.__all__ == sorted(strandline.__all__)
    for name in strandline.__all__:
        value = getattr(strandline, name)
        assert inspect.getdoc(value)
        assert value is getattr(importlib.import_module(value.__module__), name)
    assert set(strandline.__all__) <= set(dir(strandline))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        strandline.nothing  # noqa: B018 - the look-up is the test


def test_star_import_gives_the_public_names_and_no_more() -> None:
    names: dict[str, object] = {}
    exec("from strandline import *", names)  # noqa: S102 - the only way to do this in a function
    assert set(names) - {"__builtins__"} == set(strandline.__all__)


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = f"import sys, strandline; print([n for n in {HEAVY} if n in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, encoding="utf-8"
    )
    assert done.stdout.strip() == "[]"


def undocumented(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    if path.stat().st_size and not ast.get_docstring(tree):
        yield f"{path}: the module"
    for node in tree.body:
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if not node.name.startswith("_") and not ast.get_docstring(node):
            yield f"{path}:{node.lineno} {node.name}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_every_module_public_class_and_function_says_what_it_is_for(path: Path) -> None:
    assert list(undocumented(path)) == []


def test_the_errors_are_one_tree_and_it_is_drawn_in_full() -> None:
    drawing = importlib.import_module("strandline.errors").__doc__ or ""
    kinds = [strandline.StrandlineError]
    for kind in kinds:
        kinds += [each for each in kind.__subclasses__() if each.__module__ == kind.__module__]
    for kind in kinds:
        assert kind.__name__ in drawing
        assert kind.__doc__
        assert kind.exit_code in {1, 2}
