"""What a transcript keeps of a Responses answer, so that its items can be sent again.

A thinking block's signature is the whole reasoning item as JSON; a text block's is JSON with
the id (and phase) of the message item; a call's id is ``call_id|item_id``. Other programs
that keep the same transcripts write the same. Pure. Source: spec 4, Models; spec 1, File.
"""

from __future__ import annotations

import json
import re

from strandline.models.content import compact
from strandline.models.draft import object_in, string_in
from strandline.models.surrogates import whole_text
from strandline.models.tool_call_ids import RESPONSES_IDS, ToolCallIds
from strandline.transcript.messages import JsonObject

_SEPARATOR = "|"
_PHASES = frozenset({"commentary", "final_answer"})
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
_NAME_CHARS = 64


def thinking_signature(item: JsonObject) -> str:
    """A reasoning item as it is kept; empty for what JSON cannot say."""
    try:
        return whole_text(compact(item))
    except (ValueError, RecursionError):
        return ""


def reasoning_item(signature: object) -> JsonObject | None:
    """The reasoning item in a signature, if the API can take it back.

    Without its encrypted content it would be looked up by its id, and nothing is stored.
    """
    item = _object(signature)
    usable = item.get("type") == "reasoning" and isinstance(item.get("summary"), list)
    keys = ("id", "encrypted_content")
    return item if usable and all(string_in(item.get(key)) for key in keys) else None


def text_signature(item: JsonObject) -> str:
    """Id and phase of a message item as they are kept; empty where it has none."""
    identity, phase = string_in(item.get("id")), string_in(item.get("phase"))
    if not identity:
        return ""
    return whole_text(compact({"v": 1, "id": identity, **({"phase": phase} if phase else {})}))


def message_item(signature: object) -> tuple[str, JsonObject]:
    """The id, empty where it cannot be sent, and the other keys of a message item.

    >>> message_item('{"v":1,"id":"msg_1","phase":"commentary"}')
    ('msg_1', {'phase': 'commentary'})
    >>> message_item("msg_1")
    ('msg_1', {})
    """
    text = string_in(signature)
    if not text.startswith("{"):
        return _sendable(text), {}
    kept = _object(text)
    phase = kept.get("phase")
    more = {"phase": phase} if isinstance(phase, str) and phase in _PHASES else {}
    return _sendable(string_in(kept.get("id"))), more


def stored_call_id(call_id: str, item_id: str) -> str:
    """The id of a call in the transcript, of whichever of its two ids there are."""
    return _SEPARATOR.join(filter(None, (call_id, item_id)))


def call_item_id(stored_id: str) -> str:
    """The item's own id in the id of a call; empty where there is none that can be sent."""
    return _sendable(stored_id.partition(_SEPARATOR)[2])


def without_call_item_id(stored_id: str) -> str:
    """The id of a call without the item's own.

    >>> without_call_item_id("call_1|fc_1")
    'call_1'
    """
    return stored_id.partition(_SEPARATOR)[0]


def function_name(name: str) -> str:
    """The name of a tool as the API takes it, for calls that other models made."""
    return _NOT_IN_NAMES.sub("_", name)[:_NAME_CHARS] or "tool"


class CallIds:
    """The `call_id` to send for a call's id in the transcript, of any provider.

    It is what stands before the bar, unless another id of this request has the same there:
    different ids stay different (cases/faults, A15).
    """

    def __init__(self) -> None:
        self._ids = ToolCallIds(RESPONSES_IDS)
        self._owners: dict[str, str] = {}

    def of(self, stored_id: str) -> str:
        """The same one for the same one."""
        plain = without_call_item_id(stored_id)
        if self._owners.setdefault(plain, stored_id) == stored_id:
            return self._ids.of(plain)
        # No plain id has a bar, so this one is no other's.
        return self._ids.of(_SEPARATOR + stored_id)


def _object(signature: object) -> JsonObject:
    try:
        return object_in(json.loads(string_in(signature)))
    except (ValueError, RecursionError):
        return {}


def _sendable(identity: str) -> str:
    return identity if RESPONSES_IDS.fullmatch(identity) else ""
