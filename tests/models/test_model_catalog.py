"""The table of models answers exactly, or says that it does not know."""

from __future__ import annotations

import pytest

from strandline.models.catalog import LOCAL, find, known, suggest


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
