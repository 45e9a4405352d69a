"""The budget of a window, and the scale between our tokens and the provider's."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.context.budget import (
    Budget,
    CompactionSettings,
    calibrated,
    newest_report,
    resolve_budget,
)
from strandline.context.clean_path import CleanPath
from strandline.context.tokens import HeuristicCounter, MessageTokens
from strandline.errors import ContextOverflow
from strandline.transcript.context import PathMessage

DEFAULTS = CompactionSettings()


def test_the_defaults_on_a_large_window() -> None:
    budget = resolve_budget(200_000, DEFAULTS, system_tokens=3_000, tool_tokens=2_000)
    assert budget == Budget(
        window=200_000, reserve=20_000, fixed=5_000, keep_recent=20_000, limit=175_000
    )


def test_a_low_reserve_is_raised_to_the_floor_and_zero_turns_the_floor_off() -> None:
    assert resolve_budget(200_000, CompactionSettings(reserve_tokens=100)).reserve == 20_000
    assert resolve_budget(200_000, CompactionSettings(reserve_tokens=30_000)).reserve == 30_000
    unfloored = CompactionSettings(reserve_tokens=100, reserve_tokens_floor=0)
    assert resolve_budget(200_000, unfloored).reserve == 100


def test_the_reserved_output_counts_when_it_is_larger_than_the_reserve() -> None:
    assert resolve_budget(200_000, DEFAULTS, reserved_output=50_000).reserve == 50_000


def test_h12_the_cap_of_the_operator_holds_and_the_models_greatest_output_is_no_reserve() -> None:
    budget = resolve_budget(272_000, DEFAULTS, max_tokens=100_000)
    assert (budget.limit, budget.view_limit) == (252_000, 100_000)
    budget = resolve_budget(1_000_000, DEFAULTS)
    assert budget.limit == 980_000
    assert budget.answer_tokens(100_000, 128_000) == 128_000
    assert budget.answer_tokens(950_000, 128_000) == 50_000


@pytest.mark.parametrize("window", [4_096, 8_192, 16_384, 32_000])
def test_half_of_a_small_window_remains_usable(window: int) -> None:
    budget = resolve_budget(window, DEFAULTS)
    assert budget.limit >= window // 2
    assert budget.keep_recent <= budget.limit // 2


def test_h4_keep_and_reserve_leave_a_gap_between_what_is_kept_and_the_threshold() -> None:
    budget = resolve_budget(44_000, DEFAULTS, system_tokens=17_000)
    assert budget.keep_recent + budget.summary_cap <= budget.limit * 3 // 4


def test_h17_system_prompt_and_tools_are_counted() -> None:
    bare = resolve_budget(200_000, DEFAULTS)
    assert resolve_budget(200_000, DEFAULTS, tool_tokens=30_000).limit == bare.limit - 30_000


def test_a_system_prompt_that_leaves_nothing_is_named() -> None:
    with pytest.raises(ContextOverflow) as caught:
        resolve_budget(8_192, DEFAULTS, system_tokens=7_000, tool_tokens=1_000)
    assert "the system prompt (7,000 tokens) and the tools (1,000 tokens)" in caught.value.what
    assert caught.value.remedy


def test_a_large_system_prompt_takes_from_the_reserve_before_the_messages() -> None:
    budget = resolve_budget(8_192, DEFAULTS, system_tokens=5_000)
    assert budget.limit >= 1_024
    assert budget.reserve >= 1_024


@given(
    window=st.integers(2_048, 2_000_000),
    reserve=st.integers(0, 300_000),
    floor=st.integers(0, 300_000),
    keep=st.integers(0, 300_000),
    fixed=st.integers(0, 50_000),
    scale=st.floats(1.0, 4.0),
)
def test_every_budget_fits_its_window(
    window: int, reserve: int, floor: int, keep: int, fixed: int, scale: float
) -> None:
    settings = CompactionSettings(
        reserve_tokens=reserve, reserve_tokens_floor=floor, keep_recent_tokens=keep
    )
    try:
        budget = resolve_budget(window, settings, system_tokens=fixed, scale=scale)
    except ContextOverflow:
        assert int(fixed * scale) > window // 4, "only a large system prompt leaves no room"
        return
    assert budget.provider_tokens(budget.limit) <= window - budget.reserve
    assert 0 < budget.keep_recent <= max(1, budget.limit // 2)
    assert budget.message_cap <= budget.limit
    assert budget.keep_recent + budget.summary_cap <= budget.limit


def test_the_threshold_is_what_does_not_fit() -> None:
    budget = resolve_budget(100_000, DEFAULTS, system_tokens=1_000)
    assert not budget.is_over(79_000)
    assert budget.is_over(79_001)
    assert budget.provider_tokens(79_001) > budget.window - budget.reserve


def test_the_scale_follows_reports_upwards_only_and_stays_sane() -> None:
    assert calibrated(1.0, 10_000, 13_000) == pytest.approx(1.3)
    assert calibrated(1.3, 10_000, 9_000) == 1.0
    assert calibrated(1.3, 10_000, 11_000, overflowed=True) == pytest.approx(1.3)
    assert calibrated(1.0, 10_000, 900_000) == 4.0
    assert calibrated(1.2, 20, 400) == 1.2, "a small prompt says nothing"
    assert calibrated(1.2, 10_000, 0) == 1.2


def answer(prompt_tokens: int, at: int, **more: Any) -> dict[str, Any]:
    usage = {"input": prompt_tokens - 10, "output": 5, "cacheRead": 10, "cacheWrite": 0}
    return {
        "role": "assistant",
        "content": [{"type": "text", "text": "ok"}],
        "usage": usage,
        "stopReason": "stop",
        "provider": "p",
        "model": "m",
        "timestamp": at,
        **more,
    }


def scale(*messages: dict[str, Any]) -> float:
    items = [PathMessage(f"e{n}", message) for n, message in enumerate(messages)]
    clean = CleanPath(MessageTokens(HeuristicCounter())).follow(items, 10_000)
    report = newest_report(clean, ("p", "m"))
    if report is None:
        return 1.0
    return calibrated(1.0, clean.tokens_to[report.place], report.prompt_tokens)


BIG = {"role": "user", "content": "x" * 8_000, "timestamp": 1}  # 2,004 of our tokens


def test_the_newest_usage_on_the_path_sets_the_scale() -> None:
    assert scale(BIG, answer(9_000, 2), answer(3_006, 3)) == pytest.approx(1.5, abs=0.01)
    assert scale(BIG) == 1.0


def test_h14_usage_from_before_the_last_compaction_is_ignored() -> None:
    summary = {"role": "compactionSummary", "summary": "s", "timestamp": 50}
    assert scale(summary, BIG, answer(180_000, 2)) == 1.0
    assert scale(summary, BIG, answer(180_000, 2), answer(3_030, 60)) == pytest.approx(
        1.5, abs=0.05
    )


def test_usage_of_another_model_or_of_a_failure_is_ignored() -> None:
    assert scale(BIG, answer(9_000, 2, model="other")) == 1.0
    assert scale(BIG, answer(9_000, 2, stopReason="error")) == 1.0
    assert scale(BIG, answer(9_000, 2, usage="none")) == 1.0


def test_disabled_compaction_is_mode_off() -> None:
    assert CompactionSettings(enabled=False).effective_mode == "off"
    assert CompactionSettings(mode="error").effective_mode == "error"
