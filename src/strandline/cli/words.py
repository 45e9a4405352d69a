"""Text for people: safe to print, cut to fit, times and sizes in words."""

from __future__ import annotations

import re
import unicodedata
from datetime import UTC, datetime, timedelta

_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # colours, movements
    r"|\x1b\][^\x00-\x1f\x7f]*(?:\x07|\x1b\\)"  # titles, links
    r"|\x1b[ -/]*[0-Z\\^-~]"
)
_ODD = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
_PERHAPS_NOT_ONE_COLUMN = re.compile("[^\x00-\u02ff\u2010-\u2027\u2190-\u22ff\u2500-\u25fc]")
_SPACE = re.compile(r"\s+")


def safe(text: str) -> str:
    r"""Text without what a terminal would obey: escape sequences, controls, turned writing.

    Colours, titles and links are taken out; any other such character becomes a symbol.

    >>> safe("\x1b[31mred\x1b[0m\a")
    'red␇'
    """
    if not _ODD.search(text):
        return text
    text = _ESCAPES.sub("", text).replace("\r\n", "\n")
    return _ODD.sub(lambda match: _visible(match[0]), text)


def _visible(character: str) -> str:
    code = ord(character)
    if character in "\r\x0b\x0c\x85\u2028\u2029":
        return "\n"
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else "\ufffd"


def one_line(text: str) -> str:
    """The text on one line, safe to print."""
    return _SPACE.sub(" ", safe(text)).strip()


def width(text: str) -> int:
    """How many columns a terminal gives to the text."""
    if not _PERHAPS_NOT_ONE_COLUMN.search(text):
        return len(text)
    return sum(_columns(character) for character in text)


def _columns(character: str) -> int:
    if unicodedata.combining(character) or character in "\u200b\u200d\ufe0f":
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def cut(text: str, columns: int) -> str:
    """The text, or as much of it as fits with an ellipsis behind it.

    >>> cut("The quick brown fox", 10)
    'The quick…'
    """
    if width(text) <= columns:
        return text
    used = end = 0
    while used + (columns_of_next := _columns(text[end])) < columns:
        used += columns_of_next
        end += 1
    return text[:end].rstrip() + "…"


def padded(text: str, columns: int) -> str:
    """The text, filled up with blanks to so many columns."""
    return text + " " * (columns - width(text))


def amount(count: int, noun: str, plural: str | None = None) -> str:
    """A number and what it counts.

    >>> amount(1, "entry", "entries"), amount(1234, "message")
    ('1 entry', '1,234 messages')
    """
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def size(count: int) -> str:
    """A number of bytes in words.

    >>> size(999), size(12_345), size(4_000_000)
    ('999 B', '12.3 kB', '4.0 MB')
    """
    if count < 1000:
        return f"{count} B"
    value, units = count / 1000, ["kB", "MB", "GB", "TB"]
    while value >= 999.95 and len(units) > 1:
        value, units = value / 1000, units[1:]
    return f"{value:.1f} {units[0]}"


def when(unix_ms: int | None) -> str:
    """A moment in local time to the minute; empty for none.

    >>> len(when(1765051981781))
    16
    """
    if unix_ms is None:
        return ""
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=unix_ms)
        return f"{moment.astimezone():%Y-%m-%d %H:%M}"
    except (OverflowError, ValueError, OSError):
        return ""
