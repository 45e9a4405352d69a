"""What is known of well-known models: windows, output limits, abilities and prices.

A small table of what was certain when it was written. Models come and go faster than it:
the configuration overrides any of its numbers and adds models that it does not know.
Windows and limits are in tokens, prices in US dollars for a million tokens.
Source: spec 4, Models.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Literal

from strandline.runtime.model import ModelInfo, Prices

LOCAL = ModelInfo("local", "smollm2-135m-instruct", "local", 4096, 256, images=False, tools=False)
"""The model that needs no key and no network. It could read 8192 tokens, but reads only 90 to
160 a second on one thread: a full window of 4096 keeps a person waiting for half a minute."""


def _openai(
    name: str,
    window: int,
    output: int,
    prices: tuple[float, float, float],
    *,
    reasoning: bool = False,
    api: Literal["completions", "responses"] = "completions",
) -> ModelInfo:
    """`prices`: input, output, cached input. OpenAI takes nothing for writing to its cache."""
    return ModelInfo(
        "openai", name, f"openai-{api}", window, output, Prices(*prices), reasoning=reasoning
    )


def _gpt5(
    name: str,
    prices: tuple[float, float, float],
    api: Literal["completions", "responses"] = "completions",
) -> ModelInfo:
    """GPT-5 has a window of 400,000, of which a prompt may take 272,000: that overflows."""
    return _openai(name, 272_000, 128_000, prices, reasoning=True, api=api)


def _anthropic(name: str, output: int, prices: tuple[float, float]) -> ModelInfo:
    """`prices`: input, output. Reading the cache costs a tenth of input, writing it 1.25 times."""
    per_input, per_output = prices
    cached, written = round(per_input / 10, 6), round(per_input * 1.25, 6)
    priced = Prices(per_input, per_output, cached, written)
    return ModelInfo(
        "anthropic", name, "anthropic-messages", 200_000, output, priced, reasoning=True
    )


def _gemini(name: str, prices: tuple[float, float]) -> ModelInfo:
    """`prices`: input, output, of prompts up to 200,000 tokens; Pro costs more above that.

    Reading the cache costs a tenth of input, and Google fills it by itself.
    """
    per_input, per_output = prices
    priced = Prices(per_input, per_output, round(per_input / 10, 6))
    return ModelInfo(
        "google", name, "google-generative-ai", 1_048_576, 65_536, priced, reasoning=True
    )


_MODELS: tuple[ModelInfo, ...] = (
    LOCAL,
    _openai("gpt-4o", 128_000, 16_384, (2.5, 10.0, 1.25)),
    _openai("gpt-4o-mini", 128_000, 16_384, (0.15, 0.6, 0.075)),
    _openai("gpt-4.1", 1_047_576, 32_768, (2.0, 8.0, 0.5)),
    _openai("gpt-4.1-mini", 1_047_576, 32_768, (0.4, 1.6, 0.1)),
    _openai("gpt-4.1-nano", 1_047_576, 32_768, (0.1, 0.4, 0.025)),
    _openai("o3", 200_000, 100_000, (2.0, 8.0, 0.5), reasoning=True),
    _openai("o4-mini", 200_000, 100_000, (1.1, 4.4, 0.275), reasoning=True),
    _gpt5("gpt-5", (1.25, 10.0, 0.125)),
    _gpt5("gpt-5-mini", (0.25, 2.0, 0.025)),
    _gpt5("gpt-5-nano", (0.05, 0.4, 0.005)),
    _gpt5("gpt-5.1", (1.25, 10.0, 0.125)),
    _gpt5("gpt-5.1-codex", (1.25, 10.0, 0.125), "responses"),
    _anthropic("claude-opus-4-5", 64_000, (5.0, 25.0)),
    _anthropic("claude-sonnet-4-5", 64_000, (3.0, 15.0)),
    _anthropic("claude-haiku-4-5", 64_000, (1.0, 5.0)),
    _anthropic("claude-opus-4-1", 32_000, (15.0, 75.0)),
    _gemini("gemini-2.5-pro", (1.25, 10.0)),
    _gemini("gemini-2.5-flash", (0.3, 2.5)),
    _gemini("gemini-2.5-flash-lite", (0.1, 0.4)),
    _gemini("gemini-3-pro-preview", (2.0, 12.0)),
    _gemini("gemini-3-flash-preview", (0.5, 3.0)),
    _gemini("gemini-3.1-pro-preview", (2.0, 12.0)),
)
_DATED: Mapping[str, str] = MappingProxyType(
    {
        "claude-opus-4-5-20251101": "claude-opus-4-5",
        "claude-sonnet-4-5-20250929": "claude-sonnet-4-5",
        "claude-haiku-4-5-20251001": "claude-haiku-4-5",
        "claude-opus-4-1-20250805": "claude-opus-4-1",
        "gpt-4o-2024-08-06": "gpt-4o",
        "gpt-4.1-2025-04-14": "gpt-4.1",
        "gpt-5-2025-08-07": "gpt-5",
        "gpt-5-mini-2025-08-07": "gpt-5-mini",
    }
)
"""Ids with a date, and the ids without one that they are."""


def _by_name() -> dict[str, ModelInfo]:
    by_id = {model.id: model for model in _MODELS}
    by_id |= {dated: replace(by_id[plain], id=dated) for dated, plain in _DATED.items()}
    return by_id | {model.ref: model for model in by_id.values()}


_BY_NAME: Mapping[str, ModelInfo] = MappingProxyType(_by_name())


def known() -> tuple[ModelInfo, ...]:
    """All models of the table."""
    return _MODELS


def find(ref: str) -> ModelInfo | None:
    """The model ``provider/model`` or, where only that was said, ``model``; None if unknown.

    >>> find("gpt-4o").ref, find("openai/gpt-4o").context_window, find("acme/one")
    ('openai/gpt-4o', 128000, None)
    """
    return _BY_NAME.get(ref.strip().lower())


def suggest(ref: str) -> list[str]:
    """Up to three known ``provider/model`` whose names are near to `ref`, nearest first.

    >>> suggest("openai/gpt-4o-mimi")[0]
    'openai/gpt-4o-mini'
    """
    near = difflib.get_close_matches(ref.strip().lower(), _BY_NAME, n=6, cutoff=0.6)
    return list(dict.fromkeys(_BY_NAME[name].ref for name in near))[:3]
