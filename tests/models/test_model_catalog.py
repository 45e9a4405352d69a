"""The table of models answers exactly, or says that it does not know."""

from __future__ import annotations

import re
from typing import get_args

import pytest
from anthropic.types import ModelParam as AnthropicModel
from openai.types import ChatModel

from strandline.models.catalog import LOCAL, find, known
from strandline.models.gemini import API as GEMINI_API
from strandline.runtime.model import Prices


def test_models_are_found_with_and_without_their_provider() -> None:
    for model in known():
        assert find(model.ref) is model
        assert find(model.id) is model
        assert find(f" {model.ref.upper()} ") is model
    assert find("local/smollm2-135m-instruct") is LOCAL


def test_the_ids_that_the_sdks_name_are_known_but_for_those_that_are_gone() -> None:
    """Whoever copies an id from a provider's page finds it here."""
    named = [*get_args(get_args(AnthropicModel)[0]), *get_args(ChatModel)]
    missing = {name for name in named if find(name) is None}
    gone = re.compile(
        r"gpt-(3\.5|4-|4$|5[.\d]*-chat|audio|4o.*(audio|search|2024-05)|4\.1-nano|5\.2-pro)"
        r"|gpt-5\.1-(codex|mini)|o1|o3-mini|o4-mini|codex-|chatgpt-|claude-mythos"
    )
    assert {name for name in missing if not gone.match(name)} == set()


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
        assert prices.cache_write in {0, round(prices.input * 1.25, 6)}


def test_abilities_are_told_for_every_model() -> None:
    assert not (LOCAL.reasoning)
    assert not (LOCAL.images)
    assert not (LOCAL.tools)
    others = [model for model in known() if model is not LOCAL]
    assert all(model.images and model.tools for model in others)
    without = {model.id for model in others if not model.reasoning}
    assert without == {"gpt-4o", "gpt-4o-mini", "gpt-4.1", "gpt-4.1-mini"}


def test_every_model_speaks_a_format_of_its_provider() -> None:
    formats = {(model.provider, model.api) for model in known()}
    assert formats == {
        ("local", "local"),
        ("openai", "openai-completions"),
        ("openai", "openai-responses"),
        ("anthropic", "anthropic-messages"),
        ("google", GEMINI_API),
    }


def test_models_that_call_tools_while_they_think_are_asked_by_responses() -> None:
    """From GPT-5.2 on, Chat Completions refuses tools together with reasoning."""
    by_chat = {m.id for m in known() if m.api == "openai-completions" and m.reasoning}
    assert by_chat == {"gpt-5.1", "gpt-5", "gpt-5-mini", "gpt-5-nano", "o3"}


@pytest.mark.parametrize(
    ("ref", "numbers", "prices"),
    [
        ("openai/gpt-6.2-sol", (922_000, 128_000), (2, 10, 0.1, 2.5)),
        ("gpt-5.6", (922_000, 128_000), (4, 20, 0.4, 5)),
        ("gpt-5.4-mini-2026-03-17", (272_000, 128_000), (0.75, 4.5, 0.075, 0)),
        ("gpt-5", (272_000, 128_000), (1.25, 10, 0.125, 0)),
        ("claude-fable-5-2", (1_000_000, 128_000), (8, 40, 0.2, 10, 16)),
        ("claude-opus-5-5", (1_000_000, 128_000), (4, 20, 0.2, 5, 8)),
        ("claude-haiku-5-5", (1_000_000, 128_000), (0.1, 0.5, 0.01, 0.125, 0.2)),
        ("claude-haiku-4-5-20251001", (200_000, 64_000), (1, 5, 0.1, 1.25, 2)),
        ("google/gemini-4-neon", (1_048_576, 65_536), (3, 15, 0.15, 0)),
        ("gemini-2.5-pro", (1_048_576, 65_536), (1.25, 10, 0.125, 0)),
    ],
)
def test_what_a_prompt_may_take_is_the_window(
    ref: str, numbers: tuple[int, int], prices: tuple[float, ...]
) -> None:
    """Faults H12: GPT-5 overflows at 272,000, whatever its window is called."""
    model = find(ref)
    assert model is not None
    assert (model.context_window, model.max_output_tokens) == numbers
    assert model.prices == Prices(*prices)
