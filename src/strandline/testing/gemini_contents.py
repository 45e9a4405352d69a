"""Gemini's cached contents: made by one request, listed, and named by others.

The times in it are those of the server's clock. Source: cases/faults, K10.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from urllib.parse import parse_qs, urlsplit

from strandline.testing.kept import CachedContent, Kept, Recalled
from strandline.testing.prompt_cache import Block
from strandline.testing.wire import Problem, dicts, prompt_of, unmarked
from strandline.transcript.messages import JsonObject

PATH = re.compile(r"/v1(?:beta)?/cachedContents(?:\?|$)")

_OWN_KEYS = ("systemInstruction", "tools", "toolConfig")
_DEFAULT_TTL_S = 3600.0
_DEFAULT_PAGE = 50
_LONGEST_PAGE = 1000


def create(body: JsonObject, kept: Kept, count: Callable[[str], int]) -> JsonObject | Problem:
    """What the server answers to a request to keep `body`."""
    model = str(body.get("model") or "").removeprefix("models/")
    content = {key: body[key] for key in (*_OWN_KEYS, "contents") if body.get(key)}
    if not model:
        return Problem(message="* CreateCachedContentRequest.model: model is not specified\n")
    tokens = count(prompt_of(blocks(content)))
    if tokens < kept.least_tokens:
        return Problem(
            message=f"Cached content is too small. total_token_count={tokens}, "
            f"min_total_token_count={kept.least_tokens}"
        )
    now_ms = kept.now_ms()
    end_ms = now_ms + round(_seconds(body.get("ttl")) * 1000)
    kept.made += 1
    name = f"cachedContents/{kept.made:012d}"
    told: JsonObject = {
        "name": name,
        "model": f"models/{model}",
        "createTime": _time(now_ms),
        "updateTime": _time(now_ms),
        "expireTime": _time(end_ms),
        "displayName": str(body.get("displayName") or ""),
        "usageMetadata": {"totalTokenCount": tokens},
    }
    kept.contents[name] = CachedContent(model, content, end_ms, told)
    return told


def page(path: str, kept: Kept) -> JsonObject:
    """What it says of its contents, ended ones too, as many as a page of the list has."""
    query = {name: values[0] for name, values in parse_qs(urlsplit(path).query).items()}
    size = min(_number(query.get("pageSize")) or _DEFAULT_PAGE, _LONGEST_PAGE)
    start = _number(query.get("pageToken"))
    told = [content.told for content in kept.contents.values()]
    more = {"nextPageToken": str(start + size)} if len(told) > start + size else {}
    listed = told[start : start + size]
    return {**({"cachedContents": listed} if listed else {}), **more}


def recalled(model: str, body: JsonObject, kept: Kept) -> Recalled | Problem:
    """A request for an answer, with the content that it names."""
    name = body.get("cachedContent")
    if not name:
        return Recalled(body)
    content = kept.contents.get(str(name))
    if content is None or content.end_ms <= kept.now_ms():
        return Problem(403, "CachedContent not found (or permission denied)")
    if any(body.get(key) for key in _OWN_KEYS):
        return Problem(
            message="CachedContent can not be used with GenerateContent request setting "
            "system_instruction, tools or tool_config.\n\nProposed fix: move those values to "
            "CachedContent from GenerateContent request."
        )
    if content.model != model:
        return Problem(
            message=f"Model used by GenerateContent request (models/{model}) and CachedContent "
            f"(models/{content.model}) has to be the same."
        )
    contents = [*dicts(content.body, "contents"), *dicts(body, "contents")]
    return Recalled({**body, **content.body, "contents": contents}, blocks(content.body))


def blocks(body: JsonObject) -> list[Block]:
    """What a model reads: tools, the system instruction, contents."""
    system = body.get("systemInstruction")
    parts = [*dicts(body, "tools"), *([system] if system else []), *dicts(body, "contents")]
    return [unmarked(part) for part in parts]


def _number(text: str | None) -> int:
    return int(text) if text and text.isdecimal() else 0


def _seconds(duration: object) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)s", str(duration))
    return float(found[1]) if found else _DEFAULT_TTL_S


def _time(unix_ms: int) -> str:
    return datetime.fromtimestamp(unix_ms / 1000, UTC).isoformat().replace("+00:00", "Z")
