"""How hard a model is asked to think, in the words that it takes: OpenAI's reasoning efforts.

Every family takes others, and refuses the rest. OpenAI's models think when nothing is said
(medium, for most), so "off" is said too: "none", or the least where a model cannot be kept
from thinking. Models of other servers are asked in the three words that all of them know,
and are told nothing at "off". Sources: OpenAI's pages of the models; spec 4, Models.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from strandline.transcript.messages import ThinkingLevel

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh"]

_ORDER: tuple[Effort, ...] = ("none", "minimal", "low", "medium", "high", "xhigh")
_PLAIN: tuple[Effort, ...] = ("low", "medium", "high")

# The first pattern that is found in the id counts; ids may have a provider before them and a
# date after them.
_OPENAI: tuple[tuple[re.Pattern[str], tuple[Effort, ...]], ...] = tuple(
    (re.compile(pattern), efforts)
    for pattern, efforts in (
        (r"(?:^|[/.])o[1-9](?:-|$)", _PLAIN),
        (r"gpt-5(?![.\d])", ("minimal", *_PLAIN)),
        (r"gpt-5\.1(?!\d)", ("none", *_PLAIN)),
        (r"gpt-5\.\d", ("none", *_PLAIN, "xhigh")),
        (r"gpt-6-(?:sol|luna)|gpt-6\.1-terra", ("none", *_PLAIN, "xhigh")),
        # The others of the sixth generation refuse "none". So may those to come.
        (r"gpt-(?:[6-9]|1\d)(?!\d)", (*_PLAIN, "xhigh")),
    )
)


def openai_effort(model_id: str, level: ThinkingLevel) -> Effort | None:
    """The effort to ask for; None to say nothing.

    >>> openai_effort("gpt-5.6-sol", "off"), openai_effort("gpt-5", "off")
    ('none', 'minimal')
    >>> openai_effort("acme-thinker", "xhigh"), openai_effort("acme-thinker", "off")
    ('high', None)
    """
    name = model_id.lower()
    taken = next((efforts for pattern, efforts in _OPENAI if pattern.search(name)), None)
    if taken is None:
        return None if level == "off" else nearest(level, _PLAIN)
    return nearest(level, taken)


def nearest(level: ThinkingLevel, taken: Sequence[Effort]) -> Effort:
    """The most of `taken` (the least first) that is not above `level`, else the least.

    Who asked for a little thinking does not get none.
    """
    if level == "off":
        return taken[0]
    thinking = [effort for effort in taken if effort != "none"]
    below = [effort for effort in thinking if _ORDER.index(effort) <= _ORDER.index(level)]
    return below[-1] if below else thinking[0]
