"""What each Claude refuses of thinking and effort, in Anthropic's words.

The table is the one of the page Troubleshooting thinking, with the efforts of the page
Effort. A model that is not in it refuses nothing here. Source: cases/faults, K.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from strandline.transcript.messages import JsonObject


class _Claude(NamedTuple):
    """`off` has the kinds that mean no thinking; of those `late` refuses much effort."""

    thinks: frozenset[str]
    off: frozenset[str]
    efforts: tuple[str, ...]
    late: bool = True


_ADAPTIVE, _ENABLED = frozenset({"adaptive"}), frozenset({"enabled"})
_DISABLED = frozenset({"disabled"})
_ALL = ("high", "low", "max", "medium", "xhigh")
_FOUR = ("high", "low", "max", "medium")
_THREE = ("high", "low", "medium")

_ALWAYS = _Claude(_ADAPTIVE, frozenset(), _ALL)
_CLAUDES: Mapping[str, _Claude] = {
    "claude-fable-5-2": _ALWAYS,
    "claude-fable-5-1": _ALWAYS,
    "claude-fable-5": _ALWAYS,
    "claude-opus-5-5": _ALWAYS,
    "claude-opus-5": _Claude(_ADAPTIVE, _DISABLED, _ALL),
    "claude-sonnet-5-5": _Claude(_ADAPTIVE, frozenset({"between_tools"}), _ALL),
    "claude-sonnet-5": _Claude(_ADAPTIVE, _DISABLED, _ALL, late=False),
    "claude-haiku-5-5": _Claude(_ADAPTIVE, _DISABLED, _ALL),
    "claude-opus-4-8": _Claude(_ADAPTIVE, _DISABLED, _ALL, late=False),
    "claude-opus-4-7": _Claude(_ADAPTIVE, _DISABLED, _ALL, late=False),
    "claude-opus-4-6": _Claude(_ADAPTIVE | _ENABLED, _DISABLED, _FOUR, late=False),
    "claude-sonnet-4-6": _Claude(_ADAPTIVE | _ENABLED, _DISABLED, _FOUR, late=False),
    "claude-opus-4-5": _Claude(_ENABLED, _DISABLED, _THREE, late=False),
    "claude-sonnet-4-5": _Claude(_ENABLED, _DISABLED, (), late=False),
    "claude-haiku-4-5": _Claude(_ENABLED, _DISABLED, (), late=False),
}


def problems_of_the_model(body: JsonObject, last_role: str) -> Iterator[str]:
    """What the model that is asked refuses; `last_role` is who spoke last."""
    claude = _CLAUDES.get(str(body.get("model")))
    if claude is None:
        return
    kind = (body.get("thinking") or {}).get("type")
    effort = (body.get("output_config") or {}).get("effort")
    if kind is not None and kind not in claude.thinks | claude.off:
        yield _refusal(claude, kind)
    if effort is not None and effort not in claude.efforts:
        yield _refused_effort(claude, effort)
    if claude.late and kind in claude.off and effort in {"xhigh", "max"}:
        yield (
            f"output_config.effort '{effort}' is not supported when thinking is disabled on "
            "this model."
        )
    if last_role == "assistant" and "adaptive" in claude.thinks:
        yield (
            "This model does not support assistant message prefill. The conversation must end "
            "with a user message."
        )


def _refusal(claude: _Claude, kind: Any) -> str:
    if kind == "adaptive":
        return "adaptive thinking is not supported on this model"
    refused = f'"thinking.type.{kind}" is not supported for this model.'
    if kind == "between_tools":
        return refused
    least = ""
    if "between_tools" in claude.off:
        least = ' "thinking.type.between_tools" for the lowest thinking setting, or'
    return (
        f'{refused} Use{least} "thinking.type.adaptive" and "output_config.effort" to control '
        "thinking behavior."
    )


def _refused_effort(claude: _Claude, effort: Any) -> str:
    if not claude.efforts:
        return "This model does not support the effort parameter."
    return (
        f"This model does not support effort level '{effort}'. Supported levels: "
        f"{', '.join(claude.efforts)}."
    )
