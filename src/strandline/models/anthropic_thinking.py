"""How each Claude is asked to think, by its id.

Claude 4.6 and later decide for themselves when to think, and are told how much work to put
into an answer ("adaptive"); from 4.7 on they refuse a budget. Older ones know budgets only,
as do most servers that merely speak alike: whatever is not called Claude gets a budget.
A Claude that is not known here is taken for a newer one.

Sources: Anthropic's pages Thinking, Effort, and Troubleshooting thinking; spec 4, Models.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from strandline.models.efforts import Effort, nearest
from strandline.transcript.messages import JsonObject, ThinkingLevel

_Model = tuple[str, int, int]  # family, and the two numbers of its version

# The number of a version has one or two digits, a date has eight.
_NAMED = re.compile(
    r"(opus|sonnet|haiku|fable|mythos)[-_@]?(\d{1,2})(?:[-._](\d{1,2}))?(?!\d)", re.IGNORECASE
)
_UNNUMBERED = re.compile(r"claude|opus|sonnet|haiku|fable|mythos", re.IGNORECASE)
_BEFORE_4 = re.compile(r"claude-(?:instant-|v)?[123](?!\d)", re.IGNORECASE)

_FIRST_ADAPTIVE = (4, 6)

_EFFORTS: tuple[Effort, ...] = ("low", "medium", "high", "xhigh")

# What "off" is for the models that are no exception: many of them always think, and Opus 5
# without thinking writes its tool calls into its text. Little effort is what Anthropic advises.
_LEAST: JsonObject = {"output_config": {"effort": "low"}}
_OFF: Mapping[_Model, JsonObject] = {
    ("opus", 4, 6): {},
    ("sonnet", 4, 6): {},
    ("opus", 4, 7): {},
    ("opus", 4, 8): {},
    ("sonnet", 5, 0): {"thinking": {"type": "disabled"}},
    ("sonnet", 5, 5): {"thinking": {"type": "between_tools"}},
    ("haiku", 5, 5): {"thinking": {"type": "disabled"}},
}


def is_adaptive(model_id: str) -> bool:
    """Whether the model decides when it thinks; else it wants a budget.

    >>> is_adaptive("us.anthropic.claude-opus-4-6-v1"), is_adaptive("claude-sonnet-4-20250514")
    (True, False)
    """
    model = _model(model_id)
    if model is not None:
        return model[1:] >= _FIRST_ADAPTIVE
    return bool(_UNNUMBERED.search(model_id)) and not _BEFORE_4.search(model_id)


def adaptive_thinking(model_id: str, level: ThinkingLevel) -> JsonObject:
    """What the body of a request to an adaptive model holds for `level`.

    Its summary is asked for, because the newer ones leave the text of their thinking out.
    """
    model = _model(model_id)
    if level == "off":
        return _LEAST if model is None else _OFF.get(model, _LEAST)
    without_xhigh = model is None or model[1:] == _FIRST_ADAPTIVE
    taken = _EFFORTS[:-1] if without_xhigh else _EFFORTS
    return {
        "thinking": {"type": "adaptive", "display": "summarized"},
        "output_config": {"effort": nearest(level, taken)},
    }


def _model(model_id: str) -> _Model | None:
    named = _NAMED.search(model_id)
    return (named[1].lower(), int(named[2]), int(named[3] or 0)) if named else None
