"""What of a request the provider's cache is asked to keep.

Tools and system prompt, the newest message, and the one so many before it: when the newest
change, the beginning up to that one is still found. Source: spec 3, Caches.
"""

from __future__ import annotations

import hashlib

from strandline.context.policy import ProviderCache
from strandline.runtime.model import CacheMarks


def cache_marks(kept: ProviderCache, session_id: str, messages: int) -> CacheMarks | None:
    """The marks of a request with that many messages; None where nothing is to be kept.

    The key is a digest: what a provider gets to see of a session's id tells it nothing.
    """
    if not kept.enabled or kept.retention == "none":
        return None
    newest = messages - 1
    places = sorted({place for place in (newest - kept.message_count, newest) if place >= 0})
    key = hashlib.sha256(f"strandline {session_id}".encode()).hexdigest()[:32]
    return CacheMarks(kept.retention, key, kept.system, kept.system, tuple(places))
