"""A failure says who failed, how, and what to do, in one bounded line without secrets."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.models.failures import Failures
from strandline.runtime.model import ModelInfo

MODEL = ModelInfo("acme", "one", "openai-completions", 8192, 512)
KEY = "sk-very-secret-0123456789"
FAILURES = Failures(MODEL, (KEY, ""))


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "refused"),
        (401, "auth"),
        (402, "refused"),
        (403, "auth"),
        (404, "refused"),
        (408, "network"),
        (413, "overflow"),
        (422, "refused"),
        (429, "rate"),
        (500, "network"),
        (503, "network"),
        (529, "network"),
        (302, "refused"),
    ],
)
def test_a_status_has_its_kind_and_remedy(status: int, kind: str) -> None:
    error = FAILURES.from_server({"error": {"message": "some words"}}, status, 1.5)
    assert error.kind == kind
    assert f"acme/one answered HTTP {status} (some words)" in error.what
    assert error.remedy
    assert error.retry_after_s == (None if kind == "overflow" else 1.5)


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "M"}},
        {"error": "M"},
        {"message": "M"},
        {"detail": "M"},
        {"detail": [{"loc": ["body"], "msg": "M"}]},
        [{"error": {"message": "M"}}],
        {"error": {"message": '{"error": {"message": "M"}}'}},
        '{"error": {"message": "M"}}',
        "M",
        '"M"',
    ],
)
def test_the_message_is_found_in_every_shape(body: object) -> None:
    assert "(M)" in FAILURES.from_server(body, 400).what.replace('"', "")


def test_no_money_left_is_refused_not_a_wait() -> None:
    body = {"error": {"message": "quota", "type": "insufficient_quota", "code": None}}
    error = FAILURES.from_server(body, 429)
    assert error.kind == "refused"
    assert "credit" in error.remedy


def test_secrets_are_never_told() -> None:
    for said in (
        f"wrong key {KEY}",
        f"Authorization: Bearer {KEY}",
        "header Bearer eyJhbGciOi.x-y",
    ):
        for body in ({"error": {"message": said}}, said, {"error": said, "headers": {"x": KEY}}):
            error = FAILURES.from_server(body, 401)
            assert KEY not in f"{error!r} {error}"
            assert "eyJ" not in str(error)


def test_a_message_is_one_printable_line_of_bounded_length() -> None:
    error = FAILURES.from_server(
        {"error": {"message": "\x1b[31mred\r\n\tline\x00" + "x" * 9999}}, 400
    )
    assert error.what.isprintable()
    assert len(error.what) < 400


@settings(deadline=None)
@given(
    st.recursive(
        st.text() | st.none() | st.integers(),
        lambda x: (
            st.lists(x)
            | st.dictionaries(
                st.sampled_from(["error", "message", "detail", "metadata", "raw", "code", "type"]),
                x,
            )
        ),
    )
)
def test_any_body_gives_some_error(body: Any) -> None:
    assert FAILURES.from_server(body, 400).kind in {"refused", "overflow", "rate"}


def test_a_body_nested_without_end_is_borne() -> None:
    body: Any = "M"
    for _ in range(2000):
        body = {"error": body}
    assert FAILURES.from_server(body, 400).kind == "refused"
    assert FAILURES.from_server("[" * 100_000, 400).kind == "refused"
