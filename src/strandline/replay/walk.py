"""Replaying a recorded conversation under policies, and what each would have cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from strandline.context.budget import resolve_budget
from strandline.context.clean_path import Clean, CleanPath
from strandline.context.tokens import MessageTokens
from strandline.replay.caches import CacheModel, Use
from strandline.replay.contexts import Context, Contexts
from strandline.replay.outcome import Cost, Outcome, Step, Summaries, outcome_of
from strandline.replay.policies import Policy
from strandline.replay.pricing import TOKENS_PRICED, Rates
from strandline.replay.prompts import Prompts
from strandline.replay.recording import Call, Recording


@dataclass(frozen=True, slots=True)
class Scene:
    """What is the same for all policies: the window and the fixed part in tokens, the prices,
    and the cache that a policy's replay begins with.
    """

    window: int
    system_tokens: int
    rates: Rates
    new_cache: Callable[[Policy], CacheModel]


class Replays:
    """Replays one recording under any number of policies; each message is counted once."""

    def __init__(self, recording: Recording, scene: Scene, tokens: MessageTokens) -> None:
        self._recording = recording
        self._scene = scene
        self._tokens = tokens
        self._clean = CleanPath(tokens).follow(recording.items, scene.window)

    def under(self, policy: Policy) -> Outcome:
        """What the recording's calls would have cost.

        Raises `ContextOverflow` where a call cannot fit the window.
        """
        budget = resolve_budget(
            self._scene.window,
            policy.compaction,
            reserved_output=policy.rules.reserved_output_tokens,
            system_tokens=self._scene.system_tokens,
            max_tokens=policy.rules.max_tokens,
        )
        contexts = Contexts(self._recording, policy, budget, self._tokens)
        walk = _Walk(self._recording.calls, self._clean, contexts, policy, self._scene)
        return outcome_of(list(walk.steps()))


class _Walk:
    """The calls of one recording under one policy; `clean` is its whole path."""

    def __init__(
        self,
        calls: Sequence[Call],
        clean: Clean,
        contexts: Contexts,
        policy: Policy,
        scene: Scene,
    ) -> None:
        self._calls, self._clean, self._scene, self._policy = calls, clean, scene, policy
        self._contexts = contexts
        self._prompts = Prompts(scene.system_tokens)
        self._cache = scene.new_cache(policy)
        self._warm_until_ms = -math.inf

    def steps(self) -> Iterator[Step]:
        """What each call comes to. An answer that never said anything was no call."""
        clean = self._clean
        said_to = [0, *accumulate(said.entry_id is not None for said in clean.messages)]
        for call in self._calls:
            place = clean.place_of.get(call.entry_id)
            if place is not None:
                answer = call.output_tokens or clean.messages[place].tokens
                yield self._step(call, said_to[place], answer)

    def _step(self, call: Call, said: int, answer_tokens: int) -> Step:
        context = self._contexts.at(call)
        prompt = self._prompts.of(context.view.messages)
        use = self._cache.use(prompt, call.at_ms)
        was_warm = call.at_ms <= self._warm_until_ms
        self._warm_until_ms = call.at_ms + self._cache.lifetime_ms
        return Step(
            use=use,
            output_tokens=answer_tokens,
            cost=self._cost(context, use, answer_tokens),
            compactions=context.compactions,
            layer_summaries=context.layer_summaries,
            cut_moved=not prompt.extends,
            was_warm=was_warm,
            said=said,
            left_out=said - self._seen(context),
        )

    def _seen(self, context: Context) -> int:
        """How many messages of the recording are in the context as messages."""
        known = self._clean.place_of
        return sum(said.entry_id in known for said in context.view.messages)

    def _cost(self, context: Context, use: Use, answer_tokens: int) -> Cost:
        rates, layer = self._scene.rates, self._policy.summary_prices
        summaries = _price(context.compactions, rates.fresh, rates.output)
        if layer is not None:
            summaries += _price(context.layer_summaries, layer.input, layer.output)
        return Cost(rates.input_cost(use), rates.output_cost(answer_tokens), summaries)


def _price(made: Summaries, price_input: float, price_output: float) -> float:
    return (made.input_tokens * price_input + made.output_tokens * price_output) / TOKENS_PRICED
