"""A transcript that an engine's compaction rotated: the conversation goes on in another one.

Source: spec 3, Engine slot (`CompactResult`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from strandline.context.engine import CompactionOutcome

Rotate = Callable[[CompactionOutcome], Awaitable[None]]
"""Makes the successor that an outcome names the session's transcript.

Raises `CannotFollow`, and `SessionBusy` where another one writes to it.
"""


class CannotFollow(Exception):
    """A transcript that an engine moved a conversation to is none that it can go on in."""


async def cannot_rotate(outcome: CompactionOutcome) -> None:
    """For a session that no conversation stands on."""
    del outcome
    raise CannotFollow("that can only be done in a conversation")
