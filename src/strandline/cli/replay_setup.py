"""What a replay is made with: policies, prices, a window, a cache, from what was asked for."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from strandline.cli.notices import warn
from strandline.context.budget import resolve_budget
from strandline.errors import ConfigError, ContextOverflow
from strandline.replay.policies import EXAMPLES, POLICY_NAMES, Policy, named
from strandline.replay.pricing import CacheName, cache_of, lifetime_of, new_cache, rates
from strandline.replay.recording import Recording
from strandline.replay.walk import Scene
from strandline.runtime.model import ModelInfo, Prices

if TYPE_CHECKING:
    from strandline.wiring.state import State

DEFAULT_MODEL = "anthropic/claude-sonnet-5-5"


@dataclass(frozen=True, slots=True)
class Question:
    """What was asked for; None is what was left to us."""

    policies: Sequence[str]
    rules: str
    agent_id: str
    chat_type: str
    model_ref: str | None
    window: int | None
    price_input: float | None
    price_output: float | None
    cache: CacheName | None
    cache_lifetime_ms: int | None
    system_tokens: int


@dataclass(frozen=True, slots=True)
class Setup:
    """With what every file is replayed. `rules` names those of the named policies."""

    model: ModelInfo
    cache: CacheName
    cache_lifetime_ms: int
    rules: str
    policies: Sequence[Policy]
    scene: Scene


def prepared(question: Question, recordings: Sequence[Recording], state: State) -> Setup:
    """The setup. Raises `ConfigError` for what cannot be replayed with."""
    if not any(recording.calls for recording in recordings):
        raise ConfigError(
            "no model answered in what was given, so there is no call to replay",
            remedy="give transcripts in which a model has answered",
        )
    model = _model(question, recordings, state)
    cache = question.cache or cache_of(model)
    lifetime_ms = lifetime_of(cache)
    if question.cache_lifetime_ms is not None and cache != "none":
        lifetime_ms = question.cache_lifetime_ms
    scene = Scene(
        model.context_window,
        question.system_tokens,
        rates(cache, _prices_for(cache, model)),
        lambda policy: new_cache(cache, lifetime_ms, policy.cacheable_count),
    )
    policies = list(_policies(question, lifetime_ms, state))
    for policy in policies:
        _check_room(policy, scene)
    return Setup(model, cache, lifetime_ms, question.rules, policies, scene)


def _prices_for(cache: CacheName, model: ModelInfo) -> Prices:
    """The model's prices; those of its own cache say nothing of another provider's."""
    if cache.startswith(cache_of(model)):
        return model.prices
    return Prices(model.prices.input, model.prices.output)


def _model(question: Question, recordings: Sequence[Recording], state: State) -> ModelInfo:
    """The model with the window and the prices that hold."""
    model = _asked_or_spoken(question.model_ref, recordings, state)
    if question.window is not None:
        model = replace(model, context_window=question.window)
    given = question.price_input, question.price_output
    if given != (None, None):
        # What the cache costs follows from the price of the input again.
        by_input = Prices() if question.price_input is not None else model.prices
        prices = replace(
            by_input,
            input=model.prices.input if given[0] is None else given[0],
            output=model.prices.output if given[1] is None else given[1],
        )
        model = replace(model, prices=prices)
    return model


def _asked_or_spoken(ref: str | None, recordings: Sequence[Recording], state: State) -> ModelInfo:
    from strandline.wiring.replaying import priced_model  # noqa: PLC0415 - heavy

    if ref is not None:
        model = priced_model(state.providers, ref)
        if model is None:
            raise ConfigError(
                f"nothing is known of the model {ref!r}",
                remedy="name one of the catalog or of models.providers, or give --window, "
                "--price-input and --price-output without it",
            )
        return model
    counted = Counter(call.model for each in recordings for call in each.calls if call.model)
    for spoken, _ in counted.most_common(1):
        model = priced_model(state.providers, spoken)
        if model is not None:
            return model
    usual = priced_model(state.providers, DEFAULT_MODEL)
    if usual is None:
        raise ConfigError(f"nothing is known of {DEFAULT_MODEL}", remedy="give --model")
    return usual


# -- policies ------------------------------------------------------------------------------


def _policies(question: Question, lifetime_ms: int, state: State) -> Iterator[Policy]:
    """Those that were asked for, each once, for a cache that lives so long."""
    rules = _rules(question, state)
    for name in dict.fromkeys(question.policies or POLICY_NAMES):
        known = next((each for each in POLICY_NAMES if each == name), None)
        policy = named(known, rules, lifetime_ms) if known else _of_file(name, question, state)
        yield replace(policy, rules=replace(policy.rules, cache_lifetime_ms=lifetime_ms))


def _rules(question: Question, state: State) -> Policy:
    if question.rules in EXAMPLES:
        return Policy(question.rules, EXAMPLES[question.rules])
    return _of_file(question.rules, question, state, tuple(EXAMPLES))


def _of_file(
    name: str, question: Question, state: State, names: Sequence[str] = POLICY_NAMES
) -> Policy:
    from strandline.wiring.replaying import policy_in  # noqa: PLC0415 - heavy

    path = Path(name)
    if not path.is_file():
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean {near[0]!r}, or a file" if near else f"{', '.join(names)}, or a file"
        raise ConfigError(f"there is no policy and no settings file {name!r}", remedy=hint)
    policy, warnings = policy_in(
        path,
        state.environ,
        state.providers,
        agent_id=question.agent_id,
        chat_type=question.chat_type,
    )
    for warning in warnings:
        warn(warning)
    return policy


def _check_room(policy: Policy, scene: Scene) -> None:
    """Raises `ConfigError` where the window has no room for messages."""
    try:
        resolve_budget(
            scene.window,
            policy.compaction,
            reserved_output=policy.rules.reserved_output_tokens,
            system_tokens=scene.system_tokens,
            max_tokens=policy.rules.max_tokens,
        )
    except ContextOverflow as error:
        raise ConfigError(error.what, remedy="give a larger --window") from error
