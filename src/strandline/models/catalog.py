"""What is known of well-known models: windows, output limits, abilities and prices.

A small table of what the providers said in November 2026. Models come and go faster than it:
the configuration overrides any of its numbers and adds models that it does not know.
Windows are what a prompt may take, where the provider separates that from the answer, and
limits what one answer may; both are in tokens. Prices are US dollars for a million tokens,
those of shorter prompts where a provider asks more for longer ones. Source: spec 4, Models.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Literal

from strandline.runtime.model import ModelInfo, Prices

LOCAL = ModelInfo("local", "smollm2-135m-instruct", "local", 4096, 256, images=False, tools=False)
"""The model that needs no key and no network. It could read 8192 tokens, but reads only 90 to
160 a second on one thread: a full window of 4096 keeps a person waiting for half a minute."""


_Api = Literal["completions", "responses"]
_Three = tuple[float, float, float]
_Four = tuple[float, float, float, float]


def _openai(
    name: str, window: int, output: int, prices: _Three | _Four, api: _Api, *, reasoning: bool
) -> ModelInfo:
    """`prices`: input, output, cached input, and writing to the cache where it is not free.

    From GPT-5.2 on, Chat Completions takes no tools from who asks for reasoning: those models
    are asked by Responses, where they also get back what they thought between two calls.
    """
    return ModelInfo(
        "openai", name, f"openai-{api}", window, output, Prices(*prices), reasoning=reasoning
    )


def _gpt4(name: str, prices: _Three, window: int = 128_000, output: int = 16_384) -> ModelInfo:
    return _openai(name, window, output, prices, "completions", reasoning=False)


def _gpt5(name: str, prices: _Three, api: _Api = "responses") -> ModelInfo:
    """A window of 400,000, of which a prompt may take 272,000: that overflows."""
    return _openai(name, 272_000, 128_000, prices, api, reasoning=True)


def _gpt_1m(name: str, prices: _Three | _Four) -> ModelInfo:
    """A window of 1,050,000, of which a prompt may take 922,000; dearer above 272,000."""
    return _openai(name, 922_000, 128_000, prices, "responses", reasoning=True)


def _claude(name: str, prices: _Three, window: int = 1_000_000, output: int = 128_000) -> ModelInfo:
    """`prices`: input, output, cached input. Writing to the cache costs 1.25 times the input,
    and twice the input where it is to stay for an hour.

    Only Haiku 5.5 asks more for longer prompts: five times as much above 100,000.
    """
    per_input, per_output, cached = prices
    written, for_an_hour = round(per_input * 1.25, 6), round(per_input * 2, 6)
    priced = Prices(per_input, per_output, cached, written, for_an_hour)
    return ModelInfo(
        "anthropic", name, "anthropic-messages", window, output, priced, reasoning=True
    )


def _gemini(name: str, prices: _Three) -> ModelInfo:
    """`prices`: input, output, cached input; Google fills the cache by itself.

    Those of the Pro models are for prompts up to 200,000; those of 3.8 Flash double when 2026
    is over. The fourth generation shares one window between prompt and answer.
    """
    return ModelInfo(
        "google", name, "google-generative-ai", 1_048_576, 65_536, Prices(*prices), reasoning=True
    )


_MODELS: tuple[ModelInfo, ...] = (
    LOCAL,
    _gpt_1m("gpt-6.2-astra", (8.0, 40.0, 0.4, 10.0)),
    _gpt_1m("gpt-6.2-sol", (2.0, 10.0, 0.1, 2.5)),
    _gpt_1m("gpt-6.1-sol", (2.0, 10.0, 0.1, 2.5)),
    _gpt_1m("gpt-6.1-terra", (1.0, 5.0, 0.05, 1.25)),
    _gpt_1m("gpt-6-astra", (10.0, 50.0, 1.0, 12.5)),
    _gpt_1m("gpt-6-sol", (2.0, 10.0, 0.2, 2.5)),
    _gpt_1m("gpt-6-luna", (0.1, 0.5, 0.01, 0.125)),
    _gpt_1m("gpt-5.6-sol", (4.0, 20.0, 0.4, 5.0)),
    _gpt_1m("gpt-5.6-terra", (2.0, 12.0, 0.2, 2.5)),
    _gpt_1m("gpt-5.6-luna", (0.2, 1.2, 0.02, 0.25)),
    _gpt_1m("gpt-5.5", (5.0, 30.0, 0.5)),
    _gpt_1m("gpt-5.4", (2.5, 15.0, 0.25)),
    _gpt5("gpt-5.4-mini", (0.75, 4.5, 0.075)),
    _gpt5("gpt-5.4-nano", (0.2, 1.25, 0.02)),
    _gpt5("gpt-5.2", (1.75, 14.0, 0.175)),
    _gpt5("gpt-5.1", (1.25, 10.0, 0.125), "completions"),
    # OpenAI turns these off in December 2026 and January 2027.
    _gpt5("gpt-5", (1.25, 10.0, 0.125), "completions"),
    _gpt5("gpt-5-mini", (0.25, 2.0, 0.025), "completions"),
    _gpt5("gpt-5-nano", (0.05, 0.4, 0.005), "completions"),
    _openai("o3", 200_000, 100_000, (2.0, 8.0, 0.5), "completions", reasoning=True),
    _gpt4("gpt-4.1", (2.0, 8.0, 0.5), 1_047_576, 32_768),
    _gpt4("gpt-4.1-mini", (0.4, 1.6, 0.1), 1_047_576, 32_768),
    _gpt4("gpt-4o", (2.5, 10.0, 1.25)),
    _gpt4("gpt-4o-mini", (0.15, 0.6, 0.075)),
    _claude("claude-fable-5-2", (8.0, 40.0, 0.2)),
    _claude("claude-fable-5-1", (10.0, 50.0, 0.25)),
    _claude("claude-fable-5", (10.0, 50.0, 1.0)),
    _claude("claude-opus-5-5", (4.0, 20.0, 0.2)),
    _claude("claude-opus-5", (5.0, 25.0, 0.5)),
    _claude("claude-opus-4-8", (5.0, 25.0, 0.5)),
    _claude("claude-opus-4-7", (5.0, 25.0, 0.5)),
    _claude("claude-opus-4-6", (5.0, 25.0, 0.5)),
    _claude("claude-opus-4-5", (5.0, 25.0, 0.5), 200_000, 64_000),
    _claude("claude-sonnet-5-5", (2.0, 10.0, 0.2)),
    _claude("claude-sonnet-5", (2.0, 10.0, 0.2)),
    _claude("claude-sonnet-4-6", (3.0, 15.0, 0.3)),
    # Anthropic turns it off at the end of November 2026; others serve it on.
    _claude("claude-sonnet-4-5", (3.0, 15.0, 0.3), 200_000, 64_000),
    _claude("claude-haiku-5-5", (0.1, 0.5, 0.01)),
    _claude("claude-haiku-4-5", (1.0, 5.0, 0.1), 200_000, 64_000),
    # The prices of these two are those from December 2026 on.
    _gemini("gemini-4-carbon", (4.0, 20.0, 0.2)),
    _gemini("gemini-4-argon", (4.0, 20.0, 0.2)),
    _gemini("gemini-4-neon", (3.0, 15.0, 0.15)),
    _gemini("gemini-4-hydrogen", (1.5, 7.5, 0.075)),
    _gemini("gemini-3.8-flash", (0.75, 3.75, 0.075)),
    _gemini("gemini-3.5-flash-lite", (0.3, 2.5, 0.03)),
    _gemini("gemini-3.1-pro-preview", (2.0, 12.0, 0.2)),
    _gemini("gemini-3.1-flash-lite", (0.25, 1.5, 0.025)),
    # Google answers for the first two with other models from December 2026 on.
    _gemini("gemini-2.5-pro", (1.25, 10.0, 0.125)),
    _gemini("gemini-2.5-flash", (0.3, 2.5, 0.03)),
    _gemini("gemini-2.5-flash-lite", (0.1, 0.4, 0.01)),
)
_OTHER_IDS: Mapping[str, str] = MappingProxyType(
    {
        "claude-opus-4-5-20251101": "claude-opus-4-5",
        "claude-sonnet-4-5-20250929": "claude-sonnet-4-5",
        "claude-haiku-4-5-20251001": "claude-haiku-4-5",
        "gpt-5.6": "gpt-5.6-sol",
        "gpt-5.5-2026-04-23": "gpt-5.5",
        "gpt-5.4-2026-03-05": "gpt-5.4",
        "gpt-5.4-mini-2026-03-17": "gpt-5.4-mini",
        "gpt-5.4-nano-2026-03-17": "gpt-5.4-nano",
        "gpt-5.2-2025-12-11": "gpt-5.2",
        "gpt-5.1-2025-11-13": "gpt-5.1",
        "gpt-5-2025-08-07": "gpt-5",
        "gpt-5-mini-2025-08-07": "gpt-5-mini",
        "gpt-5-nano-2025-08-07": "gpt-5-nano",
        "o3-2025-04-16": "o3",
        "gpt-4.1-2025-04-14": "gpt-4.1",
        "gpt-4.1-mini-2025-04-14": "gpt-4.1-mini",
        "gpt-4o-2024-11-20": "gpt-4o",
        "gpt-4o-2024-08-06": "gpt-4o",
        "gpt-4o-mini-2024-07-18": "gpt-4o-mini",
    }
)
"""Other ids of the same models: those with a date, and shorter ones."""


def _by_name() -> dict[str, ModelInfo]:
    by_id = {model.id: model for model in _MODELS}
    by_id |= {other: replace(by_id[plain], id=other) for other, plain in _OTHER_IDS.items()}
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
