"""The agent's memory: notes that are only ever added, and a search through them.

Notes go into ``memory/YYYY-MM-DD.md``, the day being that of the call (I7), or into
``MEMORY.md``. A note is one write under the file's lock, so that of two writers neither
loses anything (I8); lines that are there already are not written again, and lines and notes
have limits (I9). Source: spec 3, Memory flush.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, tzinfo
from functools import partial

from strandline.clock import Clock
from strandline.context.blocks import well_formed
from strandline.errors import StrandlineError
from strandline.runtime.tools import Tool
from strandline.tools.blocking import blocking_tool
from strandline.tools.changing import append, locked
from strandline.tools.listing import Unseen
from strandline.tools.paths import Names, joined
from strandline.tools.searching import TextFile, around, text_files
from strandline.tools.workspace import Workspace, contents, text_of
from strandline.tools.writing import DAYS, LONG_TERM
from strandline.transcript.messages import JsonObject

MAX_NOTE_CHARS = 8000
MAX_NOTE_LINE_CHARS = 1000
MAX_MEMORY_FILE_BYTES = 2 * 1024 * 1024
MAX_FOUND = 50
MAX_QUERY_CHARS = 1000
MAX_WORDS = 32

_WORD = re.compile(r"\w+")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def memory_write_tool(workspace: Workspace, clock: Clock, timezone: tzinfo | None) -> Tool:
    """`memory_write`; a day is one of `timezone`, of the process where that is None."""
    return blocking_tool(
        "memory_write",
        f"Add a note to memory: to {DAYS}/YYYY-MM-DD.md of today, or to {LONG_TERM} for what "
        "should be known for good. Nothing is ever overwritten; a line that is there already is "
        f"not added again. At most {MAX_NOTE_CHARS:,} characters, {MAX_NOTE_LINE_CHARS:,} a line.",
        {
            "note": {"type": "string", "minLength": 1, "description": "Markdown, lines of text."},
            "long_term": {"type": "boolean", "description": f"Into {LONG_TERM}. Default: false."},
        },
        partial(_memory_write, workspace, clock, timezone),
        needs="rw",
        required=["note"],
    )


def memory_search_tool(workspace: Workspace) -> Tool:
    """`memory_search` in this workspace."""
    return blocking_tool(
        "memory_search",
        f"Search {LONG_TERM} and {DAYS}/ for lines with words of the query, those with the most "
        f"first, newer notes first among equals. At most {MAX_FOUND} lines as path:line: text.",
        {"query": {"type": "string", "minLength": 1, "maxLength": MAX_QUERY_CHARS}},
        partial(_memory_search, workspace),
        needs="ro",
        required=["query"],
    )


def _memory_write(
    workspace: Workspace, clock: Clock, timezone: tzinfo | None, arguments: JsonObject
) -> str:
    lines = note_lines(arguments["note"])
    day = datetime.fromtimestamp(clock.now_ms() / 1000, timezone).date()
    path = LONG_TERM if arguments.get("long_term") else f"{DAYS}/{day.isoformat()}.md"
    with (
        workspace.place(path, make_folders=True) as place,
        locked(place, create=True) as descriptor,
    ):
        old = contents(descriptor, MAX_MEMORY_FILE_BYTES, path)
        fresh = without_known(lines, text_of(old).split("\n"))
        if fresh:
            data = ("\n".join(fresh) + "\n").encode()
            if len(old) + len(data) > MAX_MEMORY_FILE_BYTES:
                raise StrandlineError(
                    f"{path} is full ({MAX_MEMORY_FILE_BYTES:,} bytes)",
                    remedy="ask the person to shorten it",
                )
            append(descriptor, data if old[-1:] in {b"", b"\n"} else b"\n" + data, place)
    return _told(path, lines, fresh)


def note_lines(note: str) -> list[str]:
    """The lines of a note, without spaces at their ends or empty lines around it.

    Raises `StrandlineError` for a note that is empty, too large, or no plain text.
    """
    text = well_formed(note).replace("\r\n", "\n").strip()
    if not text or _CONTROL.search(text):
        why = "has control characters in it" if text else "is empty"
        raise StrandlineError(f"the note {why}", remedy="give lines of plain text")
    lines = [line.rstrip() for line in text.split("\n")]
    longest = max(map(len, lines))
    if len(text) > MAX_NOTE_CHARS or longest > MAX_NOTE_LINE_CHARS:
        raise StrandlineError(
            f"the note has {len(text):,} characters, its longest line {longest:,}; allowed are "
            f"{MAX_NOTE_CHARS:,} and {MAX_NOTE_LINE_CHARS:,}",
            remedy="say it shorter, or in several notes of short lines",
        )
    return lines


def without_known(lines: Sequence[str], known: Sequence[str]) -> list[str]:
    """The lines less those that are known or said before; [] if only empty ones are left."""
    seen = {line.rstrip() for line in known}
    fresh = []
    for line in lines:
        if not line or line not in seen:
            fresh.append(line)
            seen.add(line)
    return fresh if any(fresh) else []


def _told(path: str, lines: Sequence[str], fresh: Sequence[str]) -> str:
    written = sum(1 for line in fresh if line)
    skipped = sum(1 for line in lines if line) - written
    said = f"{path}: {written} {'line' if written == 1 else 'lines'} added"
    if skipped:
        said += f", {skipped} skipped that stood there already or came twice"
    return said


def _memory_search(workspace: Workspace, arguments: JsonObject) -> str:
    words = sorted(set(_WORD.findall(arguments["query"].casefold())))[:MAX_WORDS]
    if not words:
        raise StrandlineError("the query has no words", remedy="give words to look for")
    unseen = Unseen()
    best = heapq.nlargest(MAX_FOUND, _ranked(_memory_files(workspace, unseen), words))
    lines = [line for *_, line in best] or ["[nothing found]"]
    return "\n".join([*lines, *unseen.told()])


def _memory_files(workspace: Workspace, unseen: Unseen) -> Iterator[TextFile]:
    for path in (LONG_TERM, DAYS):
        with workspace.place(path) as place:
            if place.status is not None:
                yield from text_files(place, unseen)


def _ranked(
    files: Iterable[TextFile], words: Sequence[str]
) -> Iterator[tuple[int, bool, Names, int, str]]:
    """The lines with any of the words; the best is the largest: more words, the newer file."""
    for names, text in files:
        for number, line in enumerate(text.split("\n"), 1):
            folded = line.casefold()
            places = [at for word in words if (at := folded.find(word)) >= 0]
            if places:
                shown = f"{joined(names)}:{number}: {around(line, min(places))}"
                yield len(places), names == (LONG_TERM,), names, -number, shown
