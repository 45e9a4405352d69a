"""Text that every provider accepts: no half of a character.

Some writers cut text by UTF-16 units and so through the middle of an emoji. What is left is
a lone surrogate, which cannot be sent as UTF-8 and which providers refuse, for ever. Two
halves that meet again are one character; a half alone becomes U+FFFD. (cases/faults, C5.)
"""

from __future__ import annotations


def whole_text(text: str) -> str:
    r"""`text` without lone surrogates.

    >>> whole_text("ok"), whole_text("\ud83d\ude00"), whole_text("cut\ud83d")
    ('ok', '😀', 'cut�')
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        # "-le": without it, the codec would take a leading U+FEFF for a byte order mark.
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


class TextPieces:
    """Joins pieces that may be cut inside a character.

    A first half at the end of a piece is held back until the next piece.
    """

    def __init__(self) -> None:
        self._held = ""

    def add(self, piece: str) -> str:
        """What is certain now: the piece, with the half that was held, less a new one."""
        text = self._held + piece
        self._held = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
        return whole_text(text[: len(text) - len(self._held)])

    def end(self) -> str:
        """What was held back, as U+FFFD: its other half never came."""
        held, self._held = self._held, ""
        return whole_text(held)
