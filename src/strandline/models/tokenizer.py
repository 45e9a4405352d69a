"""Token counters with a provider's own vocabulary, offline (source: spec 3, Budget).

The vocabularies are in the wheel of ``bpe-openai``. Nothing is loaded before the first text
is counted. Claude and Gemini publish no vocabulary; reported usage corrects the estimate.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, FileFinder
from types import ModuleType
from typing import Any

from strandline.context.tokens import HeuristicCounter, TokenCounter
from strandline.errors import ConfigError, MissingDependency
from strandline.models.surrogates import whole_text

_PACKAGE = "bpe_openai"
_BINDINGS = "bpe_openai._bindings"
_loading = threading.Lock()


class BpeCounter:
    """Counts with one vocabulary of ``bpe-openai``; any thread may."""

    def __init__(self, name: str) -> None:
        self.name = name

    def count(self, text: str) -> int:
        """Tokens of `text`; text that looks like a special token is counted as text."""
        tokens: int = _vocabulary(self.name).count(whole_text(text))
        return tokens


class O200kCounter(BpeCounter):
    """The vocabulary of GPT-4o and everything after it."""

    def __init__(self) -> None:
        super().__init__("o200k_base")


class Cl100kCounter(BpeCounter):
    """The vocabulary of GPT-4 and GPT-3.5."""

    def __init__(self) -> None:
        super().__init__("cl100k_base")


def counter(name: str) -> TokenCounter:
    """The counter that the setting ``tokenCounter`` names: ``tiktoken`` or ``heuristic``.

    Raises `ConfigError` for another name.
    """
    match name:
        case "tiktoken":
            return O200kCounter()
        case "heuristic":
            return HeuristicCounter()
        case _:
            raise ConfigError(
                f"there is no token counter {name!r}", remedy='use "tiktoken" or "heuristic"'
            )


def _vocabulary(name: str) -> Any:
    with _loading:
        return _load(name)


@cache
def _load(name: str) -> Any:
    return _bindings().tokenizer_for_encoding(name)


def _bindings() -> ModuleType:
    """The compiled half of the package alone.

    Its Python half reads three vocabularies a second time while it is imported, 0.47 s
    against 0.02 s, and its `Encoding` builds lists where a count is enough, and refuses long
    texts. It finds the loaded half in its place, should anybody import it later.
    """
    if _BINDINGS in sys.modules:
        return sys.modules[_BINDINGS]
    package = importlib.util.find_spec(_PACKAGE)
    for folder in (package and package.submodule_search_locations) or ():
        finder = FileFinder(folder, (ExtensionFileLoader, EXTENSION_SUFFIXES))
        spec = finder.find_spec(_BINDINGS)
        if spec is not None and spec.loader is not None:
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            return sys.modules.setdefault(_BINDINGS, module)
    raise MissingDependency(
        "bpe-openai is not installed, so tokens cannot be counted with a vocabulary",
        remedy="pip install bpe-openai, or set tokenCounter to heuristic",
    )
