"""What every part of the settings is made of: its strictness and the types of its values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from strandline.errors import ConfigError
from strandline.settings.units import DURATION_WORDS, duration_ms


def _duration(value: object) -> int:
    try:
        return duration_ms(value, "")
    except ConfigError:
        raise ValueError(f"expected {DURATION_WORDS}") from None


@dataclass(frozen=True, slots=True)
class Words:
    """What the listing calls a type that is more than its Python type."""

    text: str


DurationMs = Annotated[int, BeforeValidator(_duration), Words("duration")]
"""Milliseconds, written as text or as a number."""

ModelRef = Annotated[str, Field(pattern=r"^[^/\s]+/\S+$"), Words("provider/model")]
Count = Annotated[int, Field(ge=0, le=1_000_000_000)]
"""A number of messages, tokens or characters; what is above the limit is a slip."""

Tokens = Count
Ratio = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Price = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Name = Annotated[str, Field(min_length=1)]

MOST_ITEMS = 100
Names = Annotated[list[Name], Field(max_length=MOST_ITEMS)]


class Part(BaseModel):
    """Strict: no text is taken for a number, no key is ignored, nothing is changed later."""

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        alias_generator=to_camel,
        hide_input_in_errors=True,
        protected_namespaces=(),
    )
