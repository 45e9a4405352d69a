"""The table of models answers exactly, or says that it does not know."""

from __future__ import annotations

import pytest

from strandline.models.catalog import LOCAL, find, known, suggest
from strandline.models.gemini import API as GEMINI_API


def test_models_are_found_with_and_without_their_provider() -> None:
    for model in known():
        assert find(model.ref) is model
        assert find(model.id) is model
        assert find(f" {model.ref.upper()} ") is model
    assert find("local/smollm2-135m-instruct") is LOCAL


def test_an_id_with_a_date_is_the_model_that_it_names() -> None:
    model = find("anthropic/claude-sonnet-4-5-20250929")
    assert model is not None
    assert model.id == "claude-sonnet-4-5-20250929"
    assert model.context_window == 200_000


@pytest.mark.parametrize(
    "ref", ["", "/", "acme/one", "openai/", "gpt-4o-2024-05-13", "local/gpt-4o"]
)
def test_what_is_unknown_is_none(ref: str) -> None:
    assert find(ref) is None


def test_names_are_unique_and_numbers_sensible() -> None:
    assert len({m.ref for m in known()}) == len({m.id for m in known()}) == len(known())
    for model in known():
        assert 0 < model.max_output_tokens < model.context_window
        prices = model.prices
        assert 0 <= prices.cache_read <= prices.input <= prices.output


def test_near_names_are_suggested() -> None:
    assert suggest("openai/gpt4o")[0] == "openai/gpt-4o"
    assert "anthropic/claude-opus-4-5" in suggest("claude-opus-4.5")
    assert suggest("zzzz") == []


def test_abilities_are_told_for_every_model() -> None:
    assert not (LOCAL.reasoning)
    assert not (LOCAL.images)
    assert not (LOCAL.tools)
    others = [model for model in known() if model is not LOCAL]
    assert all(model.images and model.tools for model in others)
    without = {model.id for model in others if not model.reasoning}
    assert without == {"gpt-4o", "gpt-4o-mini", "gpt-4.1", "gpt-4.1-mini", "gpt-4.1-nano"}


def test_every_model_speaks_a_format_of_its_provider() -> None:
    formats = {(model.provider, model.api) for model in known()}
    assert formats == {
        ("local", "local"),
        ("openai", "openai-completions"),
        ("openai", "openai-responses"),
        ("anthropic", "anthropic-messages"),
        ("google", GEMINI_API),
    }


def test_what_a_prompt_may_take_is_the_window() -> None:
    """Faults H12: GPT-5 overflows at 272,000, whatever its window is called."""
    model, gemini = find("gpt-5"), find("google/gemini-2.5-pro")
    assert model is not None
    assert model.context_window == 272_000
    assert gemini is not None
    assert (gemini.context_window, gemini.max_output_tokens) == (1_048_576, 65_536)
    assert gemini.prices.cache_read == 0.125
