"""Tool call ids that a provider accepts, one for each id of the transcript.

Providers differ in what an id may be, and a conversation may go on with another one. Both
sides of a pair are mapped alike, the transcript stays as it is. (cases/faults, A15.)
"""

from __future__ import annotations

import hashlib
import re

ANTHROPIC_IDS = re.compile(r"[A-Za-z0-9_-]{1,64}")
OPENAI_IDS = re.compile(r"[A-Za-z0-9_-]{1,40}")
RESPONSES_IDS = re.compile(r"[A-Za-z0-9_-]{1,64}")
MISTRAL_IDS = re.compile(r"[A-Za-z0-9]{9}")

_DIGEST_CHARS = {MISTRAL_IDS: 9}


class ToolCallIds:
    """The ids of one request. `accepted` is what the provider takes, whole.

    An id that fits stays; another becomes a digest of itself. Where two would meet, the later
    one moves on, so that the ids of a beginning never depend on what comes after it.
    """

    def __init__(self, accepted: re.Pattern[str]) -> None:
        self._accepted = accepted
        self._chars = _DIGEST_CHARS.get(accepted, 32)
        self._sent: dict[str, str] = {}
        self._taken: set[str] = set()

    def of(self, identity: str) -> str:
        """The id to send for an id of the transcript; the same one for the same one."""
        if identity in self._sent:
            return self._sent[identity]
        sent, tries = identity, 0
        while sent in self._taken or not self._accepted.fullmatch(sent):
            tries += 1
            digest = hashlib.sha256(f"{tries}:{identity}".encode("utf-8", "surrogatepass"))
            sent = digest.hexdigest()[: self._chars]
        self._taken.add(sent)
        self._sent[identity] = sent
        return sent
