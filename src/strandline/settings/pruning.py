"""The settings of trimming old tool results (spec 3, Pruning in four layers, Tool results)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from strandline.context.policy import CLEARED
from strandline.settings.parts import Count, DurationMs, Name, Names, Part, Ratio


class SoftTrimSettings(Part):
    """Shortening a result to its beginning and end."""

    max_chars: Count = Field(default=4000, description="A longer result is shortened.")
    head_chars: Count = Field(default=1500, description="Characters of its beginning that stay.")
    tail_chars: Count = Field(default=1500, description="Characters of its end that stay.")


class HardClearSettings(Part):
    """Replacing a result."""

    enabled: bool = Field(default=True, description="Whether results are replaced at all.")
    placeholder: Name = Field(default=CLEARED, description="What stands in its place.")


class PrunableTools(Part):
    """Whose results are trimmed; `*` in a name stands for anything, capitals do not matter."""

    allow: Names = Field(default=[], description="Only results of these; empty, of all.")
    deny: Names = Field(default=[], description="Never results of these.")


class ContextPruningSettings(Part):
    """Old tool results are trimmed when the provider's cache is lost anyway."""

    mode: Literal["off", "cache-ttl"] = Field(
        default="off", description="Whether old tool results are trimmed."
    )
    ttl: DurationMs = Field(
        default=300_000, description="How long after a call its cache is taken to live."
    )
    keep_last_assistants: Count = Field(
        default=3, description="From the last so many answers on, nothing is trimmed."
    )
    soft_trim_ratio: Ratio = Field(
        default=0.3, description="The share of the budget above which old results are shortened."
    )
    hard_clear_ratio: Ratio = Field(
        default=0.5, description="The share of the budget above which they are replaced."
    )
    min_prunable_tool_chars: Count = Field(
        default=50_000,
        description="Where old results have fewer characters together, none is replaced.",
    )
    soft_trim: SoftTrimSettings = Field(
        default=SoftTrimSettings(), description="Shortening a result."
    )
    hard_clear: HardClearSettings = Field(
        default=HardClearSettings(), description="Replacing a result."
    )
    tools: PrunableTools = Field(default=PrunableTools(), description="Whose results.")
