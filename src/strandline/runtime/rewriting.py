"""Other messages in the place of earlier ones, without changing a line.

The conversation goes back to before the first of them, and everything from there on is said
again, with the new messages. Source: spec 3, Engine slot (`rewrite_transcript_entries`).
"""

from __future__ import annotations

from collections.abc import Sequence

from strandline.context.engine import Rewrite, Rewritten
from strandline.errors import EntryNotFound, InvalidEntry
from strandline.runtime.saying_again import CannotBeSaid, can_be_said, say_again_from
from strandline.transcript.session import Session

MOST_ENTRIES = 10_000
"""As many entries are said again at most."""


def rewrite(session: Session, rewrites: Sequence[Rewrite]) -> Rewritten:
    """Say the entries of `rewrites` otherwise; the caller holds the lane.

    Raises `EntryNotFound` for one that is not on the active branch and `InvalidEntry` where a
    new message is none, or something behind them cannot be said again; nothing was changed then.
    """
    if not rewrites:
        return Rewritten()
    path = session.path()
    places = {entry_id: place for place, entry_id in enumerate(path)}
    missing = [each.entry_id for each in rewrites if each.entry_id not in places]
    if missing:
        raise EntryNotFound(
            f"no entry {missing[0]!r} on the active branch", remedy="rewrite entries of the path"
        )
    for each in rewrites:
        if not can_be_said(each.message):
            raise InvalidEntry(
                f"what was to stand in the place of {each.entry_id} is no message",
                remedy="give a message with a role that is not a summary's",
            )
    first = min(places[each.entry_id] for each in rewrites)
    if len(path) - first > MOST_ENTRIES:
        raise InvalidEntry(
            f"{len(path) - first:,} entries would have to be said again",
            remedy=f"rewrite entries among the newest {MOST_ENTRIES:,}",
        )
    entries = [session.entry(entry_id) for entry_id in path[first:]]
    otherwise = {each.entry_id: each.message for each in rewrites}
    try:
        new_ids = say_again_from(session, path[first - 1] if first else None, entries, otherwise)
    except CannotBeSaid as refusal:
        raise InvalidEntry(
            f"an entry of type {refusal.kind} would have to be said again",
            remedy="rewrite messages behind it",
        ) from None
    return Rewritten(new_ids)
