"""The tool `search`: lines that hold a text, in the files of the workspace.

The text is literal. A regular expression can take exponential time while nothing else of
the process runs, so there are none; several texts, one a line, do for most of their uses.
"""

from __future__ import annotations

import fnmatch
import os
import stat
import time
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice

from strandline.errors import StrandlineError
from strandline.runtime.tools import Tool
from strandline.tools.blocking import blocking_tool
from strandline.tools.listing import Found, Unseen, opened, walk
from strandline.tools.paths import Names, joined
from strandline.tools.workspace import Place, Workspace, contents, is_text, open_file, text_of
from strandline.transcript.messages import JsonObject

MAX_FILES = 10_000
MAX_FILE_BYTES = 4 * 1024 * 1024
MAX_SEARCHED_BYTES = 64 * 1024 * 1024
MAX_SEARCH_S = 5.0
MAX_MATCHES = 200
MAX_LINE_CHARS = 300
MAX_QUERY_CHARS = 1000
MAX_TEXTS = 10

TextFile = tuple[Names, str]
"""A file by its names from the workspace, and its text."""


def search_tool(workspace: Workspace) -> Tool:
    """`search` in this workspace."""
    return blocking_tool(
        "search",
        "Search the text files of the workspace for lines that hold a text (not a pattern). "
        f"Shows at most {MAX_MATCHES} lines as path:line: text. Skips .git, node_modules and the "
        "like, unless path is in them.",
        {
            "query": {
                "type": "string",
                "minLength": 1,
                "maxLength": MAX_QUERY_CHARS,
                "description": f"The text; up to {MAX_TEXTS}, one a line, find lines with any.",
            },
            "path": {"type": "string", "description": "A folder or a file; default: all."},
            "files": {
                "type": "string",
                "maxLength": 200,
                "description": "Only files whose name matches, such as *.md.",
            },
            "case_sensitive": {"type": "boolean", "description": "Default: false."},
        },
        partial(_search, workspace),
        needs="ro",
        required=["query"],
    )


def _search(workspace: Workspace, arguments: JsonObject) -> str:
    exact = bool(arguments.get("case_sensitive"))
    wanted = [_fold(line, exact) for line in arguments["query"].splitlines() if line.strip()]
    if not 0 < len(wanted) <= MAX_TEXTS:
        raise StrandlineError(
            f"the query holds {len(wanted)} texts, one a line", remedy=f"give 1 to {MAX_TEXTS}"
        )
    unseen = Unseen()
    with workspace.place(arguments.get("path", ".")) as place:
        files = text_files(place, unseen, arguments.get("files", "*"))
        found = list(islice(_matches(files, wanted, exact), MAX_MATCHES + 1))
    lines = found[:MAX_MATCHES] or ["[nothing found]"]
    if len(found) > MAX_MATCHES:
        lines.append(f"[only the first {MAX_MATCHES} lines; search for more of the text]")
    return "\n".join([*lines, *unseen.told()])


def _fold(text: str, exact: bool) -> str:  # noqa: FBT001 - private, two words at every call
    return text if exact else text.casefold()


def _matches(files: Iterator[TextFile], wanted: Sequence[str], exact: bool) -> Iterator[str]:  # noqa: FBT001 - as above
    for names, text in files:
        folded = _fold(text, exact)
        words = [word for word in wanted if word in folded]
        if not words:
            continue
        lines = zip(text.split("\n"), folded.split("\n"), strict=True)
        for number, (line, alike) in enumerate(lines, 1):
            at = [place for word in words if (place := alike.find(word)) >= 0]
            if at:
                yield f"{joined(names)}:{number}: {around(line, min(at))}"


def around(line: str, at: int) -> str:
    """At most `MAX_LINE_CHARS` of a line (and marks of a cut), with what stands at `at`."""
    line = line.rstrip()
    start = max(0, min(at - MAX_LINE_CHARS // 3, len(line) - MAX_LINE_CHARS))
    end = start + MAX_LINE_CHARS
    return f"{'…' if start else ''}{line[start:end]}{'…' if end < len(line) else ''}"


def text_files(place: Place, unseen: Unseen, pattern: str = "*") -> Iterator[TextFile]:
    """The text files at and below a place, by name, until a limit is reached; that is told."""
    deadline_s, files, read_bytes = time.monotonic() + MAX_SEARCH_S, 0, 0
    for found in _files(place, unseen):
        if not fnmatch.fnmatchcase(found.name, pattern):
            continue
        files += 1
        read_bytes += min(found.status.st_size, MAX_FILE_BYTES)
        if files > MAX_FILES or read_bytes > MAX_SEARCHED_BYTES or time.monotonic() > deadline_s:
            unseen.add("all files from some file on (too many: give a path or files)")
            return
        text = _text(found, unseen)
        if text is not None:
            yield found.names, text


def _files(place: Place, unseen: Unseen) -> Iterator[Found]:
    if place.status is not None and not place.is_folder:
        yield Found(place.names, place.name, place.folder, place.status)
        return
    with opened(place) as folder:
        for found in walk(folder, place.names, unseen):
            if stat.S_ISREG(found.status.st_mode):
                yield found


def _text(found: Found, unseen: Unseen) -> str | None:
    if found.status.st_size > MAX_FILE_BYTES:
        unseen.add(f"files of more than {MAX_FILE_BYTES:,} bytes")
        return None
    path = joined(found.names)
    try:
        descriptor = open_file(Place(path, found.folder, found.name, found.names, found.status))
        try:
            data = contents(descriptor, MAX_FILE_BYTES, path)
        finally:
            os.close(descriptor)
    except (OSError, StrandlineError):
        unseen.add("files that cannot be read")
        return None
    if not is_text(data):
        unseen.add("binary files")
        return None
    return text_of(data)
