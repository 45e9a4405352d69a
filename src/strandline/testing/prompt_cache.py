"""What a provider's prompt cache knows, so that a scripted server's counters are earned."""

from __future__ import annotations

import bisect


class PromptCache:
    """Which beginning of a prompt was sent before, model by model.

    OpenAI's rule: a beginning counts from 1024 tokens, in steps of 128.
    """

    def __init__(self) -> None:
        self._prompts: dict[str, list[str]] = {}

    def common_prefix(self, model: str, prompt: str) -> str:
        """The longest beginning that `prompt` shares with any remembered prompt."""
        known = self._prompts.get(model, [])
        place = bisect.bisect_left(known, prompt)
        # In sorted order, nothing has more in common with a text than one of its neighbours.
        lengths = [_common_length(prompt, other) for other in known[max(place - 1, 0) : place + 1]]
        return prompt[: max(lengths, default=0)]

    def remember(self, model: str, prompt: str) -> None:
        """Keep it for as long as the server runs."""
        known = self._prompts.setdefault(model, [])
        place = bisect.bisect_left(known, prompt)
        if known[place : place + 1] != [prompt]:
            known.insert(place, prompt)

    @staticmethod
    def credited(tokens: int) -> int:
        """How many of `tokens` known tokens a provider takes from its cache."""
        return tokens // 128 * 128 if tokens >= 1024 else 0


def _common_length(one: str, other: str) -> int:
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
