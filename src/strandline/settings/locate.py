"""Where in a settings file something stands: for error messages only, because it is slow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from json5.loader import ModelLoader, loads
from json5.model import JSONArray, JSONObject, Node

Place = tuple[int, int]
"""Line and column, from 1."""


class Locator:
    """Finds keys in one text; finds nothing in a text that it cannot read."""

    def __init__(self, text: str) -> None:
        try:
            self._root: Any = loads(text, loader=ModelLoader()).value
        except Exception:  # noqa: BLE001 - its own syntax errors, and limits of its own
            self._root = None

    def find(self, path: Sequence[str | int], *, key: bool = False) -> Place | None:
        """The value at `path`, or its key; of a path that breaks off, the last part there is."""
        found = node = self._root
        for number, step in enumerate(path):
            pair = _child(node, step)
            if pair is None:
                break
            name, node = pair
            found = name if key and number == len(path) - 1 else node
        return _place(found)


def _child(node: Any, step: str | int) -> tuple[Node, Node] | None:
    """The key and value of a step; of a key that stands twice, the last, as it is read."""
    if isinstance(node, JSONArray) and isinstance(step, int) and step < len(node.values):
        return node.values[step], node.values[step]
    if isinstance(node, JSONObject):
        for pair in reversed(node.key_value_pairs):
            if _text(pair.key) == step:
                return pair.key, pair.value
    return None


def _text(key: Any) -> Any:
    return getattr(key, "name", None) or getattr(key, "characters", None)


def _place(node: Any) -> Place | None:
    if node is None or node.lineno is None or node.col_offset is None:
        return None
    return node.lineno, node.col_offset + 1
