"""Text that is safe to print, and fits."""

from __future__ import annotations

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.cli import words
from strandline.cli.words import amount, cut, one_line, padded, safe, size, when, width


def test_the_examples_hold() -> None:
    assert doctest.testmod(words).failed == 0


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("plain é 枝 🦀\n\ttabs", "plain é 枝 🦀\n\ttabs"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x9b31mred", "red"),
        ("\x1b]0;title\x07shown", "shown"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b]0;never ended", "␛]0;never ended"),
        ("\x1b\x1b[0m[31mnested", "␛[31mnested"),
        ("a\r\nb\rc\u2028d\x85e", "a\nb\nc\nd\ne"),
        ("bell\x07 nul\x00 del\x7f", "bell␇ nul␀ del␡"),
        ("\u202eexe.txt", "\ufffdexe.txt"),
        ("cut \ud83d", "cut \ufffd"),
    ],
)
def test_a_terminal_obeys_nothing_in_a_text(text: str, printed: str) -> None:
    assert safe(text) == printed


ANY_TEXT = st.text(st.characters(codec=None)) | st.text("\x1b[]0;m\x07\\\x9b\r\n\u202eab")


@given(ANY_TEXT)
def test_nothing_that_steers_is_left_in_any_text(text: str) -> None:
    printed = safe(text)
    printed.encode()
    assert not [c for c in printed if c not in "\n\t" and (c < " " or "\x7f" <= c < "\xa0")]
    assert safe(printed) == printed
    assert "\n" not in one_line(text)


@given(st.text(max_size=30), st.integers(2, 30))
def test_a_cut_text_fits_and_is_a_beginning(text: str, columns: int) -> None:
    short = cut(text, columns)
    assert width(short) <= max(columns, 1)
    if short != text:
        assert short.endswith("…")
        assert text.startswith(short[:-1])


def test_width_counts_columns() -> None:
    assert [width(each) for each in ("abc", "枝", "e\u0301", "🦀", "●│")] == [3, 2, 1, 2, 2]
    assert padded("枝", 4) == "枝  "


def test_amounts_sizes_and_moments_are_told_in_words() -> None:
    assert amount(2, "entry", "entries") == "2 entries"
    assert [size(n) for n in (0, 1000, 999_960, 5 * 10**9)] == ["0 B", "1.0 kB", "1.0 MB", "5.0 GB"]
    assert when(None) == ""
    assert when(10**18) == ""
    assert when(-(10**18)) == ""
