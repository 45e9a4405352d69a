"""Durations and sizes: what people write, and nonsense that names its key."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import ConfigError
from strandline.settings import duration_ms, size_bytes


@pytest.mark.parametrize(
    ("value", "ms"),
    [
        ("30d", 2_592_000_000),
        ("12h", 43_200_000),
        ("500ms", 500),
        ("1.5s", 1_500),
        ("1h30m", 5_400_000),
        ("1h 30m", 5_400_000),
        ("2w", 1_209_600_000),
        (" 5M ", 300_000),
        ("250", 250),
        (250, 250),
        (0, 0),
        (1e3, 1000),
    ],
)
def test_a_duration_is_milliseconds(value: object, ms: int) -> None:
    assert duration_ms(value, "k") == ms


@pytest.mark.parametrize(
    ("value", "size"),
    [
        ("10mb", 10_000_000),
        ("10mib", 10_485_760),
        ("1.5GiB", 1_610_612_736),
        ("3 KB", 3_000),
        ("2TB", 2_000_000_000_000),
        ("7b", 7),
        ("7", 7),
        (7, 7),
    ],
)
def test_a_size_is_bytes_and_mb_is_not_mib(value: object, size: int) -> None:
    assert size_bytes(value, "k") == size


NONSENSE = ["", " ", "soon", "-1d", "1x", "d", "1d x", "1d-2h", "1..5s", "1e3s", "٣d", "inf", "nan"]
NONSENSE += [None, True, [], {}, -1, float("nan"), float("inf"), 2**60, "9" * 400 + "d"]  # type: ignore[list-item] # nonsense of every type


@pytest.mark.parametrize("value", NONSENSE, ids=repr)
def test_nonsense_is_an_error_that_names_the_key(value: object) -> None:
    for parse in (duration_ms, size_bytes):
        with pytest.raises(ConfigError, match=r"^session\.x: expected a (duration|size)"):
            parse(value, "session.x")


def test_a_unit_of_the_other_kind_is_nonsense() -> None:
    with pytest.raises(ConfigError):
        duration_ms("10mb", "k")
    with pytest.raises(ConfigError):
        size_bytes("30d", "k")
    with pytest.raises(ConfigError):
        size_bytes("1gb2mb", "k")


@given(st.text(max_size=20) | st.integers() | st.floats() | st.booleans() | st.none())
def test_any_value_is_a_whole_number_that_json_can_hold_or_an_error(value: object) -> None:
    for parse in (duration_ms, size_bytes):
        try:
            amount = parse(value, "k")
        except ConfigError:
            continue
        assert isinstance(amount, int)
        assert 0 <= amount < 2**53
