"""What a path means, before anything is opened: a pure step from text to names.

A path is taken relative to the workspace; an absolute one is accepted where it begins with
the workspace's own. Whether its names are links is for `strandline.tools.workspace` to see.
Source: spec 4, A turn (Tools).
"""

from __future__ import annotations

from collections.abc import Sequence

from strandline.context.blocks import well_formed
from strandline.errors import StrandlineError

MAX_NAME_BYTES = 255
MAX_PATH_BYTES = 4096
MAX_SHOWN_CHARS = 200

Names = tuple[str, ...]
"""The names of a path, from the workspace down; () is the workspace itself."""

_RELATIVE = "give a path inside the workspace, relative to it, such as notes/plan.md"


def names_of(path: str, roots: Sequence[Names]) -> Names:
    """The names of a path that a model gave; `roots` are the workspace's own absolute paths.

    Raises `StrandlineError` for what leaves the workspace or cannot be a path.

    >>> names_of("./notes//plan.md", []), names_of("/srv/den/a", [("srv", "den")])
    (('notes', 'plan.md'), ('a',))
    """
    _check_characters(path)
    names = _split(path)
    if ".." in names:
        raise refused(path, "has .. in it", _RELATIVE)
    if names[:1] == ("~",):
        raise refused(path, "begins with ~, which is not expanded", _RELATIVE)
    if path.startswith("/"):
        names = _below(names, roots, path)
    if any(len(name.encode()) > MAX_NAME_BYTES for name in names):
        raise refused(path, f"has a name of more than {MAX_NAME_BYTES} bytes", "shorten it")
    return names


def steps_of_link(target: str, roots: Sequence[Names], path: str) -> tuple[bool, Names]:
    """Whether a link starts again from the workspace, and its steps, ``..`` among them.

    Raises `StrandlineError` for an absolute target elsewhere; `path` is what was asked for.
    """
    names = _split(target)
    if target.startswith("/"):
        return True, _below(names, roots, path)
    return False, names


def leaving(path: str) -> StrandlineError:
    """The error for a path that leads out."""
    return refused(path, "leads out of the workspace", _RELATIVE)


def refused(path: str, why: str, remedy: str) -> StrandlineError:
    """The error that says what is wrong with `path`, and what to do."""
    return StrandlineError(f"the path {shown(path)} {why}", remedy=remedy)


def shown(path: str) -> str:
    r"""A path as one bounded line that can be sent.

    >>> shown("a\nb"), shown("x" * 300) == "'" + "x" * 200 + "…'"
    ("'a\\nb'", True)
    """
    cut = path if len(path) <= MAX_SHOWN_CHARS else f"{path[:MAX_SHOWN_CHARS]}…"
    return repr(well_formed(cut))


def joined(names: Sequence[str]) -> str:
    r"""The path of these names as a line of text, whatever bytes a file system has in them.

    >>> joined(("a", "b\n\udcff")), joined(())
    ('a/b\ufffd\ufffd', '.')
    """
    text = well_formed("/".join(names)) or "."
    return "".join(char if char.isprintable() else "\ufffd" for char in text)


def _check_characters(path: str) -> None:
    if not path or well_formed(path) != path or any(c < " " or c == "\x7f" for c in path):
        why = "has characters that no name here may have" if path else "is empty"
        raise refused(path, why, "give a path without NUL, line ends and broken characters")
    if len(path.encode()) > MAX_PATH_BYTES:
        raise refused(path, f"has more than {MAX_PATH_BYTES} bytes", "shorten it")


def _split(path: str) -> Names:
    return tuple(name for name in path.split("/") if name not in {"", "."})


def _below(names: Names, roots: Sequence[Names], path: str) -> Names:
    for root in roots:
        if names[: len(root)] == root:
            return names[len(root) :]
    raise leaving(path)
