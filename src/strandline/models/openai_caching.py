"""What OpenAI is told of its prompt cache, in both of its APIs (source: spec 3, Caches).

It keeps beginnings by itself. A key brings the requests of a session to the machine that has
theirs; the retention asks for a day instead of minutes, where a model has the choice: those
from GPT-5.6 on keep everything for half an hour at least, and refuse the question.
"""

from __future__ import annotations

import hashlib
import re

from strandline.runtime.model import ModelRequest
from strandline.transcript.messages import JsonObject

MAX_KEY_CHARS = 64

# OpenAI's list of the models with extended retention; their small siblings refuse it.
_KEPT_FOR_A_DAY = re.compile(
    r"(?:gpt-4\.1|gpt-5(?:\.[1-5])?(?:-codex(?:-max)?|-chat-latest|-pro)?)(?:-\d{4}-\d\d-\d\d)?"
)
_OPENAI_HOSTS = (".api.openai.com", ".openai.azure.com")


def is_openai(host: str) -> bool:
    """Whether OpenAI itself is at `host`, or Microsoft with its models.

    >>> is_openai("api.openai.com"), is_openai("eu.api.openai.com"), is_openai("openai.com.example")
    (True, True, False)
    """
    return f".{host}".endswith(_OPENAI_HOSTS)


def cache_fields(request: ModelRequest) -> JsonObject:
    """The keys of a body; none where nothing is to be kept. Other servers may refuse them.

    >>> from strandline.runtime.model import CacheMarks, ModelInfo
    >>> info = ModelInfo("openai", "gpt-5.1", "openai-responses", 1, 1)
    >>> cache_fields(ModelRequest(info, "", [], 1, cache=CacheMarks("long", "k")))
    {'prompt_cache_key': 'k', 'prompt_cache_retention': '24h'}
    """
    marks = request.cache
    if marks is None or marks.retention == "none":
        return {}
    fields = {"prompt_cache_key": _sendable(marks.key)} if marks.key else {}
    if marks.retention == "long" and _KEPT_FOR_A_DAY.fullmatch(request.model.id):
        fields["prompt_cache_retention"] = "24h"
    return fields


def _sendable(key: str) -> str:
    """The key, or a digest of one that is too long."""
    if len(key) <= MAX_KEY_CHARS:
        return key
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
