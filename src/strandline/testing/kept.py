"""What a scripted server keeps between calls because it was asked to.

OpenAI's Responses keep the threads of conversations, Gemini keeps contents under names. A
request that refers to them is read as if it held them (`Recalled`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from strandline.testing.prompt_cache import Block, NowMs, time_stands_still
from strandline.transcript.messages import JsonObject


class Recalled(NamedTuple):
    """A request's body with all that it refers to; `cached` are the parts that were kept for it
    under a name, and are read from there.
    """

    body: JsonObject
    cached: Sequence[Block] = ()


class CachedContent(NamedTuple):
    """A content of Gemini's under a name; `body` has its system instruction, tools, contents.

    `told` is what the server says of it.
    """

    model: str
    body: JsonObject
    end_ms: int
    told: JsonObject


@dataclass(slots=True)
class Kept:
    """`threads`: the items up to each stored response, by its id; `contents` by their names.

    `least_tokens`: what a cached content has to have at least.
    """

    now_ms: NowMs = time_stands_still
    least_tokens: int = 1024
    threads: dict[str, list[JsonObject]] = field(default_factory=dict)
    contents: dict[str, CachedContent] = field(default_factory=dict)
    made: int = 0

    def forget(self) -> None:
        """Lose everything."""
        self.threads.clear()
        self.contents.clear()
