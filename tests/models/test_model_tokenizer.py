"""Tokens are counted with the providers' vocabularies, lazily and by any thread."""

from __future__ import annotations

import functools
import importlib
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.context.tokens import HeuristicCounter, MessageTokens
from strandline.errors import ConfigError
from strandline.models.tokenizer import Cl100kCounter, O200kCounter, counter


@pytest.mark.parametrize(
    ("text", "o200k", "cl100k"),
    [
        ("", 0, 0),
        ("hello world", 2, 2),
        ("2 + 2 = 4", 7, 7),
        ("お誕生日おめでとう", 8, 9),
        ("<|endoftext|>", 7, 7),
    ],
)
def test_counts_are_those_of_the_vocabularies(text: str, o200k: int, cl100k: int) -> None:
    assert O200kCounter().count(text) == o200k
    assert Cl100kCounter().count(text) == cl100k


@functools.cache
def library_encoding(name: str) -> Any:
    with warnings.catch_warnings():
        # The package's Python half opens its data in a way that Python deprecates.
        warnings.simplefilter("ignore", DeprecationWarning)
        return importlib.import_module("bpe_openai").get_encoding(name)


@settings(deadline=None)
@given(st.text())
def test_counts_equal_the_library_s_own_encoding(text: str) -> None:
    for one in (O200kCounter(), Cl100kCounter()):
        assert one.count(text) == len(library_encoding(one.name).encode_ordinary(text))


@settings(deadline=None)
@given(st.text(st.characters()))
def test_a_half_of_a_character_counts_as_its_replacement(text: str) -> None:
    """Faults C5."""
    assert O200kCounter().count(text + "\ud83c") == O200kCounter().count(text + "�")


def test_no_text_is_too_long_to_count() -> None:
    assert O200kCounter().count("word " * 1_000_000) > 1_000_000


def test_threads_that_start_together_count_alike() -> None:
    code = (
        "from concurrent.futures import ThreadPoolExecutor as P;"
        "from strandline.models.tokenizer import O200kCounter as C;"
        "print(set(P(8).map(lambda _: C().count('hello world'), range(32))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60
    )
    assert (done.stdout, done.stderr) == ("{2}\n", "")
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(Cl100kCounter().count, ["hello world"] * 32)) == {2}


def test_nothing_is_loaded_before_the_first_count_and_then_only_the_compiled_half() -> None:
    code = (
        "import sys; from strandline.models.tokenizer import counter; c = counter('tiktoken');"
        "loaded = lambda: [m for m in sys.modules if m.startswith('bpe_openai')];"
        "assert not loaded(); c.count('x'); assert loaded() == ['bpe_openai._bindings'];"
        "import bpe_openai; assert bpe_openai.get_encoding('o200k_base').encode_ordinary('x')"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_setting_chooses_the_counter() -> None:
    assert counter("tiktoken").name == "o200k_base"
    assert isinstance(counter("heuristic"), HeuristicCounter)
    with pytest.raises(ConfigError, match="no token counter 'other'"):
        counter("other")


def test_it_serves_the_message_counter() -> None:
    message = {"role": "user", "content": "hello world", "timestamp": 0}
    assert MessageTokens(counter("tiktoken")).count(message) == 6
