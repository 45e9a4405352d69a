"""Which blocks of a request Anthropic's cache is to keep the beginning up to.

It keeps nothing without a mark, takes four of them, and reads a prompt in the order tools,
system prompt, messages. A mark is no part of what is kept: a body without its marks is the
same whatever is marked. All marks of a request ask for the same lifetime, because longer ones
may not stand behind shorter ones. Source: spec 3, Caches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from strandline.runtime.model import CacheMarks, CacheRetention
from strandline.transcript.messages import JsonObject

MAX_MARKS = 4

_CONTROLS: Mapping[CacheRetention, JsonObject] = {
    "short": {"type": "ephemeral"},
    "long": {"type": "ephemeral", "ttl": "1h"},
}


def mark(body: JsonObject, marks: CacheMarks, ends: Sequence[JsonObject | None]) -> None:
    """Put the marks on the blocks of `body`.

    `ends` has, for each message of the request, the last block up to its end that may carry
    a mark. The oldest messages go without where there are too many.
    """
    control = _CONTROLS.get(marks.retention)
    if control is None:
        return
    fixed: list[JsonObject] = []
    if marks.tools:
        fixed += body.get("tools", [])[-1:]
    if marks.system:
        fixed += body.get("system", [])[-1:]
    for block in [*fixed, *_blocks(marks.messages, ends)[len(fixed) - MAX_MARKS :]]:
        block["cache_control"] = control


def _blocks(places: Sequence[int], ends: Sequence[JsonObject | None]) -> list[JsonObject]:
    """The blocks at which the messages of `places` end, each once, in their order."""
    found = [ends[place] for place in places if 0 <= place < len(ends)]
    return list({id(block): block for block in found if block is not None}.values())
