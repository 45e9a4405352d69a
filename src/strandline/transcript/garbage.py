"""Holding the cycle collector off while very many objects are made, all of which stay.

Python looks for garbage again and again while objects are made; where none of them is
garbage, as when a long transcript is read, that is close to half of the time.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_off() -> Iterator[None]:
    """Switch the collector off; on again for the rest of the program if it was on."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
