"""Which thinking parameters each family of models takes, decided by its id."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from anthropic._data import MODELS_TO_WARN_WITH_THINKING_ENABLED
from anthropic.types import ModelParam
from hypothesis import given
from hypothesis import strategies as st
from openai.types.shared import ReasoningEffort

from strandline.models.anthropic_thinking import adaptive_thinking, is_adaptive
from strandline.models.catalog import known
from strandline.models.efforts import Effort, nearest, openai_effort
from strandline.transcript.messages import ThinkingLevel

LEVELS: tuple[ThinkingLevel, ...] = get_args(ThinkingLevel)

# -- Anthropic ----------------------------------------------------------------------------------

BUDGET = [
    *("claude-opus-4-5", "claude-opus-4-5-20251101", "claude-haiku-4-5", "claude-sonnet-4-5"),
    *("claude-opus-4-1-20250805", "claude-sonnet-4-20250514", "claude-opus-4-0"),
    *("claude-3-7-sonnet-20250219", "claude-3-opus-20240229", "claude-2.1", "claude-instant-1.2"),
    *("anthropic/claude-sonnet-4.5", "anthropic/claude-3.7-sonnet", "claude-haiku-4-5@20251001"),
    "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
    *("glm-5.2", "kimi-k3", "MiniMax-M2", "one"),
]
ADAPTIVE = [
    *("claude-opus-4-6", "claude-opus-4-7", "claude-opus-4-8", "claude-opus-5", "claude-opus-5-5"),
    *("claude-sonnet-4-6", "claude-sonnet-5", "claude-sonnet-5-5", "claude-haiku-5-5"),
    *("claude-fable-5", "claude-fable-5-2", "claude-mythos-5-1", "claude-mythos-preview"),
    *("anthropic/claude-opus-4.6", "us.anthropic.claude-opus-4-6-v1", "Claude-Opus-5"),
    *("claude-fable-5-20260609", "global.anthropic.claude-sonnet-5-5-20260922-v1:0"),
    *("claude-opus-6", "claude-sonnet-7-1", "claude-haiku-10", "claude-next", "sonnet"),
]


@pytest.mark.parametrize("name", BUDGET)
def test_models_before_claude_4_6_and_strangers_want_a_budget(name: str) -> None:
    assert not is_adaptive(name)


@pytest.mark.parametrize("name", ADAPTIVE)
def test_claude_4_6_and_all_that_came_and_will_come_after_it_are_adaptive(name: str) -> None:
    assert is_adaptive(name)


def test_the_ids_that_anthropic_names_are_told_apart() -> None:
    """Those of its SDK: only the models of 4.5 think by a budget."""
    names: tuple[str, ...] = get_args(get_args(ModelParam)[0])
    assert {name for name in names if not is_adaptive(name)} == {
        *("claude-haiku-4-5", "claude-opus-4-5", "claude-sonnet-4-5"),
        *("claude-haiku-4-5-20251001", "claude-opus-4-5-20251101", "claude-sonnet-4-5-20250929"),
    }
    assert all(map(is_adaptive, MODELS_TO_WARN_WITH_THINKING_ENABLED))


LITTLE = {"output_config": {"effort": "low"}}
DISABLED = {"thinking": {"type": "disabled"}}


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("claude-opus-4-6", {}),
        ("claude-opus-4-8", {}),
        ("anthropic/claude-sonnet-4.6", {}),
        ("claude-sonnet-5", DISABLED),
        ("claude-sonnet-5-20260630", DISABLED),
        ("claude-haiku-5-5", DISABLED),
        ("us.anthropic.claude-sonnet-5-5", {"thinking": {"type": "between_tools"}}),
        ("claude-opus-5", LITTLE),
        ("claude-opus-5-5", LITTLE),
        ("claude-fable-5-2", LITTLE),
        ("claude-mythos-preview", LITTLE),
        ("claude-sonnet-6", LITTLE),
        ("claude-next", LITTLE),
    ],
)
def test_off_is_what_the_model_takes_for_it(name: str, asked: dict[str, Any]) -> None:
    """A model that always thinks is asked for little effort; one that may not, for nothing."""
    assert adaptive_thinking(name, "off") == asked


@pytest.mark.parametrize(
    ("name", "efforts"),
    [
        ("claude-opus-4-6", ["low", "low", "medium", "high", "high"]),
        ("claude-sonnet-4-6", ["low", "low", "medium", "high", "high"]),
        ("claude-mythos-preview", ["low", "low", "medium", "high", "high"]),
        ("claude-opus-4-7", ["low", "low", "medium", "high", "xhigh"]),
        ("claude-fable-5-2", ["low", "low", "medium", "high", "xhigh"]),
        ("claude-haiku-5-5", ["low", "low", "medium", "high", "xhigh"]),
    ],
)
def test_every_level_asks_for_an_effort_and_for_a_summary(name: str, efforts: list[str]) -> None:
    for level, effort in zip(LEVELS[1:], efforts, strict=True):
        assert adaptive_thinking(name, level) == {
            "thinking": {"type": "adaptive", "display": "summarized"},
            "output_config": {"effort": effort},
        }


# -- OpenAI -------------------------------------------------------------------------------------

NONE_TO_XHIGH = ["none", "low", "low", "medium", "high", "xhigh"]
LOW_TO_XHIGH = ["low", "low", "low", "medium", "high", "xhigh"]


@pytest.mark.parametrize(
    ("name", "efforts"),
    [
        ("o3", ["low", "low", "low", "medium", "high", "high"]),
        ("openai/o4-mini-2025-04-16", ["low", "low", "low", "medium", "high", "high"]),
        ("gpt-5", ["minimal", "minimal", "low", "medium", "high", "high"]),
        ("gpt-5-mini-2025-08-07", ["minimal", "minimal", "low", "medium", "high", "high"]),
        ("gpt-5.1", ["none", "low", "low", "medium", "high", "high"]),
        ("gpt-5.2-2025-12-11", NONE_TO_XHIGH),
        ("gpt-5.4-mini", NONE_TO_XHIGH),
        ("gpt-5.5", NONE_TO_XHIGH),
        ("openai/gpt-5.6-sol", NONE_TO_XHIGH),
        ("GPT-6-Sol", NONE_TO_XHIGH),
        ("gpt-6-luna", NONE_TO_XHIGH),
        ("us.openai.gpt-6.1-terra", NONE_TO_XHIGH),
        ("gpt-6-astra", LOW_TO_XHIGH),
        ("gpt-6.1-sol", LOW_TO_XHIGH),
        ("gpt-6.2-sol", LOW_TO_XHIGH),
        ("gpt-6.2-astra", LOW_TO_XHIGH),
        ("gpt-7-sol", LOW_TO_XHIGH),
        ("gpt-oss-120b", [None, "low", "low", "medium", "high", "high"]),
        ("deepseek-v4-pro", [None, "low", "low", "medium", "high", "high"]),
        ("gpt-35-turbo", [None, "low", "low", "medium", "high", "high"]),
        ("solo1-think", [None, "low", "low", "medium", "high", "high"]),
    ],
)
def test_each_family_of_openai_is_asked_for_an_effort_that_it_takes(
    name: str, efforts: list[str | None]
) -> None:
    assert [openai_effort(name, level) for level in LEVELS] == efforts


def test_the_models_of_the_catalog_are_known_by_their_families() -> None:
    """At "off" a model of OpenAI is never left to its default, which is to think."""
    thinking = [m for m in known() if m.provider == "openai" and m.reasoning]
    assert all(openai_effort(model.id, "off") for model in thinking)
    efforts = {openai_effort(model.id, level) for model in thinking for level in LEVELS}
    assert efforts <= {*get_args(get_args(ReasoningEffort)[0])}


ordered: tuple[Effort, ...] = ("none", "minimal", "low", "medium", "high", "xhigh")


@given(st.sampled_from(LEVELS), st.sets(st.sampled_from(ordered), min_size=2))
def test_the_nearest_effort_is_taken_and_not_above_the_level_unless_nothing_is_below(
    level: ThinkingLevel, words: set[Effort]
) -> None:
    taken = [effort for effort in ordered if effort in words]
    found = nearest(level, taken)
    assert found in taken
    if level == "off":
        assert found == taken[0]
        return
    assert found != "none"
    assert found == level or level not in words
    thinking = words - {"none"}
    below = {effort for effort in thinking if ordered.index(effort) <= ordered.index(level)}
    assert found in below or not below
