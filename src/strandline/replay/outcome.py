"""What a conversation would have cost under a policy, and how much of it the model saw.

Tokens are ours, as a `TokenCounter` counts them; dollars are US dollars.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from strandline.replay.caches import Use


@dataclass(frozen=True, slots=True)
class Cost:
    """Dollars: of the calls' input and output, and of all summaries that were made."""

    input: float = 0.0
    output: float = 0.0
    summaries: float = 0.0

    @property
    def total(self) -> float:
        """All of it."""
        return self.input + self.output + self.summaries

    def plus(self, other: Cost) -> Cost:
        """Both together."""
        return Cost(
            self.input + other.input, self.output + other.output, self.summaries + other.summaries
        )


@dataclass(frozen=True, slots=True)
class Summaries:
    """The summaries of one kind: how many, and the tokens that they read and wrote."""

    made: int = 0
    input_tokens: int = 0
    output_tokens: int = 0

    def plus(self, other: Summaries) -> Summaries:
        """Both together."""
        return Summaries(
            self.made + other.made,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
        )


NO_SUMMARIES = Summaries()


@dataclass(frozen=True, slots=True)
class Step:
    """One call. `cut_moved`: its request does not begin with all of the one before, because
    something of that was left out, shortened or summarised; `was_warm`: the provider still knew
    that one. Of `said` messages before the call, `left_out` are not in its context as messages.
    """

    use: Use
    output_tokens: int
    cost: Cost
    compactions: Summaries
    layer_summaries: Summaries
    cut_moved: bool
    was_warm: bool
    said: int
    left_out: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """A replay of one conversation under one policy, or of several added up.

    `contexts` are the input tokens of each call, `cuts_moved` counts the calls whose cut moved,
    `cuts_moved_warm` those of them for which the provider still knew the call before. Of `said`
    messages before the last call, `left_out` were not in its context as messages;
    `absent` is that share of each call, added up.
    """

    contexts: tuple[int, ...]
    use: Use
    output_tokens: int
    cost: Cost
    compactions: Summaries
    layer_summaries: Summaries
    cuts_moved: int
    cuts_moved_warm: int
    said: int
    left_out: int
    absent: float

    @property
    def calls(self) -> int:
        """How many calls were made."""
        return len(self.contexts)

    @property
    def largest_context(self) -> int:
        """The input of the largest call."""
        return max(self.contexts, default=0)

    @property
    def cached_share(self) -> float:
        """How much of the input was read from the cache, 0 to 1."""
        return self.use.read / self.use.tokens if self.use.tokens else 0.0

    @property
    def left_out_share(self) -> float:
        """How much of what had been said a call did not see as messages, 0 to 1, on average."""
        return self.absent / self.calls if self.calls else 0.0


def outcome_of(steps: Sequence[Step]) -> Outcome:
    """The outcome of one conversation's calls."""
    last = steps[-1] if steps else None
    return Outcome(
        contexts=tuple(step.use.tokens for step in steps),
        use=reduce(Use.plus, (step.use for step in steps), Use()),
        output_tokens=sum(step.output_tokens for step in steps),
        cost=reduce(Cost.plus, (step.cost for step in steps), Cost()),
        compactions=reduce(Summaries.plus, (step.compactions for step in steps), NO_SUMMARIES),
        layer_summaries=reduce(
            Summaries.plus, (step.layer_summaries for step in steps), Summaries()
        ),
        cuts_moved=sum(step.cut_moved for step in steps),
        cuts_moved_warm=sum(step.cut_moved and step.was_warm for step in steps),
        said=last.said if last else 0,
        left_out=last.left_out if last else 0,
        absent=sum(step.left_out / step.said for step in steps if step.said),
    )


def added_up(outcomes: Sequence[Outcome]) -> Outcome:
    """Several conversations as one; the largest context is the largest of any."""
    return Outcome(
        contexts=tuple(size for each in outcomes for size in each.contexts),
        use=reduce(Use.plus, (each.use for each in outcomes), Use()),
        output_tokens=sum(each.output_tokens for each in outcomes),
        cost=reduce(Cost.plus, (each.cost for each in outcomes), Cost()),
        compactions=reduce(Summaries.plus, (each.compactions for each in outcomes), NO_SUMMARIES),
        layer_summaries=reduce(
            Summaries.plus, (each.layer_summaries for each in outcomes), Summaries()
        ),
        cuts_moved=sum(each.cuts_moved for each in outcomes),
        cuts_moved_warm=sum(each.cuts_moved_warm for each in outcomes),
        said=sum(each.said for each in outcomes),
        left_out=sum(each.left_out for each in outcomes),
        absent=sum(each.absent for each in outcomes),
    )
