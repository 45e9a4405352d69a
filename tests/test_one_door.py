"""Nothing but `transcript/append.py` writes an entry line (spec 1, the tree)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "strandline"
ALLOWED = {
    "transcript/append.py": "the door",
    "transcript/upgrade.py": "hands on what came through the door, once the old file is replaced",
    "testing/transcript_contract.py": "tests the store itself",
}
LOGS = {"log", "_log"}


def calls_of_append(tree: ast.AST) -> Iterator[ast.Call]:
    """Calls of `append` on something that is called a log, and calls of `replace` on one."""
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        receiver = node.func.value
        name = getattr(receiver, "attr", getattr(receiver, "id", ""))
        if node.func.attr in {"append", "replace"} and name in LOGS:
            yield node


def test_only_the_door_appends_to_a_log() -> None:
    found = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if any(calls_of_append(ast.parse(path.read_text(encoding="utf-8"))))
    }
    assert found == set(ALLOWED)


def test_whoever_has_a_log_calls_it_one() -> None:
    """The rule above goes by the name, so nothing typed as a log may have another."""
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            annotation = getattr(node, "annotation", None)
            if isinstance(node, ast.arg) and annotation is not None:
                kind = ast.unparse(annotation)
                if kind in {"TranscriptLog", "JsonlLog", "MemoryLog"}:
                    assert node.arg in LOGS, f"{path}:{node.lineno} {node.arg}: {kind}"


def test_the_rule_sees_what_it_is_to_see() -> None:
    for code in (
        "self._log.append(b'x', 0)",
        "log.append(x, 1)",
        "self.reader.log.replace(a, b, c)",
    ):
        assert len(list(calls_of_append(ast.parse(code)))) == 1
    assert not list(calls_of_append(ast.parse("items.append(1)")))
